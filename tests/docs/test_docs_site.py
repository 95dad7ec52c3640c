"""The site builds without warnings or network, shows every card, and its tutorials run."""

from __future__ import annotations

import logging
import os
import re
import runpy
import shlex
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from forked import start_script, start_unseen

import unseen
from unseen import METHODS, TASKS, cli
from unseen.report.published import read_published
from unseen.report.tables import percent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TUTORIALS = ("your_own_model.md", "training.md", "new_method.md", "new_task.md")


class Page(HTMLParser):
    """Collect the links, loaded files and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids |= {attributes[name] for name in ("id", "name") if attributes.get(name)}
        src, href = attributes.get("src"), attributes.get("href")
        if tag == "a" and href:
            self.links.append(href)
        elif src or (tag == "link" and href and attributes.get("rel") != "canonical"):
            self.loaded.append(src or href)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site, fail on a warning, and return its pages by name."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    os.environ.setdefault("NO_MKDOCS_2_WARNING", "1")
    folder = tmp_path_factory.mktemp("site")
    warnings: list[str] = []
    listener = logging.Handler(logging.WARNING)
    listener.emit = lambda record: warnings.append(record.getMessage())
    logging.getLogger("mkdocs").addHandler(listener)
    try:
        build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=False))
    finally:
        logging.getLogger("mkdocs").removeHandler(listener)
    assert not warnings, "\n".join(warnings)
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.html")} | {
        "": str(folder)
    }


def test_card_shows_its_results_or_states_that_there_are_none(site):
    lines = read_published(ROOT / "results")
    for kind, names in (("method", METHODS), ("task", TASKS)):
        for name in names:
            text = site[f"{kind}s/{name}.html"].partition('id="results"')[2]
            own = [line for line in lines if getattr(line, kind) == name]
            assert all(line.cell() in text for line in own), f"{kind} {name}"
            assert (f"No published results for this {kind} yet" in text) is not bool(own), (
                f"{kind} {name}"
            )


def test_every_page_is_in_the_menu(site):
    menu = site["index.html"]
    for path in DOCS.rglob("*.md"):
        assert f'href="{path.relative_to(DOCS).with_suffix(".html")}"' in menu, path


def test_every_internal_link_resolves(site):
    folder = Path(site[""])
    pages = {name: Page(text) for name, text in site.items() if name and name != "404.html"}
    for name, page in pages.items():
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (
                (folder / name).parent.joinpath(unquote(parts.path)).resolve()
                if parts.path
                else folder / name
            )
            if target.is_dir():
                target = target / "index.html"
            assert target.exists(), f"{name} links to {link}"
            if (
                parts.fragment
                and target.suffix == ".html"
                and not parts.fragment.startswith(("only-", "__"))
            ):
                assert unquote(parts.fragment) in pages[str(target.relative_to(folder))].ids, (
                    f"{name} links to {link}"
                )


def test_no_page_loads_anything_from_the_network(site):
    for name, text in site.items():
        if name:
            outside = [address for address in Page(text).loaded if urlsplit(address).netloc]
            assert not outside, f"{name} loads {outside}"
    for sheet in Path(site[""]).rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_figures_are_reproducible_in_both_themes(site):
    drawn = Path(site[""]) / "figures"
    assert {path.name for path in drawn.glob("*.svg")} >= {
        f"{n}-{t}.svg" for n in ("step", "noise", "alarm") for t in ("light", "dark")
    }
    draw = runpy.run_path(str(DOCS / "figures/draw.py"))
    for name in ("noise", "mixup"):
        assert (
            draw["svg"](draw["FIGURES"][name], "dark") == (drawn / f"{name}-dark.svg").read_bytes()
        )


def test_reference_lists_every_command_and_public_name(site):
    page = site["reference/cli.html"]
    for words in (["train"], ["evaluate"], ["doctor"], ["bench"], ["data", "fetch"]):
        assert f'id="unseen-{"-".join(words)}"' in page
    assert "--tensorboard" in page and "else uncertainty_guided" in page
    python = site["reference/python.html"]
    assert "held_out" in python
    for name in set(unseen.__all__) - {"METHODS", "TASKS"}:
        assert re.search(rf'id="unseen\.([\w.]+\.)?{name}"', python), (
            f"docs/reference/python.md does not show unseen.{name}"
        )


def test_limits_page_quotes_the_results(site):
    figures = {
        (line.grid, line.name, name): percent(value[0])
        for line in read_published(ROOT / "results")
        for name, value in line.values.items()
    }
    quoted = re.findall(
        r"([\d.]+)<!-- ([^:>]+): ([^:>]+): ([^:>]+) -->", (DOCS / "limits.md").read_text()
    )
    assert len(quoted) > 5
    for value, *key in quoted:
        assert figures[tuple(key)] == value, key


def blocks_of(page: Path) -> list[tuple[str, str, str]]:
    """Return language, title and text of the page's fenced blocks."""
    return re.findall(
        r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', page.read_text(), re.DOTALL | re.MULTILINE
    )


def run_command(line: str, cwd: Path) -> str:
    """Return what a command of a tutorial prints."""
    program, *words = shlex.split(line, comments=True)
    assert program in ("unseen", "python"), f"tutorials run unseen and python, not {line!r}"
    if program == "unseen":
        fork = start_unseen(*words, folder=cwd, path=cwd)
    else:
        fork = start_script(cwd / words[0], *words[1:], folder=cwd)
    finished = fork.wait(900)
    text = finished.stdout + finished.stderr
    assert finished.returncode == 0, text
    return text


@pytest.mark.parametrize("name", TUTORIALS)
def test_tutorial_runs_as_written(name, tmp_path):
    output, files = "", []
    for language, title, text in blocks_of(DOCS / name):
        if title:
            files += [title] if title not in files else []
            with (tmp_path / title).open("a") as file:
                file.write(text + "\n\n")
        elif language == "sh":
            for line in filter(str.strip, text.splitlines()):
                output += run_command(line, tmp_path)
    if name == "your_own_model.md":
        output += run_command(f"python {files[0]}", tmp_path)
        assert (
            re.search(r"source: .*\d\n", output)
            and "new microphone: " in output
            and "ALARM" in output
        )
    if name == "training.md":
        assert re.search(r"\d+ losses; after the warm-up", output)
    if name == "new_method.md":
        assert "label_smoothing" in output and "average over the unseen domains: 0." in output
    if name == "new_task.md":
        assert (
            "negative" in output
            and "average, unseen" in output
            and "erm, wide" in (tmp_path / "results/stripes/table.md").read_text()
        )


def test_code_of_the_deploying_page_runs(tmp_path):
    for _, title, text in blocks_of(DOCS / "deploying.md"):
        if title:
            with (tmp_path / title).open("a") as file:
                file.write(text + "\n\n")
    output = run_command("python deploy.py", tmp_path)
    assert "Looks like the source" in output and "('cat', 'dog', 'bird')" in output


def test_every_shown_command_parses():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    shown = [
        (page, line.strip())
        for page in pages
        for language, _, text in blocks_of(page)
        if language in ("sh", "console")
        for line in text.replace("\\\n", " ").splitlines()
        if line.strip().startswith("unseen ")
    ]
    assert len(shown) > 15
    for page, line in shown:
        line = re.sub(r"\[[^\]]*\]", "", line)  # [RUN ...] is optional
        words = shlex.split(line, comments=True)[1:]
        try:
            cli.app.parse_args(words, exit_on_error=False, print_error=False)
        except Exception as error:
            pytest.fail(f"{page.name}: {line}\n{error}")


def test_architecture_page_names_existing_files():
    text = (DOCS / "architecture.md").read_text()
    paths = [path for path in re.findall(r"`([\w/]+\.py)`", text) if "NAME" not in path]
    assert len(paths) > 15
    for path in paths:
        places = (ROOT / "src/unseen" / path, ROOT / path)
        assert any(place.exists() for place in places), f"docs/architecture.md names {path}"

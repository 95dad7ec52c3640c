"""MkDocs hooks: generate figures, tables of results, and the command reference at build time.

MkDocs calls the functions named on_...; nothing is written into docs/.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "results"
THEMES = ("light", "dark")
CAPTION = (
    "Last checkpoint, mean ± standard deviation over seeds, trained on the source only. "
    "Read from `results/` when this page was built. See also [limits](../limits.md)."
)
OURS = "uncertainty_guided"  # the only method with groups of settings
COLUMNS = ("mini_digits", "digits")  # tasks with a column in the list of methods


def on_config(config: Any) -> Any:
    """Replace a menu entry that names a folder with its pages, the index first."""
    config["nav"] = [_expand(entry) for entry in config["nav"]]
    return config


def _expand(entry: Any) -> Any:
    if isinstance(entry, dict):
        ((title, content),) = entry.items()
        if isinstance(content, list):
            return {title: [page for part in content for page in _pages(part)]}
        return {title: _pages(content) if content.endswith("/") else content}
    return entry


def _pages(entry: Any) -> list[Any]:
    if not isinstance(entry, str) or not entry.endswith("/"):
        return [entry]
    names = sorted(path.name for path in (DOCS / entry).glob("*.md"))
    return [entry + name for name in sorted(names, key=lambda name: name != "index.md")]


def on_files(files: Files, config: Any) -> Files:
    """Draw the figures, once for each theme."""
    spec = importlib.util.spec_from_file_location("draw", DOCS / "figures/draw.py")
    assert spec is not None and spec.loader is not None
    draw = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(draw)
    for name, figure in draw.FIGURES.items():
        for theme in THEMES:
            files.append(
                File.generated(
                    config, f"figures/{name}-{theme}.svg", content=draw.svg(figure, theme)
                )
            )
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Insert what is generated from the code and from results/."""
    path = page.file.src_uri
    folder, _, name = path.removesuffix(".md").rpartition("/")
    if folder in ("methods", "tasks") and name != "index":
        markdown += f"\n\n## Results\n\n{_numbers(folder, name)}\n\n{CAPTION}\n"
    for marker, make in GENERATED.items():
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    markdown = re.sub(
        r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)",
        lambda match: _repository_link(match, page),
        markdown,
    )
    return re.sub(r"!\[([^\]]*)\]\(((?:\.\./)*figures/[a-z_]+)\.svg\)", _for_both_themes, markdown)


def _repository_link(match: re.Match[str], page: Any) -> str:
    """Replace a link to a file outside docs/ with the file's path: the site does not contain it."""
    text, link = match[1], match[2]
    target = (DOCS / page.file.src_uri).parent.joinpath(link).resolve()
    if target.is_relative_to(DOCS) or not target.exists() or not target.is_relative_to(DOCS.parent):
        return match[0]
    path = str(target.relative_to(DOCS.parent))
    return text if target.name in text else f"{text} (`{path}`)"


def _for_both_themes(match: re.Match[str]) -> str:
    return "\n".join(f"![{match[1]}]({match[2]}-{theme}.svg#only-{theme})" for theme in THEMES)


@cache
def _lines() -> list[Any]:
    from unseen.report.published import read_published

    return read_published(RESULTS)


def _numbers(folder: str, name: str) -> str:
    from unseen.report.published import method_table, task_table

    if folder == "tasks":
        return task_table(_lines(), name)
    return method_table(_lines(), name, link=lambda task: f"[{task}](../tasks/{task}.md)")


def _methods() -> str:
    from unseen import METHODS
    from unseen.report.tables import markdown

    def cell(method: str, task: str) -> str:
        key = (method, task, "default")
        own = [x for x in _lines() if (x.method, x.task_title, x.setting) == key]
        best = max(own, key=lambda line: (line.grid == task, len(line.seeds)), default=None)
        return best.cell() if best else "-"

    rows = [
        [f"[{m.name}]({m.name}.md)", m.summary, *(cell(m.name, task) for task in COLUMNS)]
        for m in METHODS.values()
    ]
    return _align_left(markdown(["method", "idea", *(f"{task}, %" for task in COLUMNS)], rows))


def _align_left(table: str) -> str:
    """Align the second column, which holds text, to the left."""
    return table.replace("| --- | ---: |", "| --- | --- |", 1)


def _tasks() -> str:
    from unseen import TASKS
    from unseen.report.tables import markdown

    rows = [
        [f"[{name}]({name}.md)", TASKS[name]().summary, len(TASKS[name]().targets)]
        for name in TASKS
    ]
    return _align_left(markdown(["task", "source and targets", "unseen domains"], rows))


def _commands() -> str:
    """Describe every command, from the signatures and docstrings that --help uses."""
    from unseen.cli import app

    text = app.generate_docs(output_format="markdown", heading_level=1)
    text = text[text.index("\n## unseen ") :]
    return text.replace(" *[default: False]*", "")  # a flag that is not given


def _results() -> str:
    """Return the README's table without links to results/, which the site does not contain."""
    from unseen.report.readme import results_table

    table = re.sub(r"\[([^\]]*)\]\(results/[^)]*\)", r"\1", results_table(_lines()))
    return re.sub(r"\[([^\]]*)\]\(docs/([^)]*)\)", r"[\1](\2)", table)


def _settings() -> str:
    """Explain every setting, from what `unseen methods NAME` shows."""
    from unseen import METHODS
    from unseen.methods.explanations import LOOP, SETTINGS
    from unseen.report.tables import markdown

    def table(entries: Any) -> str:
        rows = [[f"`{name}`", *explanation] for name, explanation in entries]
        return _align_left(markdown(["setting", "meaning", "tried; when to change it"], rows))

    common = set.intersection(*(set(m.settings_of()) for m in METHODS.values()))
    parts = ["## Training loop", table(LOOP.items()), "## Every method"]
    parts.append(table((n, e) for n, e in SETTINGS.items() if n in common))
    for method in METHODS.values():
        own = [n for n in method.settings_of() if n not in common]
        entries = [(n, e) for n, e in SETTINGS.items() if n.partition(".")[0] in own]
        entries = [(n, e) for n, e in entries if "." not in n or method.name == OURS]
        if entries:
            parts += [f"## {method.name}", table(entries)]
    return "\n\n".join(parts)


GENERATED = {
    "<!-- settings -->": _settings,
    "<!-- methods -->": _methods,
    "<!-- tasks -->": _tasks,
    "<!-- commands -->": _commands,
    "<!-- results -->": _results,
}

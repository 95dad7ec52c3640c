"""What the site has beside its pages: cards in the menu, our numbers, figures, tables of methods and tasks, the commands.

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
EXPLAINED = (
    "Last checkpoints, mean ± standard deviation over seeds; training saw the source only. "
    "Read from `results/` when this page was built; [what they do not show](../limits.md)."
)
SHOWN = ("mini_digits", "digits")  # tasks that the list of methods has a column for


def on_config(config: Any) -> Any:
    """A menu entry that names a folder becomes the pages in it, an index first."""
    config["nav"] = [_expanded(entry) for entry in config["nav"]]
    return config


def _expanded(entry: Any) -> Any:
    if isinstance(entry, dict):
        ((title, under),) = entry.items()
        if isinstance(under, list):
            return {title: [page for part in under for page in _pages(part)]}
        return {title: _pages(under) if under.endswith("/") else under}
    return entry


def _pages(entry: Any) -> list[Any]:
    if not isinstance(entry, str) or not entry.endswith("/"):
        return [entry]
    names = sorted(path.name for path in (DOCS / entry).glob("*.md"))
    return [entry + name for name in sorted(names, key=lambda name: name != "index.md")]


def on_files(files: Files, config: Any) -> Files:
    """The figures, drawn now, once for each theme."""
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
    """Fill in what is made from the code and from results/."""
    path = page.file.src_uri
    folder, _, name = path.removesuffix(".md").rpartition("/")
    if folder in ("methods", "tasks") and name != "index":
        markdown += f"\n\n## Our numbers\n\n{_numbers(folder, name)}\n\n{EXPLAINED}\n"
    for marker, make in MADE.items():
        if marker in markdown:
            markdown = markdown.replace(marker, make())
    markdown = re.sub(
        r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)",
        lambda found: _of_the_repository(found, page),
        markdown,
    )
    return re.sub(r"!\[([^\]]*)\]\(((?:\.\./)*figures/[a-z_]+)\.svg\)", _in_both_themes, markdown)


def _of_the_repository(found: re.Match[str], page: Any) -> str:
    """A link to a file beside docs/ holds in the repository; on the site it becomes the file's name."""
    target = (DOCS / page.file.src_uri).parent.joinpath(found[2]).resolve()
    if target.is_relative_to(DOCS) or not target.exists() or not target.is_relative_to(DOCS.parent):
        return found[0]
    name = str(target.relative_to(DOCS.parent))
    return found[1] if target.name in found[1] else f"{found[1]} (`{name}`)"


def _in_both_themes(found: re.Match[str]) -> str:
    return "\n".join(f"![{found[1]}]({found[2]}-{theme}.svg#only-{theme})" for theme in THEMES)


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
        own = [
            line
            for line in _lines()
            if (line.method, line.where, line.setting) == (method, task, "default")
        ]
        best = max(own, key=lambda line: (line.grid == task, len(line.seeds)), default=None)
        return best.cell() if best else "-"

    rows = [
        [f"[{m.name}]({m.name}.md)", m.summary, *(cell(m.name, task) for task in SHOWN)]
        for m in METHODS.values()
    ]
    return _words_left(markdown(["method", "idea", *(f"{task}, %" for task in SHOWN)], rows))


def _words_left(table: str) -> str:
    """The second column holds words: to the left."""
    return table.replace("| --- | ---: |", "| --- | --- |", 1)


def _tasks() -> str:
    from unseen import TASKS
    from unseen.report.tables import markdown

    rows = [
        [f"[{name}]({name}.md)", TASKS[name]().summary, len(TASKS[name]().targets)]
        for name in TASKS
    ]
    return _words_left(markdown(["task", "from where to where", "unseen domains"], rows))


def _commands() -> str:
    """Every command, from the signatures and docstrings that --help reads too."""
    from unseen.cli import app

    text = app.generate_docs(output_format="markdown", heading_level=1)
    return text[text.index("\n## unseen ") :].replace(
        " *[default: False]*", ""
    )  # a flag that is not given


def _results() -> str:
    """The README's table, with links that hold here."""
    from unseen.report.readme import results_table

    table = re.sub(r"\[([^\]]*)\]\(results/[^)]*\)", r"\1", results_table(_lines()))
    return re.sub(r"\[([^\]]*)\]\(docs/([^)]*)\)", r"[\1](\2)", table)


MADE = {
    "<!-- methods -->": _methods,
    "<!-- tasks -->": _tasks,
    "<!-- commands -->": _commands,
    "<!-- results -->": _results,
}

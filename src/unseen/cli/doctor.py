"""The state of the installation, and of the README's table: doctor, results."""

from __future__ import annotations

import sys
from pathlib import Path

from cyclopts import App

from unseen.cli import installation as examination
from unseen.cli.options import Json, emit, say
from unseen.report.readme import update_readme
from unseen.report.tables import show


def attach(app: App) -> None:
    app.command(doctor)
    app.command(results)


def doctor(*, json_: Json = False) -> None:
    """Look at Python, torch, packages, data, disk and this command itself, and say what to do; exit code 1 at a problem."""
    found = examination.examine()
    problems = [f.what for f in found if f.state == "problem"]
    if not emit(
        {"ok": not problems, "problems": problems, "findings": [f._asdict() for f in found]}, json_
    ):
        show("unseen doctor", ["", "", "found"], [[f.what, f.state, f.found] for f in found])
    for finding in found:
        if finding.advice:
            say(f"{finding.state}: {finding.what}: {finding.found}: {finding.advice}")
    say(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problems")
    if problems:
        sys.exit(1)


def results(
    page: Path = Path("README.md"), *, folder: Path = Path("results"), json_: Json = False
) -> None:
    """Write the table of published results into a page, between its two markers.

    Parameters
    ----------
    page
        A Markdown page with the lines `<!-- results -->` and `<!-- /results -->`.
    folder
        Where the grids' summaries are.
    """
    changed, table = update_readme(page, folder)
    if not emit({"page": str(page), "changed": changed, "table": table}, json_):
        print(f"{page}: {'a new table' if changed else 'as it was'}\n{table}")

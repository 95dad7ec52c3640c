"""`unseen doctor`."""

from __future__ import annotations

import sys

from unseen.cli import installation
from unseen.cli.options import Json, emit, say
from unseen.report.tables import show


def doctor(*, json_: Json = False) -> None:
    """Check Python, torch, packages, data, disk space and this command, and suggest fixes.

    Exits with 1 if there is a problem.
    """
    findings = installation.examine()
    problems = [f.what for f in findings if f.state == "problem"]
    result = {
        "ok": not problems,
        "problems": problems,
        "findings": [f._asdict() for f in findings],
    }
    if not emit(result, json_):
        show("unseen doctor", ["", "", "found"], [[f.what, f.state, f.found] for f in findings])
    for finding in findings:
        if finding.advice:
            say(f"{finding.state}: {finding.what}: {finding.found}: {finding.advice}")
    say(f"{len(problems)} problems: {', '.join(problems)}" if problems else "no problems")
    if problems:
        sys.exit(1)

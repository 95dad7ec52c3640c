"""`unseen report`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Json, emit
from unseen.errors import UnseenError
from unseen.report.write import write_report


def report(*runs: Path, out: Path, json_: Json = False) -> None:
    """Write an HTML page with figures and tables of finished runs; needs no data and no model.

    Parameters
    ----------
    runs
        Run folders, or folders that contain some, of any tasks; also results of
        `unseen compare-scores` and `unseen adapt-grid`.
    out
        Folder for report.html, tables.md and tables/.
    """
    if not runs:
        raise UnseenError("no run given: unseen report RUNS [RUNS ...] --out DIR")
    result = write_report(runs, out)
    if not emit(result, json_):
        print(f"{result['page']}: {result['bytes'] / 1e6:.1f} MB; tables are in the same folder")

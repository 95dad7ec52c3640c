"""Write reports and results; the files of one are replaced together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import complete_writes, replace_files
from unseen.report.tables.grid import result_files


def write_report(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the report of all runs and results in the folders; remove tables of an earlier one."""
    # Matplotlib and Jinja take a second to import.
    from unseen.report.page import PAGE, report_files

    if out.exists() and not out.is_dir():
        raise UnseenError(f"{out} is a file; --out must be a folder")
    files = report_files(folders)
    complete_writes(out)
    old = [f"tables/{p.name}" for p in out.glob("tables/*.csv")] if (out / PAGE).exists() else []
    replace_files(out, files, [name for name in old if name not in files], index=PAGE)
    return {"page": str(out / PAGE), "bytes": len(files[PAGE]), "files": list(files)}


def write_results(
    folder: Path, facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Write the results of a grid's runs; return the rows of summary.json."""
    if not runs:
        return []
    rows, files = result_files(facts, runs)
    replace_files(folder, {name: text.encode() for name, text in files.items()})
    return rows

"""Write reports and results; every file is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.report.tables.grid import result_files


def write_report(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the report of all runs and results in the folders; remove tables of an earlier one."""
    # Matplotlib and Jinja take a second to import.
    from unseen.report.page import PAGE, report_files

    if out.exists() and not out.is_dir():
        raise UnseenError(f"{out} is a file; --out must be a folder")
    files = report_files(folders)
    if (out / PAGE).exists():
        for path in (out / "tables").glob("*.csv"):
            if f"tables/{path.name}" not in files:
                path.unlink()
    for name, content in files.items():
        write_atomically(out / name, content)
    return {"page": str(out / PAGE), "bytes": len(files[PAGE]), "files": list(files)}


def write_results(
    folder: Path, facts: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Write the results of a grid's runs; return the rows of summary.json."""
    if not runs:
        return []
    rows, files = result_files(facts, runs)
    for name, text in files.items():
        write_atomically(folder / name, text.encode())
    return rows

"""Reports and results on disk, each file whole or as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.report.tables.grid import result_pages


def write_report(folders: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the report of all runs and results in the folders; tables of an earlier report in `out` make way."""
    from unseen.report.page import (  # a second of imports: only for those who want a report
        PAGE,
        report_files,
    )

    if out.exists() and not out.is_dir():
        raise UnseenError(f"{out} is a file; --out names a folder")
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
    """Write every table of a grid's runs; the rows of summary.json are given back."""
    if not runs:
        return []
    rows, pages = result_pages(facts, runs)
    for name, text in pages.items():
        write_atomically(folder / name, text.encode())
    return rows

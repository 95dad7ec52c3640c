"""`unseen update-readme`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Json, emit
from unseen.report import readme


def update_readme(
    page: Path = Path("README.md"), *, folder: Path = Path("results"), json_: Json = False
) -> None:
    """Write the table of published results into a page, between its markers.

    Parameters
    ----------
    page
        Markdown page with the lines `<!-- results -->` and `<!-- /results -->`.
    folder
        Folder with the results of the grids.
    """
    changed, table = readme.update_readme(page, folder)
    if not emit({"page": str(page), "changed": changed, "table": table}, json_):
        print(f"{page}: {'updated' if changed else 'unchanged'}\n{table}")

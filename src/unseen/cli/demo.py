"""`unseen demo`."""

from __future__ import annotations

from pathlib import Path

from unseen.cli.options import Device, Json, Seed, Settings, emit
from unseen.experiments.demo import run_demo, show_result
from unseen.schema import parse_settings


def demo(
    *,
    out: Path = Path("demo"),
    seed: Seed = 0,
    set_: Settings = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Train ERM and uncertainty_guided on bundled digits, evaluate both, and write a report.

    Parameters
    ----------
    out
        Folder for the runs and the report.
    """
    result = run_demo(out, seed=seed, overrides=parse_settings(set_ or []), device=device)
    if not emit(result, json_):
        show_result(result)

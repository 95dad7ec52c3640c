"""The shape of the code: imports go downwards only, and torch stays out of the reports."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "unseen"
LEVELS = [
    {"errors"},
    {"checks"},
    {"sites", "noise", "machine", "progress", "curves", "models", "data", "report", "synthetic_shifts"},
    {"mixup", "meta", "uncertainty", "embedding_head"},
    {"perturb", "contracts"},
    {"augmentations", "batches", "sampled", "sigma_score"},
    {"methods", "adaptation", "tasks", "settings", "metrics", "scores"},
    {"store", "fit", "evidence"},
    {"run", "accuracy_estimates", "publish"},
    {"exam", "monitor", "accuracy_exam", "adapting", "earlier"},
    {"grid", "doctor", "pictures", "comparison"},
    {"bench"},
    {"few_shot", "demo"},
    {"cli"},
    {"__main__"},
]


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Parts of the package that a file imports at its top level."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "unseen":
            below = node.module.split(".")[1:]
            found |= {below[0]} if below else {alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("unseen.")}
    return found


def test_imports_go_downwards_only():
    level = {part: i for i, parts in enumerate(LEVELS) for part in parts}
    for path in SOURCE.rglob("*.py"):
        part = part_of(path)
        if part == "__init__":
            continue
        assert part in level, f"{part} has no place in LEVELS yet"
        for other in imports_of(path) - {part, "__version__"}:
            assert level[other] < level[part], f"{path.name} imports {other}, which is not below {part}"


def test_methods_and_tasks_know_nothing_of_each_other():
    for path in [*SOURCE.glob("methods/*.py"), *SOURCE.glob("models/*.py")]:
        assert "tasks" not in imports_of(path), path
    for path in SOURCE.glob("tasks/*.py"):
        assert "methods" not in imports_of(path), path


def test_reports_import_no_torch():
    for path in SOURCE.glob("report/*.py"):
        assert "torch" not in path.read_text().replace("nothing of torch", ""), path

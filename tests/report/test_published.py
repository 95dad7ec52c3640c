"""Tables of published results, and the README's table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest

from unseen.errors import UnseenError
from unseen.functional.metrics import ERRORS, Metric
from unseen.report.published import MODEL_METRICS, method_table, read_published, task_table
from unseen.report.readme import END, START, results_table, update_readme

ROOT = Path(__file__).parents[2]


def grid(folder, name, *lines, averages=None):
    """A grid's summary: (task, variant, method, setting, {domain: mean}, seeds)."""
    rows = [
        {"task": task, "variant": variant, "method": method, "setting": setting, "domain": domain,
         "metric": "accuracy", "selection": selection,
         "mean": mean if selection == "last" else 0.99, "std": 0.01, "seeds": list(range(seeds))}
        for task, variant, method, setting, figures, seeds in lines
        for domain, mean in {**figures, "average": sum(figures.values()) / len(figures)}.items()
        for selection in ("last", "oracle")
    ]  # fmt: skip
    (folder / name).mkdir(parents=True)
    (folder / name / "summary.json").write_text(json.dumps(rows))
    (folder / name / "runs.json").write_text(json.dumps({"averages": averages or {}}))


@pytest.fixture
def results(tmp_path):
    both = {"dusk": 0.5, "fog": 0.3}
    grid(tmp_path, "extra", ("roads", "default", "erm", "default", both, 1),
         ("roads", "default", "uncertainty_guided", "default", both, 1))  # fmt: skip
    grid(tmp_path, "roads", ("roads", "default", "erm", "default", both, 3),
         ("roads", "default", "erm", "randconv", {"dusk": 0.7, "fog": 0.7}, 3),
         ("roads", "default", "uncertainty_guided", "default", {"dusk": 0.6, "fog": 0.5}, 3),
         ("roads", "default", "uncertainty_guided", "randconv", {"dusk": 0.6, "fog": 0.6}, 3),
    )  # fmt: skip
    return tmp_path


def test_results_table_uses_the_tasks_own_grid_and_names_the_best_method(results):
    table = results_table(read_published(results)).splitlines()
    assert (
        table[0]
        == "| average over unseen domains, % | erm | uncertainty_guided | gain | best other method "
        "| seeds | from | best recipe |"
    )
    cells = [
        "[roads](docs/tasks/roads.md)",
        "40.0 ± 1.0",
        "55.0 ± 1.0",
        "+15.0",
        "erm, randconv: **70.0 ± 1.0**",
        "3",
    ]
    assert table[2:] == ["| " + " | ".join([*cells, "[roads](results/roads)", "-"]) + " |"]


def test_results_table_has_the_recipe_of_a_task(results):
    grid(results, "lead_roads", ("roads", "default", "erm", "default", {"dusk": 0.8}, 2),
         ("roads", "default", "erm", "best", {"dusk": 0.9}, 2))  # fmt: skip
    (row,) = results_table(read_published(results)).splitlines()[2:]
    assert row.endswith("| [roads](results/roads) | [90.0 ± 1.0](results/lead_roads), 2 seeds |")


def test_results_table_ignores_rows_of_fewer_seeds(tmp_path):
    grid(tmp_path, "roads", *(("roads", "default", m, "default", {"dusk": value}, seeds)
         for m, value, seeds in (("erm", 0.5, 3), ("gud", 0.9, 1), ("pgd", 0.6, 3),
                                 ("uncertainty_guided", 0.7, 3))))  # fmt: skip
    row = results_table(read_published(tmp_path)).splitlines()[2]
    assert "| **70.0 ± 1.0** |" in row and "| pgd: 60.0 ± 1.0 |" in row and "gud" not in row


def test_results_table_has_one_row_for_merged_variants(tmp_path):
    lines = [
        ("books", v, m, "default", {"x": 0.5}, 2)
        for v in ("a", "b", "all")
        for m in ("erm", "uncertainty_guided")
    ]
    grid(tmp_path, "books", *lines)
    rows = results_table(read_published(tmp_path)).splitlines()[2:]
    assert len(rows) == 1 and rows[0].startswith("| [books](docs/tasks/books.md) |")


def test_results_table_skips_grids_without_default_settings_of_our_method(tmp_path):
    grid(tmp_path, "tuning", ("roads", "default", "erm", "default", {"x": 0.5}, 1))
    assert results_table(read_published(tmp_path)) == "No results yet."


def test_tables_show_model_metrics_only(results):
    rows = json.loads((results / "roads/summary.json").read_text())
    others = [
        {**row, "metric": metric}
        for row in rows
        for metric in ("source_accuracy", "rank_correlation", "cost_ratio")
    ]
    before = (
        task_table(read_published(results), "roads"),
        method_table(read_published(results), "erm"),
    )
    (results / "roads/summary.json").write_text(json.dumps([*others, *rows]))
    assert (
        task_table(read_published(results), "roads"),
        method_table(read_published(results), "erm"),
    ) == before
    assert {*MODEL_METRICS, *ERRORS} == set(get_args(Metric))


def test_task_table_has_every_domain_unless_there_are_too_many(results):
    text = task_table(read_published(results), "roads")
    assert (
        "from `results/extra/`" in text
        and "| erm, randconv | 70.0 ± 1.0 | 70.0 ± 1.0 | 70.0 ± 1.0 | 3 |" in text
    )
    many = {f"c{i}": 0.1 for i in range(20)}
    grid(
        results,
        "many",
        ("skies", "default", "erm", "default", {**many, "hard": 0.3}, 1),
        averages={"hard": ["c1", "c2"]},
    )
    header = task_table(read_published(results), "skies").splitlines()[2]
    assert header == "|  | average, unseen | hard | seeds |"
    assert task_table(read_published(results), "seas") == (
        "No published results for this task yet: nothing under `results/` has it."
    )


def test_method_table_has_erm_of_the_same_grid_and_setting(results):
    text = method_table(
        read_published(results), "uncertainty_guided", link=lambda task: f"[{task}]"
    )
    assert "| [roads] | 55.0 ± 1.0 | 40.0 ± 1.0 | 3 | roads |" in text
    assert "| [roads] | randconv | 60.0 ± 1.0 | 70.0 ± 1.0 | 3 | roads |" in text
    assert "same grid" not in method_table(read_published(results), "erm")
    assert "No published results for this method" in method_table(read_published(results), "gud")


def test_update_readme_changes_only_the_text_between_markers(results, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"above\n{START}\nold\n{END}\nbelow\n")
    assert update_readme(page, results) == (True, results_table(read_published(results)))
    text = page.read_text()
    assert (
        text.startswith(f"above\n{START}\n| average")
        and text.endswith(f"|\n{END}\nbelow\n")
        and "old" not in text
    )
    assert update_readme(page, results)[0] is False
    page.write_text("no markers")
    with pytest.raises(UnseenError, match="needs the line <!-- results -->"):
        update_readme(page, results)


def test_read_published_names_a_broken_summary(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/summary.json").write_text('[{"selection": "last"}]')
    with pytest.raises(UnseenError, match=r"bad/summary.json is not a summary of results"):
        read_published(tmp_path)


def test_readme_table_is_up_to_date():
    text = (ROOT / "README.md").read_text()
    written = text.partition(START)[2].partition(END)[0].strip()
    assert written == results_table(read_published(ROOT / "results")), (
        "run `unseen update-readme` in the repository"
    )

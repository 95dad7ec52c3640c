"""Tables of a grid: figures are means over seeds, differences are paired by seed."""

from __future__ import annotations

import pytest

from unseen.report.statistics import confidence_half_width
from unseen.report.tables.grid_runs import select_checkpoints
from unseen.report.write import write_results


def test_selections_choose_by_what_they_say():
    values = {100: {"a": 0.9, "b": 0.1}, 200: {"a": 0.5, "b": 0.7}, 300: {"a": 0.4, "b": 0.4}}
    assert select_checkpoints(values, {100: 0.8, 200: 0.6, 300: 0.8}, ["a", "b"]) == {
        "last": 300,
        "source-val": 300,
        "oracle": 200,
    }
    assert (
        select_checkpoints(values, {100: 0.9, 200: 0.6, 300: 0.8}, ["a", "b"])["source-val"] == 100
    )
    assert select_checkpoints({300: values[300]}, {300: 0.8}, ["a", "b"]) == {"last": 300}


def test_the_interval_is_students():
    assert confidence_half_width([0.01, 0.02, 0.03]) == pytest.approx(
        4.302653 * 0.01 / 3**0.5, rel=1e-5
    )
    assert confidence_half_width([0.5]) is None


def test_figures_are_means_and_stds_over_seeds_and_differences_are_paired(tmp_path):
    facts = {
        "task": "t",
        "metric": "accuracy",
        "variants": {"v": {"source": "s", "domains": ["a", "b"]}},
        "command": "c",
        "averages": {"only a": ["a"], "with c": ["a", "c"]},
    }

    def made(method, seed, a, b):
        at = {"step": 10, "split": "test", "metric": "accuracy"}
        records = [{**at, "domain": d, "value": v} for d, v in (("s", 0.9), ("a", a), ("b", b))]
        config = {"loop": {"steps": 10}, "commit": "abc"}
        return {
            "variant": "v",
            "method": method,
            "setting": "default",
            "label": method,
            "seed": seed,
            "paper": {"average": 0.5},
            "config": config,
            "records": records,
        }

    runs = [
        made("erm", 0, 0.2, 0.4),
        made("erm", 1, 0.4, 0.6),
        made("x", 0, 0.3, 0.5),
        made("x", 1, 0.5, 0.7),
    ]
    rows = write_results(tmp_path, facts, runs)
    by_name = {(r["method"], r["domain"]): (r["mean"], r["std"], r["seeds"]) for r in rows}
    assert by_name["erm", "a"] == (pytest.approx(0.3), pytest.approx(0.02**0.5), [0, 1])
    assert by_name["x", "average"][0] == pytest.approx(0.5) and by_name["x", "only a"][
        0
    ] == pytest.approx(0.4)
    assert ("x", "with c") not in by_name and ("x", "s") not in by_name
    page = (tmp_path / "table.md").read_text()
    assert "| x | +10.0 | ± 0.0 | higher | 2 of 2 | +10.0, +10.0 |" in page


def test_variants_have_their_own_rows_and_are_tabled_together(tmp_path):
    facts = {
        "task": "t",
        "metric": "miou",
        "command": "c",
        "averages": {"fogs": ["fog/*"]},
        "variants": {
            "v": {"source": "s", "domains": ["fog/1", "fog/2"]},
            "w": {"source": "s", "domains": ["rain"]},
        },
    }

    def made(variant, method, **figures):
        at = {"step": 10, "split": "test", "metric": "miou"}
        records = [
            {**at, "domain": d.replace("_", "/"), "value": v}
            for d, v in {"s": 0.9, **figures}.items()
        ]
        records.append({**at, "metric": "iou/road", "domain": "rain", "value": 0.0})
        return {
            "variant": variant,
            "method": method,
            "setting": "default",
            "label": method,
            "seed": 0,
            "paper": {"rain": 0.9},
            "config": {"loop": {"steps": 10}},
            "records": records,
        }

    runs = [
        made("v", "erm", fog_1=0.2, fog_2=0.4),
        made("w", "erm", rain=0.6),
        made("v", "x", fog_1=0.3, fog_2=0.5),
    ]
    rows = {
        (r["variant"], r["method"], r["domain"]): r["mean"]
        for r in write_results(tmp_path, facts, runs)
    }
    assert rows["v", "erm", "average"] == rows["v", "erm", "fogs"] == pytest.approx(0.3)
    assert rows["w", "erm", "average"] == pytest.approx(0.6) and ("w", "erm", "fogs") not in rows
    assert rows["all", "erm", "average"] == pytest.approx(
        0.4
    )  # of three domains, not of two averages
    assert ("all", "x", "average") not in rows  # x has not run on w
    assert "60.0 [90.0]" in (tmp_path / "table.md").read_text()

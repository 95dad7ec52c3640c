"""Verdicts and reliability diagrams in the report."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest
from saved_runs import saved_run, write_arrays

from unseen.report.figures.reliability import calibration_error, reliability_figure
from unseen.report.groups import group_by_task
from unseen.report.page import build_sections, report_files
from unseen.report.runs import read_folders
from unseen.report.tables.task_verdicts import verdict_table


def task_of(folder):
    (task,) = group_by_task(read_folders([folder]).runs)
    return task


def section_titles(folder):
    inputs = read_folders([folder])
    return [s.title for s in build_sections(inputs, group_by_task(inputs.runs))]


def test_verdict_table_has_a_row_for_each_domain(tmp_path):
    saved_run(tmp_path / "run", pictures=False, judged=True)
    table = verdict_table(task_of(tmp_path))
    assert table is not None
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert [row["domain"] for row in rows] == ["mnist (source)", "svhn", "mnist_m", "usps"]
    assert [row["verdict"] for row in rows] == ["ok", "failing", "failing", "failing"]
    svhn = rows[1]
    assert svhn["predicted accuracy, %"] == "28.0000" and svhn["true accuracy, %"] == "30.0000"
    assert svhn["90 % interval"] == "20.0 to 33.0"
    assert svhn["p-value"] == "0.0005" and svhn["score / threshold"] == "7.00"
    shown = [table.header[i] for i in table.shown_columns]
    assert "method" not in shown and "seed" not in shown


def test_verdict_table_names_the_runs_if_there_are_several(tmp_path):
    for seed in (0, 1):
        saved_run(tmp_path / f"run-{seed}", seed=seed, pictures=False, judged=True)
    table = verdict_table(task_of(tmp_path))
    assert table is not None and table.details == [] and len(table.rows) == 8
    assert [row[2] for row in table.rows] == [0] * 4 + [1] * 4


def test_true_accuracy_is_missing_without_evaluation_or_with_another_metric(tmp_path):
    saved_run(tmp_path / "new/run", pictures=False, judged=True, evaluated=False)
    saved_run(tmp_path / "maps/run", pictures=False, judged=True, metric="miou")
    for name in ("new", "maps"):
        table = verdict_table(task_of(tmp_path / name))
        assert table is not None and [row[6] for row in table.rows] == ["-"] * 4


def test_missing_values_and_a_threshold_of_zero_are_dashes(tmp_path):
    folder = saved_run(tmp_path / "run", pictures=False, judged=True)
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    lines = [r for r in lines if r["metric"] not in ("predicted_low", "p_value", "verdict_ok")]
    for record in lines:
        if record["metric"] == "threshold":
            record["value"] = 0.0
    (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in lines))
    table = verdict_table(task_of(tmp_path))
    assert table is not None
    first = table.rows[0]
    assert [first[i] for i in (3, 5, 7, 8)] == ["-"] * 4


def test_reliability_figure_draws_source_and_unseen_domains(tmp_path):
    saved_run(tmp_path / "run", pictures=False, judged=True)
    figure = reliability_figure(task_of(tmp_path))
    assert figure is not None and len(figure.legend) == 2
    titles = [panel.title for panel in figure.panels]
    assert [t.partition(":")[0] for t in titles] == ["mnist (source)", "svhn", "mnist_m", "usps"]
    assert all(title.endswith("% before, 0.0 % after") for title in titles)
    assert all("var(--s1)" in p.svg and "var(--s2)" in p.svg for p in figure.panels)


def test_reliability_figure_keeps_the_source_and_the_worst_domains(tmp_path):
    names = [f"d{i}" for i in range(9)]
    folder = saved_run(
        tmp_path / "run", pictures=False, judged=True, figures=dict.fromkeys(names, 0.5)
    )
    bins = {"mnist": 0.9, **{name: 0.1 * i for i, name in enumerate(names)}}
    arrays = {
        f"{kind}/{name}": np.array([[4.0] + [0] * 9, [0.9] + [0] * 9, [accuracy] + [0] * 9])
        for name, accuracy in bins.items()
        for kind in ("before", "after")
    }
    write_arrays(folder / "figures/reliability.safetensors", **arrays)
    figure = reliability_figure(task_of(tmp_path))
    assert figure is not None and "The 5 worst of 9 unseen domains" in figure.caption
    shown = [panel.title.partition(":")[0] for panel in figure.panels]
    assert shown == ["mnist (source)", "d0", "d1", "d2", "d3", "d4"]


def test_calibration_error_weights_bins_by_their_samples():
    bins = np.array([[1.0, 3.0, 0.0], [0.2, 0.5, 0.0], [0.6, 0.3, 0.0]])
    assert calibration_error(bins) == pytest.approx((0.4 + 3 * 0.2) / 4)
    assert calibration_error(np.zeros((3, 10))) == 0


def test_page_has_the_section_only_with_verdicts(tmp_path):
    folder = saved_run(tmp_path / "judged/run", pictures=False, judged=True)
    saved_run(tmp_path / "plain/run", pictures=False, scored=True)
    assert section_titles(tmp_path / "judged") == ["Overview", "digits", "Verdicts", "All runs"]
    assert "Verdicts" not in section_titles(tmp_path / "plain")
    files = report_files([tmp_path / "judged"])
    assert "tables/digits-verdicts.csv" in files
    page = files["report.html"].decode()
    assert ">failing<" in page and "digits: reliability" in page
    (folder / "figures/reliability.safetensors").write_bytes(b"damaged")
    page = report_files([tmp_path / "judged"])["report.html"].decode()
    assert ">failing<" in page and "digits: reliability" not in page

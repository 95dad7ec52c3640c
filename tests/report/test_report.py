from __future__ import annotations

import csv
import html
import io
import json
import re
import shlex

import numpy as np
import pytest
import torch
from saved_runs import GUIDED, LOOP, few_shot, saved_run, scores
from torch.utils.data import TensorDataset

from unseen.cli import app
from unseen.errors import UnseenError
from unseen.methods import ERM
from unseen.models import DigitsNet
from unseen.report.figures.confusion import matrix_svg
from unseen.report.figures.features import mixed_label_figure
from unseen.report.figures.images import overlay, spread_evenly
from unseen.report.figures.noise_maps import heat_map
from unseen.report.figures.svg import Plot, unique_ids
from unseen.report.groups import find_sweeps, group_by_task
from unseen.report.page import build_sections, render_within_limit, report_files
from unseen.report.paper import PaperValue, paper_value
from unseen.report.runs import read_folders
from unseen.report.tables.runs import command_of
from unseen.report.tables.table import Measurement, Table
from unseen.report.write import write_report
from unseen.schema import parse_settings
from unseen.training.sample_images import examples_of, pixels


def tasks_of(folder):
    return group_by_task(read_folders([folder]).runs)


def headings(page: str) -> list[str]:
    return [html.unescape(h) for h in re.findall(r"<h[23][^>]*>([^<]*)</h[23]>", page)]


# What belongs together


def test_groups_join_seeds_and_are_labelled_by_changed_settings(tmp_path):
    for seed in (0, 1):
        saved_run(tmp_path / f"plain-{seed}", "uncertainty_guided", seed, pictures=False)
    saved_run(tmp_path / "beta", "uncertainty_guided", adversary={"beta": 10.0}, pictures=False)
    saved_run(tmp_path / "no_meta", "uncertainty_guided", meta=None, pictures=False)
    saved_run(
        tmp_path / "chunked", "uncertainty_guided", 2, chunk=1, pictures=False
    )  # memory only: the same learning
    (task,) = tasks_of(tmp_path)
    assert [(g.label, g.seeds) for g in task.groups] == [
        ("uncertainty_guided", [0, 1, 2]), ("uncertainty_guided, adversary.beta 10.0", [0]),
        ("uncertainty_guided, meta none", [0]),
    ]  # fmt: skip


def test_find_sweeps_returns_runs_that_differ_in_one_number(tmp_path):
    for draws in (10, 1, 5):
        saved_run(tmp_path / f"d{draws}", "uncertainty_guided", draws=draws, pictures=False)
    saved_run(tmp_path / "other", "uncertainty_guided", draws=20, lr=1e-3, pictures=False)
    (task,) = tasks_of(tmp_path)
    (found,) = find_sweeps(task.groups, "draws")
    assert [g.runs[0].config["settings"]["draws"] for g in found] == [1, 5, 10]
    assert find_sweeps(task.groups, "lr") == []


def test_read_folders_counts_a_copied_run_once(tmp_path):
    for parent in ("a", "b"):
        saved_run(tmp_path / parent / "x/run", pictures=False)
    found = read_folders([tmp_path / "a", tmp_path / "b"])
    assert len(found.runs) == 1 and "the same run as" in found.left_out[0]


# Numbers


def test_paper_value_averages_the_same_domains_or_names_its_own():
    assert paper_value("digits", "default", "erm", ["svhn"]) == PaperValue(27.8)
    same = paper_value("digits", "default", "erm", ["svhn", "mnist_m", "usps"], every=True)
    assert (
        same is not None
        and same.value == pytest.approx((27.8 + 52.8 + 76.5) / 3)
        and same.remark == ""
    )
    whole = paper_value("cifar10_c", "allconv", "gud", ["fog/1", "fog/2"], every=True)
    assert (
        whole is not None
        and whole.value == 73.6
        and whole.remark == "over 15 corruptions at 5 severities"
    )
    assert paper_value("cifar10_c", "allconv", "gud", ["fog/1", "fog/2"]) is None, (
        "a part of the domains is not the average"
    )
    assert paper_value("digits", "other_source", "erm", ["svhn"]) is None
    assert paper_value("amazon_reviews", "books", "erm", ["books->dvd"]) == PaperValue(78.7)


def test_measurement_shows_mean_std_and_difference_to_the_paper():
    cell = Measurement.of([0.50, 0.54], PaperValue(60.0))
    assert str(cell) == "52.0 ± 2.8" and cell.against_paper == "60.0 (-8.0)"
    assert str(Measurement.of([0.5])) == "50.0"


def test_table_has_the_same_values_in_markdown_and_csv():
    table = Table(
        "T",
        ["method", "svhn", "seeds"],
        [
            ["a|b", Measurement.of([0.5, 0.54], PaperValue(60.0)), 2],
            ["c", Measurement.of([0.5]), 1],
        ],
    )
    assert (
        "| a\\|b | 52.0 ± 2.8 [60.0 (-8.0)] | 2 |" in table.markdown()
        and "| c | 50.0 | 1 |" in table.markdown()
    )
    rows = list(csv.reader(io.StringIO(table.csv())))
    assert rows == [
        ["method", "svhn", "svhn std", "svhn paper", "svhn minus paper", "seeds"],
        ["a|b", "52.0000", "2.8284", "60.00", "-8.00", "2"],
        ["c", "50.0000", "", "", "", "1"],
    ]


def test_command_of_run_has_every_setting(tmp_path):
    saved_run(tmp_path / "run", "uncertainty_guided", 3, pictures=False)
    words = shlex.split(command_of(read_folders([tmp_path]).runs[0]))
    assert (
        words[:4] == ["unseen", "train", "digits", "--method"]
        and words[words.index("--seed") + 1] == "3"
    )
    assert parse_settings([words[i + 1] for i, word in enumerate(words) if word == "--set"]) == {
        **LOOP,
        **GUIDED,
    }


# Drawings


def test_plot_uses_page_colors_and_keeps_tick_labels():
    drawing = Plot()
    drawing.axes.plot([0, 1], [0.0011, 0.0012], color="#a0a001")
    drawing.axes.set_yticks([0.0011, 0.0012], ["0.00111", "0.00122"])
    svg = drawing.panel("a & b").svg
    assert (
        "currentColor" in svg
        and "var(--s1)" in svg
        and "var(--line)" in svg
        and not re.search(r"#(a0a0|1011|c0c1)", svg)
    )
    assert (
        "0.00111" in svg
        and 'aria-label="a &amp; b"' in svg
        and "<style" not in svg
        and "font-family" not in svg
    )
    ids = re.findall(r'id="([^"]*)"', unique_ids(svg, "p1"))
    assert ids and all(name.startswith("p1-") for name in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]*)', unique_ids(svg, "p1")))
    assert used <= set(ids)


def test_heat_map_is_brightest_at_the_strongest_noise():
    shift = np.zeros((4, 4), np.float32)
    shift[1, 2] = 2.0
    alone = heat_map(shift, 2.0, None).astype(int).sum(-1)
    assert alone.argmax() == 6 and (alone == alone[0, 0]).sum() == 15
    over = heat_map(np.zeros((4, 4), np.float32), 2.0, np.full((8, 8, 3), 255, np.uint8))
    assert over.shape == (8, 8, 3) and (over.min(axis=(0, 1)) >= 51).all(), (
        "a fifth of a white picture shines through"
    )


def test_confusion_matrix_shows_row_percentages_and_hides_zeros():
    svg = matrix_svg(np.array([[999, 1], [50, 150]]), ["cat", "dog"], "alt")
    assert re.findall(r">(\d+)</text>", svg) == ["100", "25", "75"] and svg.count(">cat<") == 2


def test_overlay_colors_classes_and_leaves_others_black():
    image = np.zeros((2, 2, 3), np.uint8)
    out = overlay(image, np.array([[0, 1], [255, 0]]), ["sky", "road"])
    assert (
        (out[0, 0] == out[1, 1]).all() and (out[0, 0] != out[0, 1]).any() and (out[1, 0] == 0).all()
    )


def test_spread_evenly_includes_first_and_last():
    assert spread_evenly(range(1, 10), 3) == [1, 5, 9] and spread_evenly([1, 2], 4) == [1, 2]


def test_mixed_label_figure_needs_snapshots(tmp_path):
    folder = saved_run(tmp_path / "run", "uncertainty_guided")
    assert mixed_label_figure(tasks_of(tmp_path)[0]) is not None
    for path in folder.glob("figures/step_*"):
        path.unlink()
    assert mixed_label_figure(tasks_of(tmp_path)[0]) is None


# The page

HEADINGS = [
    "Overview", "cifar10_c/allconv", "Results: accuracy, %", "By corruption: accuracy, %",
    "By severity", "By corruption", "Accuracy by domain", "Domain score and error", "Domain scores",
    "Examples of every domain", "Accuracy over training", "Ablations", "Ablations: values",
    "Number of draws K", "Weight of the adversary's constraint, β", "Noise maps",
    "Distance of perturbed features", "Clean and perturbed features (t-SNE)", "Mixed labels",
    "Learned noise and mixup", "Confusion matrices", "driving/camvid_day", "Scenes",
    "Verdicts", "digits: verdicts", "digits: reliability",
    "Comparison of uncertainty scores", "digits: score and error", "Scores by domain",
    "Comparison of scores", "Few-shot adaptation", "Adapted to a new domain: accuracy, %",
    "Source after adaptation: accuracy, %", "All runs", "Commands and settings", "About this page",
]  # fmt: skip


def test_page_shows_everything_that_runs_recorded(report_folder):
    page = (report_folder / "report.html").read_text()
    assert [name for name in HEADINGS if name not in headings(page)] == []
    assert len(page.encode()) < 5_000_000
    for told in (
        "62.7 (-3.0)",
        "c0ffee",
        "unseen train digits --seed 0",
        ">512<",
        "91.5 (-1.5)",
        "rank correlation 1.00",
    ):
        assert told in page, told
    text = re.sub(r"base64,[^\"]*", "", page)
    assert not re.search(r"(src|href)=\"(https?:)?//", text) and "@import" not in text, (
        "nothing is fetched"
    )
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for name in re.findall(r'href="(tables[^"]*)"', page):
        assert (report_folder / name).stat().st_size, name
    assert "| uncertainty_guided | 97.0 ± 0.0 |" in (report_folder / "tables.md").read_text()


def test_page_omits_what_runs_did_not_record(tmp_path):
    saved_run(tmp_path / "run", "erm", pictures=False, keep=False)
    page = report_files([tmp_path])["report.html"].decode()
    assert headings(page) == [
        "Overview",
        "digits",
        "All runs",
        "Commands and settings",
        "About this page",
    ]
    assert "<img" not in page and "nan" not in re.sub(
        "<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL
    )


def test_report_is_deterministic(tmp_path):
    saved_run(tmp_path / "a/run", "uncertainty_guided", 0)
    saved_run(tmp_path / "a/erm", "erm", 0)
    assert report_files([tmp_path / "a"]) == report_files([tmp_path / "a"])


def test_page_over_the_size_limit_drops_its_largest_figures(tmp_path):
    saved_run(tmp_path / "run", "uncertainty_guided")
    found = read_folders([tmp_path])
    tasks = group_by_task(found.runs)
    sections = build_sections(found, tasks)
    whole = render_within_limit(found, tasks, sections)
    limit = len(whole.encode()) - 10_000
    smaller = render_within_limit(found, tasks, sections, limit)
    assert len(smaller.encode()) <= limit and "Left out" in headings(smaller)
    gone = set(headings(whole)) - set(headings(smaller))
    assert gone and all(f"the figure “{name}”" in smaller for name in gone)
    with pytest.raises(UnseenError, match="report on fewer runs at a time"):
        render_within_limit(found, tasks, sections, 1000)


def test_page_lists_unusable_inputs_and_no_input_is_an_error(tmp_path):
    saved_run(tmp_path / "runs/good", pictures=False)
    (saved_run(tmp_path / "runs/going", pictures=False) / "done").unlink()
    torn = saved_run(tmp_path / "runs/torn", pictures=False)
    (torn / "records.jsonl").write_text('{"run": 1}\n')
    other = scores(tmp_path / "runs/scores") / "scores.json"
    other.write_text(
        json.dumps({"tasks": [{"task": "digits", "variant": "default", "runs": [{"seed": 0}]}]})
    )
    page = report_files([tmp_path / "runs"])["report.html"].decode()
    assert "not finished: continue it with" in page and "line 1 is not a record" in page
    assert "scores.json: tasks[0].metric is missing" in page
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnseenError, match="no finished run in"):
        report_files([tmp_path / "empty"])
    with pytest.raises(UnseenError, match="is not a folder"):
        report_files([tmp_path / "nowhere"])


def test_results_without_runs_make_a_report(tmp_path):
    page = report_files([few_shot(tmp_path / "few_shot")])["report.html"].decode()
    assert headings(page)[:2] == [
        "Few-shot adaptation",
        "Adapted to a new domain: accuracy, %",
    ]


def test_report_command_replaces_an_earlier_report(tmp_path, capsys):
    saved_run(tmp_path / "runs/erm", pictures=False)
    scores(tmp_path / "scores")
    write_report([tmp_path / "runs", tmp_path / "scores"], tmp_path / "out")
    (tmp_path / "out/tables/mine.txt").write_text("kept")
    assert (tmp_path / "out/tables/digits-scores-by-domain.csv").exists()
    app(
        ["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out"), "--json"],
        result_action="return_value",
    )
    told = json.loads(capsys.readouterr().out)
    assert told["page"] == str(tmp_path / "out/report.html") and "tables.md" in told["files"]
    left = {path.name for path in (tmp_path / "out/tables").iterdir()}
    assert left == {"mine.txt", "all-runs.csv", "overview.csv", "digits-results-accuracy.csv"}
    with pytest.raises(UnseenError, match="is a file; --out must be a folder"):
        write_report([tmp_path / "runs"], tmp_path / "out/report.html")
    with pytest.raises(UnseenError, match="no run given"):
        app(
            ["report", "--out", str(tmp_path / "x")],
            exit_on_error=False,
            result_action="return_value",
        )


# What runs save for it


def test_pixels_keeps_images_only():
    x = torch.rand(4, 3, 8, 8)
    kept = pixels((x,), 2)
    assert kept is not None and kept.dtype == torch.uint8
    assert torch.equal(kept, (x[:2] * 255).round().to(torch.uint8))
    assert (
        pixels((x * 2,), 2) is None and pixels((x[:, :2],), 2) is None and pixels((x, x), 2) is None
    )
    assert pixels((torch.rand(4, 50),), 2) is None
    large = pixels((torch.rand(1, 3, 480, 640),), 1)
    assert large is not None and large.shape == (1, 3, 240, 320)


def test_examples_are_evenly_spaced_with_label_and_prediction():
    torch.manual_seed(0)
    net = ERM(DigitsNet()).eval()
    data = TensorDataset(torch.rand(30, 3, 32, 32), torch.arange(30) % 10)
    found = examples_of(net, data)
    assert found["y"].tolist() == [5, 5, 5] and found["x"].shape == (3, 3, 32, 32)
    assert torch.equal(found["guess"].long(), net.predict(data.tensors[0][[5, 15, 25]]).argmax(1))

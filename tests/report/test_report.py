from __future__ import annotations

import csv
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
from unseen.report import page as pages
from unseen.report.figures.features import mixed_labels
from unseen.report.figures.images import evenly, heat, matrix, overlaid
from unseen.report.figures.svg import Drawing, unique_ids
from unseen.report.groups import by_task, sweep
from unseen.report.page import report_files
from unseen.report.paper import Reported, paper_figure
from unseen.report.runs import find
from unseen.report.tables.runs import command_of
from unseen.report.tables.table import Figure, Table
from unseen.report.write import write_report
from unseen.schema import parse_settings
from unseen.training.sample_images import examples_of, pixels


def tasks_of(folder):
    return by_task(find([folder]).runs)


def headings(page: str) -> list[str]:
    return re.findall(r"<h[23][^>]*>([^<]*)</h[23]>", page)


# ------------------------------------------------------------------------------------------------------ what belongs together


def test_runs_that_differ_by_seed_are_one_group_and_others_are_named_by_what_differs(tmp_path):
    for seed in (0, 1):
        saved_run(tmp_path / f"plain-{seed}", "uncertainty_guided", seed, pictures=False)
    saved_run(tmp_path / "beta", "uncertainty_guided", beta=10.0, pictures=False)
    saved_run(tmp_path / "no_meta", "uncertainty_guided", meta=False, pictures=False)
    saved_run(
        tmp_path / "chunked", "uncertainty_guided", 2, chunk=1, pictures=False
    )  # memory only: the same learning
    (task,) = tasks_of(tmp_path)
    assert [(g.label, g.seeds) for g in task.groups] == [
        ("uncertainty_guided", [0, 1, 2]), ("uncertainty_guided, beta 10.0", [0]), ("uncertainty_guided, meta off", [0]),
    ]  # fmt: skip


def test_a_sweep_holds_runs_that_differ_in_that_number_alone(tmp_path):
    for draws in (10, 1, 5):
        saved_run(tmp_path / f"d{draws}", "uncertainty_guided", draws=draws, pictures=False)
    saved_run(tmp_path / "other", "uncertainty_guided", draws=20, beta=7.0, pictures=False)
    (task,) = tasks_of(tmp_path)
    (found,) = sweep(task.groups, "draws")
    assert [g.runs[0].config["settings"]["draws"] for g in found] == [1, 5, 10]
    assert sweep(task.groups, "lr") == []


def test_the_same_run_in_two_folders_counts_once_and_is_told(tmp_path):
    for parent in ("a", "b"):
        saved_run(tmp_path / parent / "x/run", pictures=False)
    found = find([tmp_path / "a", tmp_path / "b"])
    assert len(found.runs) == 1 and "the same run as" in found.left_out[0]


# ------------------------------------------------------------------------------------------------------------ numbers


def test_the_papers_average_is_over_the_same_domains_or_says_over_which():
    assert paper_figure("digits", "default", "erm", ["svhn"]) == Reported(27.8)
    same = paper_figure("digits", "default", "erm", ["svhn", "mnist_m", "usps"], every=True)
    assert (
        same is not None
        and same.value == pytest.approx((27.8 + 52.8 + 76.5) / 3)
        and same.remark == ""
    )
    whole = paper_figure("cifar10_c", "allconv", "gud", ["fog/1", "fog/2"], every=True)
    assert (
        whole is not None
        and whole.value == 73.6
        and whole.remark == "over 15 corruptions at 5 severities"
    )
    assert paper_figure("cifar10_c", "allconv", "gud", ["fog/1", "fog/2"]) is None, (
        "a part of the domains is not the average"
    )
    assert paper_figure("digits", "other_source", "erm", ["svhn"]) is None
    assert paper_figure("amazon_reviews", "books", "erm", ["books->dvd"]) == Reported(78.7)


def test_a_figure_is_mean_and_std_over_seeds_and_the_difference_to_the_paper():
    cell = Figure.of([0.50, 0.54], Reported(60.0))
    assert str(cell) == "52.0 ± 2.8" and cell.against == "60.0 (-8.0)"
    assert str(Figure.of([0.5])) == "50.0"


def test_a_table_is_the_same_in_markdown_and_csv():
    table = Table(
        "T",
        ["method", "svhn", "seeds"],
        [["a|b", Figure.of([0.5, 0.54], Reported(60.0)), 2], ["c", Figure.of([0.5]), 1]],
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


def test_the_command_of_a_run_says_all_of_its_settings(tmp_path):
    saved_run(tmp_path / "run", "uncertainty_guided", 3, pictures=False)
    words = shlex.split(command_of(find([tmp_path]).runs[0]))
    assert (
        words[:4] == ["unseen", "train", "digits", "--method"]
        and words[words.index("--seed") + 1] == "3"
    )
    assert parse_settings([words[i + 1] for i, word in enumerate(words) if word == "--set"]) == {
        **LOOP,
        **GUIDED,
    }


# ------------------------------------------------------------------------------------------------------------ drawings


def test_a_drawing_takes_its_colours_from_the_page_and_keeps_its_numbers():
    drawing = Drawing()
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


def test_a_noise_map_is_brightest_where_the_noise_is_strongest_and_lies_over_its_picture():
    shift = np.zeros((4, 4), np.float32)
    shift[1, 2] = 2.0
    alone = heat(shift, 2.0, None).astype(int).sum(-1)
    assert alone.argmax() == 6 and (alone == alone[0, 0]).sum() == 15
    over = heat(np.zeros((4, 4), np.float32), 2.0, np.full((8, 8, 3), 255, np.uint8))
    assert over.shape == (8, 8, 3) and (over.min(axis=(0, 1)) >= 51).all(), (
        "a fifth of a white picture shines through"
    )


def test_a_confusion_matrix_tells_shares_of_rows_and_hides_what_rounds_to_nothing():
    svg = matrix(np.array([[999, 1], [50, 150]]), ["cat", "dog"], "alt")
    assert re.findall(r">(\d+)</text>", svg) == ["100", "25", "75"] and svg.count(">cat<") == 2


def test_overlays_show_classes_and_leave_what_is_no_class_dark():
    image = np.zeros((2, 2, 3), np.uint8)
    out = overlaid(image, np.array([[0, 1], [255, 0]]), ["sky", "road"])
    assert (
        (out[0, 0] == out[1, 1]).all() and (out[0, 0] != out[0, 1]).any() and (out[1, 0] == 0).all()
    )


def test_moments_are_the_first_and_the_last_and_some_between():
    assert evenly(range(1, 10), 3) == [1, 5, 9] and evenly([1, 2], 4) == [1, 2]


def test_mixed_labels_are_left_out_where_labels_are_not_mixed(tmp_path):
    folder = saved_run(tmp_path / "run", "uncertainty_guided")
    assert mixed_labels(tasks_of(tmp_path)[0]) is not None
    for path in folder.glob("figures/step_*"):
        path.unlink()
    assert mixed_labels(tasks_of(tmp_path)[0]) is None


# ------------------------------------------------------------------------------------------------------------ the page

EVERYTHING = [
    "At a glance", "cifar10_c/allconv", "Results: accuracy, %", "By corruption: accuracy, %", "By severity", "By corruption",
    "Accuracy by domain", "What the domains look like", "Accuracy over training", "Ablations", "Ablations: figures",
    "Number of draws K", "Bound on the adversary, β", "Where the noise goes", "Transport of the features",
    "Source and perturbed features (t-SNE)", "Mixed labels", "Learned noise and mixing", "Which class is taken for which",
    "driving/camvid_day", "Street scenes", "Uncertainty of domains", "digits: uncertainty and error", "Scores by domain",
    "Few labels of a new domain", "Adapted to a new domain: accuracy, %", "Every run", "Commands and settings", "About this page",
]  # fmt: skip


def test_the_page_holds_everything_the_runs_hold(report_folder):
    page = (report_folder / "report.html").read_text()
    assert [name for name in EVERYTHING if name not in headings(page)] == []
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


def test_what_the_runs_do_not_hold_is_not_there(tmp_path):
    saved_run(tmp_path / "run", "erm", pictures=False, keep=False)
    page = report_files([tmp_path])["report.html"].decode()
    assert headings(page) == [
        "At a glance",
        "digits",
        "Every run",
        "Commands and settings",
        "About this page",
    ]
    assert "<img" not in page and "nan" not in re.sub(
        "<style.*?</style>|<script.*?</script>", "", page, flags=re.DOTALL
    )


def test_the_same_input_gives_the_same_bytes(tmp_path):
    saved_run(tmp_path / "a/run", "uncertainty_guided", 0)
    saved_run(tmp_path / "a/erm", "erm", 0)
    assert report_files([tmp_path / "a"]) == report_files([tmp_path / "a"])


def test_a_page_that_would_be_too_large_leaves_its_largest_figures_out_and_says_so(tmp_path):
    saved_run(tmp_path / "run", "uncertainty_guided")
    found = find([tmp_path])
    tasks = by_task(found.runs)
    sections = pages.sections_of(found, tasks)
    whole = pages.page(found, tasks, sections)
    limit = len(whole.encode()) - 10_000
    smaller = pages.page(found, tasks, sections, limit)
    assert len(smaller.encode()) <= limit and "Left out" in headings(smaller)
    gone = set(headings(whole)) - set(headings(smaller))
    assert gone and all(f"the figure “{name}”" in smaller for name in gone)
    with pytest.raises(UnseenError, match="make reports of fewer runs"):
        pages.page(found, tasks, sections, 1000)


def test_what_cannot_be_used_is_told_and_nothing_at_all_is_an_error(tmp_path):
    saved_run(tmp_path / "runs/good", pictures=False)
    (saved_run(tmp_path / "runs/going", pictures=False) / "done").unlink()
    torn = saved_run(tmp_path / "runs/torn", pictures=False)
    (torn / "records.jsonl").write_text('{"run": 1}\n')
    other = scores(tmp_path / "runs/scores") / "scores.json"
    other.write_text(
        json.dumps({"tasks": [{"task": "digits", "variant": "default", "runs": [{"seed": 0}]}]})
    )
    page = report_files([tmp_path / "runs"])["report.html"].decode()
    assert "not finished: go on with it with --resume" in page and "line 1 is not a record" in page
    assert "scores of unseen uncertainty: what was saved for it cannot be used" in page
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnseenError, match="no finished run in"):
        report_files([tmp_path / "empty"])
    with pytest.raises(UnseenError, match="is no folder"):
        report_files([tmp_path / "nowhere"])


def test_results_alone_make_a_report_too(tmp_path):
    page = report_files([few_shot(tmp_path / "few_shot")])["report.html"].decode()
    assert headings(page)[:2] == [
        "Few labels of a new domain",
        "Adapted to a new domain: accuracy, %",
    ]


def test_writing_again_replaces_the_report_and_the_command_says_where(tmp_path, capsys):
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
    assert left == {"mine.txt", "all-runs.csv", "at-a-glance.csv", "digits-results-accuracy.csv"}
    with pytest.raises(UnseenError, match="is a file; --out names a folder"):
        write_report([tmp_path / "runs"], tmp_path / "out/report.html")
    with pytest.raises(UnseenError, match="name run folders"):
        app(
            ["report", "--out", str(tmp_path / "x")],
            exit_on_error=False,
            result_action="return_value",
        )


# ------------------------------------------------------------------------------------------------- what runs save for it


def test_only_what_can_be_looked_at_is_kept_as_pictures():
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


def test_examples_are_evenly_spaced_with_label_and_guess():
    torch.manual_seed(0)
    net = ERM(DigitsNet()).eval()
    data = TensorDataset(torch.rand(30, 3, 32, 32), torch.arange(30) % 10)
    found = examples_of(net, data)
    assert found["y"].tolist() == [5, 5, 5] and found["x"].shape == (3, 3, 32, 32)
    assert torch.equal(found["guess"].long(), net.predict(data.tensors[0][[5, 15, 25]]).argmax(1))

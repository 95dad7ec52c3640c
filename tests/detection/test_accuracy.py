"""Accuracy foretold without labels: the formulas by hand, the curve on a toy, the shifts, the files, the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from toy_domains import BarNet, bars, make

import unseen
from unseen import AccuracyEstimator, UnseenError, estimate_accuracy
from unseen.cli import app
from unseen.cli.options import stdout_for_results_only
from unseen.detection import synthetic_shifts
from unseen.detection.accuracy import (
    Point,
    atc,
    atc_threshold,
    average_confidence,
    certainty,
    error_range,
    fair_score,
    falling_curve,
    left_out_errors,
)
from unseen.detection.source_statistics import relative_deviation
from unseen.detection.synthetic_shifts import ANY, IMAGE, MOVING, shifts_for, with_blends
from unseen.experiments.estimate_accuracy import FILE, estimator_of, examine, write_tables
from unseen.training.run import Run
from unseen.training.train import train

# ------------------------------------------------------------------------------------------------------- formulas


def test_average_confidence_and_certainty_by_hand():
    logits = torch.log(torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    assert average_confidence(logits) == pytest.approx(0.6)
    expected = [0.7 * np.log(0.7) + 0.3 * np.log(0.3), np.log(0.5)]
    torch.testing.assert_close(certainty(logits), torch.tensor(expected, dtype=torch.float32))


def test_atc_gives_the_sources_accuracy_on_the_source_and_less_where_the_model_is_less_certain():
    certainties = torch.tensor([-0.1, -0.9, -0.3, -0.5])
    threshold = atc_threshold(certainties, torch.tensor([True, False, True, True]))
    assert threshold == pytest.approx(-0.5) and atc(certainties, threshold) == 0.75
    assert atc(certainties - 0.3, threshold) == 0.25
    assert atc(certainties, atc_threshold(certainties, torch.ones(4, dtype=torch.bool))) == 1.0


def test_the_curve_never_rises_and_is_flat_beyond_its_ends():
    curve = falling_curve(
        np.array([0.0, 1.0, 2.0]), np.array([0.9, 0.5, 0.7]), np.array([-1.0, 0.0, 1.0, 1.5, 9.0])
    )
    assert curve == pytest.approx([0.9, 0.9, 0.6, 0.6, 0.6])  # 0.5 and 0.7 rise: their mean


def test_errors_come_from_curves_that_have_seen_nothing_of_the_kind():
    kinds = [(), ("a",), ("b",), ("a", "b")]
    at, errors = left_out_errors(
        kinds, np.array([0.0, 1.0, 2.0, 3.0]), np.array([1.0, 0.8, 0.3, 0.1])
    )
    # Without a: (0, 1.0), (2, 0.3): at 1 it says 0.65, at 3 it says 0.3. Without b: (0, 1.0), (1, 0.8): 0.8 at 2 and at 3.
    assert at.tolist() == [1.0, 3.0, 2.0, 3.0]
    assert errors == pytest.approx([0.15, -0.2, -0.5, -0.7])


def test_the_range_of_errors_is_that_of_conformal_prediction():
    errors = np.arange(39, dtype=float)
    assert error_range(errors, 0.9) == (1.0, 37.0)  # 40 * 0.05 = 2: the second from either end
    assert error_range(errors[:10], 0.9) == (0.0, 9.0)


def test_a_fair_score_does_not_grow_when_the_sample_shrinks():
    g = torch.Generator().manual_seed(0)
    draw = lambda n: 0.5 + 0.2 * torch.randn(n, 8, generator=g)  # noqa: E731
    score = lambda mean: relative_deviation(mean, torch.full((8,), 0.48).to(mean))  # noqa: E731
    small = [draw(12) for _ in range(200)]
    plain = np.mean([float(score(s.mean(0))) for s in small])
    fair = np.mean([fair_score(s, score) for s in small])
    real = 0.02 / 0.48
    assert plain > 2 * real and 0 < fair - real < 0.6 * (
        plain - real
    )  # resampling knows of most of the excess, not of all


# --------------------------------------------------------------------------------------------------- on the toy


@pytest.fixture(scope="module", params=["erm", "uncertainty_guided"])
def run(request, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / request.param
    return train(make(), request.param, out, progress=False, task_word="toy_domains:make")


@pytest.fixture(scope="module")
def net(run):
    return run.load(make())


@pytest.fixture(scope="module")
def fitted(net):
    return AccuracyEstimator.fit(net, DataLoader(TensorDataset(*bars(300, 2)), 64))


def accuracy(net, x, y):
    return float((net.predict(x).argmax(1) == y).float().mean())


def test_the_estimate_falls_with_the_shift_and_its_interval_holds_the_real_accuracy(net, fitted):
    """On kinds of shift that the estimator has not been fitted with: fog, and grain of another strength."""
    clean = estimate_accuracy(net, bars(300, 50)[0], fitted)
    held = []
    for shift in ({"fog": 0.3}, {"fog": 0.6}, {"grain": 0.2}, {"grain": 0.6}, {"light": 0.4}, {}):
        x, y = bars(300, 51, **shift)
        estimate = fitted.estimate(net, x)
        assert 0 <= estimate.low <= estimate.accuracy <= estimate.high <= 1 and estimate.n == 300
        held.append(estimate.low - 0.03 <= accuracy(net, x, y) <= estimate.high + 0.03)
    assert sum(held) >= 5  # of 6, at 90 %
    assert abs(clean.accuracy - fitted.points[0].accuracy) < 0.1
    assert fitted.estimate(net, bars(300, 52, grain=0.6)[0]).accuracy < clean.accuracy


def test_the_baselines_in_an_estimate_are_their_formulas(net, fitted):
    x, _ = bars(300, 60, grain=0.3)
    estimate, logits = fitted.estimate(net, x), net.predict(x)
    confidence = estimate.average_confidence
    assert confidence.accuracy == pytest.approx(average_confidence(logits), abs=1e-5)
    assert 0 <= confidence.low <= confidence.accuracy <= confidence.high <= 1
    assert estimate.atc == pytest.approx(atc(certainty(logits), fitted.certainty_threshold))
    x, y = bars(300, 2)
    assert atc(certainty(net.predict(x)), fitted.certainty_threshold) == pytest.approx(
        accuracy(net, x, y), abs=1e-6
    )


def test_a_score_beyond_every_shift_extrapolates_down_to_chance(fitted):
    furthest = max(p.score for p in fitted.points)
    near, far = (fitted.at_score(v, v, v) for v in (furthest * 0.5, furthest * 1.5))
    assert far.extrapolates and far.low <= 1 / 3 and not near.extrapolates
    doubt = max(p.doubt for p in fitted.points) + 0.01
    assert fitted.at_doubt(doubt, doubt, doubt).extrapolates


def test_the_interval_of_confidence_is_made_of_its_errors_under_similar_shifts():
    points = [
        Point((kind,), 0.1, 0.2, accuracy)
        for kind, accuracy in (("a", 0.7), ("b", 0.8), ("c", 0.85))
    ]
    expected = AccuracyEstimator("sigma", "site", 4, 0.0, 10, points).at_doubt(0.15, 0.13, 0.18)
    assert expected == pytest.approx((0.85, 0.82 - 0.1, 0.87 + 0.05, False))


def test_a_small_sample_is_less_sure(net, fitted):
    x, _ = bars(300, 70, grain=0.25)
    wide = [fitted.estimate(net, x[:n]) for n in (8, 300)]
    assert wide[0].high - wide[0].low >= wide[1].high - wide[1].low


def test_an_estimator_comes_back_from_its_file(net, fitted, tmp_path):
    fitted.save(tmp_path / "accuracy.json")
    again = AccuracyEstimator.load(tmp_path / "accuracy.json")
    x, _ = bars(100, 80)
    assert again == fitted and again.estimate(net, x) == fitted.estimate(net, x)
    empty = {
        "format": 2,
        "score_name": "sigma",
        "score_at": "site",
        "classes": 3,
        "certainty_threshold": 0,
        "samples": 1,
        "points": [],
    }
    for content, text in (
        ("{}", "not an accuracy estimator of this version"),
        ('{"format": 2, "points": [1]}', "fit it again"),
        (json.dumps(empty), "3 kinds"),
    ):
        (tmp_path / "broken.json").write_text(content)
        with pytest.raises(UnseenError, match=text):
            AccuracyEstimator.load(tmp_path / "broken.json")


def test_bad_questions_are_named(net, fitted):
    x, y = bars(20, 1)
    with pytest.raises(UnseenError, match=r"unseen.ERM\(model\)"):
        AccuracyEstimator.fit(BarNet(), [(x, y)])
    with pytest.raises(UnseenError, match="held_out is empty"):
        AccuracyEstimator.fit(net, [])
    with pytest.raises(UnseenError, match="at least 3 kinds"):
        AccuracyEstimator.fit(net, [(x, y)], shifts={"one": [lambda x, g: x]})
    with pytest.raises(UnseenError, match="keep the shapes"):
        AccuracyEstimator.fit(
            net, [(x, y)], shifts={kind: [lambda x, g: (x[0][:3],)] for kind in "abc"}
        )
    with pytest.raises(UnseenError, match="x is empty"):
        fitted.estimate(net, x[:0])
    with pytest.raises(UnseenError, match="look for NaN"):
        fitted.estimate(net, x * torch.nan)
    with pytest.raises(UnseenError, match="level"):
        fitted.estimate(net, x, level=1.0)
    other = AccuracyEstimator("another", "site", 3, 0.0, 20, fitted.points)
    with pytest.raises(UnseenError, match="fitted with the score another"):
        other.estimate(net, x)
    other = AccuracyEstimator(net.score_name, "embedding", 3, 0.0, 20, fitted.points)
    with pytest.raises(
        UnseenError, match=r"at the embedding, the method's is \w+ at the site: fit it again"
    ):
        other.estimate(net, x)


def test_shifts_of_ones_own_are_used(net):
    held_out = [bars(60, 2)]
    mine = {
        name: [lambda x, g, k=k: (x[0] * k,)] for name, k in (("a", 0.9), ("b", 0.5), ("c", 0.1))
    }
    made = AccuracyEstimator.fit(net, held_out, shifts=mine)
    assert {p.kinds for p in made.points[1:4]} == {("a",), ("b",), ("c",)}
    torch.testing.assert_close(
        made.points[2].accuracy,
        accuracy(net, 0.5 * held_out[0][0], held_out[0][1]),
        atol=1e-6,
        rtol=0,
    )


def test_a_model_of_ones_own_that_was_trained_elsewhere():
    """Without any statistics of the source: its doubt is its score."""
    torch.manual_seed(0)
    net = unseen.ERM(BarNet())
    made = AccuracyEstimator.fit(net, [bars(50, 2)])
    assert made.score_name == "max_softmax"
    assert made.points[0].score == pytest.approx(made.points[0].doubt, abs=0.01)
    assert 0 <= made.estimate(net, bars(20, 3)[0]).accuracy <= 1


def test_maps_of_labels_count_pixels_and_ignored_ones_do_not():
    torch.manual_seed(0)
    net = unseen.ERM(nn.Conv2d(3, 4, 3, padding=1), ignore_label=9)
    x, y = torch.rand(6, 3, 16, 16), torch.randint(4, (6, 16, 16))
    y[:, :8] = 9
    made = AccuracyEstimator.fit(net, [(x, y)])
    right = (net.predict(x).argmax(1) == y)[:, 8:].float().mean()
    assert made.points[0].accuracy == pytest.approx(float(right), abs=1e-6)
    assert not {kind for p in made.points for kind in p.kinds} & set(MOVING)


# ---------------------------------------------------------------------------------------------- synthetic shifts


def smooth_images():
    coarse = torch.rand(40, 3, 5, 5, generator=torch.Generator().manual_seed(0)) ** 2
    return nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")


INPUTS = {
    "images": ((smooth_images(),), set(IMAGE)),
    "vectors": (
        (torch.randn(40, 30, generator=torch.Generator().manual_seed(0)),),
        set(ANY) | set(synthetic_shifts.NUMBERS),
    ),
    "signals": (
        (torch.randn(40, 1, 64, generator=torch.Generator().manual_seed(0)),),
        set(ANY) | set(synthetic_shifts.NUMBERS),
    ),
    "tokens": (
        (torch.randint(1, 99, (40, 60), generator=torch.Generator().manual_seed(0)),),
        set(ANY),
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_every_shift_changes_its_inputs_more_with_its_strength_and_is_repeatable(name):
    x, kinds = INPUTS[name]
    before = [t.clone() for t in x]
    made = shifts_for(x)
    assert set(made) == kinds
    for kind, strengths in made.items():
        changes = []
        for shift in strengths:
            (y,), (again,) = (shift(x, torch.Generator().manual_seed(5)) for _ in range(2))
            assert y.shape == x[0].shape and y.dtype == x[0].dtype and torch.equal(y, again), kind
            if name == "images":
                assert x[0].min() - 1e-5 <= y.min() and y.max() <= x[0].max() + 1e-5, kind
            changes.append(float((y - x[0]).abs().double().mean()))
        assert 0 < changes[0] < changes[1], kind
    assert all(torch.equal(a, b) for a, b in zip(before, x, strict=True))


def test_images_of_any_range_are_shifted_alike():
    x, _ = INPUTS["images"]
    for kind, strengths in shifts_for(x).items():
        plain, wide = (
            strengths[0](inputs, torch.Generator().manual_seed(1))[0]
            for inputs in (x, (x[0] * 8 - 3,))
        )
        torch.testing.assert_close(plain * 8 - 3, wide, atol=2e-4, rtol=1e-4, msg=kind)


def test_blends_apply_one_shift_after_the_other():
    shifts = {
        "add": [lambda x, g: (x[0] + 1,)],
        "twice": [lambda x, g: (2 * x[0],)],
        "none": [lambda x, g: x],
    }
    made = with_blends(shifts, 20)
    assert [kinds for kinds, _ in made[:3]] == [("add",), ("twice",), ("none",)] and len(made) == 23
    found = {kinds: float(shift((torch.ones(1),), torch.Generator())[0]) for kinds, shift in made}
    assert found["add", "twice"] == 4 and found["twice", "add"] == 3
    assert all(len(kinds) == 2 for kinds, _ in made[3:])  # one of three is always left out


# ------------------------------------------------------------------------------------------------------- with runs


def test_fitting_looks_at_held_out_source_data_alone_and_is_done_once(run, net, monkeypatch):
    (run.folder / FILE).unlink(missing_ok=True)

    def refuse(split):
        raise AssertionError("a target was looked at")

    task = make()
    for target in task.targets:
        object.__setattr__(target, "load", refuse)
    first = estimator_of(run, task, net)
    monkeypatch.setattr(AccuracyEstimator, "fit", refuse)
    assert estimator_of(run, task, net) == first


def test_a_run_is_examined_and_its_table_is_its_errors(run, tmp_path):
    result = examine(run, make())
    assert list(result["domains"]) == ["bars", "grainy", "foggy", "dark"]
    for name, d in result["domains"].items():
        x, y = make().domain(name).load("test").tensors
        assert d["accuracy"] == pytest.approx(accuracy(run.load(make()), x, y), abs=1e-6)
        assert d["errors"]["atc"] == pytest.approx(d["estimates"]["atc"] - d["accuracy"])
    errors = [abs(result["domains"][d]["errors"]["score"]) for d in ("grainy", "foggy", "dark")]
    rows = write_tables(tmp_path / "out", [result, {**result, "seed": 1}], "a command")
    average = next(r for r in rows if r["domain"] == "average" and r["method"] == result["method"])
    assert (
        average["mean"] == pytest.approx(np.mean(errors))
        and average["std"] == 0
        and average["seeds"] == [0, 1]
    )
    assert {r["method"] for r in rows} == {result["method"], "average_confidence", "atc"}
    assert {r["domain"] for r in rows} == {"grainy", "foggy", "dark", "average"}
    keys = [
        "task",
        "variant",
        "method",
        "setting",
        "domain",
        "metric",
        "selection",
        "mean",
        "std",
        "seeds",
    ]
    assert all(list(r) == keys and r["metric"] == "accuracy_error" for r in rows)
    assert json.loads((tmp_path / "out/summary.json").read_text()) == rows
    assert (tmp_path / "out/table.csv").read_text().splitlines()[0] == ",".join(keys)
    assert "mean absolute error, unseen" in (tmp_path / "out/table.md").read_text()
    with pytest.raises(UnseenError, match="two runs have one seed"):
        write_tables(tmp_path / "out", [result, result], "a command")
    with pytest.raises(UnseenError, match="differ by their seed alone"):
        write_tables(tmp_path / "out", [result, {**result, "method": "other"}], "a command")


def say(*words):
    app(
        ["estimate", *map(str, words), "--task", "toy_domains:make"],
        exit_on_error=False,
        result_action="return_value",
    )


def test_the_command(run, tmp_path, capsys):
    with stdout_for_results_only():
        say(run.folder, "--domain", "foggy", "--json")
    out = capsys.readouterr()
    result = json.loads(out.out)["domains"]["foggy"]
    assert {"estimates", "intervals", "accuracy", "errors", "extrapolates", "n"} <= set(
        result
    ) and result["n"] == 300
    assert ("fallback: max_softmax" in out.err) == (run.config["method"] == "erm")
    say(run.folder, "--all", "--out", tmp_path / "out")
    assert "mean error" in capsys.readouterr().out and (tmp_path / "out/summary.json").exists()
    for words, text in (
        ([run.folder], "--domain, or ask for --all"),
        ([run.folder, "--all", "--domain", "foggy"], "--domain, or ask for --all"),
        ([run.folder, "--domain", "mars"], 'no domain "mars"'),
        ([run.folder, "--domain", "foggy", "--out", tmp_path], "add --all"),
        ([run.folder, "--all", "--level", "2"], "--level must lie between 0 and 1"),
        (["--all"], "name a finished run"),
    ):
        with pytest.raises(UnseenError, match=text):
            say(*words)


def test_a_broken_file_in_the_run_is_made_again(run, net, caplog):
    (run.folder / FILE).write_text("[]")
    made = estimator_of(Run(run.folder), make(), net)
    assert (
        made.points
        and AccuracyEstimator.load(run.folder / FILE) == made
        and "must hold a JSON object" in caplog.text
    )
    assert isinstance(made.points[0], Point)

"""Losses beside cross-entropy: targets, mixup, score, alarm, verdict, adaptation, runs, report."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import unseen as command
from own_regression import labels, mlp, prices, regression
from tiny import TinyNet, tiny_batch
from torch import nn

import unseen
from unseen import METHODS, UnseenError
from unseen.adaptation import ADAPTATIONS, fine_tune
from unseen.functional.metrics import average_precisions
from unseen.functional.mixup import mixed_loss
from unseen.nn.objectives import CrossEntropy, make_objective
from unseen.training.run import Run
from unseen.training.train import train

QUICK = {
    "uncertainty_guided": {"warmup": 30, "draws": 1, "adversary": {"rounds": 2, "steps": 5}},
    "gud": {"every": 10, "rounds": 1, "capacity": 16, "ascent_steps": 1},
    "m_ada": {"every": 10, "rounds": 1, "capacity": 16, "ascent_steps": 1},
    "bnn": {"passes": 4},
    "mc_dropout": {"passes": 4, "rate": 0.1},
}
IMAGES_ONLY = {"cutout", "autoaugment", "self_super", "jigen", "par"}


def absolute(output, target):
    return (output - target.reshape(output.shape)).abs()


KINDS = {"mse": regression, "huber": regression, "bce": labels, "own": regression}


def make(name, loss):
    torch.manual_seed(0)
    return METHODS[name](
        mlp(3 if loss == "bce" else 1), sites=["0"], embedding="2", lr=1e-2,
        loss=absolute if loss == "own" else loss, **QUICK.get(name, {}),
    )  # fmt: skip


def fitted(name, loss, steps=60):
    net, (x, y) = make(name, loss), KINDS[loss]("train").tensors
    loader = [(x[i : i + 40], y[i : i + 40]) for i in range(0, 240, 40)]
    history = unseen.fit(net, loader, steps=steps, held_out=[KINDS[loss]("val")[:]], progress=False)
    return net, history


# ---- every method, every loss


@pytest.mark.parametrize("loss", ["mse", "bce", "own"])
@pytest.mark.parametrize("name", [n for n in METHODS if n not in IMAGES_ONLY])
def test_method_learns_alarms_and_reloads(name, loss, tmp_path):
    (x, y), (far, _) = (KINDS[loss]("test", shift).tensors for shift in (0.0, 40.0))
    start, (net, _) = make(name, loss), fitted(name, loss)
    first, last = (float(n.objective(n.predict(x), y)) for n in (start, net))
    assert last < 0.9 * first, f"{first} -> {last}"
    assert net.predict(x).shape == (240, 3 if loss == "bce" else 1)
    assert net.verdict(x).verdict == "ok" and not net.alarm(x)
    if name not in ("bnn", "mc_dropout") or loss != "bce":  # saturated labels do not vary
        assert net.verdict(far).verdict == "shifted" and net.alarm(far)
    net.save(tmp_path)
    functions = {"loss": absolute} if loss == "own" else {}
    again = unseen.load(tmp_path, mlp(3 if loss == "bce" else 1), **functions)
    assert torch.equal(again.predict(x), net.predict(x)) and again.loss == net.loss
    assert again.domain_score(x) == pytest.approx(net.domain_score(x))


@pytest.mark.parametrize("name", ["self_super", "jigen", "cutout"])
def test_methods_on_images_take_a_regression(name):
    x, y = torch.rand(8, 2, 9, 9), torch.rand(8)
    net = METHODS[name](TinyNet(1), embedding="fc1", loss="mse")
    assert net.step((x, y))["loss"].isfinite()


def test_par_names_the_loss_it_needs():
    with pytest.raises(UnseenError, match="par classifies patches: it needs loss cross_entropy"):
        METHODS["par"](TinyNet(), loss="mse")


def test_verdict_without_classes_states_no_accuracy():
    net, _ = fitted("erm", "mse")
    verdict = net.verdict(regression("test", 40.0).tensors[0])
    facts = json.loads(json.dumps(verdict.as_dict()))
    assert facts["predicted_accuracy"] is None and facts["interval"] is None
    assert "accuracy" not in verdict.sentence and "Differs from the source" in verdict.sentence
    for ask in (net.estimate_accuracy, net.correctness):
        with pytest.raises(
            UnseenError, match=r"accuracy is not defined for loss mse: use net.verd"
        ):
            ask(regression("test").tensors[0])


def test_output_without_a_feature_axis_is_a_column():
    class Squeezed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(1)

        def forward(self, x):
            return self.body(x).squeeze(-1)

    net = unseen.UncertaintyGuided(
        Squeezed(), sites=["body.0"], embedding="body.2", loss="mse", warmup=1, draws=2
    )
    x, y = regression("train").tensors
    unseen.fit(net, [(x, y)], steps=3, progress=False)
    assert net.predict(x).shape == (240, 1)


def test_score_of_a_regression_reads_what_enters_the_last_layer_that_runs():
    class Registered(nn.Module):
        def __init__(self):
            super().__init__()
            self.out, self.idle, self.hidden = nn.Linear(6, 1), nn.Linear(6, 6), nn.Linear(5, 6)

        def forward(self, x):
            return self.out(self.hidden(x).relu())

    x, y = torch.randn(64, 5), torch.randn(64)
    net = unseen.ERM(Registered(), loss="mse")
    with pytest.raises(UnseenError, match="the first step finds"):
        net.uncertainty(x)
    unseen.fit(net, [(x, y)], steps=2, held_out=[(x, y)], progress=False)
    assert net.embedding == net.detector.layer == "out:input"


# ---- targets


@pytest.mark.parametrize(
    ("loss", "y", "text"),
    [
        ("mse", torch.rand(4, 2), r"targets have shape \(4, 2\), the model returned \(4, 3\)"),
        ("mse", torch.full((4, 3), torch.nan), "sample index 0.*target is not a finite number"),
        ("bce", torch.full((4, 3), 2.0), "sample index 0.*labels of bce must be 0 or 1"),
        ("bce", torch.full((4, 3), -100.0), "every label of this batch is the ignored one"),
        ("bce", torch.zeros(4, dtype=torch.int64), "labels have shape"),
        (
            lambda o, t: (o - t).mean(),
            torch.rand(4, 3),
            r"one loss for each of the 4 samples.*\(\)",
        ),
        (lambda o: o, torch.rand(4, 3), "the function given as loss failed.*TypeError"),
        ("cross_entropy", torch.eye(4, 3).long(), r"y.argmax\(1\); several labels need loss"),
        ("cross_entropy", torch.zeros(4, 1, dtype=torch.int64), r"give y.squeeze\(1\)"),
    ],
)
def test_targets_and_losses_that_do_not_fit_are_named(loss, y, text):
    net = unseen.ERM(TinyNet(), loss=loss)
    with pytest.raises(UnseenError, match=text):
        net.step((tiny_batch().x[0], y))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"loss": "hinge"}, "loss must be one of cross_entropy, bce, mse, huber, or a function"),
        ({"loss": "mse", "label_smoothing": 0.1}, "label_smoothing is for loss cross_entropy"),
        ({"class_weights": [1.0, -1.0]}, "class_weights must be a number above 0"),
        ({"class_weights": "auto"}, "class_weights must be a list of numbers"),
        ({"loss": nn.MSELoss}, r"the class MSELoss: give an object, MSELoss\(reduction="),
        ({"label_smoothing": 1.0}, "label_smoothing must lie between 0 and 1"),
    ],
)
def test_invalid_loss_settings_are_named(settings, text):
    with pytest.raises(UnseenError, match=text):
        unseen.ERM(TinyNet(), **settings)


def test_class_weights_may_be_arrays():
    for weights in (torch.tensor([1.0, 2.0, 1.0]), np.array([1.0, 2.0, 1.0], np.float32)):
        assert unseen.ERM(TinyNet(), class_weights=weights).class_weights == (1.0, 2.0, 1.0)


def test_class_weights_must_fit_the_model():
    with pytest.raises(UnseenError, match="class_weights has 2 numbers, the model has 3 outputs"):
        unseen.ERM(TinyNet(), class_weights=[1.0, 2.0]).step(tiny_batch())


# ---- formulas


def test_cross_entropy_with_weights_and_smoothing_is_that_of_torch():
    logits, y = torch.randn(6, 3), torch.tensor([0, 1, 2, -100, 1, 0])
    loss = CrossEntropy(-100, [1.0, 2.0, 0.5], 0.1)
    expected = F.cross_entropy(
        logits, y, torch.tensor([1.0, 2.0, 0.5]), ignore_index=-100, label_smoothing=0.1
    )
    torch.testing.assert_close(loss(logits, y), expected)


@pytest.mark.parametrize("name", ["erm", "uncertainty_guided"])
def test_a_model_that_returns_probabilities_is_warned_of_once_with_the_remedy(name, caplog):
    """Before the first update; logits, also those that are all positive, are not warned of."""
    text = "the model returns probabilities"
    net = METHODS[name](nn.Sequential(TinyNet(), nn.Softmax(1)), sites=["0.conv1"])
    for _ in range(2):
        net.step(tiny_batch(6))
    assert caplog.text.count(text) == 1
    caplog.clear()
    remedied = nn.Sequential(TinyNet(), nn.Softmax(1))
    METHODS[name](remedied, sites=["0.conv1"], output=lambda p: p.clamp_min(1e-9).log()).step(
        tiny_batch(6)
    )
    METHODS[name](nn.Sequential(TinyNet(), nn.Softplus()), sites=["0.conv1"]).step(tiny_batch(6))
    assert text not in caplog.text


def test_probabilities_of_bf16_and_of_pixels_are_recognized(caplog):
    y = torch.zeros(2, 4, 4, dtype=torch.int64)
    CrossEntropy().check(torch.randn(2, 10, 4, 4).softmax(1).bfloat16(), y)
    assert "the model returns probabilities" in caplog.text


def test_mixed_cross_entropy_with_equal_weights_is_the_plain_one():
    logits, y = torch.randn(8, 3), torch.tensor([0, 1, 2, -100])
    lam, smoothing = torch.rand(2, 4), torch.rand(2, 4)
    weighted = CrossEntropy(-100, [2.0, 2.0, 2.0]).mixed(logits, y, lam, smoothing, 0.9)
    torch.testing.assert_close(weighted, mixed_loss(logits, y, lam, smoothing, 0.9, -100))


def test_mixup_of_each_loss_follows_its_definition():
    output, y = torch.randn(4, 2), torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    lam, smoothing, rho = torch.tensor([[0.2, 0.7], [1.0, 0.0]]), torch.rand(2, 2), 0.9
    bce, mse = make_objective("bce"), make_objective("mse")
    rows = []
    for k in range(2):
        for i in range(2):
            smoothed = rho * y[i] + (1 - rho) * (1 - y[i])
            partly = y[i] + smoothing[k, i] * (smoothed - y[i])
            rows.append(lam[k, i] * y[i] + (1 - lam[k, i]) * partly)
    expected = F.binary_cross_entropy_with_logits(output, torch.stack(rows))
    torch.testing.assert_close(bce.mixed(output, y, lam, smoothing, rho), expected)
    # A regression mixes features of one sample: its target is that of the sample.
    torch.testing.assert_close(
        mse.mixed(output, y, lam, smoothing, rho), F.mse_loss(output, torch.cat([y, y]))
    )
    # Pairs of samples have interpolated targets.
    first, partner = output[:2], y.flip(0)
    torch.testing.assert_close(
        mse.paired(first, y, partner, 0.3), F.mse_loss(first, 0.3 * y + 0.7 * partner)
    )
    torch.testing.assert_close(
        bce.paired(first, y, partner, 0.3),
        F.binary_cross_entropy_with_logits(first, 0.3 * y + 0.7 * partner),
    )
    own = make_objective(absolute)
    both = 0.3 * absolute(first, y).mean() + 0.7 * absolute(first, partner).mean()
    torch.testing.assert_close(own.paired(first, y, partner, 0.3), both)


def test_missing_labels_do_not_count():
    output = torch.randn(2, 3)
    y = torch.tensor([[1.0, -100.0, 0.0], [-100.0, 1.0, 1.0]])
    counted = y != -100
    losses = F.binary_cross_entropy_with_logits(output, y.clamp(min=0), reduction="none")
    bce = make_objective("bce")
    torch.testing.assert_close(bce(output, y), losses[counted].mean())
    values = average_precisions(output, y)
    assert values[0] == 1 and values[1] == 1 and values.shape == (3,)


# ---- adaptation


def test_fine_tuning_takes_the_loss_of_the_method():
    net, _ = fitted("erm", "mse")
    x, y = regression("train", 3.0).tensors
    adapted = fine_tune(net, x, y, steps=200, lr=1e-2)
    before, after = (F.l1_loss(m(x).detach().squeeze(1), y) for m in (net.model.eval(), adapted))
    assert after < 0.5 * before


@pytest.mark.parametrize("name", [n for n in ADAPTATIONS if n != "fine_tune"])
def test_adaptation_by_classes_names_the_alternative(name):
    net, _ = fitted("erm", "mse", steps=1)
    with pytest.raises(UnseenError, match=f"{name} reads classes: .*use fine_tune"):
        ADAPTATIONS[name](net, embedding="2")


# ---- tasks and commands


def test_task_checks_its_metric():
    with pytest.raises(UnseenError, match="loss huber goes with metric mae, not accuracy"):
        import dataclasses

        dataclasses.replace(prices(), metric="accuracy")


def test_task_with_an_own_loss_runs(tmp_path):
    import dataclasses

    task = dataclasses.replace(prices(), loss=absolute)
    run = train(task, "erm", tmp_path / "run", progress=False)
    assert Run(tmp_path / "run").load(task).loss is absolute
    assert run.records()[-1]["metric"] == "mae"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("losses")
    for name in ("prices", "tags"):
        for method in ("erm", "uncertainty_guided"):
            done = command(
                "train", f"own_regression:{name}", "--method", method, "--out",
                folder / name / method,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", ["prices", "tags"])
def test_commands_work_without_classes(runs, name, tmp_path):
    run, task = runs / name / "uncertainty_guided", ("--task", f"own_regression:{name}")
    metric = {"prices": "mae", "tags": "map"}[name]
    for method in ("erm", "uncertainty_guided"):
        result = command("evaluate", runs / name / method, *task, "--json").json()
        worse = result["domains"]["far"][metric] > result["source"][metric]
        assert worse is (metric == "mae")
    shown = command("evaluate", run, *task)
    assert shown.returncode == 0 and metric in shown.stdout
    verdict = command("score", run, "--domain", "far", *task, "--json").json()
    assert verdict["verdict"] == "shifted" and verdict["predicted_accuracy"] is None
    shown = command("score", run, "--domain", "near", "--per-sample", tmp_path / "s.csv", *task)
    assert shown.returncode == 0 and "accuracy" not in shown.stdout
    assert (tmp_path / "s.csv").read_text().startswith("sample,score\n")
    done = command("monitor", run, "--domain", "far", "--batch", 40, *task)
    assert done.returncode == 0, done.stderr
    done = command("adapt", run, "--domain", "far", "--shots", 30, "--draws", 2, *task, "--json")
    result = done.json()
    better = result["after_mean"] < result["before"]
    assert (result["metric"] == metric and better is (metric == "mae")) or name == "tags"
    for asked in (("estimate", run, "--domain", "far"), ("compare-scores", run, "--out", tmp_path)):
        refused = command(*asked, *task)
        assert refused.returncode == 2 and "accuracy is not defined for loss" in refused.stderr


def test_report_shows_errors_in_their_unit_and_marks_the_least(runs, tmp_path):
    for method in ("erm", "uncertainty_guided"):
        command("evaluate", runs / "prices" / method, "--task", "own_regression:prices")
        command("evaluate", runs / "tags" / method, "--task", "own_regression:tags")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = command("report", runs / "prices", runs / "tags", "--out", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    text = "".join(p.read_text() for p in (tmp_path / "report").rglob("*.md"))
    page = (tmp_path / "report/report.html").read_text()
    assert "Results: mean absolute error\n" in text and "Results: mAP, %" in text
    assert "mean absolute error, %" not in text + page
    rows = Run(runs / "prices/erm").records()
    value = next(r["value"] for r in rows if (r["split"], r["domain"]) == ("test", "far"))
    assert f"{value:.3g}" in text

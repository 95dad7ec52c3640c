"""Adaptation: the contract, fine-tuning, keeping the source, saved runs, commands."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shifted import PointNet, accuracy, few, pictures, points, start, strips
from torch import nn
from torch.utils.data import TensorDataset

from unseen import Domain, UnseenError, cli
from unseen.adaptation import (
    ADAPTATIONS,
    FEW_LABELS,
    UNLABELLED,
    Labelled,
    adapted_model,
    draw_shots,
    fine_tune,
)
from unseen.adaptation.base import Unlabelled, descend
from unseen.cli import adapt as cli_adapt
from unseen.cli import adaptations as cli_adaptations
from unseen.experiments import evaluate as exam
from unseen.experiments.adapt import Plan, adapt, interpolate, limit_source_loss
from unseen.experiments.score import score as score_domain
from unseen.training.run import Run
from unseen.training.train import train

ROOT = Path(__file__).parents[2]
QUICK = {
    "fine_tune": {"steps": 3},
    "fada": {"steps": 4, "discriminator_steps": 2},
    "ccsa": {"steps": 3},
    "dirt_t": {"steps": 4, "refresh": 1},
    "se": {"steps": 3},
    "sbada": {"steps": 4, "width": 4},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train(strips(), "erm", tmp_path_factory.mktemp("runs") / "run", progress=False)


# ---- the contract


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_every_adaptation_leaves_the_model_alone_repeats_itself_and_moves_every_weight(name):
    model = start("pictures")
    before = copy.deepcopy(model.state_dict())
    source, target = pictures(), few(pictures(0.5), 5)
    torch.manual_seed(5)
    undisturbed = torch.get_rng_state()
    first, again = (
        adapted_model(name, model, source, target, embedding="fc1", batch=8, seed=3, **QUICK[name])
        for _ in range(2)
    )
    assert torch.equal(torch.get_rng_state(), undisturbed)
    assert (
        all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        and not model.conv1._forward_hooks
    )
    assert type(first) is type(model) and not first.training
    for key, weight in first.state_dict().items():
        assert torch.equal(weight, again.state_dict()[key]) and not torch.equal(
            weight, before[key]
        ), key
    other = adapted_model(
        name, model, source, target, embedding="fc1", batch=8, seed=4, **QUICK[name]
    )
    assert not torch.equal(first.conv1.weight, other.conv1.weight)


@pytest.mark.parametrize(
    "name", [name for name, kind in ADAPTATIONS.items() if kind.needs == UNLABELLED]
)
def test_unlabelled_methods_never_see_labels(name):
    x, y = pictures(0.5, n=40).tensors
    made = [
        adapted_model(
            name,
            start("pictures"),
            pictures(),
            TensorDataset(x, labels),
            embedding="fc1",
            batch=8,
            **QUICK[name],
        )
        for labels in (y, 1 - y)
    ]
    assert torch.equal(made[0].fc2.weight, made[1].fc2.weight)
    assert Unlabelled(TensorDataset(x, y))[3][1] == -1


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_every_adaptation_has_a_card_with_its_settings(name):
    card = (ROOT / f"docs/adaptation/{name}.md").read_text()
    own = ADAPTATIONS[name].settings_of().keys() - ADAPTATIONS["fine_tune"].settings_of().keys()
    assert all(f"`{setting}`" in card for setting in own), own
    assert {"steps", "batch", "lr", "embedding"} <= ADAPTATIONS[name].settings_of().keys()


@pytest.mark.parametrize("name", ["fada", "ccsa", "dirt_t"])
def test_methods_that_read_the_embedding_ask_for_its_name(name):
    with pytest.raises(UnseenError, match="name its last hidden layer"):
        adapted_model(name, start("points"), points(), few(points(1.5), 2), steps=1)
    with pytest.raises(UnseenError, match='no embedding "fc9"; the model has: fc1, fc2, fc3'):
        adapted_model(
            name, start("points"), points(), few(points(1.5), 2), steps=1, embedding="fc9"
        )


@pytest.mark.parametrize("name", ["se", "sbada"])
def test_methods_that_need_images_say_so(name):
    with pytest.raises(UnseenError, match=f"{name} needs images, one input"):
        adapted_model(name, start("points"), points(), points(1.5), steps=1)


@pytest.mark.parametrize("name", ["fada", "ccsa"])
def test_the_few_shot_methods_take_models_of_several_inputs(name):
    class Two(PointNet):
        def forward(self, x, scale):
            return super().forward(x * scale)

    model, (x, y) = Two(), points(n=20).tensors
    data = Labelled((x, torch.ones(20, 1)), y)
    adapted = adapted_model(name, model, data, data, embedding="fc2", batch=8, **QUICK[name])
    assert adapted(x, torch.ones(20, 1)).shape == (20, 2)


def test_nan_in_the_target_is_named():
    x, y = points(n=8).tensors
    with pytest.raises(UnseenError, match=r"target of fine_tune: .* the input holds NaN"):
        adapted_model(
            "fine_tune", start("points"), points(), TensorDataset(x * float("nan"), y), steps=2
        )


def test_descend_updates_only_its_optimizer():
    ours, theirs = nn.Linear(1, 1), nn.Linear(1, 1)
    kept = theirs.weight.clone()
    optimizer = torch.optim.SGD(ours.parameters(), 0.1)
    loss = theirs(ours(torch.ones(1, 1))).sum()
    slope = theirs.weight.item()
    was = ours.weight.item()
    descend(optimizer, loss)
    assert ours.weight.item() == pytest.approx(was - 0.1 * slope) and theirs.weight.grad is None
    assert torch.equal(theirs.weight, kept)


# ---- shots and fine-tuning


def test_shots_are_so_many_of_each_class_and_differ_by_draw():
    y = torch.tensor([0, 1, 2] * 20)
    draws = [draw_shots(y, 4, 3, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert y[draws[0]].bincount().tolist() == [4, 4, 4] and len(set(draws[0].tolist())) == 12
    with pytest.raises(UnseenError, match="one label per sample"):
        draw_shots(torch.zeros(5, 4, 4, dtype=torch.int64), 1, 3, torch.Generator())


def test_fine_tuning_learns_the_target_from_few_labels_and_is_what_the_function_does():
    model, target = start("points"), few(points(1.5), 5)
    assert accuracy(model, points(1.5, seed=9)) < 0.6
    tuned = adapted_model("fine_tune", model, target, target, steps=60, lr=0.01)
    assert accuracy(tuned, points(1.5, seed=9)) > 0.95
    same = fine_tune(model, *target.tensors, steps=60, lr=0.01)
    assert torch.equal(tuned.fc1.weight, same.fc1.weight)


def test_fine_tuning_keeps_batchnorms_statistics():
    model = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model[1].running_mean.fill_(0.5)
    tuned = fine_tune(model, *points(1.5, n=16).tensors, steps=5, lr=0.1)
    assert torch.equal(tuned[1].running_mean, model[1].running_mean) and not torch.equal(
        tuned[0].weight, model[0].weight
    )


# ---- what the source may lose


def test_interpolation_is_linear_in_the_weights():
    start_, end = nn.BatchNorm1d(2), nn.BatchNorm1d(2)
    nn.init.constant_(end.weight, 3.0)
    end.running_mean.fill_(8.0)
    end.num_batches_tracked.fill_(7)
    quarter = interpolate(start_, end, 0.25)
    assert quarter.weight.tolist() == [1.5, 1.5] and quarter.running_mean.tolist() == [2.0, 2.0]
    assert end.weight.tolist() == [3.0, 3.0] and quarter.num_batches_tracked == 0


@pytest.mark.parametrize(("bound", "share"), [(0.5, 1.0), (0.3, 0.6), (0.0, 0.0)])
def test_interpolation_keeps_source_loss_within_bound(bound, share):
    start_, end = nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)
    nn.init.constant_(start_.weight, 0.0)
    nn.init.constant_(end.weight, 1.0)

    def worth(model: nn.Module) -> float:
        return 0.9 - 0.5 * model.weight.item()  # loses half a point for each step of the way

    kept, gone = limit_source_loss(start_, end, worth, bound)
    assert share - 1 / 100 <= gone <= share and kept.weight.item() == pytest.approx(gone)
    assert worth(kept) >= 0.9 - bound - 1e-6


def test_keeping_the_source_bounds_what_it_loses(trained):
    rough = {"steps": 60, "lr": 0.05}  # rough enough to forget the source
    free = adapt(trained, strips(), shots=5, draws=2, settings=rough, progress=False)
    kept = adapt(
        trained, strips(), shots=5, draws=2, settings=rough, keep_source=0.02, progress=False
    )
    assert free["source_before"] - free["source_after"] > 0.1 and free["shares"] == [1.0, 1.0]
    assert (
        kept["source_before"] - kept["source_after"] <= 0.03
    )  # the bound, and what 400 other samples may differ by
    assert all(0 <= share < 1 for share in kept["shares"]) and kept["keep_source"] == 0.02
    assert kept["before"] <= kept["after_mean"] <= free["after_mean"]


# ---- a run to deploy


@pytest.mark.usefixtures("quick_estimators")
@pytest.mark.parametrize("method", ["erm", "uncertainty_guided"])
def test_adapted_run_can_be_evaluated_scored_and_adapted(tmp_path, method):
    begun = train(strips(), method, tmp_path / "run", overrides={"steps": 60}, progress=False)
    settings = {"steps": 60, "lr": 0.01}
    result = adapt(
        begun,
        strips(),
        shots=5,
        draws=2,
        settings=settings,
        out=tmp_path / "adapted",
        progress=False,
    )
    made = Run(tmp_path / "adapted")
    told = exam.evaluate(made, strips())
    assert (
        told["adapted_to"] == "right" and told["average"] is None
    )  # no domain is left that it has seen no label of
    assert told["domains"]["right"]["accuracy"] == pytest.approx(result["after"][0])
    assert (
        told["source"]["accuracy"] != told["domains"]["right"]["accuracy"]
        or result["after"][0] == 1
    )
    assert (
        made.config["run"] != begun.config["run"]
        and made.config["adapted"]["from"] == begun.config["run"]
    )
    assert made.config["adapted"]["shots"] == 5 and made.config["adapted"]["settings"]["lr"] == 0.01
    near = score_domain(made, strips(), "source")
    assert not near[
        "alarm"
    ]  # its statistics are its own: the start's would not fit the moved weights
    if method == "erm":  # the heads' sigma at the first site depends on the input alone
        old, new = begun.load(strips(), "cpu"), made.load(strips(), "cpu")
        assert not torch.equal(old.detector.statistics.mean, new.detector.statistics.mean)
    again = adapt(made, strips(), shots=5, draws=1, settings=settings, progress=False)
    assert again["before"] == pytest.approx(result["after"][0])
    visible = (p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock"))
    assert sorted(visible) == ["adapted", "run"]
    with pytest.raises(UnseenError, match="exists already: choose another --out"):
        adapt(begun, strips(), shots=5, out=tmp_path / "adapted", progress=False)
    with pytest.raises(UnseenError, match="cannot be trained further"):
        train(
            strips(),
            method,
            tmp_path / "adapted",
            overrides={"steps": 60},
            resume=True,
            progress=False,
        )


# ---- bad input


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"by": "magic", "shots": 3},
            'no adaptation "magic"; there are: fine_tune, fada, ccsa, dirt_t, se, sbada',
        ),
        ({"by": "fada"}, "fada needs labels: give their number per class, e.g. --shots 7"),
        ({"by": "se", "shots": 3}, "se learns from the unlabelled target: omit --shots"),
        (
            {"shots": 3, "settings": {"stpes": 3}},
            "unknown setting stpes; known settings: steps, batch, lr",
        ),
        ({"shots": 3, "settings": {"steps": 1.5}}, "steps must be an integer, not 1.5"),
        ({"shots": 0}, "shots must be an integer of at least 1"),
        ({"shots": 3, "draws": 0}, "draws must be an integer of at least 1"),
        (
            {"shots": 3, "keep_source": 2.0},
            "keep_source \\(0.02 allows the source to lose 2 points\\) must lie between 0 and 1",
        ),
        ({"shots": 3, "domain": "left"}, "left is the source: name an unseen domain, one of right"),
        ({"shots": 999}, "class 0 has 200 labelled samples in this domain, 999 were asked for"),
        (
            {"by": "ccsa", "shots": 3, "settings": {"pair_weight": 2.0}},
            "pair_weight must lie between 0 and 1",
        ),
    ],
)
def test_bad_arguments_are_named(trained, asked, said):
    with pytest.raises(UnseenError, match=said):
        adapt(trained, strips(), **asked, progress=False)


def test_non_finite_weights_are_never_saved(trained, tmp_path):
    with pytest.raises(
        UnseenError, match=r"fine_tune: \S+ of the adapted model is not finite: lower lr"
    ):
        adapt(
            trained,
            strips(),
            shots=2,
            draws=1,
            settings={"steps": 1, "lr": 1e39},
            out=tmp_path / "out",
            progress=False,
        )
    assert not list(tmp_path.iterdir())


def test_a_domain_without_labels_is_refused_before_anything_is_trained(
    trained, tmp_path, monkeypatch
):
    task, hidden = strips(), points(1.5, 0.0)
    hidden.tensors = (hidden.tensors[0], torch.full_like(hidden.tensors[1], -100))
    task = replace(task, targets=(Domain("right", lambda split: hidden),))
    monkeypatch.setattr(
        "unseen.experiments.adapt.adapt_once", lambda *_, **__: pytest.fail("it trained first")
    )
    with pytest.raises(UnseenError, match="no labels that count"):
        adapt(trained, task, shots=None, by="dirt_t", out=tmp_path / "out", progress=False)


def test_plan_uses_the_run_embedding(trained):
    net = trained.load(strips(), "cpu")
    assert Plan.of(net, "fada", 3, {}).settings["embedding"] == "fc2"
    assert {kind.needs for kind in ADAPTATIONS.values()} == {FEW_LABELS, UNLABELLED}


# ---- the commands


def test_adapt_command_adapts_saves_and_refuses_to_overwrite(
    trained, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    words = f"adapt {trained.folder} --task shifted:strips --shots 5 --draws 2 --with ccsa"
    more = "--set steps=20 --lr 0.05 --keep-source 0.01 --out adapted --json"
    tokens = [*words.split(), *more.split()]
    with pytest.raises(SystemExit) as ended:
        cli.main(tokens)
    assert not ended.value.code
    result = json.loads(capsys.readouterr().out)
    assert result["with"] == "ccsa"
    assert result["settings"]["steps"] == 20 and result["settings"]["lr"] == 0.05
    assert len(result["after"]) == len(result["shares"]) == 2 and result["domain"] == "right"
    assert Run(tmp_path / "adapted").config["adapted"]["with"] == "ccsa"
    with pytest.raises(SystemExit) as ended:
        cli.main(tokens)
    refused = capsys.readouterr()
    assert ended.value.code == 2 and "adapted exists already" in refused.err
    assert refused.out == ""


def test_adapt_command_reports_source_loss(trained, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cli_adapt, "task_of", lambda *names, **options: strips())
    cli_adapt.adapt(trained.folder, shots=5, draws=2, steps=60, lr=0.05)
    shown = capsys.readouterr()
    assert (
        "fine_tune from erm, 5 labels per class, 2 draws" in shown.out
        and "±" in shown.out
        and "source" in shown.out
    )
    assert "unseen: the source lost" in shown.err and "--keep-source 0.02" in shown.err
    cli_adapt.adapt(
        trained.folder,
        shots=5,
        draws=1,
        steps=60,
        lr=0.05,
        keep_source=0.02,
        out=tmp_path / "adapted",
    )
    shown = capsys.readouterr()
    assert (
        "may lose 2.0 points: interpolation coefficients" in shown.out
        and "next: unseen evaluate" in shown.out
        and "the source lost" not in shown.err
    )


def test_adaptations_command_lists_all(capsys):
    cli_adaptations.adaptations(json_=True)
    listed = json.loads(capsys.readouterr().out)["adaptations"]
    assert [kind["name"] for kind in listed] == list(ADAPTATIONS)
    assert listed[1]["settings"]["confusion_weight"] == 0.2 and listed[1]["needs"] == "few labels"
    cli_adaptations.adaptations("se")
    assert "0.968" in capsys.readouterr().out

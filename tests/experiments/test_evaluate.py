"""Records of domain scores."""

from __future__ import annotations

import torch
from tiny import TinyNet
from torch.utils.data import TensorDataset

from unseen import Domain, Task
from unseen.experiments.evaluate import evaluate, recalibrate
from unseen.training.train import train


def domain(name: str, shift: float) -> Domain:
    y = torch.arange(48) % 3
    noise = torch.randn(48, 2, 8, 8, generator=torch.Generator().manual_seed(3))
    data = TensorDataset(noise + y.view(-1, 1, 1, 1) + shift, y)
    return Domain(name, lambda split: data)


def tiny_task() -> Task:
    return Task(
        name="tiny",
        summary="a toy",
        classes=3,
        model=TinyNet,
        sites=("conv1",),
        embedding="fc1",
        source=domain("near", 0.0),
        targets=(domain("far", 2.0), domain("farther", 5.0)),
        presets={"fast": {"steps": 4, "batch_size": 8}},
    )


def scores_of(run) -> dict[str, dict[str, float]]:
    scores: dict[str, dict[str, float]] = {}
    for record in run.records():
        if record["split"] == "score":
            scores.setdefault(record["domain"], {})[record["metric"]] = record["value"]
    return scores


def test_evaluate_records_domain_scores_and_recalibrate_removes_them(tmp_path):
    run = train(tiny_task(), "uncertainty_guided", tmp_path / "run", progress=False)
    for _ in range(2):
        evaluate(run, tiny_task())
    scores = scores_of(run)
    assert set(scores) == {"near", "far", "farther"}
    assert all(set(values) == {"domain_score", "score_threshold"} for values in scores.values())
    assert sum(record["split"] == "score" for record in run.records()) == 6
    recalibrate(run, tiny_task(), "site")
    assert scores_of(run) == {}

"""Every task's backbone, a ViT and a BERT give the same verdict in onnxruntime as in torch."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from exported import calibrated, with_estimator
from torch import nn

from unseen.deploy import OnnxDetector, export_onnx
from unseen.methods import Noise
from unseen.models import AllConv, DigitsNet, FCN32s, LeNet, ReviewMLP, WideResNet

N = 40


def images(*shape: int) -> torch.Tensor:
    return torch.rand(N, *shape, generator=torch.Generator().manual_seed(0))


BACKBONES = {
    # model, sites, embedding, shape, classes, where the task reads the score, map of labels
    "digits": (DigitsNet, ["conv1", "conv2"], "fc2", (3, 32, 32), 10, "embedding", ()),
    "cifar10_c": (lambda: AllConv(width=0.2), ["conv1"], "pool", (3, 32, 32), 10, "site", ()),
    "cifar10_c/wrn": (
        lambda: WideResNet(depth=10, width=1), ["conv1"], "pool", (3, 32, 32), 10, "embedding", (),
    ),
    "google_commands": (
        lambda: LeNet(5), ["conv1"], "fc2", (1, 32, 32), 5, "site", (),
    ),
    "amazon_reviews": (
        lambda: ReviewMLP(50), ["fc1"], "fc2", (50,), 2, "embedding", (),
    ),
    "driving": (
        lambda: FCN32s(4, depth=18, width=0.1), ["body.conv1"], "hidden", (3, 32, 32), 4, "site",
        (32, 32),
    ),
}  # fmt: skip


def check_equal(net, x, path) -> None:
    detector = OnnxDetector(path, threads=1)
    given = {n: t.numpy() for n, t in x.items()} if isinstance(x, dict) else x.numpy()
    logits, scores = detector.predict_and_score(given)
    expected, expected_scores = net.predict_with_uncertainty(x)
    np.testing.assert_allclose(logits, expected.numpy(), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(scores, expected_scores.numpy(), atol=1e-5, rtol=1e-5)
    assert detector.domain_score(given) == pytest.approx(net.domain_score(x), abs=1e-5)
    n = len(logits)
    assert detector.threshold(n, 0.05) == pytest.approx(net.threshold(n, 0.05), abs=1e-5)
    assert detector.alarm(given) == net.alarm(x)
    ours, theirs = detector.verdict(given), net.verdict(x)
    assert (ours.verdict, ours.alarm) == (theirs.verdict, theirs.alarm)
    assert ours.p_value == pytest.approx(theirs.p_value, abs=2e-3)
    assert ours.predicted_accuracy == pytest.approx(theirs.predicted_accuracy, abs=1e-5)
    assert ours.interval == pytest.approx(theirs.interval, abs=1e-5)


def judged(net, x, classes, maps=()):
    """Give the method a small accuracy estimator."""
    n = len(x) if isinstance(x, torch.Tensor) else len(next(iter(x.values())))
    y = torch.randint(classes, (n, *maps), generator=torch.Generator().manual_seed(0))
    return with_estimator(net, x, y)


OTHER = {"site": "embedding", "embedding": "site"}
CASES = [(name, case[5]) for name, case in BACKBONES.items()]
# The other place of every backbone takes as long again: one of them here, all on demand.
ALL = os.environ.get("UNSEEN_TORTURE")
CASES += [(n, OTHER[at]) for n, at in CASES if ALL or n == "amazon_reviews"]


@pytest.mark.parametrize(("name", "at"), CASES)
def test_exported_backbone_equals_torch(name, at, tmp_path):
    make, sites, embedding, shape, classes, _, maps = BACKBONES[name]
    torch.manual_seed(0)
    x = images(*shape)
    net = calibrated(make(), sites, embedding, x, classes, at=at, maps=maps)
    judged(net, x, classes, maps)
    export_onnx(net, x[:2], tmp_path / "model.onnx")
    check_equal(net, 0.5 * x[:7] + 0.2, tmp_path / "model.onnx")


def test_exported_kernel_head_equals_torch(tmp_path):
    x = images(1, 32, 32)
    torch.manual_seed(0)
    net = calibrated(LeNet(5), ["input"], "fc2", x, 5, noise=Noise(act="kernel"))
    judged(net, x, 5)
    assert net.detector.name == "sigma"
    export_onnx(net, x[:2], tmp_path / "model.onnx")
    check_equal(net, 0.5 * x[:7] + 0.2, tmp_path / "model.onnx")


def test_exported_vit_equals_torch(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        image_size=16, patch_size=8, num_labels=3,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config)
    x = images(3, 16, 16)
    site = "vit.embeddings.patch_embeddings.projection"
    net = judged(calibrated(model, [site], _last_norm(model), x, 3), x, 3)
    export_onnx(net, x[:2], tmp_path / "model.onnx")
    check_equal(net, x[:7] * 2, tmp_path / "model.onnx")


def test_exported_bert_equals_torch(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        vocab_size=30, max_position_embeddings=8, num_labels=3,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    g = torch.Generator().manual_seed(0)
    x = {
        "input_ids": torch.randint(30, (N, 8), generator=g),
        "attention_mask": (torch.arange(8) < torch.randint(3, 9, (N, 1), generator=g)).long(),
    }
    net = calibrated(
        model, ["bert.encoder.layer.0.intermediate.dense"], "bert.pooler.dense", x, 3,
        at="embedding",
    )  # fmt: skip
    judged(net, x, 3)
    export_onnx(net, {n: t[:2] for n, t in x.items()}, tmp_path / "model.onnx")
    check_equal(net, {n: t[5:12] for n, t in x.items()}, tmp_path / "model.onnx")


def _last_norm(model: nn.Module) -> str:
    return [name for name, m in model.named_modules() if isinstance(m, nn.LayerNorm)][-1]

"""Saving and loading of trained methods."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
from tiny import TinyNet, tiny_batch
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen import UnseenError
from unseen.methods import Adversary


@pytest.fixture
def trained():
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(
        TinyNet(), sites=["conv1"], embedding="fc1", draws=2, warmup=1, adversary=Adversary(steps=1)
    )
    data = TensorDataset(torch.randn(40, 2, 8, 8), torch.randint(3, (40,)))
    return unseen.fit(net, DataLoader(data, 10), steps=5, progress=False).net


def test_load_restores_predictions_scores_and_threshold(trained, tmp_path):
    trained.save(tmp_path / "run")
    other = TinyNet()
    loaded = unseen.load(tmp_path / "run", other)
    x = tiny_batch(6).x[0]
    assert loaded.model is other and loaded.settings() == trained.settings()
    torch.testing.assert_close(loaded.predict(x), trained.predict(x), rtol=0, atol=0)
    torch.testing.assert_close(loaded.uncertainty(x), trained.uncertainty(x), rtol=0, atol=0)
    assert loaded.threshold(8, 0.05) == trained.threshold(8, 0.05) > 0
    logits, score = loaded.predict_with_uncertainty(x)
    torch.testing.assert_close(logits, loaded.predict(x))
    torch.testing.assert_close(score, loaded.uncertainty(x))


def test_saving_twice_writes_the_same_bytes(trained, tmp_path):
    for name in ("a", "b"):
        trained.save(tmp_path / name)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (
        tmp_path / "b/model.safetensors"
    ).read_bytes()


def test_tied_weights_can_be_saved(tmp_path):
    class Tied(TinyNet):
        def __init__(self):
            super().__init__()
            self.fc3 = torch.nn.Linear(6, 3)
            self.fc3.weight = self.fc2.weight

    net = unseen.ERM(Tied())
    net.save(tmp_path)
    unseen.load(tmp_path, Tied())


def test_weights_of_another_shape_are_named(trained, tmp_path):
    trained.save(tmp_path)
    with pytest.raises(
        UnseenError,
        match=r"does not fit this model: model.fc2.weight is \(3, 6\) in the file, \(4, 6\)",
    ):
        unseen.load(tmp_path, TinyNet(classes=4))


@pytest.mark.parametrize("damage", ["cut", "garbage", "gone", "foreign"])
def test_corrupt_weights_are_named(trained, tmp_path, damage):
    trained.save(tmp_path)
    path = tmp_path / "model.safetensors"
    content = path.read_bytes()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "garbage":
        path.write_bytes(b"\x80\x04 a pickle, or anything else" * 10)
    elif damage == "gone":
        path.unlink()
    else:
        path.write_bytes(safetensors.torch.save({"weight": torch.zeros(2)}))
    with pytest.raises(UnseenError, match=r"model\.safetensors"):
        unseen.load(tmp_path, TinyNet())


@pytest.mark.parametrize(
    "change, text",
    [
        ({"format": 99}, "format is 99, this version reads 1 and 2"),
        ({"method": "magic"}, 'no method "magic"; there are: erm'),
        ({"settings": {"warp": 9}}, r"config.json: unknown setting warp; known settings: .*lr"),
        ({"settings": 3}, "settings must be a table"),
    ],
)
def test_invalid_configuration_is_named(trained, tmp_path, change, text):
    trained.save(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UnseenError, match=text):
        unseen.load(tmp_path, TinyNet())


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(UnseenError, match=r"config.json does not exist: is .* a run folder"):
        unseen.load(tmp_path / "nowhere", TinyNet())

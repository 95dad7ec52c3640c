"""Rotation prediction: labels, loss, BatchNorm, the head."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import UnseenError
from unseen.api import Batch
from unseen.functional.losses import cross_entropy
from unseen.methods.self_super import SelfSuper, rotate, rotation_labels
from unseen.nn.heads import EmbeddingHead, embed
from unseen.nn.places import width_at


def slopes(seed: int, n: int = 8) -> Batch:
    """Noise on an upright gradient; the label is the channel of the gradient."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 2
    x = 0.3 * torch.randn(n, 2, 8, 8, generator=g)
    x[torch.arange(n), y] += torch.linspace(-2, 2, 8)[:, None]
    return Batch((x,), y)


def make(model=None, **settings):
    torch.manual_seed(0)
    return SelfSuper(model or TinyNet(2), **{"embedding": "fc1", "lr": 0.01, **settings}).train()


def rotations_told(net: SelfSuper, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return net.head(embed(net.model, "fc1", (rotate(x),))).argmax(1)


def test_rotations_by_hand():
    x = torch.tensor([[1.0, 2], [3, 4]]).view(1, 1, 2, 2)
    both = rotate(torch.cat([x, 10 * x]))
    assert both[::2].tolist() == [
        [[[1, 2], [3, 4]]],
        [[[2, 4], [1, 3]]],
        [[[4, 3], [2, 1]]],
        [[[3, 1], [4, 2]]],
    ]
    assert both[1::2].tolist() == (10 * both[::2]).tolist()
    assert rotation_labels(2).tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def test_head_learns_rotation_and_model_learns_classes():
    net, fresh = make(), slopes(999, 32)
    before = (rotations_told(net, fresh.x[0]) == rotation_labels(32)).float().mean()
    for seed in range(150):
        net.step(slopes(seed))
    assert (
        before < 0.5
        and (rotations_told(net, fresh.x[0]) == rotation_labels(32)).float().mean() > 0.9
    )
    assert (net.predict(fresh.x).argmax(1) == fresh.y).float().mean() > 0.9
    assert int(net.steps_done) == 150


def test_the_loss_is_the_class_and_half_the_rotation():
    net, batch = make(), tiny_batch(6, classes=2)
    source = cross_entropy(net.model(*batch.x), batch.y)
    z = []
    handle = net.model.fc1.register_forward_hook(lambda m, a, out: z.append(out))
    for turn in range(4):
        net.model(torch.rot90(batch.x[0], turn, (2, 3)))
    handle.remove()
    rotation = torch.stack(
        [cross_entropy(net.head(z[turn]), torch.full((6,), turn)) for turn in range(4)]
    ).mean()
    logs = net.losses(batch)
    torch.testing.assert_close(logs["loss"], source + 0.5 * rotation)
    torch.testing.assert_close(logs["rotation_loss"], rotation)


def test_the_rotation_teaches_the_model_too():
    """The rotation loss has gradients up to the embedding and not behind it."""
    net = make()
    net.losses(tiny_batch(classes=2))["rotation_loss"].backward()
    assert net.model.conv1.weight.grad.abs().sum() > 0 and net.model.fc2.weight.grad is None


def test_batchnorm_learns_from_upright_images_only():
    torch.manual_seed(0)
    net, plain, batch = make(TinyNet(2, norm=True)), TinyNet(2, norm=True).train(), slopes(0)
    plain.load_state_dict(net.model.state_dict())
    plain(*batch.x)
    net.step(batch)
    torch.testing.assert_close(net.model.norm.running_mean, plain.norm.running_mean)
    torch.testing.assert_close(net.model.norm.running_var, plain.norm.running_var)
    assert int(net.model.norm.num_batches_tracked) == 1


# ---- the head's place


class Mapped(nn.Module):
    """A model whose embedding is a map, behind layers that do not say how wide they are."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(2, 7, 3), nn.BatchNorm2d(7), nn.ReLU())
        self.pool = nn.AvgPool2d(2)
        self.out = nn.Linear(7 * 9, 3)

    def forward(self, x):
        return self.out(self.pool(self.body(x)).flatten(1))


@pytest.mark.parametrize("layer", ["body", "body.0", "body.2", "pool"])
def test_the_head_finds_its_width_and_averages_a_map(layer):
    net = make(Mapped(), embedding=layer)
    assert net.head.in_features == 7
    assert torch.isfinite(net.step(tiny_batch())["rotation_loss"])


def test_a_width_that_cannot_be_known_is_named():
    model = nn.Sequential(nn.Flatten(), nn.Linear(128, 3))
    with pytest.raises(UnseenError, match='no layer up to "0" declares its number of features'):
        width_at(model, "0")
    flat = nn.Sequential(nn.Conv2d(2, 7, 3), nn.Flatten(), nn.Linear(7 * 36, 3))
    with pytest.raises(
        UnseenError, match=r'the embedding "1" gives \(252,\) features, its layers declare 7'
    ):
        make(flat, embedding="1").step(tiny_batch())


def test_an_embedding_that_is_not_named_is_found_before_the_head_is_made():
    net = make(embedding=None)
    assert not hasattr(net, "head")
    net.step(tiny_batch(classes=2))
    assert net.embedding == "fc2:input" and isinstance(net.head, EmbeddingHead)
    assert net.head.in_features == net.model.fc2.in_features


def test_non_square_images_are_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(96, 6), nn.Linear(6, 3))
    with pytest.raises(UnseenError, match="expected square images, got 6 x 8"):
        make(model, embedding="1").step(
            Batch((torch.rand(4, 2, 6, 8),), torch.zeros(4, dtype=torch.int64))
        )
    with pytest.raises(
        UnseenError, match=r"self_super needs images, .* is given \(4, 96\) of float32"
    ):
        make(model, embedding="1").step(
            Batch((torch.rand(4, 96),), torch.zeros(4, dtype=torch.int64))
        )

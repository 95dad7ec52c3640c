"""JiGen: permutations, tiles, the auxiliary task."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import UnseenError
from unseen.api import Batch
from unseen.methods.jigen import JiGen, distant_permutations, shuffle_tiles
from unseen.models import DigitsNet


def make(model=None, **settings):
    torch.manual_seed(0)
    return JiGen(model or TinyNet(), **{"embedding": "fc1", "lr": 0.01, **settings}).train()


# ---- the orders


def test_the_orders_are_distinct_and_far_apart():
    orders = distant_permutations(31)
    assert orders.shape == (31, 9) and orders[0].tolist() == list(range(9))
    assert all(sorted(order) == list(range(9)) for order in orders.tolist())
    apart = (orders[:, None] != orders).sum(2)[~torch.eye(31, dtype=torch.bool)]
    g = torch.Generator().manual_seed(0)
    chance = torch.stack([torch.randperm(9, generator=g) for _ in range(31)])
    by_chance = (chance[:, None] != chance).sum(2)[~torch.eye(31, dtype=torch.bool)]
    assert (
        apart.min() >= 7
        and apart.min() > by_chance.min()
        and apart.float().mean() > by_chance.float().mean()
    )


def test_the_first_orders_are_as_far_apart_as_can_be():
    """Nine orders can differ in every tile, and no tenth can."""
    orders = distant_permutations(10)
    apart = (orders[:, None] != orders).sum(2)
    assert (apart[:9, :9] + 9 * torch.eye(9, dtype=torch.int64) == 9).all() and apart[
        9, :9
    ].min() == 8


# ---- the tiles


def test_shuffling_by_hand():
    x = torch.arange(9.0).view(1, 1, 3, 3)
    order = torch.tensor([[8, 0, 1, 2, 3, 4, 5, 6, 7]])
    assert shuffle_tiles(x, order).flatten().tolist() == [8, 0, 1, 2, 3, 4, 5, 6, 7]
    big = x.repeat_interleave(2, 2).repeat_interleave(
        4, 3
    )  # tiles of 2 x 4 pixels, each of one value
    assert shuffle_tiles(big, order)[0, 0, ::2, ::4].flatten().tolist() == [
        8,
        0,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]


@pytest.mark.parametrize("size", [(9, 9), (32, 32), (8, 10), (3, 4)])
def test_shuffling_back_gives_the_image_back(size):
    torch.manual_seed(0)
    x, orders = torch.rand(5, 2, *size), torch.stack([torch.randperm(9) for _ in range(5)])
    once = shuffle_tiles(x, orders)
    assert once.shape == x.shape and not torch.equal(once, x)
    assert torch.equal(shuffle_tiles(once, orders.argsort(1)), x)
    assert torch.equal(
        once.flatten(2).sort(2).values, x.flatten(2).sort(2).values
    )  # the same pixels, elsewhere
    assert torch.equal(shuffle_tiles(x, torch.arange(9).expand(5, 9)), x)


def test_an_image_of_32_keeps_a_border_of_one_pixel():
    torch.manual_seed(0)
    x = torch.rand(1, 1, 32, 32)
    moved = shuffle_tiles(x, distant_permutations(2)[1:]) != x
    inside = torch.zeros(32, 32, dtype=torch.bool)
    inside[1:31, 1:31] = True
    assert not moved[0, 0][~inside].any() and moved[0, 0][inside].all()


# ---- the method


def tinted(seed: int, n: int = 40) -> Batch:
    """Give every tile its own pattern, so that permutations are visible."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (n,), generator=g)
    tints = (
        torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
        .repeat_interleave(3, 1)
        .repeat_interleave(3, 2)
    )
    x = 0.05 * torch.randn(n, 2, 9, 9, generator=g) + tints
    x[:, 1] *= (2.0 * y - 1).view(-1, 1, 1)
    return Batch((x,), y)


def test_the_head_learns_the_puzzles_and_the_model_its_classes():
    model = nn.Sequential(nn.Flatten(), nn.Linear(162, 32), nn.ReLU(), nn.Linear(32, 2))
    net = make(model, embedding="2", puzzles=5)
    batch = tinted(999, 60)
    puzzle = torch.arange(60) % 6
    mixed = shuffle_tiles(batch.x[0], net.orders[puzzle])

    def told_right():
        with torch.no_grad():
            return float((net.head(model[:3](mixed)).argmax(1) == puzzle).float().mean())

    before = told_right()
    for seed in range(150):
        net.step(tinted(seed))
    assert before < 0.5 and told_right() > 0.9
    assert (net.predict(batch.x).argmax(1) == batch.y).float().mean() > 0.9
    assert int(net.steps_done) == 150


def watched(n: int, **settings) -> tuple[JiGen, list[torch.Tensor], list[torch.Tensor]]:
    """One step on n images; what the model and the head were given."""
    seen, given = [], []

    class Watching(TinyNet):
        def forward(self, x):
            seen.append(x.detach().clone())
            return super().forward(x)

    net = make(Watching(), **settings)
    net.prepare(tiny_batch(n))  # its first look at the model is not part of the step
    seen.clear()
    net.head.register_forward_hook(lambda m, args, out: given.append(args[0]))
    net.step(tiny_batch(n))
    return net, seen, given


@pytest.mark.parametrize("share, kept", [(0.6, 6), (0.01, 1), (0.9, 9)])
def test_a_share_of_each_batch_stays_ordered_and_the_rest_is_shuffled(share, kept):
    _, (ordered, rest), (z,) = watched(10, ordered_share=share, puzzles=1)
    source = {tuple(image.flatten().tolist()) for image in tiny_batch(10).x[0]}
    assert len(ordered) == kept and len(rest) == 10 - kept and len(z) == 10
    assert all(tuple(image.flatten().tolist()) in source for image in ordered)
    assert not any(tuple(image.flatten().tolist()) in source for image in rest)


def test_every_image_may_stay_ordered():
    _, seen, (z,) = watched(10, ordered_share=1.0)
    assert len(seen) == 1 and len(z) == 10


def test_shuffled_images_are_not_classified():
    """The class loss is that of the ordered images alone, and the jigsaw's counts for 0.7 of it."""
    net, batch = make(), tiny_batch(10)
    torch.manual_seed(5)
    logs = net.losses(batch)
    torch.manual_seed(5)
    ordered = torch.randperm(10)[:6]
    expected = nn.functional.cross_entropy(net.model(batch.x[0][ordered]), batch.y[ordered])
    torch.testing.assert_close(logs["source_loss"], expected)
    torch.testing.assert_close(logs["loss"], expected + 0.7 * logs["jigsaw_loss"])


def test_batchnorm_learns_from_ordered_images_only():
    net, batch = make(TinyNet(norm=True)), tiny_batch(10)
    plain = TinyNet(norm=True).train()
    plain.load_state_dict(net.model.state_dict())
    torch.manual_seed(5)
    net.step(batch)
    torch.manual_seed(5)
    plain(batch.x[0][torch.randperm(10)[:6]])
    torch.testing.assert_close(net.model.norm.running_mean, plain.norm.running_mean)
    assert int(net.model.norm.num_batches_tracked) == 1


def test_it_takes_the_digits_net_with_images_of_32():
    net = make(DigitsNet(), embedding="fc2")
    assert net.head.weight.shape == (31, 1024)
    assert torch.isfinite(net.step(Batch((torch.rand(4, 3, 32, 32),), torch.arange(4)))["loss"])


# ---- clear errors


def test_what_cannot_be_cut_into_tiles_is_refused():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 6), nn.Linear(6, 3))
    with pytest.raises(UnseenError, match="3 x 3 tiles; these have 2 x 2 pixels"):
        make(model, embedding="1").step(
            Batch((torch.rand(4, 2, 2, 2),), torch.zeros(4, dtype=torch.int64))
        )
    with pytest.raises(UnseenError, match=r"jigen needs images, .* is given \(4, 8\) of float32"):
        make(model, embedding="1").step(
            Batch((torch.rand(4, 8),), torch.zeros(4, dtype=torch.int64))
        )


def test_settings_are_checked():
    for share in (0.0, 1.5):
        with pytest.raises(UnseenError, match="ordered_share"):
            make(ordered_share=share)
    with pytest.raises(UnseenError, match="nine tiles have 362880 permutations"):
        make(puzzles=400_000)

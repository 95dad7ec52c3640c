"""Monte-Carlo dropout: masks, mean over passes, folding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import METHODS, UnseenError
from unseen.methods.mc_dropout import dropout_mask

MCDropout = METHODS["mc_dropout"]


def net_of(model=None, **settings):
    torch.manual_seed(0)
    return MCDropout(
        TinyNet() if model is None else model, **{"embedding": "fc1", "passes": 6, **settings}
    )


def test_a_mask_drops_the_stated_share_and_keeps_the_mean():
    mask = dropout_mask(torch.zeros(4, 20_000), 0.3, seed=1)
    assert mask.shape == (20_000,) and mask.unique().tolist() == pytest.approx([0, 1 / 0.7])
    assert float((mask == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert float(mask.mean()) == pytest.approx(1, abs=0.02)
    assert not torch.equal(mask, dropout_mask(torch.zeros(4, 20_000), 0.3, seed=2))


def test_training_drops_features_of_the_embedding_and_leaves_no_hook():
    net, batch = net_of(rate=0.9), tiny_batch(64)
    torch.manual_seed(1)
    loss = net.losses(batch)["loss"]
    z = net.model.fc1(
        torch.tanh(
            net.model.conv2(F.avg_pool2d(torch.tanh(net.model.conv1(*batch.x)), 2)).mean((2, 3))
        )
    )
    torch.manual_seed(1)
    expected = F.cross_entropy(net.model.fc2(torch.tanh(F.dropout(z, 0.9))), batch.y)
    torch.testing.assert_close(loss, expected)
    assert not any(m._forward_hooks for m in net.model.modules())


def test_a_prediction_is_the_mean_over_thinned_networks():
    net, batch = net_of(), tiny_batch()
    with torch.no_grad():
        z = net.model.fc1(
            torch.tanh(
                net.model.conv2(F.avg_pool2d(torch.tanh(net.model.conv1(*batch.x)), 2)).mean((2, 3))
            )
        )
        passes = torch.stack(
            [net.model.fc2(torch.tanh(z * dropout_mask(z, 0.5, k))).softmax(1) for k in range(6)]
        )
    logits, features = net.detector.look(batch.x)
    torch.testing.assert_close(logits.exp(), passes.mean(0))
    torch.testing.assert_close(features, passes.var(0).sum(1, keepdim=True))
    assert torch.equal(net.predict(batch.x), logits)
    torch.testing.assert_close(
        net.predict(tuple(t[2:] for t in batch.x)), logits[2:]
    )  # a mask is all samples' mask


class Counting(TinyNet):
    calls = 0

    def forward(self, x):
        Counting.calls += 1
        return super().forward(x)


class KnowsItsBatch(TinyNet):
    """Reads the batch's size before the embedding, so the batch must not grow inside."""

    def forward(self, x):
        n = len(x)
        x = F.avg_pool2d(torch.tanh(self.conv1(x)), 2)
        return self.fc2(torch.tanh(self.fc1(torch.tanh(self.conv2(x).mean((2, 3)))))[:n])


def test_the_layers_before_the_embedding_run_once_where_the_model_allows():
    net, batch = net_of(Counting()), tiny_batch()
    first = net.predict(batch.x)  # asks first
    Counting.calls = 0
    assert torch.equal(net.predict(batch.x), first) and Counting.calls == 1
    torch.testing.assert_close(
        net.forward_folded(batch.x, 6), torch.stack(list(net.forward_separately(batch.x, 6)))
    )


def test_a_model_whose_batch_may_not_grow_runs_every_pass():
    net, plain = net_of(KnowsItsBatch()), net_of()
    plain.model.load_state_dict(net.model.state_dict())
    torch.testing.assert_close(net.predict(tiny_batch().x), plain.predict(tiny_batch().x))
    assert net._can_fold is False and plain._can_fold is True


def test_maps_of_logits_are_averaged_over_pixels():
    model = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 3, 1))
    net = net_of(model, embedding="0")
    logits, features = net.detector.look(torch.rand(5, 2, 6, 6))
    assert logits.shape == (5, 3, 6, 6) and features.shape == (5, 1) and (features > 0).all()


def test_impossible_settings_are_named():
    for rate in (0.0, 1.0, True):
        with pytest.raises(
            UnseenError, match=r"rate must (lie between 0 and 1|be a finite number)"
        ):
            net_of(rate=rate)

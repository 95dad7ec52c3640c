"""The perturbed pass: folded draws against a loop, and a user's model that is left as it was."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from slow_noise import slow_two_site_forward, soft_cross_entropy
from tiny import TinyNet, tiny_batch
from torch import nn

from unseen import UncertaintyGuided, UnseenError
from unseen.api import Batch
from unseen.functional.mixup import mix_targets
from unseen.methods import Adversary, Noise
from unseen.nn.random import Draws

SEEDS = [11, 12, 13]


def tiny(model=None, head_input="clean", **settings):
    """Noise as printed in the paper."""
    torch.manual_seed(0)
    noise = Noise(scale=None, per="feature", sign="positive", head_input=head_input)
    return UncertaintyGuided(
        model or TinyNet(), sites=["conv1", "conv2"], embedding="fc1", noise=noise, **settings
    ).double()


def outputs(net, batch, seeds=SEEDS, mixing=True):
    params = {n: p.detach().requires_grad_() for n, p in net.model.named_parameters()}
    run = net.perturbed_forward(batch)
    return params, run(params, batch.x, Draws(seeds), net._mixing() if mixing else None)


@pytest.mark.parametrize("head_input", ["clean", "perturbed"])
def test_folded_draws_equal_a_loop_with_the_same_noise_in_values_and_gradients(head_input):
    net, batch = tiny(head_input=head_input), tiny_batch(dtype=torch.float64)
    params, folded = outputs(net, batch)
    y = batch.y
    fast = F.cross_entropy(folded.logits, y.repeat(3))
    soft = mix_targets(
        y.repeat(3), folded.lam.flatten(), folded.smoothing.flatten(), 3, net.mixup.rho
    )
    fast = fast + soft_cross_entropy(folded.mixed_logits, soft)

    slow = torch.zeros((), dtype=torch.float64)
    for k, seed in enumerate(SEEDS):
        plain, z, g1, _ = slow_two_site_forward(net, params, batch.x[0], seed, head_input)
        mixed, *_ = slow_two_site_forward(net, params, batch.x[0], seed, head_input, folded.lam[k])
        rows = slice(4 * k, 4 * k + 4)
        torch.testing.assert_close(folded.logits[rows], plain)
        torch.testing.assert_close(folded.mixed_logits[rows], mixed)
        torch.testing.assert_close(folded.embedding[rows], z)
        torch.testing.assert_close(folded.gaussians["conv1"].sigma, g1.sigma)
        slow = slow + (F.cross_entropy(plain, y) + soft_cross_entropy(mixed, soft[rows])) / 3
    torch.testing.assert_close(fast, slow)

    by = [*params.values(), *net.heads.parameters(), *net.mixup_head.parameters()]
    for a, b in zip(
        torch.autograd.grad(fast, by, retain_graph=True), torch.autograd.grad(slow, by), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


class Skip(nn.Module):
    """A batch that grew at conv1 cannot meet the skip, which still has its old size."""

    def __init__(self):
        super().__init__()
        self.before, self.conv1, self.conv2 = (
            nn.Conv2d(2, 4, 1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(4, 5, 3),
        )
        self.fc1, self.fc2 = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x):
        size = x.size(0)
        skip = self.before(x)
        h = self.conv2(torch.tanh(self.conv1(skip)) + skip).mean((2, 3))
        return self.fc2(torch.tanh(self.fc1(torch.tanh(h).view(size, -1))))


def test_a_model_with_a_skip_around_the_first_site_gets_its_input_folded():
    net, batch = tiny(Skip()), tiny_batch(dtype=torch.float64)
    _, folded = outputs(net, batch)
    assert net.perturbed_forward(batch).fold_at == "input"
    for k, seed in enumerate(SEEDS):
        _, alone = outputs(net, batch, [seed])
        rows = slice(4 * k, 4 * k + 4)
        torch.testing.assert_close(folded.logits[rows], alone.logits)
        torch.testing.assert_close(folded.mixed_logits[rows], alone.mixed_logits)
    assert not torch.allclose(folded.logits, folded.mixed_logits)


def test_choose_fold_logs_the_exception_that_made_it_fall_back(caplog):
    with caplog.at_level("INFO", logger="unseen"):
        tiny(Skip()).perturbed_forward(tiny_batch(dtype=torch.float64))
    assert "folded at the input" in caplog.text
    assert "RuntimeError: The size of tensor a" in caplog.text


def test_choose_fold_logs_outputs_that_differ(caplog):
    class Centered(TinyNet):
        def forward(self, x):
            logits = super().forward(x)
            return logits - logits[:2].mean()  # depends on which rows come first

    with caplog.at_level("INFO", logger="unseen"):
        run = tiny(Centered()).perturbed_forward(tiny_batch(dtype=torch.float64))
    assert run.fold_at == "input" and "the outputs differ by" in caplog.text


@pytest.mark.parametrize("head_input", ["clean", "perturbed"])
def test_both_ways_of_folding_give_the_same_numbers(head_input):
    net, batch = tiny(head_input=head_input), tiny_batch(dtype=torch.float64)
    _, at_site = outputs(net, batch)
    run = net.perturbed_forward(batch)
    assert run.fold_at == "site"
    run.fold_at = "input"
    _, at_input = outputs(net, batch)
    for name in ("logits", "mixed_logits", "embedding", "lam", "smoothing"):
        torch.testing.assert_close(getattr(at_site, name), getattr(at_input, name))


def state_of(model):
    return (
        copy.deepcopy(model.state_dict()),
        [len(m._forward_hooks) for m in model.modules()],
        [m.training for m in model.modules()],
    )


def same_state(before, after):
    assert before[1:] == after[1:]
    assert before[0].keys() == after[0].keys()
    for name in before[0]:
        assert torch.equal(before[0][name], after[0][name]), name


def test_a_perturbed_pass_leaves_batchnorm_parameters_and_hooks_as_they_were():
    net, batch = tiny(TinyNet(norm=True)), tiny_batch(dtype=torch.float64)
    net.train()
    before = state_of(net.model)
    outputs(net, batch)
    same_state(before, state_of(net.model))


def test_also_after_an_exception():
    class Failing(TinyNet):
        fails = False

        def forward(self, x):
            out = super().forward(x)
            if self.fails and out.shape[0] > 4:
                raise ZeroDivisionError("in the user's own forward")
            return out

    net, batch = tiny(Failing(norm=True)), tiny_batch(dtype=torch.float64)
    net.train()
    net.perturbed_forward(batch)
    before = state_of(net.model)
    net.model.fails = True
    with pytest.raises(ZeroDivisionError):
        outputs(net, batch)
    same_state(before, state_of(net.model))


def test_clean_passes_do_teach_batchnorm():
    net, batch = (
        tiny(TinyNet(norm=True), warmup=0, adversary=None),
        tiny_batch(dtype=torch.float64),
    )
    net.train()
    net.step(batch)
    assert net.model.norm.num_batches_tracked == 1
    expected = 0.1 * net.model.conv1(batch.x[0]).mean((0, 2, 3))
    assert (
        net.model.norm.running_mean - expected
    ).abs().max() < 0.01  # conv1 moved by one small step since


class Several(nn.Module):
    def __init__(self, layer, shape, tail):
        super().__init__()
        self.first, self.hidden, self.last = layer, nn.Linear(tail, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(torch.relu(self.hidden(self.first(x).flatten(1))))


@pytest.mark.parametrize(
    "layer, shape, tail",
    [
        (nn.Conv1d(2, 3, 3), (4, 2, 8), 18),
        (nn.Conv2d(2, 3, 3), (4, 2, 5, 5), 27),
        (nn.Conv3d(1, 2, 3), (4, 1, 4, 4, 4), 16),
        (nn.Linear(6, 4), (4, 6), 4),
    ],
    ids=["conv1d", "conv2d", "conv3d", "linear"],
)
def test_every_kind_of_site_trains(layer, shape, tail):
    torch.manual_seed(0)
    net = UncertaintyGuided(
        Several(layer, shape, tail),
        sites=["first"],
        embedding="hidden",
        draws=2,
        warmup=0,
        adversary=Adversary(steps=2),
    )
    logs = net.step(Batch((torch.randn(shape),), torch.tensor([0, 1, 2, 0])))
    assert torch.isfinite(logs["loss"]) and net.perturbed_forward(tiny_batch()).fold_at == "site"


def test_per_pixel_outputs_train_and_ignored_labels_do_not_count():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(6, 3, 1),
    )
    net = UncertaintyGuided(
        model,
        sites=["0"],
        embedding="2",
        draws=2,
        warmup=0,
        adversary=Adversary(steps=2),
        ignore_label=255,
    )
    x, y = torch.randn(3, 2, 6, 6), torch.randint(3, (3, 6, 6))
    y[:, :2] = 255
    assert torch.isfinite(net.step(Batch((x,), y))["loss"])
    net.model.load_state_dict(before := copy.deepcopy(model.state_dict()))
    a = net.meta_gradients(Batch((x,), y), [1, 2])
    net.model.load_state_dict(before)
    x2 = x  # what stands at ignored pixels of the label must not matter
    b = net.meta_gradients(Batch((x2,), y.clone()), [1, 2])
    assert a["mixed_loss"] == b["mixed_loss"]
    assert net.predict(x).shape == (3, 3, 6, 6) and net.detector.look(x).features.shape == (3, 4)


# ---- clear errors


def test_a_wrong_site_or_embedding_lists_the_layers():
    with pytest.raises(
        UnseenError, match=r'no site "layer9"; the model has: conv1, norm, conv2, fc1, fc2'
    ):
        UncertaintyGuided(TinyNet(), sites=["layer9"], embedding="fc1")
    with pytest.raises(UnseenError, match=r'no embedding "fc9"; the model has: conv1'):
        UncertaintyGuided(TinyNet(), sites=["conv1"], embedding="fc9")


def test_sites_in_the_wrong_order_are_named_in_the_right_one():
    net = UncertaintyGuided(TinyNet(), sites=["conv2", "conv1"], embedding="fc1", warmup=0)
    with pytest.raises(UnseenError, match="name them as conv1, conv2"):
        net.step(tiny_batch())


def test_a_site_that_is_never_reached_or_reached_twice_is_named():
    class Odd(TinyNet):
        def __init__(self, twice):
            super().__init__()
            self.spare, self.twice = nn.Conv2d(4, 4, 1), twice

        def forward(self, x):
            if self.twice:
                self.spare(self.spare(self.conv1(x)))
            return super().forward(x)

    for twice, text in ((False, "never reached spare"), (True, '"spare" twice')):
        net = UncertaintyGuided(Odd(twice), sites=["spare"], embedding="fc1", warmup=0)
        with pytest.raises(UnseenError, match=text):
            net.step(tiny_batch())
        assert not any(m._forward_hooks for m in net.model.modules())

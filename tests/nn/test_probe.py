"""Layers that are found by one pass, and mistakes that are found before the first step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import TinyNet, tiny_batch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import unseen
from unseen import ERM, UncertaintyGuided, UnseenError
from unseen.methods import METHODS, Adversary, LearnedMixup
from unseen.nn.places import channel_axis, width_at
from unseen.nn.wrapper import bare_model

BATCH = tiny_batch(6)


class Late(TinyNet):
    """Registers its layers in another order than it runs them, and some it never runs."""

    def __init__(self) -> None:
        super().__init__()
        first, self.conv1 = self.conv1, None
        self.head = nn.Linear(6, 3)
        self.unused = nn.Conv2d(2, 2, 1)
        self.shortcut = nn.Conv2d(2, 5, 5)
        self.conv1 = first
        self.aside = nn.Linear(6, 3)  # runs last, but not for the logits

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.conv1(x))
        h = torch.tanh(self.conv2(h) + self.shortcut(x)).mean((2, 3))
        logits = self.head(torch.tanh(self.fc1(h)))
        self.aside(self.fc1.weight.mean(1))
        return logits


class Words(nn.Module):
    """Embedding, recurrent layer, linear layer."""

    def __init__(self, kind: type[nn.RNNBase] = nn.GRU, last: bool = False) -> None:
        super().__init__()
        self.e, self.r, self.last = nn.Embedding(20, 6), kind(6, 5, batch_first=True), last
        self.fc = nn.Linear(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        out, state = self.r(self.e(ids))
        state = state[0] if isinstance(state, tuple) else state
        return self.fc(state[-1] if self.last else out.mean(1))


def ids(n: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randint(20, (n, 7)), torch.randint(3, (n,))


def net_of(model: nn.Module, **settings: Any) -> UncertaintyGuided:
    small = {"draws": 2, "warmup": 0, "adversary": Adversary(steps=1)}
    return UncertaintyGuided(model, **{**small, **settings})


def test_auto_follows_execution_and_logs_shapes(caplog):
    net = net_of(Late(), sites="auto")
    assert net.sites == () and not net.is_built
    net.step(BATCH)
    assert net.sites == ("conv1",) and net.embedding == "head:input"
    assert 'noise enters at "conv1", (N, 4, 6, 6)' in caplog.text
    assert 'found at "head:input", (N, 6)' in caplog.text
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.model.modules())


def test_auto_finds_the_embedding_of_words_and_the_layer_after_a_shared_one():
    net = net_of(Words(), sites="auto")
    assert torch.isfinite(net.step(ids())["loss"])
    assert net.sites == ("e",) and net.embedding == "fc:input"

    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.shared, self.own, self.fc = nn.Linear(4, 5), nn.Linear(10, 6), nn.Linear(6, 3)

        def forward(self, a, b):
            return self.fc(torch.tanh(self.own(torch.cat([self.shared(a), self.shared(b)], 1))))

    net = net_of(Siamese())
    net.prepare(((torch.randn(6, 4), torch.randn(6, 4)), BATCH.y))
    assert net.sites == ("own",) and net.embedding == "fc:input"


def test_a_model_of_one_layer_and_a_frozen_backbone_are_found():
    net = net_of(nn.Sequential(nn.Flatten(), nn.Linear(128, 3)))
    net.step(BATCH)
    assert net.sites == ("1",) and net.embedding == "1"

    class Frozen(TinyNet):
        def forward(self, x):
            with torch.no_grad():
                h = self.conv2(torch.tanh(self.conv1(x))).mean((2, 3))
            return self.fc2(torch.tanh(self.fc1(h)))

    net = net_of(Frozen())
    net.step(BATCH)
    assert net.sites == ("fc1",) and net.embedding == "fc2:input"


def test_found_layers_are_saved_and_loaded(tmp_path):
    net = net_of(Late(), sites="auto", embedding="auto")
    with pytest.raises(UnseenError, match="train before you save"):
        net.save(tmp_path)
    unseen.fit(net, [BATCH], steps=2, held_out=[BATCH], progress=False)
    net.save(tmp_path)
    loaded = unseen.load(tmp_path, Late())
    assert loaded.sites == ("conv1",) and loaded.embedding == "head:input" and loaded.is_built
    assert torch.equal(loaded.predict(BATCH.x), net.predict(BATCH.x))
    assert torch.equal(loaded.uncertainty(BATCH.x), net.uncertainty(BATCH.x))
    assert torch.isfinite(loaded.step(BATCH)["loss"])


def test_finding_layers_leaves_random_numbers_and_batchnorm_alone():
    net = net_of(nn.Sequential(TinyNet(norm=True), nn.Dropout()), sites=["0.conv1"])
    before = {name: t.clone() for name, t in net.model.state_dict().items()}
    state = torch.get_rng_state()
    net.prepare(BATCH)
    assert net.embedding == "0.fc2:input" and net._forward.fold_at == "site"
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[n], t) for n, t in net.model.state_dict().items())


@pytest.mark.parametrize("name", ["gud", "m_ada", "mc_dropout", "jigen", "self_super"])
def test_methods_find_the_embedding_they_need(name):
    net = METHODS[name](TinyNet())
    batch = (torch.rand(6, 2, 9, 9), BATCH.y)
    assert torch.isfinite(net.step(batch)["loss"]) and net.embedding == "fc2:input"
    assert net.predict(batch[0]).shape == (6, 3)


# ---- mistakes


class Unused(TinyNet):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Conv2d(2, 2, 1)


MISTAKES = {
    "never run": ({"sites": ["spare"]}, Unused, "never reached spare"),
    "embedding never run": ({"embedding": "spare"}, Unused, "never reached spare"),
    "mixup never run": (
        {"sites": ["conv1"], "embedding": "fc1", "mixup": LearnedMixup(at="spare")},
        Unused,
        "never reached spare",
    ),
    "embedding first": ({"sites": ["fc1"], "embedding": "conv1"}, Unused, "before the first site"),
    "other order": ({"sites": ["conv2", "conv1"]}, Unused, "name them as conv1, conv2"),
    "not for the logits": ({"sites": ["aside"]}, Late, 'noise at "aside" does not reach|batch fi'),
    "not logits": ({"sites": ["conv1"], "output": lambda o: o.sum()}, Unused, "must return logits"),
    "labels": ({"sites": ["conv1"]}, lambda: TinyNet(classes=1), "a model with 1 outputs takes"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_before_the_first_step_of_the_warm_up(name):
    settings, model, text = MISTAKES[name]
    net = net_of(model(), warmup=100, **settings)
    before = [p.clone() for p in net.model.parameters()]
    with pytest.raises(UnseenError, match=text):
        net.step(BATCH)
    assert all(torch.equal(a, b) for a, b in zip(before, net.model.parameters(), strict=True))


def test_a_number_is_no_name_of_a_layer():
    with pytest.raises(UnseenError, match="must be text, not 0; the model has: 0"):
        unseen.UncertaintyGuided(nn.Sequential(nn.Linear(2, 2)), sites=[0])


def test_a_recurrent_site_whose_output_is_not_used_is_named():
    with pytest.raises(UnseenError, match=r'noise at "r" does not reach the logits.*first'):
        net_of(Words(last=True), sites=["r"]).step(ids())


class Recomputing(TinyNet):
    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x: Tensor) -> Tensor:
        def early(x: Tensor) -> Tensor:
            return torch.tanh(self.conv2(torch.tanh(self.conv1(x)))).mean((2, 3))

        h = checkpoint(early, x, use_reentrant=self.reentrant) if self.training else early(x)
        return self.fc2(torch.tanh(self.fc1(h)))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("name", ["uncertainty_guided", "mc_dropout", "bnn"])
def test_activation_checkpointing_is_refused_where_passes_are_changed(name):
    with pytest.raises(UnseenError, match=r'\("conv1" ran again\).*checkpointing off'):
        METHODS[name](Recomputing()).step(BATCH)
    # The reentrant kind has no gradient without an input that requires one, so it is put behind.
    model = nn.Sequential(nn.Conv2d(2, 2, 1), Recomputing(reentrant=True))
    with pytest.raises(UnseenError, match=r"a block.* ran again.*checkpointing off"):
        METHODS[name](model).step(BATCH)


class AlwaysRecomputing(nn.Module):
    """Recomputes in eval mode too, where layers are looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block, self.fc = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(checkpoint(self.block, self.stem(x), use_reentrant=True).mean((2, 3)))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpointing_in_eval_mode_is_refused_too_and_works_for_erm():
    with pytest.raises(UnseenError, match=r"a block.* ran again.*checkpointing off"):
        METHODS["uncertainty_guided"](AlwaysRecomputing(), sites="auto").step(BATCH)
    net = ERM(AlwaysRecomputing(), embedding="auto", lr=0.1)
    before = net.model.block.weight.detach().clone()
    net.step(BATCH)
    assert net.embedding == "fc:input" and not torch.equal(before, net.model.block.weight)


def test_activation_checkpointing_works_for_erm():
    nets = [ERM(model, lr=0.1) for model in same_weights(Recomputing(), Recomputing())]
    nets[1].model.eval()  # not recomputed
    for net in nets:
        net.step(BATCH)
    assert torch.equal(nets[0].predict(BATCH.x), nets[1].predict(BATCH.x))


def same_weights(*models: nn.Module) -> tuple[nn.Module, ...]:
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    return models


def test_a_model_that_is_wrapped_for_several_devices_is_refused():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = [
            nn.DataParallel(TinyNet()),
            nn.parallel.DistributedDataParallel(TinyNet()),
            fully_shard(TinyNet(), mesh=init_device_mesh("cpu", (1,))),
        ]
    finally:
        distributed.destroy_process_group()
    for model in (*wrapped, nn.Sequential(wrapped[0])):
        with pytest.raises(UnseenError, match=r"is wrapped in .*give the bare module.*torchrun"):
            ERM(model)
        with pytest.raises(UnseenError, match=r"is wrapped in .*give the bare module"):
            unseen.fit(model, [BATCH], steps=1)
    assert isinstance(bare_model(TinyNet()), TinyNet)


# ---- sites of every kind


class Kinds(nn.Module):
    """One layer of each kind that noise can enter, on images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.depthwise = nn.Conv2d(4, 8, 3, groups=4)
        self.up = nn.ConvTranspose2d(8, 4, 2)
        self.group = nn.GroupNorm(2, 4)
        self.act = nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(4)
        self.lstm = nn.LSTM(4, 5, batch_first=True, bidirectional=True)
        self.block = nn.Sequential(nn.Linear(10, 6), nn.Tanh())
        self.fc = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.act(self.group(self.up(self.depthwise(self.conv(x)))))
        h = self.norm(h.flatten(2).transpose(1, 2))
        return self.fc(self.block(self.lstm(h)[0].mean(1)))


SITES = ["input", "conv", "depthwise", "up", "group", "act", "norm", "lstm", "block", "fc:input"]


@pytest.mark.parametrize("site", SITES)
def test_noise_enters_scores_and_reloads_at_every_kind_of_site(site, tmp_path):
    torch.manual_seed(0)
    net = net_of(Kinds(), sites=[site], lr=1e-2)
    for _ in range(3):
        assert torch.isfinite(net.step(BATCH)["loss"])
    head = next(iter(net.heads.values()))
    assert head.reads_output == (site != "conv")
    x = torch.randn(40, 2, 8, 8, generator=torch.Generator().manual_seed(1))
    y = torch.zeros(40, dtype=torch.int64)
    for where in ("site", "embedding"):
        unseen.calibrate(net, [(x, y)], [(x, y)], where)
        assert net.uncertainty(x).shape == (40,) and not net.alarm(x[:20], 1e-3)
        net.save(tmp_path)
        loaded = unseen.load(tmp_path, Kinds())
        torch.testing.assert_close(loaded.uncertainty(x), net.uncertainty(x))
        assert torch.equal(loaded.predict(x), net.predict(x))


def test_several_sites_of_several_kinds_move_the_logits():
    net = net_of(Kinds(), sites=["input", "depthwise", "lstm"], embedding="block")
    logs = net.step(BATCH)
    assert torch.isfinite(logs["loss"]) and logs["transport"] > 0
    assert {name for name in logs if name.startswith("sigma/")} == {
        "sigma/input",
        "sigma/depthwise",
        "sigma/lstm",
    }


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_sites_work_for_words(kind):
    net = net_of(Words(kind), sites=["e", "r"])
    assert torch.isfinite(net.step(ids())["loss"]) and net.embedding == "fc:input"
    with pytest.raises(UnseenError, match='"input" gives no tensor of floats'):
        net_of(Words(kind), sites=["input"]).step(ids())


def test_features_of_places_are_declared_or_those_before():
    model = Kinds()
    assert [channel_axis(model, name) for name in SITES] == [1, 1, 1, 1, 1, 1, -1, -1, -1, -1]
    assert [width_at(model, name) for name in SITES[1:]] == [4, 8, 4, 4, 4, 4, 10, 6, 6]
    assert channel_axis(Words(), "input") == -1


# ---- compiled models


def test_a_compiled_model_is_trained_as_it_was_written_and_saved_without_its_prefix(
    tmp_path, caplog
):
    plain, inner = same_weights(TinyNet(), TinyNet())
    compiled = torch.compile(inner, backend="eager")
    nets = []
    for model in (plain, compiled):
        torch.manual_seed(0)
        net = net_of(model, sites=["conv1"], embedding="fc1")
        net.step(BATCH)
        nets.append(net)
    assert nets[1].model is inner and "the model is compiled" in caplog.text
    assert torch.equal(nets[0].predict(BATCH.x), nets[1].predict(BATCH.x))
    nets[1].save(tmp_path)
    assert torch.equal(unseen.load(tmp_path, TinyNet()).predict(BATCH.x), nets[0].predict(BATCH.x))


class Holder(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def test_noise_enters_a_compiled_part_and_its_run_loads_into_a_plain_model(tmp_path):
    inner, plain = same_weights(TinyNet(), TinyNet())
    nets = []
    for model in (Holder(torch.compile(inner, backend="eager")), Holder(plain)):
        torch.manual_seed(0)
        net = net_of(model, sites=["body.conv1"], embedding="body.fc1")
        net.predict(BATCH.x)  # compiled before the hooks are there
        net.step(BATCH)
        unseen.calibrate(net, [BATCH], [BATCH])
        nets.append(net)
    assert torch.equal(nets[0].uncertainty(BATCH.x), nets[1].uncertainty(BATCH.x))
    nets[0].save(tmp_path)
    assert not any("_orig_mod" in name for name in nets[0].state_dict())
    for model in (Holder(TinyNet()), Holder(torch.compile(TinyNet(), backend="eager"))):
        loaded = unseen.load(tmp_path, model)
        assert torch.equal(loaded.predict(BATCH.x), nets[1].predict(BATCH.x))

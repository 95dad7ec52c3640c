"""unseen.training.fit on a user's own model and loader."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import unseen
from unseen import UnseenError
from unseen.adaptation import fine_tune
from unseen.methods import Adversary


def loader(n=60, batch=20, classes=3):
    g = torch.Generator().manual_seed(0)
    y = torch.arange(n) % classes
    x = torch.randn(n, 2, 8, 8, generator=g) + y.view(-1, 1, 1, 1).float()
    return DataLoader(TensorDataset(x, y), batch)


def make(**settings):
    torch.manual_seed(0)
    return unseen.UncertaintyGuided(
        TinyNet(), sites=["conv1"], embedding="fc1", draws=2, **settings
    )


def test_uncertainty_grows_away_from_the_source():
    net = make(lr=0.003)
    unseen.fit(net, loader(), steps=40, held_out=loader(), progress=False)
    x = loader().dataset.tensors[0]
    assert net.uncertainty(3 * x + 2).mean() > 1.5 * net.uncertainty(x).mean()


def test_uncertainty_before_training_names_the_remedy():
    with pytest.raises(UnseenError, match=r"train with unseen.fit, or call unseen.calibrate"):
        make().uncertainty(torch.randn(2, 2, 8, 8))


def test_model_that_flattens_with_view_trains():
    class View(TinyNet):
        def forward(self, x):
            h = self.conv1(x)
            h = torch.tanh(h.view(h.size(0), -1)[:, :5])
            return self.fc2(torch.tanh(self.fc1(h)))

    x, _ = loader().dataset.tensors
    net = unseen.UncertaintyGuided(
        View(), sites=["conv1"], embedding="fc1", draws=2, warmup=1, adversary=Adversary(steps=1)
    )
    unseen.fit(net, loader(), steps=4, progress=False)
    assert net.predict(x).shape == (60, 3) and net.uncertainty(x).shape == (60,)


def test_statistics_come_from_all_of_a_sorted_loader():
    x = torch.cat([torch.full((3000, 2, 8, 8), float(c)) for c in range(3)])
    data = TensorDataset(x, torch.arange(9000) // 3000)
    net = make()
    unseen.calibrate(net, DataLoader(data, 500))
    with torch.no_grad():
        per_class = torch.stack(
            [net.detector.look(x[3000 * c : 3000 * c + 1]).features for c in range(3)]
        ).mean(0)[0]
    torch.testing.assert_close(net.detector.statistics.mean, per_class)
    assert len(net.detector.statistics.held_out) >= 2000


@pytest.mark.parametrize(
    ("held_out", "warning"),
    [
        (200, None),
        (199, "calibrated on 199 held-out source samples"),
        (None, "calibrated on training data"),
    ],
)
def test_an_alarm_that_may_not_keep_its_promise_is_warned_about(held_out, warning, caplog):
    unseen.calibrate(
        unseen.ERM(TinyNet()), loader(), None if held_out is None else loader(held_out)
    )
    assert [warning in text for text in caplog.messages] == ([True] if warning else [])


def test_a_rate_that_the_held_out_samples_cannot_keep_is_warned_about(caplog):
    net = unseen.ERM(TinyNet())
    unseen.calibrate(net, loader(), loader(200))
    net.threshold(1, 0.01)
    assert not caplog.messages
    net.threshold(1, 0.001)
    assert caplog.messages == [
        "a false-alarm rate of 0.001 for single samples needs at least 1000 held-out source "
        "samples, there are 200"
    ]


def test_alarm_says_what_score_and_threshold_say():
    net = make(lr=0.003)
    unseen.fit(net, loader(), steps=40, held_out=loader(), progress=False)
    x = loader().dataset.tensors[0]
    assert net.alarm(3 * x + 2) and not net.alarm(x)
    assert net.domain_score(x) <= net.threshold(60, 0.01) < net.domain_score(3 * x + 2)


def test_model_with_several_inputs_trains():
    class Two(TinyNet):
        def forward(self, x, scale):
            return super().forward(x * scale.view(-1, 1, 1, 1))

    x, y = loader().dataset.tensors
    pairs = [((x[:20], torch.ones(20)), y[:20]), ([x[20:40], torch.ones(20)], y[20:40])]
    net = unseen.UncertaintyGuided(
        Two(), sites=["conv1"], embedding="fc1", draws=2, warmup=1, adversary=Adversary(steps=1)
    )
    unseen.fit(net, pairs, steps=4, progress=False)
    assert net.predict((x[:5], torch.ones(5))).shape == (5, 3)
    adapted = fine_tune(net, (x[:9], torch.ones(9)), y[:9], steps=3)
    assert adapted(x[:5], torch.ones(5)).shape == (5, 3)


def test_nan_in_the_loader_names_batch_and_sample():
    x, y = loader().dataset.tensors
    x = x.clone()
    x[25] = float("nan")
    where = "loader, batch index 1, sample index 5: the input holds NaN"
    with pytest.raises(UnseenError, match=where):
        unseen.fit(make(), DataLoader(TensorDataset(x, y), 20), steps=5, progress=False)


@pytest.mark.parametrize(
    "data, text",
    [
        ([], "the loader yielded no batch"),
        (
            DataLoader(
                TensorDataset(torch.randn(3, 2, 8, 8), torch.zeros(3, dtype=torch.int64)),
                8,
                drop_last=True,
            ),
            "the loader yielded no batch",
        ),
        ([torch.randn(3, 2, 8, 8)], r"must yield \(x, y\), it yielded Tensor"),
        (
            [({"image": [torch.randn(3, 2, 8, 8)]}, torch.zeros(3))],
            "tuple or dict of tensors, not image as a list of 1: let the loader make",
        ),
        (
            [(torch.randn(3, 2, 8, 8), [0, 1, 2])],
            r"y as a tensor, it yielded a list of 3: convert it with torch.as_tensor",
        ),
    ],
)
def test_invalid_loader_is_named(data, text):
    with pytest.raises(UnseenError, match=text):
        unseen.fit(make(), data, steps=2, progress=False)


def test_list_of_samples_is_not_taken_for_several_inputs():
    data = [(list(torch.randn(4, 2, 8, 8)), torch.zeros(4, dtype=torch.int64))]
    with pytest.raises(UnseenError, match=r"x is 4 tensors.*torch.stack\(x\)"):
        unseen.fit(make(), data, steps=2, progress=False)


def test_batch_of_one_sample_names_batch_norm_before_the_first_step():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    net = unseen.UncertaintyGuided(model, sites="auto")
    with pytest.raises(UnseenError, match=r'layer "1" \(BatchNorm1d\).*drop_last=True'):
        unseen.fit(net, [(torch.randn(1, 3), torch.zeros(1).long())], steps=2, progress=False)


def test_indices_beyond_an_embedding_are_named():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(12, 3))
    with pytest.raises(UnseenError, match="Give indices from 0 to 4, or a larger embedding"):
        unseen.ERM(model).step((torch.full((2, 3), 7), torch.zeros(2).long()))


@pytest.mark.parametrize(
    "options, text",
    [
        ({"on_step": 3}, "on_step must be a function of step and logs, not int"),
        ({"schedule": lambda done: "low"}, "schedule gave low after 0% of the steps"),
    ],
)
def test_functions_of_a_fit_are_checked(options, text):
    with pytest.raises(UnseenError, match=text):
        unseen.fit(make(), loader(), steps=2, progress=False, **options)


def test_model_without_logits_is_named():
    class Pair(TinyNet):
        def forward(self, x):
            return [[super().forward(x), x]]

    net = unseen.UncertaintyGuided(Pair(), sites=["conv1"], embedding="fc1")
    with pytest.raises(
        UnseenError,
        match=r"must return logits \(N, C\) or \(N, C, H, W\), it returned list.*output=",
    ):
        unseen.fit(net, loader(), steps=2, progress=False)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_invalid_steps_are_named(steps):
    with pytest.raises(UnseenError, match="steps must be an integer"):
        unseen.fit(make(), loader(), steps=steps, progress=False)


def test_unknown_device_is_named():
    with pytest.raises(UnseenError, match="device must be auto, cpu or cuda"):
        unseen.fit(make(), loader(), steps=1, device="tpu", progress=False)


def test_progress_goes_to_stderr_only(capsys):
    unseen.fit(make(), loader(), steps=2)
    captured = capsys.readouterr()
    assert captured.out == "" and "step 2/2" in captured.err and "loss" in captured.err


def test_generator_is_refused_as_loader():
    data = [(torch.randn(4, 2, 8, 8), torch.tensor([0, 1, 2, 0]))]
    net = unseen.ERM(TinyNet())
    with pytest.raises(UnseenError, match="loader can be iterated only once"):
        unseen.fit(net, (pair for pair in data), steps=1, progress=False)
    with pytest.raises(UnseenError, match="held_out can be iterated only once"):
        unseen.fit(net, data, steps=1, held_out=iter(data), progress=False)
    with pytest.raises(UnseenError, match="held_out is empty"):
        unseen.fit(net, data, steps=1, held_out=[], progress=False)
    assert net.steps_done == 0


def test_nan_in_one_sample_cannot_silence_the_alarm():
    net = unseen.fit(make(lr=0.003), loader(), steps=3, progress=False).net
    x = loader().dataset.tensors[0].clone()
    x[0, 0, 0, 0] = float("nan")
    with pytest.raises(UnseenError, match="look for NaN"):
        net.alarm(x)
    with pytest.raises(UnseenError, match="x is empty"):
        net.alarm(x[:0])


def test_loader_without_a_length_trains():
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            x, y = loader().dataset.tensors
            return iter(zip(x, y, strict=True))

    net = make()
    data = DataLoader(Stream(), 16)
    unseen.fit(net, data, steps=5, held_out=data, progress=False)
    assert len(net.detector.statistics.held_out) == 60


def test_augment_accepts_a_function():
    seen = []
    data = [(torch.randn(6, 5), torch.arange(6) % 3)]
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
    unseen.fit(
        unseen.ERM(model),
        data,
        steps=1,
        augment=lambda x: seen.append(x.shape) or 2 * x,
        progress=False,
    )
    assert seen == [(6, 5)]


@pytest.mark.parametrize("method", ["uncertainty_guided", "gud", "m_ada"])
def test_method_that_never_starts_warns(method, caplog):
    settings = {"warmup": 100} if method == "uncertainty_guided" else {}
    net = unseen.METHODS[method](TinyNet(), sites=["conv1"], embedding="fc1", **settings)
    unseen.fit(net, loader(), steps=2, progress=False)
    assert "this is ERM" in caplog.text


@pytest.mark.parametrize(
    ("steps", "given", "warmup", "rounds"),
    [
        (4, {}, 1, 1),
        (4, {"warmup": 2}, 2, 1),
        (4, {"adversary": Adversary(rounds=3, steps=1)}, 1, 3),
        (4, {"adversary": None}, 1, None),
    ],
)
def test_defaults_scale_with_the_length_of_a_fit(steps, given, warmup, rounds):
    net = make(**given)
    unseen.fit(net, loader(), steps=steps, progress=False)
    assert net.warmup == warmup and getattr(net.adversary, "rounds", None) == rounds
    unseen.fit(net, loader(), steps=1, progress=False)
    assert net.warmup == warmup  # of the whole training, not of its parts
    long = make()
    long.adjust_to(500)
    assert long.warmup == 100 and long.adversary.rounds == 10


def test_method_that_ends_below_erm_is_warned_about(caplog):
    class Forgetful(unseen.ERM):
        name, warmup = "forgetful", 30

        def step(self, batch):
            logs = super().step(batch)
            if self.steps_done > self.warmup:
                torch.nn.init.zeros_(self.model.fc2.weight)
            return logs

    torch.manual_seed(0)
    net = Forgetful(TinyNet(), lr=0.05)
    unseen.fit(net, loader(), steps=31, held_out=loader(), progress=False)
    assert "for ERM at the end of the warm-up (step 30)" in caplog.text
    assert "Raise steps; or lower noise.scale" in caplog.text
    caplog.clear()
    unseen.fit(make(lr=0.01), loader(), steps=40, held_out=loader(), progress=False)
    assert "end of the warm-up" not in caplog.text


def test_fine_tuning_refuses_invalid_labels():
    x, y = loader().dataset.tensors
    for labels in (y[:29], y[:29].tolist(), y[:0]):
        with pytest.raises(UnseenError, match="one label for each of the 30 samples"):
            fine_tune(TinyNet(), x[:30], labels)

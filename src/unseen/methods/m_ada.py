"""M-ADA: learning to learn single domain generalization (Qiao, Zhao and Peng, CVPR 2020).

    x+ = argmax over x of  L(theta; x, y) - gamma mean (z - z0)^2 + beta relax(x)
    min over theta of      L(theta; S) + mean_k L(theta*; S+_k)
    theta* = theta - eta grad L(theta; S)

relax(x) measures, with a Wasserstein auto-encoder V, how far x is from earlier samples in input
space. Differences from the paper are listed in docs/methods/m_ada.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_choice, check_int, check_number
from unseen.methods.gud import GUD
from unseen.nn.batch import gather_batch
from unseen.nn.hooks import scratch_buffers
from unseen.nn.microbatches import Part, inner_step_of
from unseen.nn.optimizers import base_rate

HIDDEN, CODES, WAE_LR = 400, 20, 1e-3  # M-ADA's release for digits
PRIOR_WEIGHT = 10.0  # lambda of the WAE paper's release
LARGEST = 32  # pixels per side of V's input; larger images are averaged down


def mmd(codes: Tensor, prior: Tensor) -> Tensor:
    """Compute the squared MMD of two sets (N, D) with the inverse multiquadratic kernel of WAE."""
    scale = 2 * codes.shape[1]  # 2 D sigma^2: expected squared distance under the prior

    def kernel(a: Tensor, b: Tensor) -> Tensor:
        return (scale / (scale + (a[:, None] - b).square().sum(2))).mean()

    return kernel(codes, codes) + kernel(prior, prior) - 2 * kernel(codes, prior)


def flatten(x: Tensor) -> Tensor:
    """Return inputs of any shape as vectors (N, F); large images are averaged down first."""
    if x.dim() == 4 and max(x.shape[2:]) > LARGEST:
        x = F.adaptive_avg_pool2d(x, (min(x.shape[2], LARGEST), min(x.shape[3], LARGEST)))
    return x.flatten(1)


class AutoEncoder:
    """V, a Wasserstein auto-encoder with its optimizer; not a submodule, only training needs it."""

    def __init__(self, x: Tensor) -> None:
        rows = flatten(x)
        features = rows.shape[1]
        # V's output stays in this range: without bounds the ascent diverges.
        self.span = rows.aminmax()
        self.encoder = nn.Sequential(
            nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CODES)
        ).to(rows)
        self.decoder = nn.Sequential(
            nn.Linear(CODES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, features), nn.Sigmoid()
        ).to(rows)
        self.parts = nn.ModuleList([self.encoder, self.decoder])
        self.optimizer = torch.optim.Adam(self.parts.parameters(), WAE_LR, fused=True)

    def decode(self, codes: Tensor) -> Tensor:
        return torch.lerp(self.span.min, self.span.max, self.decoder(codes))

    def __call__(self, x: Tensor) -> Tensor:
        """Return reconstructions (N, F)."""
        return self.decode(self.encoder(flatten(x)))

    def learn(self, x: Tensor) -> Tensor:
        """Take one step on reconstruction and prior; return the reconstruction error before it."""
        codes = self.encoder(flatten(x))
        error = (self.decode(codes) - flatten(x)).square().sum(1).mean()
        # Drawn on the CPU, whose generator is part of a checkpoint.
        prior = torch.randn(codes.shape, dtype=codes.dtype).to(codes)
        self.optimizer.zero_grad()
        (error + PRIOR_WEIGHT * mmd(codes, prior)).backward()
        self.optimizer.step()
        return error.detach()

    def state(self) -> dict[str, Tensor]:
        entries = self.optimizer.state_dict()["state"].items()
        adam = {
            f"adam/{index}/{key}": value for index, entry in entries for key, value in entry.items()
        }
        return {
            "span": torch.stack(self.span),
            **{f"net/{name}": t for name, t in self.parts.state_dict().items()},
            **adam,
        }

    @classmethod
    def from_state(cls, state: dict[str, Tensor], device: torch.device) -> AutoEncoder:
        net = {name.removeprefix("net/"): t for name, t in state.items() if name.startswith("net/")}
        autoencoder = cls(state["span"].to(device)[:, None].expand(2, net["0.0.weight"].shape[1]))
        autoencoder.parts.load_state_dict(net)
        entries: dict[int, dict[str, Tensor]] = {}
        for name, t in state.items():
            if name.startswith("adam/"):
                _, index, key = name.split("/")
                entries.setdefault(int(index), {})[key] = t
        groups = autoencoder.optimizer.state_dict()["param_groups"]
        autoencoder.optimizer.load_state_dict({"state": entries, "param_groups": groups})
        return autoencoder


class MADA(GUD):
    """GUD with domains further from the source in input space, trained on by a meta step."""

    name = "m_ada"
    summary = "adversarial domains far from the source in input space, with meta-learning"
    paper = "Qiao, Zhao and Peng, Learning to Learn Single Domain Generalization, CVPR 2020"
    presets = {  # noqa: RUF012
        "paper": {"relaxation": "error", "order": 2},
        "reference": {"order": 2},
        "fast": {"capacity": 500},  # otherwise rounds cost more than updates
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        ascent_steps: int = 25,
        beta: float = 0.65,  # the release: 2,000 on the mean over 3,072 pixels
        relaxation: Literal["error", "shift"] = "shift",
        order: Literal[1, 2] = 1,
        inner_lr: float | None = None,
        wae_steps: int = 5,
        **common: Any,
    ) -> None:
        super().__init__(model, ascent_steps=ascent_steps, **common)
        self.beta = check_number("beta", beta, 0)
        self.relaxation: Literal["error", "shift"] = check_choice(
            "relaxation", relaxation, ("error", "shift")
        )
        self.order: Literal[1, 2] = check_choice("order", order, (1, 2))
        self.inner_lr = None if inner_lr is None else check_number("inner_lr", inner_lr, 0)
        self.wae_steps = check_int("wae_steps", wae_steps, 1)
        self.autoencoder: AutoEncoder | None = None

    def step(self, batch: Batch) -> dict[str, Tensor]:
        batch = Batch(self._ready(batch.x), batch.y)
        # A loaded method has no V yet and trains one first.
        ready = self.in_round() and self.autoencoder is not None
        logs = self.augment(self.mix(batch)) if ready else self.train_autoencoder(batch)
        domains = self.sample_domains(len(batch.y)) if self.pool.domains else None
        self.model_optimizer.zero_grad()
        logs |= self.meta_gradients(batch, domains)
        self.apply_gradients(self.model_optimizer)
        self.steps_done += 1
        return logs

    def train_autoencoder(self, source: Batch) -> dict[str, Tensor]:
        """Between rounds, train V on the source, later on the newest domain.

        The MMD compares all samples with each other: every process takes the whole batch.
        """
        self._check_input(source.x)
        source = gather_batch(source)
        if self.pool.domains == self.rounds:
            self.autoencoder = None
            return {}
        if self.autoencoder is None:
            self.autoencoder = AutoEncoder(source.x[0])
        for _ in range(self.wae_steps):
            newest = (
                self.pool.sample(len(source.y), newest=True).to(self.device)
                if self.pool.domains
                else source
            )
            error = self.autoencoder.learn(newest.x[0])
        return {"reconstruction_error": error}

    def ascent_objective(self, start: Batch) -> Callable[[Tensor], Tensor]:
        bounded, v = super().ascent_objective(start), self.autoencoder
        assert v is not None
        with torch.no_grad():
            reconstruction = v(start.x[0])

        def relaxed(x: Tensor) -> Tensor:
            reference = flatten(x) if self.relaxation == "error" else reconstruction
            return bounded(x) + self.beta * (v(x) - reference).square().sum(1)

        return relaxed

    def meta_gradients(self, source: Batch, domains: Batch | None) -> dict[str, Tensor]:
        """Set .grad to the gradient of the meta objective; without domains, of the source loss."""
        parts = self.microbatches(source)
        if domains is None:
            return parts.average(self._backward)
        params: dict[str, Tensor] = dict(self.trainable())
        eta = base_rate(self.model_optimizer) if self.inner_lr is None else self.inner_lr
        scale = self.loss_scale
        source_loss, inner = inner_step_of(
            parts, lambda part: self.source_loss(part.batch), params, eta, self.order == 2, scale
        )
        leaves = list(inner.fast.values())

        def backward(part: Part) -> dict[str, Tensor]:
            # BatchNorm's running averages come from the source: this pass uses scratch buffers.
            state = {**inner.fast, **scratch_buffers(self.model)}
            loss = self.objective(self.logits(part.x, state), part.y)
            self.scaled(part.share * loss).backward(inputs=leaves)
            return {"meta_loss": loss}

        ready = Batch(self._ready(domains.x), domains.y)
        meta_loss = self.microbatches(ready).average(backward)["meta_loss"]
        by_fast = {name: leaf.grad for name, leaf in inner.fast.items() if leaf.grad is not None}
        outer = inner.gradient(by_fast)
        for name, param in params.items():
            own = inner.averaged[name]
            own = own if own is None or scale == 1 else own * scale
            both = [g.detach() for g in (own, outer.get(name)) if g is not None]
            param.grad = sum(both[1:], both[0]) if both else None
        return {"loss": source_loss + meta_loss, "source_loss": source_loss, "meta_loss": meta_loss}

    def extra_state(self) -> dict[str, Tensor]:
        wae = {} if self.autoencoder is None else self.autoencoder.state()
        return {**super().extra_state(), **{f"wae/{name}": t for name, t in wae.items()}}

    def load_extra_state(self, state: dict[str, Tensor]) -> None:
        super().load_extra_state(state)
        wae = {name.removeprefix("wae/"): t for name, t in state.items() if name.startswith("wae/")}
        self.autoencoder = AutoEncoder.from_state(wae, self.device) if wae else None

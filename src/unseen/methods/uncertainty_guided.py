"""Uncertainty-guided model generalization to unseen domains (Qiao and Peng, CVPR 2021).

    min over theta, psi of  mean_k L(theta*; S+_k) + KL[q || p]                              (Eq. 6)
    max over phi_p of       L(theta; S+) - beta ||z - z+||^2                                 (Eq. 1)

S+ has learned noise on its features and learned mixup of its labels. psi = {phi_p, phi_m} are one
Gaussian head per site and one mixup head. docs/methods/uncertainty_guided.md has our choices where
the paper leaves them open.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_choice, check_int, check_number
from unseen.errors import UnseenError
from unseen.functional.mixup import Mixing, even_mixing, mix_targets
from unseen.functional.noise import Gaussian
from unseen.methods.noisy_method import CleanPass, NoisyMethod
from unseen.methods.uncertainty_guided_settings import (
    PRESETS,
    Adversary,
    LearnedMixup,
    LossWeights,
    Noise,
    RandomMixup,
    accept_flat_settings,
)
from unseen.nn.hooks import evaluating, scratch_buffers
from unseen.nn.microbatches import Microbatches, Part, add_to, inner_step_of
from unseen.nn.optimizers import base_rate
from unseen.nn.perturbed_forward import DrawMixing, PerturbedForward, PerturbedOutput
from unseen.nn.places import find_place
from unseen.nn.precision import at_least_float32
from unseen.nn.random import Draws, draw_mixing, fresh_seeds
from unseen.nn.ranks import ranks
from unseen.nn.rows import fold
from unseen.schema.flat_settings import nest_settings

log = logging.getLogger("unseen")

Logs = dict[str, Tensor]
FULL_LENGTH = 500  # steps from which on the defaults are as they are written


class UncertaintyGuided(NoisyMethod):
    """Learned feature noise and label mixup, a meta step over both, and a one-pass score.

    sites: layers whose outputs are perturbed; "auto" for the first one that the model runs.
    draws: Monte-Carlo draws of the noise per step (K).
    warmup: steps of ERM before the first perturbed one; by default a fifth of a short fit.
    meta: "first" or "second" order meta step; None learns S and S+ together.
    inner_lr: size of the inner step; None for `lr`.
    reduction: of the distance and the KL term over features: "mean", or "sum" as printed.
    chunk: draws that are in memory at a time; None for all.
    """

    name = "uncertainty_guided"
    summary = (
        "learned feature noise and label mixup, organised by Bayesian meta-learning; scores domains"
    )
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"

    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    # Runs from before these settings existed, in the flat names of their time.
    legacy_defaults: ClassVar[dict[str, Any]] = {"noise_sign": "positive"}
    migrate_settings = staticmethod(nest_settings)
    _given: frozenset[str] = frozenset()  # the settings that are not defaults

    @accept_flat_settings
    def __init__(
        self,
        model: nn.Module,
        *,
        sites: tuple[str, ...] | list[str] | str = "auto",
        draws: int = 5,
        warmup: int = 100,
        meta: Literal["first", "second"] | None = "first",
        inner_lr: float | None = None,
        noise: Noise = Noise(),  # noqa: B008 (immutable)
        adversary: Adversary | None = Adversary(),  # noqa: B008
        mixup: LearnedMixup | RandomMixup | None = LearnedMixup(),  # noqa: B008
        weights: LossWeights = LossWeights(),  # noqa: B008
        reduction: Literal["mean", "sum"] = "mean",
        chunk: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(model, sites=sites, **common)
        self.draws = check_int("draws", draws, 1)
        self.warmup = check_int("warmup", warmup, 0)
        self.meta: Literal["first", "second"] | None = check_choice(
            "meta", meta, ("first", "second", None)
        )
        self.inner_lr = None if inner_lr is None else check_number("inner_lr", inner_lr, 0)
        self.noise, self.adversary, self.mixup, self.weights = noise, adversary, mixup, weights
        self.reduction: Literal["mean", "sum"] = check_choice(
            "reduction", reduction, ("mean", "sum")
        )
        self.chunk = None if chunk is None else check_int("chunk", chunk, 1)
        if not weights.perturbed and mixup is None:
            raise UnseenError("no loss on perturbed data: weights.perturbed is 0 and mixup is None")
        if noise.depth == "random" and isinstance(mixup, LearnedMixup):
            raise UnseenError(
                'noise.depth="random" has no learned mixup, which reads the noise of the first '
                "site: set mixup=None or RandomMixup() (mixup=none or mixup.kind=random)"
            )
        if not self.sites and not self.finds_site:
            raise UnseenError(
                'uncertainty_guided needs at least one site: name layers, or sites="auto"'
            )
        if mixup is not None and mixup.at is not None:
            find_place(self.model, mixup.at, "mixup.at layer")
        self.finds_embedding |= self.embedding is None and adversary is not None
        if self._can_build_heads():
            self._build({})

    def _build(self, widths: Mapping[str, int]) -> None:
        super()._build(widths)
        heads = [*self.heads.parameters(), *self.mixup_head.parameters()]
        rate = {} if self.noise.lr is None else {"lr": self.noise.lr}
        self.model_optimizer = self._optimizer(
            self.trainable().values(), {"params": heads, "weight_decay": 0.0, **rate}
        )

    # ---- Alg. 1

    def step(self, batch: Batch) -> dict[str, Tensor]:
        batch = Batch(self._ready(batch.x), batch.y)
        self.model_optimizer.zero_grad()
        if self.steps_done < self.warmup:
            logs = self.source_gradients(batch)
        else:
            with self.full_precision():
                ascent_logs = self.ascend(batch) if self.adversary_is_due() else {}
            logs = {**self.meta_gradients(batch), **ascent_logs}
        self.apply_gradients(self.model_optimizer)
        self.model_optimizer.zero_grad()
        self.steps_done += 1
        return logs

    def meta_gradients(self, batch: Batch, seeds: list[int] | None = None) -> dict[str, Tensor]:
        """Leave the gradients with respect to theta, phi_p and phi_m in `.grad`."""
        forward, parts, clean = self.training_forward(batch), self.microbatches(batch), []

        def source_loss(part: Part) -> Tensor:
            loss, record = self.source_loss(part.batch)
            clean.append(record)
            return loss

        second, scale = self.meta == "second", self.loss_scale
        source, inner = inner_step_of(
            parts, source_loss, self.trainable(), self.inner_rate, second, scale
        )
        self._measure_spreads(clean)
        leaves = [*inner.fast.values(), *self.outer_parameters()]
        seeds = fresh_seeds(self.draws) if seeds is None else seeds
        size = self.chunk or len(seeds)
        logs: dict[str, Tensor] = {}
        for chunk in (seeds[i : i + size] for i in range(0, len(seeds), size)):
            share = len(chunk) / len(seeds)

            def backward(part: Part, chunk: list[int] = chunk, share: float = share) -> Logs:
                draws, unmixed = Draws(chunk, self.device), bool(self.weights.perturbed)
                out = forward(inner.fast, part.x, draws, self._mixing(), keep_unmixed=unmixed)
                terms = self.outer_terms(out, part.y)
                self.scaled(part.share * share * terms["outer_loss"]).backward(inputs=leaves)
                return {**terms, **out.statistics(clean[part.number].embedding)}

            with parts.knowing(self._mixing_of(parts, forward, inner.fast)):
                for name, value in parts.average(backward).items():
                    logs[name] = logs.get(name, torch.zeros_like(value)) + share * value
        gradients = inner.total_gradient(self.source_weight * scale)
        for name, param in self.trainable().items():
            param.grad = gradients.get(name)
        logs["source_loss"] = source
        logs["loss"] = logs["outer_loss"] + self.source_weight * logs["source_loss"]
        return logs

    def ascend(self, batch: Batch) -> dict[str, Tensor]:
        """Maximize Eq. 1 over phi_p with theta fixed."""
        assert self.adversary is not None and self.embedding is not None
        theta, parts = self._detached_parameters(), self.microbatches(batch)
        clean = parts.map(lambda part: self._clean_pass(part, theta))
        self._measure_spreads(clean)
        phi = list(self.heads.parameters())
        for _ in range(self.adversary.steps):
            forward, seeds = self.training_forward(batch), fresh_seeds(1)
            own: list[Tensor | None] = [None] * len(phi)

            def climb(part: Part, forward=forward, seeds=seeds, own=own) -> Logs:  # type: ignore[no-untyped-def]
                out = forward(theta, part.x, Draws(seeds, self.device))
                gain = self._gain(out, part.y, clean[part.number])
                add_to(own, torch.autograd.grad(part.share * gain, phi, allow_unused=True))
                return {"ascent_gain": gain}

            logs = parts.average(climb)
            gradients = ranks().average(own, phi)
            with torch.no_grad():
                for p, g in zip(phi, gradients, strict=True):
                    if g is not None:
                        p.add_(g, alpha=self.adversary.lr)
        self.prior.load_state_dict(self.heads.state_dict())
        self.ascents_done += 1
        return logs

    @torch.no_grad()
    def _clean_pass(self, part: Part, theta: Mapping[str, Tensor]) -> CleanPass:
        """Record a pass that leaves BatchNorm's running averages alone."""
        with self._recorded() as clean:
            logits = self.logits(part.x, {**theta, **scratch_buffers(self.model)})
        self.objective.check(logits, part.y)
        return clean

    def _gain(self, out: PerturbedOutput, y: Tensor, clean: CleanPass) -> Tensor:
        """Return what the adversary maximizes (Eq. 1)."""
        assert self.adversary is not None and out.logits is not None
        assert out.embedding is not None and clean.embedding is not None
        distance = self._reduce((clean.embedding - out.embedding).square())
        return self.objective.mean(out.logits, y) - self.adversary.beta * distance

    def adversary_is_due(self) -> bool:
        adversary = self.adversary
        if adversary is None or self.noise.kind == "random_gaussian":
            return False
        if adversary.rounds is not None and self.ascents_done >= adversary.rounds:
            return False
        return int(self.steps_done - self.warmup) % adversary.every == 0

    # ---- its parts

    def source_gradients(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the gradients of ERM."""

        def backward(part: Part) -> Logs:
            loss = self.objective(self.logits(part.x), part.y)
            self.scaled(part.share * loss).backward()
            return {"loss": loss, "source_loss": loss}

        return self.microbatches(batch).average(backward)

    def source_loss(self, batch: Batch) -> tuple[Tensor, CleanPass]:
        """Return the loss on the source, and what its pass recorded."""
        with self._recorded() as clean:
            logits = self.logits(batch.x)
        return self.objective(logits, batch.y), clean

    def _mixing_of(
        self, parts: Microbatches, forward: PerturbedForward, params: Mapping[str, Tensor]
    ) -> Tensor | None:
        """Return a and b of the mixup of all samples, which random numbers of a part depend on."""
        if self.mixup is None or len(parts) == 1:
            return None

        @torch.no_grad()
        def distribution(part: Part) -> Tensor:
            mixing = self._mixing_at(forward.first_gaussian(params, part.x))
            return torch.stack([at_least_float32(mixing.a), at_least_float32(mixing.b)], 1)

        return torch.cat(parts.again(distribution))  # with the dropout of the pass that follows

    def outer_terms(self, out: PerturbedOutput, y: Tensor) -> dict[str, Tensor]:
        """Return the terms of the outer loss and, as "outer_loss", their weighted sum."""
        terms: dict[str, Tensor] = {}
        total = next(self.mixup_head.parameters()).new_zeros(())
        if out.logits is not None:
            targets = fold(y, out.logits.shape[0] // y.shape[0])
            terms["perturbed_loss"] = self.objective.mean(out.logits, targets)
            total = total + self.weights.perturbed * terms["perturbed_loss"]
        if out.mixed_logits is not None:
            assert self.mixup is not None and out.lam is not None and out.smoothing is not None
            terms["mixed_loss"] = self.objective.mixed(
                out.mixed_logits, y, out.lam, out.smoothing, self.mixup.rho
            )
            total = total + self.mixup.weight * terms["mixed_loss"]
        if out.kl:
            terms["kl"] = torch.stack([self._reduce(kl) for kl in out.kl.values()]).sum()
            total = total + self.weights.kl * terms["kl"]
        return {**terms, "outer_loss": total}

    def outer_parameters(self) -> list[nn.Parameter]:
        """Return the parameters of psi that descend on the outer loss."""
        phi = self.heads.parameters() if self.noise.minimize else ()
        return [*phi, *self.mixup_head.parameters()]

    @property
    def inner_rate(self) -> float:
        if self.meta is None:
            return 0.0
        return base_rate(self.model_optimizer) if self.inner_lr is None else self.inner_lr

    @property
    def source_weight(self) -> float:
        # Without a meta step S and S+ are learned together, so the source always counts.
        return self.weights.source if self.meta or self.weights.source else 1.0

    def _mixing(self) -> DrawMixing | None:
        """Return the function that draws the mixup of a pass."""
        mixup = self.mixup
        if mixup is None:
            return None

        def draw(gaussian: Gaussian, draws: Draws) -> tuple[Tensor, Tensor, Mixing]:
            mixing = self._mixing_at(gaussian)
            return *draw_mixing(mixing, draws, mixup.temperature), mixing

        return draw

    def _mixing_at(self, gaussian: Gaussian) -> Mixing:
        learned = isinstance(self.mixup, LearnedMixup)
        mixing: Mixing = self.mixup_head(gaussian) if learned else even_mixing(gaussian)
        return mixing

    def _reduce(self, per_feature: Tensor) -> Tensor:
        """Average over rows; over features take the mean or the sum."""
        if self.reduction == "mean":
            return per_feature.mean()
        return per_feature.sum() / per_feature.shape[0]

    # ---- reporting

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"model": self.model_optimizer}

    def adjust_to(self, steps: int) -> None:
        """Shorten the warm-up and the adversary of a fit of less than 500 steps.

        The defaults are for longer trainings: they left a short one no time to recover.
        """
        share = min(1.0, steps / FULL_LENGTH)
        if int(self.steps_done) or share == 1:
            return
        if "warmup" not in self._given:
            self.warmup = round(share * self.warmup)
        adversary = self.adversary
        if "adversary" not in self._given and adversary is not None and adversary.rounds:
            self.adversary = replace(adversary, rounds=max(1, round(share * adversary.rounds)))
        log.info("%d steps: warmup=%d, adversary=%s", steps, self.warmup, self.adversary)

    def warnings(self, steps: int) -> list[str]:
        if int(self.steps_done) + steps > self.warmup:
            return []
        return [
            f"all {steps} steps are warm-up (warmup={self.warmup}): this is ERM, and its score is "
            "meaningless; raise steps or lower warmup"
        ]

    def snapshot(self, batch: Batch) -> dict[str, Tensor]:
        """Return embeddings of S and S+, noise maps of the first images and mixed labels."""
        batch = Batch(self._ready(batch.x), batch.y)
        theta = self._detached_parameters()
        with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluating(self.model):
            torch.manual_seed(0)
            forward, draws = self.perturbed_forward(batch), Draws(fresh_seeds(1), self.device)
            out = forward(theta, batch.x, draws, self._mixing(), record_shift=True)
        arrays = super().snapshot(batch)
        if out.embedding is not None:
            arrays["embedding_plus"] = out.embedding.flatten(1)[:, :256]
        assert out.shift is not None
        shift = out.shift[:8]
        arrays["shift"] = shift.abs().mean(1) if shift.dim() > 2 else shift
        drawn = out.lam is not None and out.smoothing is not None
        if self.objective.classifies and drawn and out.mixed_logits is not None:
            assert out.lam is not None and out.smoothing is not None
            assert self.mixup is not None
            y = batch.y.flatten(1)[:, 0] if batch.y.dim() > 1 else batch.y
            y = y.where((y >= 0) & (y != self.ignore_label), 0)
            classes, rho = out.mixed_logits.shape[1], self.mixup.rho
            arrays["y_plus"] = mix_targets(y, out.lam[0], out.smoothing[0], classes, rho)
            arrays["lambda"] = out.lam[0]
        return arrays

"""Uncertainty-guided model generalization to unseen domains (Qiao and Peng, CVPR 2021).

    min over theta, psi of  mean_k L(theta*; S+_k) + KL[q || p],   theta* = theta - alpha grad L(theta; S)   (Eq. 4, 6)
    max over phi_p of       L(theta; S+) - beta ||z - z+||^2                                                 (Eq. 1)

S+ is made of features with learned noise (`noise`), its labels of learned mixup (`mixup`). psi = {phi_p, phi_m}: one
Gaussian head per site, and one mixup head. Where the paper is silent, docs/methods/uncertainty_guided.md says what we do.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.api import Batch, check_targets, cross_entropy
from unseen.checks import check_choice, check_fraction, check_int, check_number, check_positive
from unseen.detection.sigma import SigmaScore
from unseen.errors import UnseenError
from unseen.functional.meta import inner_step
from unseen.functional.mixup import Mixing, even_mixing, mix_targets, mixed_loss
from unseen.functional.noise import Act, Gaussian, Per, Sign
from unseen.nn.heads import GaussianHead, MixupHead
from unseen.nn.hooks import captured, evaluating, perturbable_layers, scratch_buffers, submodule
from unseen.nn.perturbed_forward import (
    PerturbedForward,
    PerturbedOutput,
    head_key,
    probe_layers,
)
from unseen.nn.random import Draws, draw_mixing, fresh_seeds
from unseen.nn.rows import fold

Perturbation = Literal["full", "random_gaussian", "deterministic", "random_mu", "random_sigma"]
Mixup = Literal["learnable", "random", "none"]

log = logging.getLogger("unseen")


class UncertaintyGuided(SigmaScore):
    """Learned noise on features, learned label mixup, a meta step over both, and a one-pass uncertainty score."""

    name = "uncertainty_guided"
    summary = (
        "learned feature noise and label mixup, organised by Bayesian meta-learning; scores domains"
    )
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"

    legacy_defaults = {"noise_sign": "positive"}  # noqa: RUF012
    ascents_done: Tensor
    spreads: Tensor

    presets = {  # noqa: RUF012
        # As printed: only mixed draws, an ascent in every iteration, sums rather than means, no source term.
        "paper": {
            "draws": 15, "order": 2, "warmup": 0, "ascent_rounds": None, "ascent_steps": 1, "ascent_lr": 1.0, "beta": 1.0,
            "noise_scale": None, "noise_over": "feature", "noise_sign": "positive", "heads_read": "perturbed", "scale": "sum",
            "source_weight": 0.0, "perturbed_weight": 0.0, "mixed_weight": 1.0, "kl_weight": 1.0,
        },
        # The authors' release for digits; a task names mix_at and embedding.
        "reference": {
            "draws": 10, "order": 2, "warmup": 100, "ascent_rounds": 20, "ascent_steps": 30, "ascent_lr": 1.0, "beta": 1.0,
            "noise_scale": None, "noise_over": "feature", "noise_sign": "positive", "heads_read": "perturbed", "detach_mix": True,
            "source_weight": 1.0, "perturbed_weight": 1.0, "mixed_weight": 0.01, "kl_weight": 0.0,
        },
        # The defaults below, which are the best of results/tuning.md, with fewer draws.
        "fast": {"draws": 2},
    }  # fmt: skip

    def __init__(
        self,
        model: nn.Module,
        *,
        sites: tuple[str, ...] | list[str] | str = "auto",
        draws: int = 5,
        order: Literal[1, 2] = 1,
        meta: bool = True,
        inner_lr: float | None = None,
        adversarial: bool = True,
        warmup: int = 100,
        ascent_rounds: int | None = 10,
        ascent_every: int = 1,
        ascent_steps: int = 30,
        ascent_lr: float = 1.0,
        beta: float = 1.0,
        perturbation: Perturbation = "full",
        noise_over: Per = "channel",
        noise_sign: Sign = "both",
        noise_as: Act = "offset",
        noise_scale: float | None = 2.0,
        heads_read: Literal["clean", "perturbed"] = "clean",
        minimize_heads: bool = True,
        head_lr: float | None = None,
        mixup: Mixup = "learnable",
        mix_at: str | None = None,
        detach_mix: bool = False,
        rho: float = 0.9,
        temperature: float = 0.3,
        source_weight: float = 1.0,
        perturbed_weight: float = 1.0,
        mixed_weight: float = 0.01,
        kl_weight: float = 0.0,
        scale: Literal["mean", "sum"] = "mean",
        chunk: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(model, sites=sites, **common)
        if not self.sites:
            raise UnseenError(
                'uncertainty_guided needs at least one site: name layers, or sites="auto"'
            )
        if sites == "auto":
            log.warning('sites="auto": noise enters at "%s"', self.sites[0])
        if self.embedding is None and adversarial:
            self.embedding = self._last_hidden_layer()
            log.warning('embedding=None: the adversary is bounded at "%s"', self.embedding)
        self.draws, self.order, self.meta = check_int("draws", draws, 1), order, meta
        self.inner_lr = None if inner_lr is None else check_number("inner_lr", inner_lr, 0)
        check_choice("order", order, (1, 2))
        self.adversarial, self.warmup = adversarial, check_int("warmup", warmup, 0)
        self.ascent_rounds = (
            None if ascent_rounds is None else check_int("ascent_rounds", ascent_rounds, 0)
        )
        self.ascent_every, self.ascent_steps = (
            check_int("ascent_every", ascent_every, 1),
            check_int("ascent_steps", ascent_steps, 1),
        )
        self.ascent_lr, self.beta = (
            check_positive("ascent_lr", ascent_lr),
            check_number("beta", beta, 0),
        )
        kinds = ("full", "random_gaussian", "deterministic", "random_mu", "random_sigma")
        self.perturbation: Perturbation = check_choice("perturbation", perturbation, kinds)
        self.noise_over: Per = check_choice("noise_over", noise_over, ("feature", "channel"))
        self.noise_sign: Sign = check_choice("noise_sign", noise_sign, ("positive", "both"))
        self.noise_as: Act = check_choice("noise_as", noise_as, ("offset", "gain"))
        self.noise_scale = (
            None if noise_scale is None else check_positive("noise_scale", noise_scale)
        )
        self.heads_read: Literal["clean", "perturbed"] = check_choice(
            "heads_read", heads_read, ("clean", "perturbed")
        )
        self.minimize_heads = minimize_heads
        self.head_lr = None if head_lr is None else check_positive("head_lr", head_lr)
        self.mixup: Mixup = check_choice("mixup", mixup, ("learnable", "random", "none"))
        self.mix_at, self.detach_mix, self.rho = mix_at, detach_mix, check_fraction("rho", rho)
        self.temperature = check_positive("temperature", temperature)
        self.source_weight = check_number("source_weight", source_weight, 0)
        self.perturbed_weight = check_number("perturbed_weight", perturbed_weight, 0)
        self.mixed_weight = check_number("mixed_weight", mixed_weight, 0)
        self.kl_weight = check_number("kl_weight", kl_weight, 0)
        self.scale: Literal["mean", "sum"] = check_choice("scale", scale, ("mean", "sum"))
        self.chunk = None if chunk is None else check_int("chunk", chunk, 1)
        if not (perturbed_weight or (mixed_weight and mixup != "none")):
            raise UnseenError(
                "nothing perturbed is learned from: perturbed_weight and mixed_weight are both off"
            )

        layers = {site: submodule(model, site, "site") for site in self.sites}
        if mix_at is not None:
            submodule(model, mix_at, "mix_at layer")
        self.heads = nn.ModuleDict(
            {head_key(site): GaussianHead(layer, site) for site, layer in layers.items()}
        )
        first = self.heads[head_key(self.sites[0])]
        assert isinstance(first, GaussianHead)
        self.mixup_head = MixupHead(first.width, first.axis).to(next(first.parameters()))
        self.prior = copy.deepcopy(self.heads).requires_grad_(False)
        self.register_buffer("ascents_done", torch.zeros((), dtype=torch.int64))
        self.register_buffer(
            "spreads", torch.ones(len(self.sites))
        )  # of each site's clean features, as last seen
        psi = [*self.heads.parameters(), *self.mixup_head.parameters()]
        heads = {"params": psi, "lr": self.lr if head_lr is None else head_lr, "weight_decay": 0.0}
        self.model_optimizer = self._optimizer(self.trainable().values(), heads)
        self._pass: PerturbedForward | None = None

    def _last_hidden_layer(self) -> str:
        layers = perturbable_layers(self.model)
        if len(layers) < 2:
            raise UnseenError(
                "the model has one layer only: name an embedding, or set adversarial=False"
            )
        return layers[-2]

    # ------------------------------------------------------------------------------------------------ training

    def step(self, batch: Batch) -> dict[str, Tensor]:
        batch = Batch(self._ready(batch.x), batch.y)
        self.model_optimizer.zero_grad()
        if self.steps_done < self.warmup:
            logs = self._plain_gradients(batch)
        else:
            transported = self.ascend(batch) if self._ascent_is_due() else {}
            logs = {**self.meta_gradients(batch), **transported}
        self.model_optimizer.step()
        self.model_optimizer.zero_grad()
        self.steps_done += 1
        return logs

    def warnings(self, steps: int) -> list[str]:
        if steps > self.warmup:
            return []
        return [
            f"{steps} steps are all warm-up (warmup={self.warmup}): this is plain training, and its score means nothing"
        ]

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {"model": self.model_optimizer}

    def _plain_gradients(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.model(*batch.x)
        check_targets(logits, batch.y, self.ignore_label)
        loss = cross_entropy(logits, batch.y, self.ignore_label)
        loss.backward()
        return {"loss": loss.detach(), "source_loss": loss.detach()}

    def _ascent_is_due(self) -> bool:
        if not self.adversarial or self.perturbation == "random_gaussian":
            return False
        if self.ascent_rounds is not None and self.ascents_done >= self.ascent_rounds:
            return False
        return int(self.steps_done - self.warmup) % self.ascent_every == 0

    def ascend(self, batch: Batch) -> dict[str, Tensor]:
        """The adversary: phi_p climbs L(theta; S+) - beta ||z - z+||^2 while theta stands still."""
        theta = {name: p.detach() for name, p in self.model.named_parameters()}
        run = self.perturbed_forward(batch)
        with torch.no_grad(), captured(self.model, self._watched_layers()) as seen:
            logits = torch.func.functional_call(
                self.model, {**theta, **scratch_buffers(self.model)}, batch.x
            )
        check_targets(logits, batch.y, self.ignore_label)
        assert self.embedding is not None
        z = seen[self.embedding]
        self._measure_spreads(seen)
        phi = list(self.heads.parameters())
        for _ in range(self.ascent_steps):
            out = run(theta, batch.x, Draws(fresh_seeds(1), self.device))
            assert out.logits is not None and out.embedding is not None
            loss = cross_entropy(out.logits, batch.y, self.ignore_label)
            gain = loss - self.beta * self._total((z - out.embedding).square())
            gradients = torch.autograd.grad(gain, phi, allow_unused=True)
            with torch.no_grad():
                for p, g in zip(phi, gradients, strict=True):
                    if g is not None:
                        p.add_(g, alpha=self.ascent_lr)
        self.prior.load_state_dict(self.heads.state_dict())
        self.ascents_done += 1
        return {"ascent_gain": gain.detach()}

    def meta_gradients(self, batch: Batch, seeds: list[int] | None = None) -> dict[str, Tensor]:
        """Alg. 1 without the update: leaves the gradients by theta, phi_p and phi_m in .grad."""
        run, params = self.perturbed_forward(batch), self.trainable()
        with captured(self.model, self._watched_layers()) as seen:
            logits = self.model(*batch.x)
        check_targets(logits, batch.y, self.ignore_label)
        self._measure_spreads(seen)
        source = cross_entropy(logits, batch.y, self.ignore_label)
        alpha = (self.lr if self.inner_lr is None else self.inner_lr) if self.meta else 0.0
        inner = inner_step(source, dict(params), alpha, second_order=self.meta and self.order == 2)

        seeds = fresh_seeds(self.draws) if seeds is None else seeds
        psi = [
            *(self.heads.parameters() if self.minimize_heads else ()),
            *self.mixup_head.parameters(),
        ]
        leaves = [*inner.fast.values(), *psi]
        logs: dict[str, Tensor] = {}
        for part in self._chunks(seeds):
            out = run(
                inner.fast,
                batch.x,
                Draws(part, self.device),
                self._draw_mixing(),
                keep_unmixed=bool(self.perturbed_weight),
            )
            share = len(part) / len(seeds)
            terms = self._outer_terms(out, batch.y)
            (share * terms["outer_loss"]).backward(inputs=leaves)
            seen_z = seen[self.embedding].detach() if self.embedding is not None else None
            for name, value in {**terms, **out.statistics(seen_z)}.items():
                logs[name] = (
                    logs.get(name, torch.zeros((), device=value.device)) + share * value.detach()
                )

        by_fast = {name: leaf.grad for name, leaf in inner.fast.items() if leaf.grad is not None}
        gradients = inner.gradient(by_fast)
        # Without the meta step S and S+ are learned together, so the source always counts there.
        weight = self.source_weight if self.meta or self.source_weight else 1.0
        for name, param in params.items():
            g, source_g = gradients.get(name), inner.grads[name]
            if weight and source_g is not None:
                source_g = source_g.detach()
                g = source_g * weight if g is None else g.add(source_g, alpha=weight)
            param.grad = g
        logs["source_loss"] = source.detach()
        logs["loss"] = logs["outer_loss"] + weight * logs["source_loss"]
        return logs

    def _outer_terms(self, out: PerturbedOutput, y: Tensor) -> dict[str, Tensor]:
        terms: dict[str, Tensor] = {}
        total = next(self.mixup_head.parameters()).new_zeros(())
        if out.logits is not None:
            targets = fold(y, out.logits.shape[0] // y.shape[0])
            terms["perturbed_loss"] = cross_entropy(out.logits, targets, self.ignore_label)
            total = total + self.perturbed_weight * terms["perturbed_loss"]
        if out.mixed_logits is not None:
            assert out.lam is not None and out.smoothing is not None
            terms["mixed_loss"] = mixed_loss(
                out.mixed_logits, y, out.lam, out.smoothing, self.rho, self.ignore_label
            )
            total = total + self.mixed_weight * terms["mixed_loss"]
        if out.kl:
            terms["kl"] = torch.stack([self._total(kl) for kl in out.kl.values()]).sum()
            total = total + self.kl_weight * terms["kl"]
        return {**terms, "outer_loss": total}

    def _draw_mixing(self) -> Any:
        if self.mixup == "none" or not self.mixed_weight:
            return None

        def draw(gaussian: Gaussian, draws: Draws) -> tuple[Tensor, Tensor, Mixing]:
            mixing = (
                self.mixup_head(gaussian) if self.mixup == "learnable" else even_mixing(gaussian)
            )
            return *draw_mixing(mixing, draws, self.temperature), mixing

        return draw

    def _chunks(self, seeds: list[int]) -> Iterator[list[int]]:
        size = self.chunk or len(seeds)
        return (seeds[i : i + size] for i in range(0, len(seeds), size))

    def _total(self, per_feature: Tensor) -> Tensor:
        """Over features the mean, so that one setting serves every layer size, or the paper's sum; over rows the mean."""
        return (
            per_feature.mean() if self.scale == "mean" else per_feature.sum() / per_feature.shape[0]
        )

    def perturbed_forward(self, batch: Batch) -> PerturbedForward:
        """How noise enters this model; the first call checks the sites and where draws may be folded."""
        if self._pass is None:
            theta = {name: p.detach() for name, p in self.model.named_parameters()}
            seen = probe_layers(self.model, batch.x, self.sites, self.mix_at, self.embedding)
            if torch.equal(
                self.spreads, torch.ones_like(self.spreads)
            ):  # no training step has measured them yet
                self._measure_spreads(seen)
            self._pass = PerturbedForward(
                self.model,
                self.sites,
                self.heads,
                embedding=self.embedding,
                mix_at=self.mix_at,
                detach_mix=self.detach_mix,
                kind="learned" if self.perturbation == "full" else self.perturbation,
                head_input=self.heads_read,
                per=self.noise_over,
                sign=self.noise_sign,
                act=self.noise_as,
                units=self._units(),
            )
            self._pass.choose_fold(theta, batch.x)
        self._pass.prior = self.prior if self.kl_weight and self.ascents_done else None
        return self._pass

    def _watched_layers(self) -> tuple[str, ...]:
        """Layers that a clean pass must show: the embedding, and the sites if noise is measured by their spread."""
        names = self.sites if self.noise_scale is not None else ()
        return (
            names if self.embedding is None or self.embedding in names else (*names, self.embedding)
        )

    @torch.no_grad()
    def _measure_spreads(self, seen: dict[str, Tensor]) -> None:
        if self.noise_scale is not None:
            self.spreads.copy_(torch.stack([seen[site].std() for site in self.sites]))
            if self._pass is not None:
                self._pass.units = self._units()

    def _units(self) -> dict[str, float]:
        """What 1 of the noise stands for at a site: 1 as printed, so many standard deviations of its features, or of log gain."""
        if self.noise_scale is None:
            return {}
        if self.noise_as == "gain":  # is the same for features of any size
            return dict.fromkeys(self.sites, self.noise_scale)
        return {
            site: self.noise_scale * float(s)
            for site, s in zip(self.sites, self.spreads, strict=True)
        }

    # ------------------------------------------------------------------------------------------------- figures

    def snapshot(self, batch: Batch) -> dict[str, Tensor]:
        """Embeddings of source and augmented samples, noise maps over the first images, mixed labels."""
        batch = Batch(self._ready(batch.x), batch.y)
        theta = {name: p.detach() for name, p in self.model.named_parameters()}
        with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluating(self.model):
            torch.manual_seed(0)
            run = self.perturbed_forward(batch)
            out = run(
                theta,
                batch.x,
                Draws(fresh_seeds(1), self.device),
                self._draw_mixing(),
                record_shift=True,
            )
        arrays = super().snapshot(batch)
        if out.embedding is not None:
            arrays["embedding_plus"] = out.embedding.flatten(1)[:, :256]
        assert out.shift is not None
        shift = out.shift[:8]  # a few fixed images
        arrays["shift"] = shift.abs().mean(1) if shift.dim() > 2 else shift
        if out.lam is not None and out.smoothing is not None and out.mixed_logits is not None:
            classes = out.mixed_logits.shape[1]
            y = (
                batch.y
                if batch.y.dim() == 1
                else batch.y.flatten(1)[:, 0].where(batch.y.flatten(1)[:, 0] >= 0, 0)
            )
            y = y.where(y != self.ignore_label, 0)
            arrays["y_plus"] = mix_targets(y, out.lam[0], out.smoothing[0], classes, self.rho)
            arrays["lambda"] = out.lam[0]
        return arrays

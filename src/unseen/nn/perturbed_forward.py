"""One pass of any model with noise at its sites, all draws at once.

Everything before the first site runs once; from there on the batch holds slots of B rows each, slot-major:
[clean,] draw 1, ..., draw K [, mixed 1, ..., mixed K]. The clean slot travels along as far as something needs it. Where a
model cannot meet a batch that grows inside (a mask, a U-Net skip, `x.size(0)` kept from the start), the input is folded
instead: the same numbers, with the part before the first site paid for every slot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.functional.mixup import Mixing
from unseen.functional.noise import Act, Gaussian, Per, Sign, kl_divergence
from unseen.nn.fused_noise import add_noise
from unseen.nn.heads import GaussianHead
from unseen.nn.hooks import Edit, captured, edited, evaluating, scratch_buffers
from unseen.nn.random import Draws

Perturbation = Literal["full", "random_gaussian", "deterministic", "random_mu", "random_sigma"]
DrawMixing = Callable[
    [Gaussian, Draws], tuple[Tensor, Tensor, Mixing]
]  # -> lam (K, B), lottery (K, B), its parameters


def fold(t: Tensor, slots: int) -> Tensor:
    """(B, ...) -> (slots*B, ...), slot-major; targets are folded alike."""
    return torch.cat([t] * slots)  # keeps channels_last, which expand and flatten would not


def head_key(site: str) -> str:
    """A site's name as a ModuleDict key, which may hold no dots."""
    return site.replace(".", "/")


@dataclass
class Perturbed:
    """What one perturbed pass gives; rows are draw-major."""

    logits: Tensor | None = None  # (K*B, C, ...); None where only mixed rows were asked for
    mixed_logits: Tensor | None = None  # (K*B, C, ...)
    embedding: Tensor | None = None  # (K*B, ...)
    lam: Tensor | None = None  # (K, B)
    smoothing: Tensor | None = None  # (K, B), in (0, 1)
    mixing: Mixing | None = None
    gaussians: dict[str, Gaussian] = field(default_factory=dict)
    kl: dict[str, Tensor] = field(default_factory=dict)  # per site, elementwise
    shift: Tensor | None = None  # h+ - h at the first site, (K*B, ...), if asked for

    @torch.no_grad()
    def watched(self, z: Tensor | None) -> dict[str, Tensor]:
        """What the paper's figures are drawn from; z is the clean embedding."""
        watched: dict[str, Tensor] = {}
        for site, gaussian in self.gaussians.items():
            watched[f"sigma/{site}"] = gaussian.sigma.mean()
            watched[f"clamped/{site}"] = (gaussian.sigma >= 1).float().mean()
        if z is not None and self.embedding is not None:
            apart = self.embedding.unflatten(0, (-1, z.shape[0])) - z
            watched["transport"] = apart.flatten(2).norm(dim=2).mean()
        if self.mixing is not None and self.lam is not None:
            watched |= {
                "a": self.mixing.a.mean(),
                "b": self.mixing.b.mean(),
                "tau": self.mixing.tau.mean(),
            }
            watched["lambda"] = self.lam.mean()
        return watched


@dataclass
class PerturbedForward:
    """How noise enters a model; calling it runs one pass under given parameters and teaches BatchNorm nothing."""

    model: nn.Module
    sites: tuple[str, ...]  # in the order the forward pass reaches them
    heads: nn.ModuleDict
    prior: nn.ModuleDict | None = None  # the heads as the last ascent left them
    embedding: str | None = None
    mix_at: str | None = None  # the layer whose output is mixed; the last site if None
    detach_mix: bool = False
    perturbation: Perturbation = "full"
    heads_read: Literal["clean", "perturbed"] = "clean"
    noise_over: Per = "feature"
    noise_sign: Sign = "positive"
    noise_as: Act = "offset"
    units: Mapping[str, float] = field(
        default_factory=dict
    )  # per site: what 1 of the noise stands for; 1 if absent
    fold_at: Literal["site", "input"] = "site"

    def __call__(
        self,
        params: Mapping[str, Tensor],
        x: tuple[Tensor, ...],
        draws: Draws,
        draw_mixing: DrawMixing | None = None,
        unmixed: bool = True,
        want_shift: bool = False,
    ) -> Perturbed:
        going = _PassState(self, draws, x[0].shape[0], draw_mixing, unmixed)
        going.want_shift = want_shift
        going.theta_fixed = not any(p.requires_grad for p in params.values())
        if self.fold_at == "input":
            x = tuple(fold(t, going.input_slots) if t.shape[:1] == x[0].shape[:1] else t for t in x)
        with edited(self.model, going.edits()):
            logits = torch.func.functional_call(
                self.model, {**params, **scratch_buffers(self.model)}, x
            )
        return going.finish(logits)

    def gaussian(self, heads: nn.ModuleDict, site: str, seen: Tensor, h: Tensor) -> Gaussian:
        """The noise's parameters at a site, after the ablation in force."""
        if self.perturbation == "random_gaussian":
            return Gaussian(torch.zeros_like(h), torch.ones_like(h))
        mu, sigma = heads[head_key(site)](seen)
        if self.perturbation == "random_mu":
            mu = torch.zeros_like(mu)
        elif self.perturbation == "random_sigma":
            sigma = torch.ones_like(sigma)
        return Gaussian(mu, sigma)

    def channel_axis(self, site: str) -> int:
        head = self.heads[head_key(site)]
        assert isinstance(head, GaussianHead)
        return head.axis

    def choose_fold(self, params: Mapping[str, Tensor], x: tuple[Tensor, ...]) -> None:
        """Ask once, with two samples and two draws, whether the batch may grow inside the model; else fold the input."""
        probe = tuple(t[:2].detach() if t.shape[:1] == x[0].shape[:1] else t.detach() for t in x)

        def ask(where: Literal["site", "input"]) -> Tensor:
            self.fold_at = where
            logits = self(params, probe, Draws([1, 2], probe[0].device)).logits
            assert logits is not None
            return logits

        with torch.no_grad(), evaluating(self.model):
            folded_input = ask("input")
            try:
                folded_site = ask("site")
                scale = float(folded_input.abs().max()) + 1.0
                agree = torch.allclose(folded_site, folded_input, rtol=0, atol=1e-4 * scale)
            except Exception:  # whatever the user's forward raises when it meets a batch that grew
                agree = False
        self.fold_at = "site" if agree else "input"


def reached_in_order(
    model: nn.Module,
    x: tuple[Tensor, ...],
    sites: tuple[str, ...],
    mix_at: str | None,
    embedding: str | None,
) -> dict[str, Tensor]:
    """What two samples give at the named layers, after making sure that forward reaches these in an order that can work."""
    later = (mix_at, embedding)
    named = (
        *sites,
        *dict.fromkeys(name for name in later if name is not None and name not in sites),
    )
    probe = tuple(t[:2] if t.shape[:1] == x[0].shape[:1] else t for t in x)
    with torch.no_grad(), evaluating(model), captured(model, named) as seen:
        model(*probe)
    reached = list(seen)
    order = [name for name in reached if name in sites]
    if tuple(order) != sites:
        raise UnseenError(
            f"forward reaches the sites in another order: name them as {', '.join(order)}"
        )
    if mix_at is not None and reached.index(mix_at) < reached.index(sites[-1]):
        raise UnseenError(f'mix_at "{mix_at}" is reached before the last site "{sites[-1]}"')
    if embedding is not None and reached.index(embedding) < reached.index(sites[0]):
        raise UnseenError(f'embedding "{embedding}" is reached before the first site "{sites[0]}"')
    return seen


class _PassState:
    """The state of one pass under way."""

    def __init__(
        self,
        how: PerturbedForward,
        draws: Draws,
        batch: int,
        draw_mixing: DrawMixing | None,
        unmixed: bool,
    ):
        self.how, self.draws, self.batch, self.draw_mixing = how, draws, batch, draw_mixing
        self.result = Perturbed()
        self.rows = len(draws) * batch
        self.steady = how.fold_at == "input"  # the number of slots may not change on the way
        self.unmixed = unmixed or draw_mixing is None or self.steady
        self.wanted_unmixed = unmixed or draw_mixing is None
        self.mix_at = None if draw_mixing is None else how.mix_at or how.sites[-1]
        self.input_slots = 1 + len(draws) * (2 if draw_mixing else 1)
        self.want_shift = self.theta_fixed = False
        self.clean = True  # does the batch start with the clean slot now?

    def edits(self) -> dict[str, Edit]:
        edits: dict[str, Edit] = {site: partial(self.at_site, site) for site in self.how.sites}
        if self.mix_at is not None and self.mix_at not in edits:
            edits[self.mix_at] = self.at_mix
        if self.how.embedding is not None:
            edits.setdefault(self.how.embedding, self.at_embedding)
        return edits

    def keeps_clean(self, site: str) -> bool:
        """Does anything behind this site still need the clean features?"""
        if self.steady:
            return True
        if site != self.how.sites[-1]:
            return self.mix_at is not None or self.how.heads_read == "clean"
        return self.mix_at is not None and self.mix_at != site

    def at_site(self, site: str, args: tuple[Any, ...], h: Tensor) -> Tensor:
        if h.shape[0] % self.batch or args[0].shape[0] != h.shape[0]:
            raise UnseenError(
                f'"{site}" gives {h.shape[0]} rows for a batch of {self.batch}: it must keep the batch first'
            )
        if self.steady:  # the mixed slots follow their draws until they are mixed
            h, args = h[: self.batch + self.rows], (args[0][: self.batch + self.rows],)
        first = site == self.how.sites[0]
        shared = first or self.how.heads_read == "clean"
        rows = slice(0, self.batch) if shared else slice(-self.rows, None)
        # Where theta stands still, clean features depend on nothing that is learned: no gradient need go there.
        seen = args[0][rows].detach() if shared and self.theta_fixed else args[0][rows]
        gaussian = self.how.gaussian(self.how.heads, site, seen, h[rows])
        if gaussian.mu.shape[1:] != h.shape[1:]:
            raise UnseenError(
                f'"{site}" gives features {tuple(h.shape)}, its head {tuple(gaussian.mu.shape)}'
            )
        self.result.gaussians[site] = gaussian
        if self.how.prior is not None and self.how.perturbation != "random_gaussian":
            self.result.kl[site] = kl_divergence(
                gaussian, self.how.gaussian(self.how.prior, site, seen, h[rows])
            )
        noise = (
            None
            if self.how.perturbation == "deterministic"
            else self.draws.normal(
                h[: self.batch], self.how.noise_over, self.how.channel_axis(site)
            )
        )
        keep = self.keeps_clean(site)
        unit = self.how.units.get(site, 1.0)
        how = (unit, self.how.noise_sign, self.how.noise_as)
        out = add_noise(h, gaussian, noise, len(self.draws), self.batch, keep, *how)
        self.clean = keep
        if site == self.how.embedding:
            self.at_embedding((), out)
        if first and self.want_shift:
            self.result.shift = out.detach()[-self.rows :] - fold(
                h.detach()[: self.batch], len(self.draws)
            )
        if site == self.mix_at:
            return self.mixed(h[: self.batch], out[-self.rows :])
        return self.with_mixed_slots(out)

    def at_mix(self, _: tuple[Any, ...], h: Tensor) -> Tensor:
        return self.mixed(h[: self.batch], h[self.batch : self.batch + self.rows])

    def with_mixed_slots(self, out: Tensor) -> Tensor:
        return (
            torch.cat([out, out[-self.rows :]]) if self.steady and self.mix_at is not None else out
        )

    def mixed(self, h: Tensor, plus: Tensor) -> Tensor:
        """[clean,] plain and mixed rows behind the mixing point."""
        assert self.draw_mixing is not None
        result = self.result
        result.lam, result.smoothing, result.mixing = self.draw_mixing(
            result.gaussians[self.how.sites[0]], self.draws
        )
        lam = result.lam.reshape(-1, *[1] * (h.dim() - 1)).to(h.dtype)
        near, far = fold(h, len(self.draws)), plus
        if self.how.detach_mix:
            near, far = near.detach(), far.detach()
        mixed = torch.lerp(far, near, lam)
        self.clean = self.steady
        return torch.cat([h] * self.steady + [plus] * self.unmixed + [mixed])

    def at_embedding(self, _: tuple[Any, ...], z: Tensor) -> None:
        self.result.embedding = z[self.batch * self.clean :][
            : self.rows
        ].clone()  # before an in-place activation

    def finish(self, logits: Any) -> Perturbed:
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            raise UnseenError(
                f"the model must return logits (N, C, ...), it returned {describe(logits)}"
            )
        mixed = self.mix_at is not None
        expected = self.batch * self.clean + self.rows * (self.unmixed + mixed)
        if logits.shape[0] != expected:
            raise UnseenError(
                f"the model gave {logits.shape[0]} rows where {expected} went in behind its last site"
            )
        logits = logits[self.batch * self.clean :]
        if self.wanted_unmixed:
            self.result.logits = logits[: self.rows]
        if mixed:
            self.result.mixed_logits = logits[-self.rows :]
        return self.result


def describe(value: Any) -> str:
    """A tensor by its shape, anything else by its type."""
    return (
        f"a tensor of shape {tuple(value.shape)}"
        if isinstance(value, Tensor)
        else type(value).__name__
    )

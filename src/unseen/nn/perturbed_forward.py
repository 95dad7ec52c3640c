"""Forward pass of any model with noise at its sites, for all draws at once.

Everything before the first site runs once. From there on the batch has the rows of a `RowLayout`.
Some models cannot take a batch that grows inside (a mask, a U-Net skip, a stored `x.size(0)`). For
these the input is folded: the numbers are the same, and the layers before the first site run for
every draw.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError
from unseen.functional.mixup import Mixing, mix_features
from unseen.functional.noise import Gaussian, HeadInput, kl_divergence
from unseen.nn.calls import Output, call_for_logits
from unseen.nn.heads import NoiseHead
from unseen.nn.hooks import Edit, edited, evaluating, scratch_buffers, visited
from unseen.nn.inputs import map_inputs
from unseen.nn.probe import first_samples
from unseen.nn.random import Draws
from unseen.nn.rows import RowLayout, fold, take
from unseen.nn.site_noise import SiteNoise

log = logging.getLogger("unseen")

# Returns lam (K, B), label smoothing (K, B) and the distribution they come from.
DrawMixing = Callable[[Gaussian, Draws], tuple[Tensor, Tensor, Mixing]]


def head_key(site: str) -> str:
    """Return a site's name as a ModuleDict key, which must not contain dots."""
    return site.replace(".", "/")


@dataclass
class PerturbedOutput:
    """Outputs of a perturbed pass; rows are draw-major."""

    logits: Tensor | None = None  # (K*B, C, ...); None if only mixed rows were requested
    mixed_logits: Tensor | None = None  # (K*B, C, ...)
    embedding: Tensor | None = None  # (K*B, ...)
    lam: Tensor | None = None  # (K, B)
    smoothing: Tensor | None = None  # (K, B), in (0, 1)
    mixing: Mixing | None = None
    gaussians: dict[str, Gaussian] = field(default_factory=dict)
    kl: dict[str, Tensor] = field(default_factory=dict)  # per site, elementwise
    shift: Tensor | None = None  # h+ - h at the first site, (K*B, ...), if requested

    @torch.no_grad()
    def statistics(self, z: Tensor | None) -> dict[str, Tensor]:
        """Return scalars to log; z is the clean embedding."""
        stats: dict[str, Tensor] = {}
        for site, gaussian in self.gaussians.items():
            stats[f"sigma/{site}"] = gaussian.sigma.mean()
            clamped = (gaussian.sigma >= 1).sum(dtype=torch.float32)
            stats[f"clamped/{site}"] = clamped / gaussian.sigma.numel()
        if z is not None and self.embedding is not None:
            difference = self.embedding.reshape(-1, *z.shape) - z
            stats["transport"] = difference.flatten(2).norm(dim=2).mean()
        if self.mixing is not None and self.lam is not None:
            stats |= {name: value.mean() for name, value in self.mixing._asdict().items()}
            stats["lambda"] = self.lam.mean()
        return stats


@dataclass
class PerturbedForward:
    """Run a model with noise at its sites; BatchNorm's running averages stay as they are."""

    model: nn.Module
    sites: tuple[str, ...]  # in the order the forward pass reaches them
    heads: nn.ModuleDict
    prior: nn.ModuleDict | None = None  # the heads after the last ascent
    embedding: str | None = None
    mix_at: str | None = None  # the layer whose output is mixed; None for the last site
    detach_mix: bool = False
    head_input: HeadInput = "clean"
    noise: SiteNoise = field(default_factory=SiteNoise)
    fold_at: Literal["site", "input"] = "site"
    output: Output = None  # where the logits are in what the model returns

    def __call__(
        self,
        params: Mapping[str, Tensor],
        x: tuple[Tensor, ...],
        draws: Draws,
        draw_mixing: DrawMixing | None = None,
        *,
        keep_unmixed: bool = True,
        record_shift: bool = False,
    ) -> PerturbedOutput:
        """Run one pass under the given parameters.

        With `draw_mixing`, mixed rows follow; without `keep_unmixed` they are the only ones.
        """
        run = _Pass(self, draws, x[0].shape[0], draw_mixing, keep_unmixed, record_shift)
        run.detach_clean = not any(p.requires_grad for p in params.values())
        if self.fold_at == "input":
            slots = run.layout.total // run.layout.batch
            samples = x[0].shape[:1]
            x = map_inputs(lambda t: fold(t, slots) if t.shape[:1] == samples else t, x)
        with edited(self.model, run.edits()):
            state = {**params, **scratch_buffers(self.model)}
            logits = call_for_logits(self.model, x, self.output, state)
        return run.finish(logits)

    def first_gaussian(self, params: Mapping[str, Tensor], x: tuple[Tensor, ...]) -> Gaussian:
        """Return the noise parameters at the first site; the pass ends there."""
        site = self.sites[0]

        def stop(_: str, args: tuple[Any, ...], h: Tensor) -> None:
            head = self.head(site)
            raise _Reached(
                self.noise.gaussian(head, head.input_of(args[0] if args else None, h), h)
            )

        state = {**params, **scratch_buffers(self.model)}
        try:
            with visited(self.model, (site,), stop):
                call_for_logits(self.model, x, self.output, state)
        except _Reached as reached:
            return reached.gaussian
        raise UnseenError(f"forward never reached {site}: name layers that it uses")

    def head(self, site: str, heads: nn.ModuleDict | None = None) -> NoiseHead:
        """Return the head of a site, or that of the prior."""
        head = (self.heads if heads is None else heads)[head_key(site)]
        assert isinstance(head, NoiseHead)
        return head

    def choose_fold(self, params: Mapping[str, Tensor], x: tuple[Tensor, ...]) -> None:
        """Fold at the first site if the model gives the same output as with a folded input."""
        probe = first_samples(x)

        def logits_with(where: Literal["site", "input"]) -> Tensor:
            self.fold_at = where
            logits = self(params, probe, Draws([1, 2], probe[0].device)).logits
            assert logits is not None
            return logits

        with torch.no_grad(), evaluating(self.model):
            expected = logits_with("input")
            try:
                difference = float((logits_with("site") - expected).abs().max())
                tolerance = 1e-4 * (float(expected.abs().max()) + 1.0)
                agree = difference <= tolerance  # False for NaN
                reason = "" if agree else f"the outputs differ by {difference:.3g}"
            except Exception as error:  # whatever a user's forward raises on a batch that grew
                reason = f"{type(error).__name__}: {error}"
        self.fold_at = "input" if reason else "site"
        if reason:
            log.info("draws are folded at the input, not at the first site: %s", reason)


class _Reached(Exception):
    """A pass has computed what was asked for."""

    def __init__(self, gaussian: Gaussian) -> None:
        super().__init__()
        self.gaussian = gaussian


class _Pass:
    """One pass: the hooks at the named layers, and the row layout at the current one."""

    def __init__(
        self,
        forward: PerturbedForward,
        draws: Draws,
        batch: int,
        draw_mixing: DrawMixing | None,
        keep_unmixed: bool,
        record_shift: bool,
    ) -> None:
        self.forward, self.draws, self.draw_mixing = forward, draws, draw_mixing
        self.record_shift = record_shift
        self.detach_clean = False
        mixes = draw_mixing is not None
        self.keep_unmixed = keep_unmixed or not mixes
        self.mix_at = (forward.mix_at or forward.sites[-1]) if mixes else None
        # With a folded input every segment is there from the start, and stays.
        self.fixed = forward.fold_at == "input"
        self.layout = RowLayout(
            batch, len(draws), has_draws=self.fixed, has_mixed=self.fixed and mixes
        )
        self.strength: Tensor | None = None  # of the noise, drawn at the first site
        self.result = PerturbedOutput()

    def edits(self) -> dict[str, Edit]:
        edits: dict[str, Edit] = {site: partial(self.at_site, site) for site in self.forward.sites}
        if self.mix_at is not None:
            edits.setdefault(self.mix_at, self.at_mix)
        if self.forward.embedding is not None:
            edits.setdefault(self.forward.embedding, self.at_embedding)
        return edits

    # ---- layouts

    def layout_after_site(self, site: str) -> RowLayout:
        """Add the draws; drop the clean rows once neither a head nor the mixup reads them."""
        if self.fixed:
            return self.layout
        mixed_later = self.mix_at not in (None, site)
        read_later = site != self.forward.sites[-1] and self.forward.head_input == "clean"
        return replace(self.layout, has_clean=mixed_later or read_later, has_draws=True)

    def layout_after_mix(self) -> RowLayout:
        if self.fixed:
            return self.layout
        return replace(self.layout, has_clean=False, has_draws=self.keep_unmixed, has_mixed=True)

    # ---- hooks

    def at_site(self, site: str, args: tuple[Any, ...], h: Tensor) -> Tensor:
        before, after = self.layout, self.layout_after_site(site)
        x = self.forward.head(site).input_of(args[0] if args else None, h)
        if h.shape[0] != before.total or x.shape[0] != before.total:
            raise UnseenError(
                f'"{site}" maps {x.shape[0]} rows to {h.shape[0]} where the batch has '
                f"{before.total}: it must keep the batch first"
            )
        if before.has_mixed:  # not mixed yet: these rows are copies of the draws
            x, h = take(x, before.unmixed), take(h, before.unmixed)
        gaussian = self.gaussian_at(site, x, h)
        noise, head = self.forward.noise, self.forward.head(site)
        if site == self.forward.sites[0]:
            self.strength = noise.draw_strength(self.draws, h[before.clean])
        out = noise.apply(
            site, h, gaussian, head, self.draws, before.batch, after.has_clean, self.strength
        )
        self.layout = after
        if site == self.forward.embedding:
            self.at_embedding((), out)
        if self.record_shift and site == self.forward.sites[0]:
            clean = fold(h.detach()[before.clean], before.draws)
            self.result.shift = out.detach()[after.perturbed] - clean
        if site == self.mix_at:
            return self.mix(take(h, before.clean), take(out, after.perturbed))
        return torch.cat([out, take(out, after.perturbed)]) if after.has_mixed else out

    def gaussian_at(self, site: str, x: Tensor, h: Tensor) -> Gaussian:
        """Return the noise parameters: one for all draws, or one for each."""
        forward = self.forward
        shared = site == forward.sites[0] or forward.head_input == "clean"
        rows = self.layout.clean if shared else self.layout.perturbed
        x, h = take(x, rows), h.detach()[rows]
        if shared and self.detach_clean:  # clean features depend on nothing that is learned
            x = x.detach()
        head = forward.head(site)
        gaussian = forward.noise.gaussian(head, x, h)
        if not forward.noise.fits(gaussian, h, head):
            raise UnseenError(
                f'"{site}" gives features {tuple(h.shape)}, its head {tuple(gaussian.mu.shape)}'
            )
        self.result.gaussians[site] = gaussian
        if forward.prior is not None and forward.noise.kind != "random_gaussian":
            prior = forward.noise.gaussian(forward.head(site, forward.prior), x, h)
            self.result.kl[site] = kl_divergence(gaussian, prior)
        return gaussian

    def at_mix(self, _: tuple[Any, ...], h: Tensor) -> Tensor:
        return self.mix(take(h, self.layout.clean), take(h, self.layout.perturbed))

    def mix(self, h: Tensor, h_plus: Tensor) -> Tensor:
        assert self.draw_mixing is not None
        result, first = self.result, self.forward.sites[0]
        result.lam, result.smoothing, result.mixing = self.draw_mixing(
            result.gaussians[first], self.draws
        )
        near, far = fold(h, len(self.draws)), h_plus
        if self.forward.detach_mix:
            near, far = near.detach(), far.detach()
        mixed = mix_features(near, far, result.lam)
        self.layout = layout = self.layout_after_mix()
        return torch.cat([h] * layout.has_clean + [h_plus] * layout.has_draws + [mixed])

    def at_embedding(self, _: tuple[Any, ...], z: Tensor) -> None:
        layout = self.layout
        rows = layout.perturbed if layout.has_draws else layout.mixed
        self.result.embedding = z[rows].clone()  # an in-place activation may follow

    def finish(self, logits: Any) -> PerturbedOutput:
        if not isinstance(logits, Tensor) or logits.dim() < 2:
            kind = (
                f"a tensor of shape {tuple(logits.shape)}"
                if isinstance(logits, Tensor)
                else type(logits).__name__
            )
            raise UnseenError(
                f"the model must return logits (N, C) or (N, C, H, W), it returned {kind}"
            )
        layout = self.layout
        if logits.shape[0] != layout.total:
            raise UnseenError(
                f"the model returned {logits.shape[0]} rows for {layout.total} rows behind its "
                "last site"
            )
        if self.keep_unmixed:
            self.result.logits = logits[layout.perturbed]
        if layout.has_mixed:
            self.result.mixed_logits = logits[layout.mixed]
        return self.result

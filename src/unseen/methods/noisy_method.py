"""Base of a method with learned noise: its heads and its perturbed forward pass."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch, Method
from unseen.detection.detector import NOT_CALIBRATED, Detector
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.scoring import ScoreAt
from unseen.detection.sigma import SigmaDetector
from unseen.errors import UnseenError
from unseen.methods.uncertainty_guided_settings import (
    LearnedMixup,
    LossWeights,
    Noise,
    RandomMixup,
)
from unseen.nn.heads import GaussianHead, MixupHead, NoiseHead
from unseen.nn.hooks import edited, out_of_autocast
from unseen.nn.kernel_head import KernelHead
from unseen.nn.perturbed_forward import PerturbedForward, head_key
from unseen.nn.places import (
    Features,
    channel_axis,
    declared_features,
    find_place,
    output_features,
)
from unseen.nn.probe import check_places, probe_model
from unseen.nn.random import fresh_seeds
from unseen.nn.site_noise import SiteNoise
from unseen.nn.synchronized import global_std, spread_of


@dataclass
class CleanPass:
    """The spreads of the sites in a clean pass of some rows, and its embedding."""

    spreads: dict[str, Tensor] = field(default_factory=dict)
    embedding: Tensor | None = None


class NoisyMethod(Method):
    """A method with a noise head for each site and a mixup head."""

    noise: Noise
    mixup: LearnedMixup | RandomMixup | None
    weights: LossWeights
    heads: nn.ModuleDict
    ascents_done: Tensor
    spreads: Tensor
    edits_passes = True
    _forward: PerturbedForward | None = None
    _forward_at: Mapping[str, PerturbedForward] = {}  # by site, for noise at one of them

    @property
    def is_built(self) -> bool:
        return super().is_built and hasattr(self, "heads")

    def _can_build_heads(self) -> bool:
        """Return whether the sites are named and declare their number of features."""
        declared = [declared_features(self.model, site) for site in self.sites]
        return not self.finds_site and None not in declared

    def _build_heads(self, widths: Mapping[str, int]) -> None:
        """Make the heads; `widths` has the number of features where a site does not declare it."""
        heads = {site: self._make_head(site, widths.get(site)) for site in self.sites}
        self.heads = nn.ModuleDict({head_key(site): head for site, head in heads.items()})
        first = heads[self.sites[0]]
        self.mixup_head = MixupHead(first.width, first.axis).to(next(first.parameters()))
        self.prior = copy.deepcopy(self.heads).requires_grad_(False)
        self.register_buffer("ascents_done", torch.zeros((), dtype=torch.int64))
        # Standard deviation of the clean features of each site, from the last step.
        self.register_buffer("spreads", torch.ones(len(self.sites)))

    def _make_head(self, site: str, width: int | None) -> NoiseHead:
        place, features = find_place(self.model, site, "site"), None
        if self.noise.act == "kernel":
            declared = declared_features(self.model, site)
            channels = width if declared is None else declared.width
            assert channels is not None
            return KernelHead(place.module, site, channels, self.noise.kernel_size)
        if place.at_input or output_features(place.module) is None:
            features = declared_features(self.model, site)
            if features is None:
                assert width is not None
                features = Features(width, channel_axis(self.model, site))
        return GaussianHead(place.module, site, features, 2 if self.noise.act == "both" else 1)

    def _build(self, widths: Mapping[str, int]) -> None:
        """Make the heads, and what needs them. Subclasses extend this."""
        self._build_heads(widths)

    def build_for(self, state: Mapping[str, Tensor]) -> None:
        if hasattr(self, "heads") or self.finds_site:
            return
        weights = {site: f"heads.{head_key(site)}.net.weight" for site in self.sites}
        self._build({s: state[n].shape[1] for s, n in weights.items() if n in state})

    def _check_layers(self, x: tuple[Tensor, ...]) -> None:
        super()._check_layers(x)
        mix_at = None if self.mixup is None else self.mixup.at
        names = [*self.sites, *(n for n in (mix_at, self.embedding) if n is not None)]
        seen = probe_model(self.model, x, self.output_reader, names)
        check_places(seen, self.sites, mix_at, self.embedding)
        for site in self.sites if self.noise.depth == "random" else ():
            check_places(seen, (site,), mix_at, self.embedding)
        shapes = {site: seen.outputs[site].shape for site in self.sites}
        if self.noise.act == "kernel":
            self._check_maps(shapes)
        if not hasattr(self, "heads"):
            self._build({s: n[channel_axis(self.model, s)] for s, n in shapes.items()})
        if self._forward is None:
            self._forward = self._build_forward(x, seen.outputs)
            if self.noise.depth == "random":
                self._forward_at = {site: self._single_site(site, x) for site in self.sites}

    def _check_maps(self, shapes: Mapping[str, torch.Size]) -> None:
        for site, shape in shapes.items():
            if len(shape) != 4 or channel_axis(self.model, site) not in (1, -3):
                raise UnseenError(
                    'noise.act="kernel" needs images or maps of channels (N, C, H, W), '
                    f'"{site}" gives {tuple(shape)}: choose noise.act=offset'
                )

    def make_detector(self, score_at: ScoreAt = "site") -> Detector:
        if not hasattr(self, "heads"):
            raise UnseenError(NOT_CALIBRATED)
        if self.noise.kind not in ("learned", "random_mu"):  # sigma is not learned
            return super().make_detector(score_at)
        return EmbeddingShift(self) if score_at == "embedding" else SigmaDetector(self)

    def perturbed_forward(self, batch: Batch) -> PerturbedForward:
        """Return the perturbed forward pass; the first call checks the layers with this batch."""
        self.prepare(batch)
        assert self._forward is not None
        self._forward.prior = self.prior if self.weights.kl and self.ascents_done else None
        return self._forward

    def training_forward(self, batch: Batch) -> PerturbedForward:
        """Return the pass of a training step: with noise at all sites, or at one drawn here."""
        forward = self.perturbed_forward(batch)
        if self.noise.depth == "all":
            return forward
        site = self.sites[fresh_seeds(1)[0] % len(self.sites)]
        return replace(self._forward_at[site], prior=forward.prior)

    def _single_site(self, site: str, x: tuple[Tensor, ...]) -> PerturbedForward:
        assert self._forward is not None
        forward = replace(self._forward, sites=(site,))
        forward.choose_fold(self._detached_parameters(), x)
        return forward

    def _build_forward(self, x: tuple[Tensor, ...], outputs: dict[str, Tensor]) -> PerturbedForward:
        noise, mixup = self.noise, self.mixup
        if torch.equal(self.spreads, torch.ones_like(self.spreads)):  # not measured yet
            self._set_spreads({site: outputs[site].detach().std() for site in self.sites})
        forward = PerturbedForward(
            self.model,
            self.sites,
            self.heads,
            embedding=self.embedding,
            mix_at=None if mixup is None else mixup.at,
            detach_mix=mixup is not None and mixup.detach,
            head_input=noise.head_input,
            noise=SiteNoise(
                noise.kind,
                noise.per,
                noise.sign,
                noise.act,
                noise.strength,
                noise.sparse,
                self._units(),
                # A log gain does not depend on the size of the features.
                gain_unit=1.0 if noise.scale is None else noise.scale,
            ),
            output=self.output_reader,
        )
        forward.choose_fold(self._detached_parameters(), x)
        return forward

    def _detached_parameters(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    @contextmanager
    def _recorded(self) -> Iterator[CleanPass]:
        """Record what a step needs of a clean pass."""
        record = CleanPass()
        sites = () if self.noise.scale is None else self.sites

        def visit(name: str, _: tuple[Any, ...], out: Tensor) -> None:
            if name in sites:
                record.spreads[name] = spread_of(out_of_autocast(out.detach()))
            if name == self.embedding:
                # A copy: an in-place activation behind the layer would change it.
                record.embedding = out_of_autocast(out.detach().clone())

        names = dict.fromkeys((*sites, *([] if self.embedding is None else [self.embedding])))
        with edited(self.model, {name: partial(visit, name) for name in names}):
            yield record

    def _measure_spreads(self, passes: Sequence[CleanPass]) -> None:
        """Set the standard deviations of the sites from the clean passes of a batch."""
        if self.noise.scale is not None:
            self._set_spreads({s: global_std([p.spreads[s] for p in passes]) for s in self.sites})

    @torch.no_grad()
    def _set_spreads(self, spreads: Mapping[str, Tensor]) -> None:
        if self.noise.scale is not None:
            self.spreads.copy_(torch.stack([spreads[site] for site in self.sites]))
            if self._forward is not None:
                self._forward.noise.units = self._units()

    def _units(self) -> dict[str, float]:
        """Return the offset at each site that a noise of 1 stands for; 1 where it is absent."""
        scale = self.noise.scale
        if scale is None:
            return {}
        return {s: scale * float(v) for s, v in zip(self.sites, self.spreads, strict=True)}

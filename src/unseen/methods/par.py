"""PAR, patch-wise adversarial regularization (Wang, Ge, Lipton and Xing, NeurIPS 2019).

    min over phi of    L_local(phi; h, y)
    min over theta of  L(theta; x, y) - local_weight L_local(phi; h, y)

h is the feature map of an early conv layer; L_local is the mean loss of predicting y from each
position of h alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.losses import cross_entropy
from unseen.methods.erm import ERM
from unseen.nn.hooks import captured
from unseen.nn.microbatches import Part
from unseen.nn.objectives import balanced
from unseen.nn.places import CONVS, named_layers, submodule
from unseen.nn.probe import Probe, probe_model

NO_CONV = "par reads patches from a conv layer; this model runs none: use another method"


class PAR(ERM):
    """Penalise what a classifier of small patches can predict."""

    name = "par"
    summary = "penalises what small patches alone predict about the label"
    paper = (
        "Wang et al., Learning Robust Global Representations by Penalizing Local Predictive Power, "
        "NeurIPS 2019"
    )

    def __init__(
        self,
        model: nn.Module,
        *,
        local_weight: float = 1.0,  # the authors' release for digits and CIFAR-10
        patch_lr: float = 1e-3,  # the release for CIFAR-10
        warmup: int = 0,
        classes: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self._needs_classes("classifies patches")
        self.local_weight = check_number("local_weight", local_weight, 0)
        self.patch_lr = check_positive("patch_lr", patch_lr)
        self.warmup = check_int("warmup", warmup, 0)
        self.classes = None if classes is None else check_int("classes", classes, 2)
        self.layer: str | None = None  # found by the first step unless a site is named
        if self.sites:
            self.layer = self.sites[0]
            conv = submodule(self.model, self.layer, "site")
            if not isinstance(conv, CONVS):
                raise UnseenError(
                    f'par reads patches from a conv layer; its site "{self.layer}" is '
                    f"{type(conv).__name__}: name a conv layer first"
                )
            if self.classes is not None:
                self._build_classifier(int(conv.out_channels), self.classes)
        elif not any(isinstance(m, CONVS) for m in self.model.modules()):
            raise UnseenError(NO_CONV)

    def _build_classifier(self, channels: int, outputs: int) -> None:
        # Applied over channels: a 1x1 convolution of any dimension.
        self.patch_classifier = nn.Linear(channels, outputs).to(self.device)
        self.patch_optimizer = self._optimizer(
            {"params": list(self.patch_classifier.parameters()), "lr": self.patch_lr}
        )

    @property
    def is_built(self) -> bool:
        return super().is_built and hasattr(self, "patch_classifier")

    def build_for(self, state: Mapping[str, Tensor]) -> None:
        weight = state.get("patch_classifier.weight")
        if weight is not None and not hasattr(self, "patch_classifier"):
            self._build_classifier(weight.shape[1], len(weight))

    def _check_layers(self, x: tuple[Tensor, ...]) -> None:
        super()._check_layers(x)
        if self.layer is None or not self.is_built:
            seen = probe_model(self.model, x, self.output_reader)
            self.layer = self.layer or first_conv(seen, self.model)
            if not hasattr(self, "patch_classifier"):
                channels = submodule(self.model, self.layer, "layer").out_channels
                self._build_classifier(int(channels), self.classes or seen.classes)  # type: ignore[arg-type]

    def step(self, batch: Batch) -> dict[str, Tensor]:
        parts = self.microbatches(Batch(self._ready(batch.x), batch.y))
        # One forward pass serves both updates: the model does not change in the first. Passes of
        # several parts are not kept, but computed again.
        passes: list[tuple[Tensor, Tensor]] = []
        self.patch_optimizer.zero_grad()

        def learn_patches(part: Part) -> None:
            with torch.set_grad_enabled(len(parts) == 1):
                source, h = self._pass(part)
            if len(parts) == 1:
                passes.append((source, h))
            self.scaled(part.share * self._local_loss(h.detach(), part.y)).backward()

        (parts.map if len(parts) == 1 else parts.again)(learn_patches)
        self.apply_gradients(self.patch_optimizer)
        weight = self.local_weight if self.steps_done >= self.warmup else 0.0
        self.model_optimizer.zero_grad()

        def learn(part: Part) -> dict[str, Tensor]:
            source, h = passes.pop() if passes else self._pass(part)
            local = self._local_loss(h, part.y)
            loss = source - weight * local
            self.scaled(part.share * loss).backward()
            return {"loss": loss, "source_loss": source, "local_loss": local}

        logs = parts.average(learn)
        self.apply_gradients(self.model_optimizer)
        self.steps_done += 1
        return logs

    def _pass(self, part: Part) -> tuple[Tensor, Tensor]:
        """Return the source loss and the feature map."""
        assert self.layer is not None
        with captured(self.model, (self.layer,)) as outputs:
            logits = self.logits(part.x)
        source = self.objective(logits, part.y)
        self._check(logits, part.y)
        return source, outputs[self.layer]

    def optimizers(self) -> dict[str, Any]:
        return {"model": self.model_optimizer, "patch": self.patch_optimizer}

    def _local_loss(self, h: Tensor, y: Tensor) -> Tensor:
        logits = self.patch_classifier(h.movedim(1, -1)).movedim(-1, 1)
        loss = local_loss(logits, y, self.ignore_label)
        return balanced(loss, logits, y, self._count)

    def _count(self, y: Tensor) -> Tensor:
        return (y != self.ignore_label).sum()

    def _check(self, logits: Tensor, y: Tensor) -> None:
        if y.dim() != 1:
            raise UnseenError(f"par needs one label per sample, (N,), got {tuple(y.shape)}")
        if logits.shape[1] != self.patch_classifier.out_features:
            raise UnseenError(
                f"the model has {logits.shape[1]} outputs, par's patch classifier "
                f"{self.patch_classifier.out_features}: set classes={logits.shape[1]}"
            )


def local_loss(logits: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """Compute the mean cross-entropy of logits (N, C, ...) with labels (N,) at every position."""
    return cross_entropy(
        logits, y.view(-1, *[1] * (logits.dim() - 2)).expand(len(y), *logits.shape[2:]), ignore
    )


def first_conv(seen: Probe, model: nn.Module) -> str:
    """Return the first conv layer that runs on the way to the logits."""
    layers = named_layers(model)
    for name in seen.outputs:
        if isinstance(layers.get(name), CONVS) and seen.is_site(name):
            return name
    raise UnseenError(NO_CONV)

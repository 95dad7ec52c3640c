"""PAR, patch-wise adversarial regularization (Wang, Ge, Lipton and Xing, NeurIPS 2019).

    min over phi of    L_local(phi; h, y)
    min over theta of  L(theta; x, y) - local_weight L_local(phi; h, y)

h is the map of features that an early conv layer gives; L_local is the mean loss of guessing y from each place of it alone.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from unseen.api import Batch, check_targets, cross_entropy
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.methods.erm import ERM
from unseen.nn.hooks import captured, perturbable_layers, submodule

CONV = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class PAR(ERM):
    """A patch classifier guesses the label from every small patch; the model learns to classify and to leave it clueless."""

    name = "par"
    summary = (
        "penalises what small patches alone tell of the label, so that the model looks at the whole"
    )
    paper = "Wang et al., Learning Robust Global Representations by Penalizing Local Predictive Power, NeurIPS 2019"

    def __init__(
        self,
        model: nn.Module,
        *,
        local_weight: float = 1.0,  # the authors' release for digits and CIFAR-10
        patch_lr: float = 1e-3,  # Adam's for the patch classifier in the release for CIFAR-10
        warmup: int = 0,
        classes: int | None = None,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.local_weight, self.patch_lr = (
            check_number("local_weight", local_weight, 0),
            check_positive("patch_lr", patch_lr),
        )
        self.warmup = check_int("warmup", warmup, 0)
        self.classes = None if classes is None else check_int("classes", classes, 2)
        self.layer = self.sites[0] if self.sites else first_conv(model)
        conv = submodule(model, self.layer, "site")
        if not isinstance(conv, CONV):
            told = f'par reads patches from a conv layer; its site "{self.layer}" is {type(conv).__name__}'
            raise UnseenError(f"{told}: name a conv layer first, such as {first_conv(model)}")
        outputs = (
            width(submodule(model, perturbable_layers(model)[-1], "layer"))
            if classes is None
            else classes
        )
        self.patch_classifier = nn.Linear(
            conv.out_channels, outputs
        )  # over channels: a 1x1 convolution of any dimension
        self.patch_optimizer = self._optimizer(
            {"params": list(self.patch_classifier.parameters()), "lr": patch_lr}
        )

    def step(self, batch: Batch) -> dict[str, Tensor]:
        batch = Batch(self._ready(batch.x), batch.y)
        with captured(self.model, (self.layer,)) as seen:
            logits = self.model(*batch.x)
        check_targets(logits, batch.y, self.ignore_label)
        self._check(logits, batch.y)
        source, h = cross_entropy(logits, batch.y, self.ignore_label), seen[self.layer]

        # One pass serves both: the model stands still while the patch classifier moves.
        self.patch_optimizer.zero_grad()
        self._local_loss(h.detach(), batch.y).backward()
        self.patch_optimizer.step()

        local = self._local_loss(h, batch.y)
        weight = self.local_weight if self.steps_done >= self.warmup else 0.0
        loss = source - weight * local
        self.model_optimizer.zero_grad()
        loss.backward()
        self.model_optimizer.step()
        self.steps_done += 1
        return {"loss": loss.detach(), "source_loss": source.detach(), "local_loss": local.detach()}

    def optimizers(self) -> dict[str, Any]:
        return {"model": self.model_optimizer, "patch": self.patch_optimizer}

    def _local_loss(self, h: Tensor, y: Tensor) -> Tensor:
        return local_loss(
            self.patch_classifier(h.movedim(1, -1)).movedim(-1, 1), y, self.ignore_label
        )

    def _check(self, logits: Tensor, y: Tensor) -> None:
        if y.dim() != 1:
            raise UnseenError(f"par needs one label a sample, (N,); these are {tuple(y.shape)}")
        if logits.shape[1] != self.patch_classifier.out_features:
            raise UnseenError(
                f"the model has {logits.shape[1]} outputs, par's patch classifier {self.patch_classifier.out_features}: "
                f"say classes={logits.shape[1]}"
            )


def local_loss(logits: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    """Mean cross-entropy of logits (N, C, ...) for every place, where a sample's label (N,) is the label of each."""
    return cross_entropy(
        logits, y.view(-1, *[1] * (logits.dim() - 2)).expand(len(y), *logits.shape[2:]), ignore
    )


def first_conv(model: nn.Module) -> str:
    """The name of the first conv layer."""
    for name in perturbable_layers(model):
        if isinstance(model.get_submodule(name), CONV):
            return name
    raise UnseenError(
        "par reads patches from a conv layer; this model has none: train it with another method"
    )


def width(layer: nn.Module) -> int:
    """How many features a conv or linear layer gives."""
    return layer.out_features if isinstance(layer, nn.Linear) else int(layer.out_channels)  # type: ignore[arg-type]

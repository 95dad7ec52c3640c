"""The network for a user's data: one that `unseen` ships, or package.module:function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from torch import nn

from unseen.data.own_files.labels import LabelKind
from unseen.errors import UnseenError
from unseen.models.fcn32s import FCN32s
from unseen.models.pretrained import load_pretrained_weights
from unseen.models.resnet import Depth
from unseen.models.resnet_classifier import SMALL, ResNetClassifier
from unseen.models.review_mlp import ReviewMLP
from unseen.models.small_conv_net import SmallConvNet
from unseen.nn.inputs import describe_type
from unseen.tasks.own import call_own, import_own

Factory = Callable[..., nn.Module]
GIVEN = ("classes", "num_classes", "shape", "input_shape")  # arguments that a factory may ask for


class Network(NamedTuple):
    """A factory, and the layers that a method needs to know."""

    factory: Factory
    sites: tuple[str, ...] | str
    embedding: str | None


def default_network(
    modality: str, labels: LabelKind, shape: tuple[int, ...], outputs: int
) -> Network:
    """Return the network that is used without --model."""
    if labels == "map":
        return Network(_segmenter(outputs), ("body.conv1",), "hidden")
    if modality == "image" or (modality == "array" and len(shape) == 3 and shape[0] == 3):
        return Network(_resnet(outputs, small=max(shape[1:]) <= SMALL), ("conv1",), "pool")
    if len(shape) == 3:
        return Network(_conv_net(shape[0], outputs), ("conv1",), "fc1")
    if len(shape) == 1:
        return Network(_mlp(shape[0], outputs), ("fc1",), "fc2")
    raise UnseenError(
        f"there is no network for samples of shape {shape}: name your own, --model "
        "package.module:function"
    )


def _resnet(outputs: int, small: bool) -> Factory:
    def resnet(*, depth: Depth = 18, width: float = 1.0, pretrained: str = "") -> nn.Module:
        model = ResNetClassifier(outputs, depth=depth, width=width, small=small)
        return _with_weights(model, pretrained)

    return resnet


def _segmenter(outputs: int) -> Factory:
    def fcn(
        *, depth: Depth = 18, width: float = 1.0, pretrained: str = "", skips: bool = False
    ) -> nn.Module:
        return FCN32s(outputs, depth=depth, width=width, pretrained=pretrained, skips=skips)

    return fcn


def _conv_net(channels: int, outputs: int) -> Factory:
    def conv_net(*, width: int = 32, pretrained: str = "") -> nn.Module:
        return _with_weights(SmallConvNet(channels, outputs, width), pretrained)

    return conv_net


def _mlp(inputs: int, outputs: int) -> Factory:
    def mlp(*, hidden: int = 64, pretrained: str = "") -> nn.Module:
        return _with_weights(ReviewMLP(inputs, hidden, outputs), pretrained)

    return mlp


def own_network(given_as: str | Factory, shape: tuple[int, ...], outputs: int) -> Factory:
    """Return a factory of a user's function that also loads pretrained weights.

    The function is given itself, or as "package.module:function", which is imported.

    The function is called with those of classes, num_classes, shape and input_shape that it has as
    arguments. Its keyword-only arguments are settings of a run.
    """
    what = "a function that returns a model"
    by_name = isinstance(given_as, str)
    spec = given_as if isinstance(given_as, str) else getattr(given_as, "__name__", "model")
    function = import_own(spec, what) if by_name else given_as
    assert callable(function)
    values = dict(zip(GIVEN, (outputs, outputs, shape, shape), strict=True))
    parameters = _parameters(function)
    given = {p.name: values[p.name] for p in parameters if p.name in values}

    def own(*, pretrained: str = "", **settings: Any) -> nn.Module:
        model = call_own(spec, lambda: function(**given, **settings), what)
        if not isinstance(model, nn.Module):
            raise UnseenError(
                f'"{spec}" must return a torch.nn.Module, it returned {describe_type(model)}'
            )
        return _with_weights(model, pretrained)

    known = {*given, "pretrained"}
    settings = [
        p.replace(annotation=type(p.default)) if isinstance(p.annotation, str) else p
        for p in parameters
        if p.kind is p.KEYWORD_ONLY and p.name not in known
    ]
    pretrained = inspect.Parameter(
        "pretrained", inspect.Parameter.KEYWORD_ONLY, default="", annotation=str
    )
    own.__signature__ = inspect.Signature([*settings, pretrained])  # type: ignore[attr-defined]
    return own


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a user's function; annotations that cannot be resolved are left."""
    for resolve in (True, False):
        try:
            return list(inspect.signature(function, eval_str=resolve).parameters.values())
        except (NameError, AttributeError):
            continue
        except (TypeError, ValueError):  # a builtin
            break
    return []


def _with_weights(model: nn.Module, pretrained: str) -> nn.Module:
    if pretrained:
        load_pretrained_weights(model, pretrained)
    return model

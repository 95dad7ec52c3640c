"""Groups of settings of `uncertainty_guided`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from unseen.checks import check_choice, check_fraction, check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.noise import Act, Depth, HeadInput, NoiseKind, Per, Sign, Strength
from unseen.schema import construct_settings
from unseen.schema.flat_settings import RENAMED, deprecated_names, nest_settings


@dataclass(frozen=True)
class Noise:
    """Noise on the features of every site.

    kind: "learned" by the heads, or an ablation: "random_gaussian" (mu = 0, sigma = 1),
        "deterministic" (no sampling), "random_mu" (mu = 0), "random_sigma" (sigma = 1).
    per: one random number per "feature", or per "channel" and shared over space.
    sign: "positive" noise passes through a softplus, as printed; "both" does not.
    act: the noise is an "offset", a "gain" that multiplies by its exponential, "both", a gain and
        an offset with Gaussians of their own, or a "kernel" of its own that convolves each image.
    kernel_size: side of the kernel, an odd number.
    scale: amount in standard deviations of the site's clean features (of log gain for a gain);
        None for absolute noise, as printed.
    strength: multiply the noise by a uniform number in 0..1, one per "sample" or one per "batch"
        and draw; None for 1.
    sparse: fraction of the features, or of the channels, that receive noise; None for all.
    depth: noise at "all" sites, or at one that is drawn in each step ("random").
    head_input: heads of later sites read "clean" features, once for all draws, or "perturbed" ones.
    minimize: whether the heads also descend on the outer loss.
    lr: learning rate of the heads; None for that of the model.
    """

    kind: NoiseKind = "learned"
    per: Per = "channel"
    sign: Sign = "both"
    act: Act = "offset"
    kernel_size: int = 3
    scale: float | None = 2.0
    strength: Strength | None = None
    sparse: float | None = None
    depth: Depth = "all"
    head_input: HeadInput = "clean"
    minimize: bool = True
    lr: float | None = None

    def __post_init__(self) -> None:
        check_choice("noise.kind", self.kind, get_args(NoiseKind))
        check_choice("noise.per", self.per, get_args(Per))
        check_choice("noise.sign", self.sign, get_args(Sign))
        check_choice("noise.act", self.act, get_args(Act))
        if check_int("noise.kernel_size", self.kernel_size, 1) % 2 == 0:
            raise UnseenError(f"noise.kernel_size must be odd, not {self.kernel_size}")
        if self.act == "kernel" and self.sign == "positive":
            raise UnseenError('noise.act="kernel" has noise of both signs: set noise.sign="both"')
        check_choice("noise.strength", self.strength, (*get_args(Strength), None))
        check_choice("noise.depth", self.depth, get_args(Depth))
        check_choice("noise.head_input", self.head_input, get_args(HeadInput))
        if self.scale is not None:
            check_positive("noise.scale", self.scale)
        if self.sparse is not None:
            check_fraction("noise.sparse", self.sparse, one=True)
        if self.lr is not None:
            check_positive("noise.lr", self.lr)


@dataclass(frozen=True)
class Adversary:
    """Gradient ascent of the noise heads on the perturbed loss.

    rounds: number of ascents in all; None for no limit.
    every: training steps from one ascent to the next.
    steps, lr: gradient steps of one ascent and their size.
    beta: weight of the squared distance in the embedding.
    """

    rounds: int | None = 10
    every: int = 1
    steps: int = 30
    lr: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if self.rounds is not None:
            check_int("adversary.rounds", self.rounds, 0)
        check_int("adversary.every", self.every, 1)
        check_int("adversary.steps", self.steps, 1)
        check_positive("adversary.lr", self.lr)
        check_number("adversary.beta", self.beta, 0)


@dataclass(frozen=True)
class _Mixup:
    weight: float = 0.01
    at: str | None = None
    detach: bool = False
    rho: float = 0.9
    temperature: float = 0.3

    def __post_init__(self) -> None:
        check_positive("mixup.weight", self.weight)
        check_fraction("mixup.rho", self.rho)
        check_positive("mixup.temperature", self.temperature)


@dataclass(frozen=True)
class LearnedMixup(_Mixup):
    """Mixup of clean and perturbed features whose distribution is learned.

    weight: weight of the loss on mixed features.
    at: layer whose output is mixed; None for the last site.
    detach: mix detached features, so that this loss does not reach the layers before.
    rho: probability of the true class in a smoothed label.
    temperature: of the relaxed Bernoulli that decides on smoothing.
    """

    kind: Literal["learned"] = "learned"


@dataclass(frozen=True)
class RandomMixup(_Mixup):
    """Mixup with lambda ~ Beta(1, 1) and labels smoothed with probability 1/2 (an ablation)."""

    kind: Literal["random"] = "random"


@dataclass(frozen=True)
class LossWeights:
    """Weights of the source loss, of the perturbed loss and of the KL term."""

    source: float = 1.0
    perturbed: float = 1.0
    kl: float = 0.0

    def __post_init__(self) -> None:
        check_number("weights.source", self.source, 0)
        check_number("weights.perturbed", self.perturbed, 0)
        check_number("weights.kl", self.kl, 0)


PRESETS: dict[str, dict[str, Any]] = {
    # As printed: mixed draws only, an ascent in every iteration, sums, no source term.
    "paper": {
        "draws": 15,
        "warmup": 0,
        "meta": "second",
        "noise": {
            "scale": None, "per": "feature", "sign": "positive", "head_input": "perturbed",
        },
        "adversary": {"rounds": None, "steps": 1, "lr": 1.0, "beta": 1.0},
        "mixup": {"weight": 1.0},
        "weights": {"source": 0.0, "perturbed": 0.0, "kl": 1.0},
        "reduction": "sum",
    },
    # The authors' release for digits; a task names mixup.at and the embedding.
    "reference": {
        "draws": 10,
        "warmup": 100,
        "meta": "second",
        "noise": {
            "scale": None, "per": "feature", "sign": "positive", "head_input": "perturbed",
        },
        "adversary": {"rounds": 20, "steps": 30, "lr": 1.0, "beta": 1.0},
        "mixup": {"weight": 0.01, "detach": True},
        "weights": {"source": 1.0, "perturbed": 1.0, "kl": 0.0},
    },
    # The defaults, which are the best of docs/tuning.md, with fewer draws.
    "fast": {"draws": 2},
}  # fmt: skip

GROUPS: dict[str, tuple[type, ...]] = {
    "noise": (Noise,),
    "adversary": (Adversary,),
    "mixup": (LearnedMixup, RandomMixup),
    "weights": (LossWeights,),
}
_MIXUPS = {"learned": LearnedMixup, "random": RandomMixup}
_DEFAULTS: dict[str, Callable[..., Any]] = {
    "noise": Noise,
    "adversary": Adversary,
    "mixup": LearnedMixup,
    "weights": LossWeights,
}


_HINTS = {
    "adversarial": "adversary=Adversary() or None",
    "meta": 'meta="first", "second" or None',
    "mixup": "mixup=LearnedMixup(), RandomMixup() or None",
}


def accept_flat_settings(init: Callable[..., None]) -> Callable[..., None]:
    """Let a constructor take groups as mappings, and flat settings with a DeprecationWarning."""

    @functools.wraps(init)
    def wrapper(self: Any, model: Any, **settings: Any) -> None:
        if old := deprecated_names(settings):
            hints = ", ".join(f"{name} (now {_HINTS.get(name, RENAMED.get(name))})" for name in old)
            warnings.warn(
                f"settings of uncertainty_guided to be removed in 0.3: {hints}",
                DeprecationWarning,
                stacklevel=2,
            )
            settings = _build_groups(settings, old)
        object.__setattr__(self, "_given", frozenset(settings))
        init(self, model, **_construct_groups(type(self), settings))

    return wrapper


def _construct_groups(method: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings with every group an object; refuse unknown names and other types."""
    known = method.settings_of()
    if unknown := [name for name in settings if name not in known]:
        raise UnseenError(
            f"{method.name} has no setting {', '.join(unknown)}; it has: {', '.join(known)}. "
            'Fields of a group are set as in noise=Noise(scale=1.0) or noise={"scale": 1.0}'
        )
    groups = {
        name: None if value == "none" else value
        for name, value in settings.items()
        if name in GROUPS and not isinstance(value, GROUPS[name])
    }
    parameters = {name: known[name] for name in groups}
    return {**settings, **construct_settings(parameters, groups, "settings", method.name)}


def _build_groups(settings: Mapping[str, Any], old: list[str]) -> dict[str, Any]:
    """Apply flat settings to the groups given beside them, or to the defaults."""
    kept = {name: value for name, value in settings.items() if name not in old}
    for name, value in nest_settings({name: settings[name] for name in old}).items():
        if isinstance(value, dict):
            fields = {**value}
            if isinstance(kept.get(name), Mapping):
                if twice := sorted(set(fields) & set(kept[name])):
                    raise UnseenError(f"{name}.{twice[0]} is set by its old name, too: set it once")
                kept[name] = {**kept[name], **fields}
            elif kept.get(name) is not None:
                kept[name] = replace(kept[name], **fields)
            elif name == "mixup" and "kind" in fields:
                kind = check_choice("mixup.kind", fields.pop("kind"), tuple(_MIXUPS))
                kept[name] = _MIXUPS[kind](**fields)
            else:
                kept[name] = _DEFAULTS[name](**fields)
        else:
            kept[name] = value
    return kept

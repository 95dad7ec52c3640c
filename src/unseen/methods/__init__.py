"""Training methods, one file per paper. METHODS is the registry."""

from __future__ import annotations

from unseen.api import Method
from unseen.errors import UnseenError
from unseen.methods.autoaugment import AutoAugment
from unseen.methods.bnn import BNN
from unseen.methods.cutout import Cutout
from unseen.methods.erm import ERM
from unseen.methods.gud import GUD
from unseen.methods.jigen import JiGen
from unseen.methods.m_ada import MADA
from unseen.methods.mc_dropout import MCDropout
from unseen.methods.mixup import Mixup
from unseen.methods.own import OWN_METHODS, own_method
from unseen.methods.par import PAR
from unseen.methods.pgd import PGD
from unseen.methods.self_super import SelfSuper
from unseen.methods.uncertainty_guided import UncertaintyGuided
from unseen.methods.uncertainty_guided_settings import (
    Adversary,
    LearnedMixup,
    LossWeights,
    Noise,
    RandomMixup,
)

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        ERM,
        Mixup,
        Cutout,
        AutoAugment,
        PGD,
        PAR,
        SelfSuper,
        JiGen,
        GUD,
        MADA,
        UncertaintyGuided,
        BNN,
        MCDropout,
    )
}


def method_named(name: str) -> type[Method]:
    """Return a method by its name, or a user's own, "package.module:Class"."""
    if ":" in name:
        method = own_method(name)
        if method.name in METHODS and METHODS[method.name] is not method:
            del OWN_METHODS[method.name]
            raise UnseenError(
                f'"{name}" has the name "{method.name}" of a built-in method: give it another name'
            )
        return method
    if (known := find_method(name)) is None:
        raise UnseenError(
            f'no method "{name}"; there are: {", ".join(METHODS)}; or name your own as '
            "package.module:Class"
        )
    return known


def find_method(name: str) -> type[Method] | None:
    """Return a method by its name, also one of the user's that was imported before."""
    return METHODS.get(name) or OWN_METHODS.get(name)


__all__ = [
    "ERM",
    "METHODS",
    "Adversary",
    "LearnedMixup",
    "LossWeights",
    "Noise",
    "RandomMixup",
    "UncertaintyGuided",
    "find_method",
    "method_named",
]

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
    """Return the method class of that name."""
    if name not in METHODS:
        raise UnseenError(f'no method "{name}"; there are: {", ".join(METHODS)}')
    return METHODS[name]


__all__ = [
    "ERM",
    "METHODS",
    "Adversary",
    "LearnedMixup",
    "LossWeights",
    "Noise",
    "RandomMixup",
    "UncertaintyGuided",
    "method_named",
]

"""Scores that a method brings along: it must have been trained for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unseen.api import Method
from unseen.detection.detector import Look, Score
from unseen.errors import UnseenError


class OwnScore(Score):
    """What the method of that name calls its uncertainty."""

    measure: str  # the method's score_name

    def __init__(self, net: Method) -> None:
        super().__init__(net)
        if net.name != self.name:
            raise UnseenError(
                f"the score {self.name} is of models trained by the method {self.name}, this one was by {net.name}"
            )
        if net.score_name != self.measure:
            raise UnseenError(
                f"this {net.name} model gives no {self.measure}, only {net.score_name}: see its settings"
            )

    @torch.no_grad()
    def look(self, x: Any) -> Look:
        net: Any = self.net
        return Look(*net.predict_with_features(x))

    def score(self, features: Tensor) -> Tensor:
        return self.net.score(features)


class Sigma(OwnScore):
    name = "uncertainty_guided"
    summary = "relative deviation from the source of the learned noise: its sigma, or how far it moves the embedding; one pass"
    paper = "Qiao and Peng, Uncertainty-guided Model Generalization to Unseen Domains, CVPR 2021"
    measure = "sigma"


class BayesByBackprop(OwnScore):
    name = "bnn"
    summary = "variance of the class probabilities over passes with sampled weights"
    paper = "Blundell et al., Weight Uncertainty in Neural Networks, ICML 2015"
    measure = "predictive_variance"


class MonteCarloDropout(OwnScore):
    name = "mc_dropout"
    summary = "variance of the class probabilities over passes with dropout at the embedding"
    paper = "Gal and Ghahramani, Dropout as a Bayesian Approximation, ICML 2016"
    measure = "predictive_variance"

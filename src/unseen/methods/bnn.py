"""Bayes by backprop (Blundell, Cornebise, Kavukcuoglu and Wierstra, ICML 2015).

    q(w) = N(mu, softplus(rho)^2), weight by weight
    min over mu, rho of  E_q[L(w; S)] + KL[q || N(0, prior_sigma^2)] / number of samples

mu are the model's own parameters, so the model itself is the posterior's mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch, check_targets, cross_entropy
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.noise import Gaussian
from unseen.methods.erm import ERM
from unseen.methods.sampled_passes import SampledPasses
from unseen.nn.hooks import PERTURBABLE
from unseen.nn.perturbed_forward import head_key


class BNN(SampledPasses, ERM):
    """Every weight of a conv or linear layer is a Gaussian; answers are the mean of many draws, doubt is their variance."""

    name = "bnn"
    summary = "a Gaussian over every conv and linear weight; predicts by many sampled passes, whose variance is its score"
    paper = "Blundell et al., Weight Uncertainty in Neural Networks, ICML 2015"

    def __init__(
        self,
        model: nn.Module,
        *,
        passes: int = 30,  # what the domain uncertainty is compared with in Qiao and Peng, CVPR 2021
        kl_weight: float = 1e-4,  # 1 / samples is the bound itself: 10,000 of them in digits
        prior_sigma: float = 0.37,  # e^-1: the middle of what Blundell et al. scan for the wide part of their prior
        sigma_start: float = 0.1,
        sigma_lr: float = 1e-3,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.passes, self.kl_weight = (
            check_int("passes", passes, 2),
            check_number("kl_weight", kl_weight, 0),
        )
        self.prior_sigma, self.sigma_start = (
            check_positive("prior_sigma", prior_sigma),
            check_positive("sigma_start", sigma_start),
        )
        self.sigma_lr = check_positive("sigma_lr", sigma_lr)
        fans = random_weights(model)
        if not fans:
            raise UnseenError("bnn needs a trainable conv or linear layer: this model has none")
        self.rho = nn.ParameterDict(
            {
                head_key(name): torch.full_like(
                    self.mu(name), inverse_softplus(sigma_start / math.sqrt(fan))
                )
                for name, fan in fans.items()
            }
        )
        self.names = tuple(fans)
        # Adam whatever the model's own optimizer is: on the scale of a logarithm one step size serves every layer.
        self.sigma_optimizer = torch.optim.Adam(self.rho.parameters(), sigma_lr, fused=True)

    def mu(self, name: str) -> nn.Parameter:
        return self.model.get_parameter(name)

    def posterior(self) -> dict[str, Gaussian]:
        """q: the mean and the scale of every random weight."""
        return {
            name: Gaussian(self.mu(name), F.softplus(self.rho[head_key(name)]))
            for name in self.names
        }

    def step(self, batch: Batch) -> dict[str, Tensor]:
        self.sigma_optimizer.zero_grad()
        logs = super().step(batch)
        self.sigma_optimizer.step()
        return logs

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        q = self.posterior()
        logits = torch.func.functional_call(self.model, drawn(q), batch.x)
        check_targets(logits, batch.y, self.ignore_label)
        source = cross_entropy(logits, batch.y, self.ignore_label)
        kl = kl_to_prior(q, self.prior_sigma)
        return {"loss": source + self.kl_weight * kl, "source_loss": source, "kl": kl}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {**super().optimizers(), "sigma": self.sigma_optimizer}

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        q = self.posterior()
        for k in range(self.passes):
            yield torch.func.functional_call(
                self.model, drawn(q, torch.Generator().manual_seed(k)), x
            )


def random_weights(model: nn.Module) -> dict[str, int]:
    """Names of the trainable parameters of conv and linear layers, with the number of inputs that each unit sums over."""
    fans = {
        name: layer.weight[0].numel()
        for name, layer in model.named_modules()
        if isinstance(layer, PERTURBABLE)
    }
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    return {
        name: fans[name.rpartition(".")[0]] for name in trainable if name.rpartition(".")[0] in fans
    }


def drawn(q: dict[str, Gaussian], generator: torch.Generator | None = None) -> dict[str, Tensor]:
    """One draw of every weight, with a gradient to mean and scale; random numbers are the CPU's, wherever the weights are."""
    return {
        name: mu + sigma * torch.randn(mu.shape, generator=generator).to(mu)
        for name, (mu, sigma) in q.items()
    }


def kl_to_prior(q: dict[str, Gaussian], prior_sigma: float) -> Tensor:
    """KL[q || N(0, prior_sigma^2)], summed over all weights; there may be millions, so each term passes over them once."""
    total = torch.zeros(())
    for mu, sigma in ((g.mu.flatten(), g.sigma.flatten()) for g in q.values()):
        total = total + (mu @ mu + sigma @ sigma) / (2 * prior_sigma**2) - sigma.log().sum()
        total = total + mu.numel() * (math.log(prior_sigma) - 0.5)
    return total


def inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))

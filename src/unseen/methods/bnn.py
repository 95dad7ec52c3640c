"""Bayes by backprop (Blundell, Cornebise, Kavukcuoglu and Wierstra, ICML 2015).

    q(w) = N(mu, softplus(rho)^2), independent for each weight
    min over mu, rho of  E_q[L(w; S)] + KL[q || N(0, prior_sigma^2)] / number of samples

mu is stored in the model's own parameters, so the model is the posterior mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unseen.api import Batch
from unseen.checks import check_int, check_number, check_positive
from unseen.errors import UnseenError
from unseen.functional.noise import Gaussian
from unseen.methods.erm import ERM
from unseen.methods.sampled_passes import SampledPasses
from unseen.nn.hooks import PERTURBABLE
from unseen.nn.perturbed_forward import head_key


class BNN(SampledPasses, ERM):
    """Gaussian posterior over the weights of all conv and linear layers.

    Predictions are the mean over sampled networks, the score is their variance.
    """

    name = "bnn"
    summary = "Gaussian posterior over conv and linear weights; averages sampled passes"
    paper = "Blundell et al., Weight Uncertainty in Neural Networks, ICML 2015"

    edits_passes = True

    def __init__(
        self,
        model: nn.Module,
        *,
        passes: int = 30,  # as in the comparison of Qiao and Peng, CVPR 2021
        kl_weight: float = 1e-4,  # 1 / number of samples gives the variational bound
        prior_sigma: float = 0.37,  # e^-1, the middle of the range that Blundell et al. search
        sigma_start: float = 0.1,
        sigma_lr: float = 1e-3,
        **common: Any,
    ) -> None:
        super().__init__(model, **common)
        self.passes = check_int("passes", passes, 2)
        self.kl_weight = check_number("kl_weight", kl_weight, 0)
        self.prior_sigma = check_positive("prior_sigma", prior_sigma)
        self.sigma_start = check_positive("sigma_start", sigma_start)
        self.sigma_lr = check_positive("sigma_lr", sigma_lr)
        fans = random_parameters(self.model)
        if not fans:
            raise UnseenError("bnn needs a trainable conv or linear layer; this model has none")
        self.rho = nn.ParameterDict(
            {
                head_key(name): torch.full_like(
                    self.mu(name), inverse_softplus(sigma_start / math.sqrt(fan))
                )
                for name, fan in fans.items()
            }
        )
        self.names = tuple(fans)
        # Always Adam: rho is on a log scale, where one step size suits every layer.
        self.sigma_optimizer = torch.optim.Adam(self.rho.parameters(), sigma_lr, fused=True)

    def mu(self, name: str) -> nn.Parameter:
        return self.model.get_parameter(name)

    def posterior(self) -> dict[str, Gaussian]:
        """Return q: mean and standard deviation of every random weight."""
        return {
            name: Gaussian(self.mu(name), F.softplus(self.rho[head_key(name)]))
            for name in self.names
        }

    def step(self, batch: Batch) -> dict[str, Tensor]:
        self.sigma_optimizer.zero_grad()
        logs = super().step(batch)
        self.apply_gradients(self.sigma_optimizer)
        return logs

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        q = self.posterior()
        logits = self.logits(batch.x, sample_weights(q))
        source = self.objective(logits, batch.y)
        kl = kl_to_prior(q, self.prior_sigma)
        return {"loss": source + self.kl_weight * kl, "source_loss": source, "kl": kl}

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        return {**super().optimizers(), "sigma": self.sigma_optimizer}

    def sampled_logits(self, x: tuple[Tensor, ...]) -> Iterator[Tensor]:
        q = self.posterior()
        for k in range(self.passes):
            yield self.logits(x, sample_weights(q, torch.Generator().manual_seed(k)))


def random_parameters(model: nn.Module) -> dict[str, int]:
    """Return the trainable parameters of conv and linear layers by name, with their fan-in."""
    fans = {
        name: layer.weight[0].numel()
        for name, layer in model.named_modules()
        if isinstance(layer, PERTURBABLE)
    }
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    return {
        name: fans[name.rpartition(".")[0]] for name in trainable if name.rpartition(".")[0] in fans
    }


def sample_weights(
    q: dict[str, Gaussian], generator: torch.Generator | None = None
) -> dict[str, Tensor]:
    """Draw every weight, differentiable in mean and sigma, with random numbers from the CPU."""
    return {
        name: mu + sigma * torch.randn(mu.shape, generator=generator).to(mu)
        for name, (mu, sigma) in q.items()
    }


def kl_to_prior(q: dict[str, Gaussian], prior_sigma: float) -> Tensor:
    """Compute KL[q || N(0, prior_sigma^2)], summed over all weights."""
    total = torch.zeros(())
    for mu, sigma in ((g.mu.flatten(), g.sigma.flatten()) for g in q.values()):
        total = total + (mu @ mu + sigma @ sigma) / (2 * prior_sigma**2) - sigma.log().sum()
        total = total + mu.numel() * (math.log(prior_sigma) - 0.5)
    return total


def inverse_softplus(value: float) -> float:
    return math.log(math.expm1(value))

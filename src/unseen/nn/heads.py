"""Small learned modules beside a user's model: noise heads, the mixup head, a classifier."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from unseen.errors import UnseenError
from unseen.functional.mixup import Mixing
from unseen.functional.noise import Gaussian
from unseen.functional.pooling import pool
from unseen.nn.calls import call_model
from unseen.nn.hooks import captured, scratch_buffers
from unseen.nn.places import CONVS, Features, channel_axis, output_features, width_at
from unseen.nn.precision import at_least_float32

MU_LIMIT = 2.0  # mu lies in [-2, 2] and sigma in (0, 1], as in the authors' release
BETA_LOW, BETA_HIGH = 0.5, 2.0  # range of a and b in the authors' release: 1 + clamp(., -0.5, 1)


class NoiseHead(nn.Module):
    """A head that predicts the Gaussian of the noise at a site."""

    axis: int  # of the `width` numbers that it predicts
    width: int
    reads_output: bool  # or the input of the site

    def input_of(self, x: Any, h: Tensor) -> Tensor:
        """Return what the head reads at a site with input x and output h."""
        read: Tensor = h if self.reads_output else x
        return read

    def sigma(self, x: Tensor, every: int = 1) -> Tensor:
        """Return the scale only.

        Args:
            every: distance between the positions of the map that are read, along each axis.
        """
        raise NotImplementedError


class GaussianHead(NoiseHead):
    """Predict the mean and scale of the noise at a site.

    At a convolution or a linear layer the head is one layer of its kind and geometry with twice its
    outputs, and reads the input of the site. Elsewhere, also at grouped convolutions, it is a
    linear layer over the channels of the site's output. With two `parts`, a gain and an offset,
    every feature has two Gaussians, one part after the other.
    """

    def __init__(
        self,
        site: nn.Module,
        name: str = "site",
        features: Features | None = None,
        parts: int = 1,
    ) -> None:
        super().__init__()
        layer = None if features is not None else _layer_like(site, 2 * parts)
        self.reads_output = layer is None
        if layer is None:
            features = output_features(site) if features is None else features
            if features is None:
                raise UnseenError(f'site "{name}" does not declare its number of features')
            like = next(site.parameters(), None)
            options: dict[str, Any] = {} if like is None else {"device": like.device}
            if like is not None and like.is_floating_point():
                options["dtype"] = like.dtype
            outputs = 2 * parts * features.width
            layer = nn.Linear(features.width, outputs, **options), features.axis
        self.net, self.axis = layer
        self.width = next(self.net.parameters()).shape[0] // 2

    def forward(self, x: Tensor) -> Gaussian:
        out = at_least_float32(self.net(x.movedim(self.axis, -1) if self.reads_output else x))
        axis = -1 if self.reads_output else self.axis
        mu, sigma = _GaussianOf.apply(out, axis)  # type: ignore[no-untyped-call]
        if self.reads_output:
            mu, sigma = mu.movedim(-1, self.axis), sigma.movedim(-1, self.axis)
        return Gaussian(mu, sigma)

    def sigma(self, x: Tensor, every: int = 1) -> Tensor:
        """Return the scale only, at half the cost of `forward`."""
        net: Any = self.net
        # Halving the weights gives log sigma directly and saves one pass over the feature map.
        weight, bias = 0.5 * net.weight[self.width :], 0.5 * net.bias[self.width :]
        if isinstance(net, nn.Linear):
            x = x.movedim(self.axis, -1)  # a site's output may have its channels elsewhere
            sparse = (slice(None), *[slice(None, None, every)] * (x.dim() - 2))
            log_sigma = F.linear(x[sparse], weight, bias).movedim(-1, self.axis)
        else:
            log_sigma = _convolve_sparsely(net, x, weight, bias, every)
        if torch.is_grad_enabled():
            return log_sigma.clamp(max=0.0).exp()
        return log_sigma.clamp_(max=0.0).exp_()  # saves two copies of a map that may be large


class _GaussianOf(torch.autograd.Function):
    """Clamp the halves of a head's output to mu and, as log sigma^2, to sigma.

    The backward pass writes both gradients into one map; autograd would make six and join two.
    """

    @staticmethod
    def forward(ctx: Any, out: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        mu, log_var = out.chunk(2, dim=axis)
        sigma = log_var.clamp(max=0.0).mul_(0.5).exp_()
        ctx.axis = axis
        ctx.save_for_backward(out, sigma)
        return mu.clamp(-MU_LIMIT, MU_LIMIT), sigma

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_mu: Tensor, grad_sigma: Tensor) -> tuple[Tensor, None]:
        out, sigma = ctx.saved_tensors
        mu, log_var = out.chunk(2, dim=ctx.axis)
        grad = torch.empty_like(out)
        of_mu, of_log_var = grad.chunk(2, dim=ctx.axis)
        hardtanh_backward = torch.ops.aten.hardtanh_backward.grad_input
        hardtanh_backward(grad_mu, mu, -MU_LIMIT, MU_LIMIT, grad_input=of_mu)
        scaled = (grad_sigma * sigma).mul_(0.5)
        hardtanh_backward(scaled, log_var, -math.inf, 0.0, grad_input=of_log_var)
        return grad, None


def _convolve_sparsely(conv: Any, x: Tensor, weight: Tensor, bias: Tensor, every: int) -> Tensor:
    """Convolve as `conv` does, with a stride that is `every` times as large."""
    if every == 1:
        return conv._conv_forward(x, weight, bias)  # type: ignore[no-any-return]
    sparse = copy.copy(conv)
    sparse.stride = tuple(every * step for step in conv.stride)
    if conv.padding == "same":  # PyTorch has it for a stride of 1 only
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        x = F.pad(x, conv._reversed_padding_repeated_twice, mode)
        sparse.padding, sparse.padding_mode = "valid", "zeros"
    return sparse._conv_forward(x, weight, bias)  # type: ignore[no-any-return]


def _layer_like(site: nn.Module, times: int) -> tuple[nn.Module, int] | None:
    """Return a layer like `site` with `times` its outputs, and the axis of those outputs."""
    if isinstance(site, nn.Linear):
        options: dict[str, Any] = {"device": site.weight.device, "dtype": site.weight.dtype}
        return nn.Linear(site.in_features, times * site.out_features, **options), -1
    for dims, conv in enumerate(CONVS, start=1):
        if not isinstance(site, conv) or site.groups > 1:
            continue
        geometry = ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        options = {key: getattr(site, key) for key in geometry}
        options |= {"device": site.weight.device, "dtype": site.weight.dtype}
        return conv(site.in_channels, times * site.out_channels, **options), -dims - 1
    return None


class MixupHead(nn.Module):
    """Predict the distribution of the mixup from the first site's noise, pooled over space."""

    def __init__(self, channels: int, axis: int) -> None:
        super().__init__()
        self.axis = axis
        self.net = nn.Linear(2 * channels, 3)
        with torch.no_grad():  # start near Beta(1, 1) and tau = 1/2 for features of any scale
            self.net.weight.mul_(0.1)
            self.net.bias.copy_(torch.tensor([_beta_logit(1.0), _beta_logit(1.0), 0.0]))

    def forward(self, gaussian: Gaussian) -> Mixing:
        pooled = torch.cat([pool(gaussian.mu, self.axis), pool(gaussian.sigma, self.axis)], dim=1)
        pooled = pooled.to(self.net.weight.dtype)
        a, b, tau = at_least_float32(self.net(pooled)).sigmoid().unbind(1)
        span = BETA_HIGH - BETA_LOW
        return Mixing(BETA_LOW + span * a, BETA_LOW + span * b, tau)


def _beta_logit(value: float) -> float:
    """Return the logit at which the head gives this Beta parameter."""
    return float(torch.tensor((value - BETA_LOW) / (BETA_HIGH - BETA_LOW)).logit())


class EmbeddingHead(nn.Linear):
    """Linear classifier on a model's embedding, averaged over space."""

    def __init__(self, model: nn.Module, layer: str | None, classes: int, wanted_by: str) -> None:
        if layer is None:
            raise UnseenError(
                f"{wanted_by} reads the model's embedding: name its last hidden layer, as "
                'embedding="fc2"'
            )
        super().__init__(width_at(model, layer), classes)
        self.layer, self.axis = layer, channel_axis(model, layer)

    def forward(self, z: Tensor) -> Tensor:
        z = pool(z, self.axis) if z.dim() > 2 else z
        if z.dim() != 2 or z.shape[1] != self.in_features:
            raise UnseenError(
                f'the embedding "{self.layer}" gives {tuple(z.shape[1:])} features, its layers '
                f"declare {self.in_features}: name a linear, conv or norm layer"
            )
        return super().forward(z)


def embed(model: nn.Module, layer: str, x: tuple[Tensor, ...]) -> Tensor:
    """Return the named layer's output; BatchNorm's running averages stay as they are."""
    with captured(model, (layer,)) as outputs:
        call_model(model, x, scratch_buffers(model))
    return outputs[layer]

"""Gradients reach a fused optimizer in the layout of their parameters."""

from __future__ import annotations

import torch
from tiny import TinyNet

from unseen import ERM


def test_gradients_in_channels_last_update_the_right_weights():
    torch.manual_seed(0)
    net, other = (ERM(TinyNet(), lr=0.1) for _ in range(2))
    other.load_state_dict(net.state_dict())
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        g = torch.randn(p.shape)
        p.grad = g
        q.grad = g.contiguous(memory_format=torch.channels_last) if g.dim() == 4 else g.clone()
    for method in (net, other):
        method.apply_gradients(method.model_optimizer)
    assert torch.allclose(net.model.conv2.weight, other.model.conv2.weight, atol=1e-6)

"""Hooks of version 0.1 in a user's own method."""

from __future__ import annotations

import pytest
import torch
from tiny import TinyNet

from unseen import ERM
from unseen.training.checkpoint import training_state


def test_old_checkpoint_hooks_of_an_own_method_still_reach_the_checkpoint():
    with pytest.warns(DeprecationWarning, match="Own.memory is now called extra_state"):

        class Own(ERM):
            def memory(self):
                return {"k": torch.ones(1)}

    assert "memory/k" in training_state(Own(TinyNet()))

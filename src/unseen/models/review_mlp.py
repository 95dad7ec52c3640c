"""ReviewMLP, the backbone for bags of words."""

from __future__ import annotations

from torch import Tensor, nn


class ReviewMLP(nn.Module):
    """fc50-fc50-classes; input counts (N, 5000).

    Args:
        binarise: Let a count say only whether a word is there. A part of the network, so that it
            holds wherever the network is used.
    """

    def __init__(
        self, inputs: int = 5000, hidden: int = 50, classes: int = 2, *, binarise: bool = False
    ) -> None:
        super().__init__()
        self.binarise = binarise
        self.fc1 = nn.Linear(inputs, hidden)
        self.relu1 = nn.ReLU()
        self.fc2 = nn.Linear(hidden, hidden)
        self.relu2 = nn.ReLU()
        self.fc3 = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        if self.binarise:
            x = x.clamp(0, 1)  # the same for counts, and it has a gradient
        x = self.relu1(self.fc1(x))
        x = self.relu2(self.fc2(x))
        return self.fc3(x)

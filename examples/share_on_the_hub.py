"""Save a method as a repository of the Hugging Face Hub, with a model card, and load it.

python examples/share_on_the_hub.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn

import unseen
from unseen.integrations.hub import Card

torch.manual_seed(0)


def samples(batches: int, contrast: float = 2.0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of two classes; at night they have less contrast."""
    y = torch.arange(64) % 2
    return [(torch.randn(64, 4) + 1 + contrast * (y[:, None] - 0.5), y) for _ in range(batches)]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


net = unseen.ERM(model(), lr=1e-2)
unseen.fit(net, samples(8), steps=60, held_out=samples(4), progress=False)

(x, y), (far, _) = samples(1)[0], samples(1, contrast=0.5)[0]
night = float((net.predict(far).argmax(1) == y).float().mean())
card = Card(title="Day and night", source="day", results={"night": night}, license="mit")

# net.push_to_hub("your-name/day-and-night", card=card) uploads the same files.
with tempfile.TemporaryDirectory() as folder:
    net.save_pretrained(folder, card=card)
    print((Path(folder) / "README.md").read_text())
    loaded = unseen.Method.from_pretrained(folder, model())  # runs no code from the folder

assert torch.equal(loaded.predict(x), net.predict(x))
for name, batch in (("day", x), ("night", far)):
    print(f"{name}: score {loaded.domain_score(batch):.3f}{', ALARM' * loaded.alarm(batch)}")

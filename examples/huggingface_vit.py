"""Train a Vision Transformer of Hugging Face: a dict loader, an alarm, a verdict, save and load.

The model is built from a configuration, so that nothing is downloaded. For pretrained weights use
ViTForImageClassification.from_pretrained("google/vit-base-patch16-224-in21k", num_labels=3).

pip install transformers; python examples/huggingface_vit.py
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import ViTConfig, ViTForImageClassification

import unseen

torch.manual_seed(0)


class Stripes(Dataset):
    """Three classes of stripes, as a data set of Hugging Face gives them: a dict per sample."""

    def __init__(self, n: int, night: bool = False) -> None:
        self.labels = torch.randint(3, (n,))
        phase = torch.linspace(0, 6.28, 16)[:, None] + 0.5 * torch.rand(n, 1, 1, 1)
        waves = torch.sin((1 + self.labels.view(-1, 1, 1, 1)) * phase).expand(n, 3, 16, 16)
        images = 0.5 + 0.3 * waves + 0.05 * torch.randn(n, 3, 16, 16)
        self.images = 0.2 * images if night else images

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"pixel_values": self.images[index], "labels": self.labels[index], "id": str(index)}


def make_model() -> ViTForImageClassification:
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = ViTConfig(
        **sizes,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=3,
        initializer_range=0.1,
    )
    return ViTForImageClassification(config)


# The layers are found by one pass: noise enters the patches, the embedding is what the classifier
# reads. The logits are found in the model's ModelOutput.
net = unseen.UncertaintyGuided(make_model(), lr=2e-3, draws=2, warmup=50)
loader = DataLoader(Stripes(256), batch_size=32, shuffle=True)
held_out = DataLoader(Stripes(200), batch_size=50)
unseen.fit(net, loader, steps=60, held_out=held_out, progress=False)
print(f"noise enters at {net.sites[0]}; the embedding is {net.embedding}")

for name, night in (("day", False), ("night", True)):
    batch = next(iter(DataLoader(Stripes(100, night), batch_size=100)))
    accuracy = (net.predict(batch).argmax(1) == batch["labels"]).float().mean()
    alarm = ", ALARM" if net.alarm(batch) else ""
    print(f"{name}: accuracy {accuracy:.2f}, score {net.domain_score(batch):.3f}{alarm}")

with tempfile.TemporaryDirectory() as folder:
    net.save(folder)
    loaded = unseen.load(folder, make_model())
    assert torch.equal(loaded.predict(batch), net.predict(batch))

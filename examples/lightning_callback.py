"""Your own LightningModule and Trainer: calibrate after `fit`, score in `predict`.

python examples/lightning_callback.py
"""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from unseen.integrations.lightning import UnseenCallback

torch.manual_seed(0)


class Classifier(pl.LightningModule):
    """A module as you would write it without unseen."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        self.log("accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def predict_step(
        self, batch: list[Tensor], index: int, dataloader_idx: int = 0
    ) -> dict[str, Tensor]:
        return {"class": self(batch[0]).argmax(1)}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def samples(n: int, gain: float = 4.0) -> TensorDataset:
    """Return three classes; a worn sensor has less gain."""
    y = torch.arange(n) % 3
    x = gain * torch.eye(8)[:3][y] + torch.randn(n, 8)
    return TensorDataset(x, y)


module, callback = Classifier(), UnseenCallback()
trainer = pl.Trainer(
    max_epochs=4, accelerator="cpu", callbacks=[callback], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(module, DataLoader(samples(512), 32, shuffle=True), DataLoader(samples(256), 64))

loaders = [DataLoader(samples(128), 64), DataLoader(samples(128, gain=0.5), 64)]
predictions = trainer.predict(module, loaders)

for name, verdict in zip(("sensor", "worn sensor"), callback.verdicts, strict=True):
    print(f"{name}: {verdict.sentence}{' ALARM' if verdict.alarm else ''}")
print("scores of the first batch:", predictions[0][0]["unseen_score"][:4])

"""ResNet-18 and ResNet-50 without the classifier, with torchvision's parameter names."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from unseen.errors import UnseenError

Depth = Literal[18, 50]
BLOCKS: dict[int, tuple[int, ...]] = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
CLASSIFIER = ("fc.weight", "fc.bias")  # in published files, not in the body


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()
        self.downsample = shortcut(inputs, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions with a shortcut; the 3x3 has the stride, as in torchvision."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, channels * self.expansion, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.relu = nn.ReLU()
        self.downsample = shortcut(inputs, channels * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    """Return the projection of a block's input to its output shape, or None if they agree."""
    if inputs == outputs and stride == 1:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """The body: (N, 3, H, W) -> (N, channels, H / 32, W / 32), sizes rounded up."""

    def __init__(self, depth: Depth = 50, width: float = 1.0) -> None:
        super().__init__()
        if depth not in BLOCKS:
            raise UnseenError(f"depth must be one of {', '.join(map(str, BLOCKS))}, not {depth!r}")
        base = round(64 * width)
        if base < 1:
            raise UnseenError(
                f"width must leave at least one of 64 channels; {width!r} leaves none"
            )
        block = Bottleneck if depth == 50 else BasicBlock
        self.conv1 = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(base)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.channels = base
        self.layer1 = self._layer(block, base, BLOCKS[depth][0], 1)
        self.layer2 = self._layer(block, 2 * base, BLOCKS[depth][1], 2)
        self.layer3 = self._layer(block, 4 * base, BLOCKS[depth][2], 2)
        self.layer4 = self._layer(block, 8 * base, BLOCKS[depth][3], 2)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):  # He et al., 2015
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _layer(
        self, block: type[BasicBlock] | type[Bottleneck], channels: int, blocks: int, stride: int
    ) -> nn.Sequential:
        layers = []
        for index in range(blocks):
            layers.append(block(self.channels, channels, stride if index == 0 else 1))
            self.channels = channels * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(x)[-1]

    def stages(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the features at 1/8, 1/16 and 1/32 of the image's size."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # (N, 64, H / 4, W / 4)
        eighth = self.layer2(self.layer1(x))
        sixteenth = self.layer3(eighth)
        return eighth, sixteenth, self.layer4(sixteenth)


def load_pretrained(body: nn.Module, path: str | Path) -> None:
    """Load weights from a safetensors or torch file; a classifier in the file is ignored."""
    tensors = read_weights(Path(path))
    own = body.state_dict()
    # Old files lack BatchNorm's num_batches_tracked, which nothing here reads.
    missing = [
        name for name in own if name not in tensors and not name.endswith("num_batches_tracked")
    ]
    unexpected = [name for name in tensors if name not in own and name not in CLASSIFIER]
    shapes = [
        f"{name} is {tuple(tensors[name].shape)} in the file, {tuple(own[name].shape)} in the model"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    mismatches = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    if problems := [f"{kind}: {_join(names)}" for kind, names in mismatches.items() if names]:
        advice = "expected a ResNet of the same depth; published weights have width 1"
        raise UnseenError(f"{path} does not fit this model: {'; '.join(problems)}; {advice}")
    if bad := [name for name in own if name in tensors and not tensors[name].isfinite().all()]:
        raise UnseenError(
            f"{path} holds weights that are not finite: {_join(bad)}; download the file again"
        )
    body.load_state_dict({name: tensors.get(name, own[name]) for name in own})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a state dict without running code from the file."""
    if not path.is_file():
        raise UnseenError(
            f'no file of pretrained weights at {path}; pretrained="" starts from random weights'
        )
    try:
        if path.suffix == ".safetensors":
            import safetensors.torch

            return safetensors.torch.load(path.read_bytes())
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's advice is to load it nevertheless
        raise UnseenError(
            f"{path} cannot be read as weights: it is damaged, or holds more than tensors, which "
            "could run code and is not loaded; save a state dict of tensors, as .safetensors"
        ) from error
    except Exception as error:  # unpickling a damaged file may raise anything
        raise UnseenError(
            f"{path} cannot be read as weights ({type(error).__name__}: {str(error)[:200]})"
        ) from error
    if not isinstance(tensors, dict) or not all(
        isinstance(k, str) and isinstance(t, Tensor) for k, t in tensors.items()
    ):
        raise UnseenError(
            f"{path} must hold a state dict, a mapping of names to tensors, and nothing else"
        )
    return tensors


def _join(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

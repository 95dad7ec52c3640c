"""Small models of the kinds in docs/models.md, each with data, and what is expected of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import unseen
from unseen.methods import Adversary

CLASSES, VOCABULARY = 3, 40

Data = Callable[..., Any]


class Kind(NamedTuple):
    """A model, its data as data(n, seed, shifted), and where layers are found in it."""

    make: Callable[[], nn.Module]
    data: Data
    site: str
    embedding: str


def floats(*shape: int) -> Data:
    """Return data of one float input; a shift adds a constant."""

    def data(n: int, seed: int, shifted: bool = False) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(seed)
        y = torch.randint(CLASSES, (n,), generator=g)
        x = torch.randn(n, *shape, generator=g) + y.view(-1, *[1] * len(shape))
        return x + 4 * shifted, y

    return data


def tokens(n: int, seed: int, shifted: bool = False) -> tuple[Tensor, Tensor]:
    """Return sequences of words; a shift takes the other half of the vocabulary."""
    g = torch.Generator().manual_seed(seed)
    half = VOCABULARY // 2
    x = torch.randint(1, half, (n, 6), generator=g) + (half if shifted else 0)
    return x, torch.randint(CLASSES, (n,), generator=g)


def padded(n: int, seed: int, shifted: bool = False) -> dict[str, Any]:
    """Return what a Hugging Face loader yields: words, a padding mask, labels and the text."""
    ids, y = tokens(n, seed, shifted)
    lengths = torch.randint(3, 7, (n,), generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(6) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": y, "text": ["..."] * n}


def pixels(n: int, seed: int, shifted: bool = False) -> dict[str, Any]:
    x, y = floats(3, 16, 16)(n, seed, shifted)
    return {"pixel_values": x, "labels": y}


def label_maps(n: int, seed: int, shifted: bool = False) -> tuple[Tensor, Tensor]:
    x, y = floats(2, 8, 8)(n, seed, shifted)
    return x, y[:, None, None].expand(n, 8, 8).contiguous()


def two_inputs(n: int, seed: int, shifted: bool = False) -> tuple[tuple[Tensor, Tensor], Tensor]:
    x, y = floats(2, 8, 8)(n, seed, shifted)
    return (x, floats(4)(n, seed + 50, shifted)[0]), y


class Forward(nn.Module):
    """Layers, and a forward that is a function of them."""

    def __init__(self, forward: Callable[..., Any], **layers: nn.Module) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.run = forward

    def forward(self, *x: Tensor) -> Any:
        return self.run(self, *x)


def residual_network() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        h = torch.relu(m.norm1(m.conv1(x)))
        h = torch.relu(m.norm2(m.conv2(h)) + m.shortcut(h))
        return m.fc(h.mean((2, 3)))

    return Forward(
        run,
        fc=nn.Linear(8, CLASSES),
        shortcut=nn.Conv2d(4, 8, 1),
        conv1=nn.Conv2d(2, 4, 3, padding=1),
        norm1=nn.BatchNorm2d(4),
        conv2=nn.Conv2d(4, 8, 3, padding=1),
        norm2=nn.BatchNorm2d(8),
    )


def mobile_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 8, 1),
        nn.BatchNorm2d(8),
        nn.ReLU6(inplace=True),
        nn.Conv2d(8, 8, 3, groups=8),
        nn.AdaptiveAvgPool2d(1),
        nn.Conv2d(8, CLASSES, 1),
        nn.Flatten(),
    )


def recurrent(kind: type[nn.RNNBase], last_state: bool) -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        out, state = m.rnn(m.words(x))
        return m.fc(state[-1] if last_state else out.mean(1))

    return Forward(
        run,
        words=nn.Embedding(VOCABULARY, 6),
        rnn=kind(6, 5, batch_first=True),
        fc=nn.Linear(5, CLASSES),
    )


def u_net() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        top = torch.relu(m.down(x))
        bottom = torch.relu(m.deep(F.max_pool2d(top, 2)))
        return m.out(torch.cat([top, m.up(bottom)], 1))

    return Forward(
        run,
        down=nn.Conv2d(2, 4, 3, padding=1),
        deep=nn.Conv2d(4, 6, 3, padding=1),
        up=nn.ConvTranspose2d(6, 4, 2, 2),
        out=nn.Conv2d(8, CLASSES, 1),
    )


def transformer() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(m.encoder(m.project(x)).mean(1))

    layer = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.1, batch_first=True)
    return Forward(
        run,
        fc=nn.Linear(8, CLASSES),
        encoder=nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        project=nn.Linear(4, 8),
    )


def small_cnn(norm: nn.Module | None = None, wrap: Any = lambda layer: layer) -> nn.Module:
    return nn.Sequential(
        wrap(nn.Conv2d(2, 4, 3)),
        nn.Identity() if norm is None else norm,
        nn.ReLU(inplace=True),
        nn.Flatten(),
        wrap(nn.Linear(4 * 36, 8)),
        nn.ReLU(),
        nn.Linear(8, CLASSES),
    )


def mlp(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 8), nn.ReLU(),
        nn.Linear(8, CLASSES),
    )  # fmt: skip


def multi_input() -> nn.Module:
    def run(m: Any, x: Tensor, numbers: Tensor) -> Tensor:
        return m.fc(torch.tanh(m.conv(x).mean((2, 3)) + m.numbers(numbers)))

    return Forward(
        run,
        numbers=nn.Linear(4, 6),
        conv=nn.Conv2d(2, 6, 3),
        fc=nn.Linear(6, CLASSES),
    )


def frozen_backbone() -> nn.Module:
    model = residual_network()
    model.requires_grad_(False)
    model.fc.requires_grad_(True)
    for layer in model.children():
        layer.train(not isinstance(layer, nn.BatchNorm2d))
    return model


def bag_of_words() -> nn.Module:
    return nn.Sequential(
        nn.EmbeddingBag(VOCABULARY, 8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, CLASSES)
    )


def auto_encoder() -> nn.Module:
    """Classify from the code; the reconstruction is returned too."""

    def run(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        code = torch.tanh(m.encode(m.upsample(x)))
        return m.fc(code.mean((2, 3))), m.decode(code)

    return Forward(
        run,
        upsample=nn.ConvTranspose2d(2, 4, 2, 2),
        encode=nn.Conv2d(4, 6, 4, 4),
        decode=nn.ConvTranspose2d(6, 2, 2, 2),
        fc=nn.Linear(6, CLASSES),
    )


def dict_output() -> nn.Module:
    def run(m: Any, x: Tensor) -> dict[str, Tensor]:
        h = m.body(x)
        return {"features": h, "logits": m.fc(torch.relu(h))}

    return Forward(run, body=nn.Linear(6, 8), fc=nn.Linear(8, CLASSES))


def tied_weights() -> nn.Module:
    def run(m: Any, x: Tensor) -> Tensor:
        return m.fc(torch.tanh(m.back(torch.tanh(m.there(x)))))

    model = Forward(run, there=nn.Linear(6, 6), back=nn.Linear(6, 6), fc=nn.Linear(6, CLASSES))
    model.back.weight = model.there.weight
    return model


def compiled() -> nn.Module:
    return torch.compile(small_cnn(), backend="eager")  # type: ignore[return-value]


def conv_1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, CLASSES)
    )


def conv_3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(4, CLASSES)
    )


IMAGES, VECTORS = floats(2, 8, 8), floats(6)
KINDS: dict[str, Kind] = {
    "Residual network": Kind(residual_network, IMAGES, "conv1", "fc:input"),
    "Depthwise convolutions (MobileNet)": Kind(mobile_network, IMAGES, "0", "6:input"),
    "Transformer": Kind(transformer, floats(5, 4), "project", "fc:input"),
    "GRU": Kind(lambda: recurrent(nn.GRU, True), tokens, "words", "fc:input"),
    "LSTM": Kind(lambda: recurrent(nn.LSTM, False), tokens, "words", "fc:input"),
    "U-Net": Kind(u_net, label_maps, "down", "out:input"),
    "1-D convolutions": Kind(conv_1d, floats(2, 16), "0", "4:input"),
    "3-D convolutions": Kind(conv_3d, floats(1, 4, 6, 6), "0", "4:input"),
    "MLP": Kind(mlp, VECTORS, "0", "5:input"),
    "Several inputs": Kind(multi_input, two_inputs, "conv", "fc:input"),
    "Frozen backbone": Kind(frozen_backbone, IMAGES, "conv1", "fc:input"),
    "Compiled": Kind(compiled, IMAGES, "0", "6:input"),
    "Dropout": Kind(lambda: mlp(0.5), VECTORS, "0", "5:input"),
    "Group norm": Kind(lambda: small_cnn(nn.GroupNorm(2, 4)), IMAGES, "0", "6:input"),
    "Weight norm": Kind(
        lambda: small_cnn(wrap=parametrizations.weight_norm), IMAGES, "0", "6:input"
    ),
    "Spectral norm": Kind(
        lambda: small_cnn(wrap=parametrizations.spectral_norm), IMAGES, "0", "6:input"
    ),
    "Bag of words": Kind(bag_of_words, tokens, "0", "3:input"),
    "Transposed convolutions": Kind(auto_encoder, IMAGES, "upsample", "fc:input"),
    "Output in a dict": Kind(dict_output, VECTORS, "body", "fc:input"),
    "Tied weights": Kind(tied_weights, VECTORS, "there", "fc:input"),
}


def hugging_face_kinds() -> dict[str, Kind]:
    """Return models of transformers, from configurations; imported only here, as it is slow."""
    from transformers import (
        BertConfig,
        BertForSequenceClassification,
        ResNetConfig,
        ResNetForImageClassification,
        ViTConfig,
        ViTForImageClassification,
    )

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 8, "num_labels": CLASSES, "initializer_range": 0.5}

    def vit() -> nn.Module:
        return ViTForImageClassification(ViTConfig(**small, image_size=16, patch_size=8))

    def resnet() -> nn.Module:
        sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]}
        config = ResNetConfig(**sizes, layer_type="basic", num_labels=CLASSES)
        return ResNetForImageClassification(config)

    def bert() -> nn.Module:
        config = BertConfig(**small, vocab_size=VOCABULARY, max_position_embeddings=8)
        return BertForSequenceClassification(config)

    projection = "vit.embeddings.patch_embeddings.projection"
    convolution = "resnet.embedder.embedder.convolution"
    return {
        "ViT of transformers": Kind(vit, pixels, projection, "classifier:input"),
        "ResNet of transformers": Kind(resnet, pixels, convolution, "classifier.1:input"),
        "BERT of transformers": Kind(
            bert, padded, "bert.embeddings.word_embeddings", "classifier:input"
        ),
    }


def check_kind(kind: Kind, folder: Path) -> unseen.UncertaintyGuided:
    """Train, score, alarm on a strong shift, save and load with equal predictions."""
    torch.manual_seed(0)
    net = unseen.UncertaintyGuided(
        kind.make(), draws=2, warmup=2, lr=1e-2, adversary=Adversary(steps=1)
    )
    before = [p.clone() for p in net.model.parameters()]
    batches = [kind.data(16, seed) for seed in range(3)]
    unseen.fit(net, batches, steps=5, held_out=[kind.data(100, 9)], progress=False)
    assert (net.sites, net.embedding) == ((kind.site,), kind.embedding)
    learned = [p.requires_grad for p in net.model.parameters()]
    moved = [not torch.equal(a, p) for a, p in zip(before, net.model.parameters(), strict=True)]
    assert any(moved) and not any(m and not free for m, free in zip(moved, learned, strict=True))

    source, shifted = kind.data(64, 10), kind.data(64, 11, shifted=True)
    x = shifted if isinstance(shifted, dict) else shifted[0]
    assert not net.alarm(source if isinstance(source, dict) else source[0], 1e-3)
    assert net.alarm(x) and net.uncertainty(x).shape == (64,)
    net.save(folder)
    loaded = unseen.load(folder, kind.make())
    assert torch.equal(loaded.predict(x), net.predict(x)) and loaded.alarm(x)
    return net

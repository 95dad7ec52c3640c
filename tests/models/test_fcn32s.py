"""FCN-32s and its ResNets: sizes, outputs, pretrained weights."""

from __future__ import annotations

import pickle

import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from torch import nn

from unseen.errors import UnseenError
from unseen.models import FCN32s, ResNet
from unseen.models.fcn32s import MEAN, STD
from unseen.models.resnet import BasicBlock, Bottleneck

PUBLISHED = {
    18: 11_689_512,
    50: 25_557_032,
}  # torchvision's, with the linear layer to ImageNet's 1000 classes


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def randomised(module: nn.Module) -> nn.Module:
    """Every parameter and running average is drawn, so that nothing is 0 or 1 by default."""
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5) if tensor.dim() == 1 else tensor.normal_(std=0.1)
    return module


# ---- the published networks


@pytest.mark.parametrize("depth", PUBLISHED)
def test_the_body_has_the_published_number_of_parameters(depth):
    body = ResNet(depth)
    assert count(body) + (body.channels + 1) * 1000 == PUBLISHED[depth]


@pytest.mark.parametrize(
    "depth, places",
    [
        (18, {"layer4.1.conv2.weight": (512, 512, 3, 3), "layer1.1.bn2.bias": (64,)}),
        (
            50,
            {
                "layer1.0.downsample.0.weight": (256, 64, 1, 1),
                "layer3.5.bn2.weight": (256,),
                "layer4.2.bn3.bias": (2048,),
            },
        ),
    ],
)
def test_names_and_shapes_are_torchvisions(depth, places):
    shapes = {name: tuple(t.shape) for name, t in ResNet(depth).state_dict().items()}
    common = {
        "conv1.weight": (64, 3, 7, 7),
        "bn1.running_var": (64,),
        "bn1.num_batches_tracked": (),
        "layer2.0.downsample.1.running_mean": (512 if depth == 50 else 128,),
    }
    assert {name: shapes.get(name) for name in {**common, **places}} == {**common, **places}
    stages = {name.split(".")[0] for name in shapes}
    assert stages == {"conv1", "bn1", "layer1", "layer2", "layer3", "layer4"}


def batch_norm(x, weights, name):
    parts = (
        weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(x, *parts)


@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
@pytest.mark.parametrize("inputs, stride", [(3, 2), (12, 1)])
def test_a_block_is_its_equation(kind, inputs, stride):
    torch.manual_seed(0)
    block = randomised(kind(inputs, 12 // kind.expansion, stride)).eval()
    w, x = block.state_dict(), torch.randn(2, inputs, 7, 9)
    if kind is BasicBlock:
        h = F.relu(batch_norm(F.conv2d(x, w["conv1.weight"], stride=stride, padding=1), w, "bn1"))
        h = batch_norm(F.conv2d(h, w["conv2.weight"], padding=1), w, "bn2")
    else:
        h = F.relu(batch_norm(F.conv2d(x, w["conv1.weight"]), w, "bn1"))
        h = F.relu(batch_norm(F.conv2d(h, w["conv2.weight"], stride=stride, padding=1), w, "bn2"))
        h = batch_norm(F.conv2d(h, w["conv3.weight"]), w, "bn3")
    downsampled = (
        batch_norm(F.conv2d(x, w["downsample.0.weight"], stride=stride), w, "downsample.1")
        if inputs != 12
        else x
    )
    assert torch.allclose(block(x), F.relu(h + downsampled), atol=1e-5)


# ---- the whole


@pytest.mark.parametrize("size", [(90, 120), (64, 96), (33, 31), (1, 1)], ids=str)
@pytest.mark.parametrize("depth", [18, 50])
def test_the_output_is_as_large_as_the_input(size, depth):
    net = FCN32s(5, depth=depth, width=0.125).eval()
    assert net(torch.rand(2, 3, *size)).shape == (2, 5, *size)


@pytest.mark.parametrize("size", [(90, 120), (33, 31), (1, 1)], ids=str)
@pytest.mark.parametrize("depth", [18, 50])
def test_skips_add_the_classes_read_at_finer_features(depth, size):
    torch.manual_seed(0)
    net = FCN32s(5, depth=depth, width=0.125, skips=True).eval()
    x = torch.rand(2, 3, *size)
    eighth, sixteenth, last = net.body.stages((x - net.mean) / net.std)
    assert torch.equal(last, net.body((x - net.mean) / net.std))
    at_16 = F.interpolate(
        net.classify(net.hidden(last).relu()), size=sixteenth.shape[2:], mode="bilinear"
    ) + net.skips[0](sixteenth)
    at_8 = F.interpolate(at_16, size=eighth.shape[2:], mode="bilinear") + net.skips[1](eighth)
    assert torch.allclose(net(x), F.interpolate(at_8, size=size, mode="bilinear"), atol=1e-6)


def test_skips_resolve_what_32_pixels_blur():
    """A vertical bar of 8 pixels, narrower than a cell of 32."""
    x = torch.zeros(1, 3, 64, 64)
    x[..., 30:38] = 1
    y = (x[:, 0] > 0).long()
    errors = {}
    for skips in (False, True):
        torch.manual_seed(0)
        net = FCN32s(2, depth=18, width=0.125, skips=skips).eval()
        optimizer = torch.optim.Adam(net.parameters(), 3e-3)
        for _ in range(60):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        errors[skips] = (net(x).argmax(1) != y).float().mean().item()
    assert errors[True] < 0.02 < errors[False]


class Seen(nn.Module):
    """A body that has seen something at the top right only, whatever the image."""

    def forward(self, x):
        features = x.new_zeros(len(x), 8, 2, 3)
        features[:, :, 0, 2] = 1
        return features


def test_output_is_spatially_aligned_with_input():
    net = FCN32s(2, depth=18, width=0.125)
    net.body, net.hidden = Seen(), nn.Conv2d(8, 8, 1, bias=False)
    nn.init.ones_(net.hidden.weight)
    net.classify = nn.Conv2d(8, 2, 1, bias=False).requires_grad_(False)
    net.classify.weight.copy_(torch.tensor([0.0, 1.0]).view(2, 1, 1, 1).expand(2, 8, 1, 1))
    scores = net(torch.rand(1, 3, 64, 96))[0, 1].detach()
    assert scores[:16, 80:].min() == scores.max() > 0, (
        "cells reach from middle to middle, the outer ones to the edge"
    )
    assert scores[48:].max() == 0 and scores[:, :48].max() == 0
    assert torch.allclose(scores[0, 48:80].diff(), scores.max() / 32 * torch.ones(31), atol=1e-4), (
        "bilinear in between"
    )


def test_width_scales_every_layer_but_the_last():
    net, half = FCN32s(10, depth=18), FCN32s(10, depth=18, width=0.5)
    assert net.body.conv1.out_channels == 64 and half.body.conv1.out_channels == 32
    assert net.hidden.weight.shape == (512, 512, 3, 3) and half.hidden.weight.shape == (
        256,
        256,
        3,
        3,
    )
    assert FCN32s(14, depth=50, width=0.125).classify.weight.shape == (14, 64, 1, 1)
    assert 0.25 < count(half) / count(net) < 0.26


def test_colours_are_normalised_inside_the_model():
    net, given = FCN32s(2, depth=18, width=0.125).eval(), []
    net.body.register_forward_pre_hook(lambda _, args: given.append(args[0]))
    mean, std = (torch.tensor(t).view(1, 3, 1, 1) for t in (MEAN, STD))
    net(mean.expand(1, 3, 32, 32))
    net((mean + std).expand(1, 3, 32, 32))
    assert given[0].abs().max() < 1e-6 and (given[1] - 1).abs().max() < 1e-5
    assert not {"mean", "std"} & net.state_dict().keys(), "constants, not weights"


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"depth": 34}, "depth must be one of 18, 50, not 34"),
        ({"width": 0.0}, "width must be"),
        ({"width": True}, "width must be"),
        ({"width": 0.001}, "leaves none"),
    ],
)
def test_invalid_model_settings_are_named(wrong, said):
    with pytest.raises(UnseenError, match=said):
        FCN32s(2, **wrong)


# ---- pretrained weights


def published(**changes) -> dict[str, torch.Tensor]:
    """A file as torchvision publishes them: with a classifier, without BatchNorm's counts."""
    torch.manual_seed(7)
    tensors = randomised(ResNet(18, 0.125)).state_dict()
    kept = {name: t for name, t in tensors.items() if not name.endswith("num_batches_tracked")}
    return {**kept, "fc.weight": torch.zeros(1000, 64), "fc.bias": torch.zeros(1000), **changes}


def write(path, tensors) -> str:
    safetensors.torch.save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(
        tensors, path
    )
    return str(path)


@pytest.mark.parametrize("name", ["r18.pth", "r18.safetensors"])
def test_a_file_of_the_same_depth_fits(tmp_path, name):
    path = write(tmp_path / name, published())
    torch.manual_seed(0)
    net, fresh = FCN32s(3, depth=18, width=0.125, pretrained=path), FCN32s(3, depth=18, width=0.125)
    own = net.body.state_dict()
    assert all(torch.equal(own[n], t) for n, t in published().items() if not n.startswith("fc."))
    assert not torch.equal(own["conv1.weight"], fresh.body.state_dict()["conv1.weight"])
    assert net(torch.rand(1, 3, 40, 40)).isfinite().all()


@pytest.mark.parametrize(
    "spoil, said",
    [
        ({"conv1.weight": torch.full((8, 3, 7, 7), torch.nan)}, "not finite: conv1.weight"),
        ({7: torch.zeros(1)}, "state dict"),
    ],
)
def test_weights_that_are_no_numbers_or_have_no_names_are_refused(tmp_path, spoil, said):
    with pytest.raises(UnseenError, match=said):
        FCN32s(
            3,
            depth=18,
            width=0.125,
            pretrained=write(tmp_path / "odd.pth", {**published(), **spoil}),
        )


def test_mismatched_weights_are_named(tmp_path):
    tensors = published(extra=torch.zeros(1))
    del tensors["layer1.0.bn1.weight"]
    tensors["layer2.0.conv1.weight"] = torch.zeros(16, 8, 1, 1)
    with pytest.raises(UnseenError) as caught:
        FCN32s(3, depth=18, width=0.125, pretrained=write(tmp_path / "odd.pth", tensors))
    for part in (
        "odd.pth",
        "missing: layer1.0.bn1.weight",
        "unexpected: extra",
        "layer2.0.conv1.weight is (16, 8, 1, 1) in the file, (16, 8, 3, 3) in the model",
    ):
        assert part in str(caught.value)
    with pytest.raises(
        UnseenError,
        match=r"of another shape: conv1.weight is \(8, .* and \d+ more; .* have width 1",
    ):
        FCN32s(3, depth=18, pretrained=write(tmp_path / "r18.pth", published()))


class Harmful:
    def __reduce__(self):
        return print, ("this must not run",)


@pytest.mark.parametrize(
    "content, said",
    [
        (None, "no file of pretrained weights"),
        (b"", "cannot be read as weights"),
        (b"<html>", "cannot be read as weights"),
        (pickle.dumps(Harmful(), 2), "cannot be read as weights"),
        ([torch.zeros(1)], "must hold a state dict"),
        ({"epoch": 3, "state_dict": {}}, "must hold a state dict"),
    ],
    ids=["absent", "empty", "a web page", "code", "a list", "a whole checkpoint"],
)
def test_invalid_weight_file_is_named(tmp_path, content, said, capsys):
    path = tmp_path / "weights.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(UnseenError, match=said) as error:
        FCN32s(3, depth=18, width=0.125, pretrained=str(path))
    assert "weights_only" not in str(error.value)  # torch's advice runs the code
    assert "must not run" not in capsys.readouterr().out


def test_a_cut_safetensors_file_is_named(tmp_path):
    path = tmp_path / "r18.safetensors"
    write(path, published())
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UnseenError, match=r"r18.safetensors cannot be read as weights"):
        FCN32s(3, depth=18, width=0.125, pretrained=str(path))

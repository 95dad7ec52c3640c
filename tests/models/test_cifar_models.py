"""The backbones of cifar10_c."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from unseen import UncertaintyGuided
from unseen.api import Batch
from unseen.errors import UnseenError
from unseen.methods import Adversary
from unseen.models import AllConv, WideResNet
from unseen.models.wide_resnet import ResidualBlock
from unseen.nn.hooks import PERTURBABLE, captured
from unseen.tasks.cifar10_c import PRESETS, VARIANTS
from unseen.tasks.cifar10_c import task as cifar10_c
from unseen.training.config import model_settings


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_parameter_counts():
    convs = 9 * (3 * 96 + 2 * 96 * 96 + 96 * 192 + 2 * 192 * 192) + 2 * 192 * 192
    assert parameters(AllConv()) == convs + 2 * (3 * 96 + 5 * 192) + 192 * 10 + 10 == 1_076_074
    assert parameters(AllConv(width=0.25)) == 68_578
    assert parameters(WideResNet()) == 2_243_546, "WRN-40-2 for ten classes"
    assert parameters(WideResNet(width=0.5)) == 563_930, "WRN-40-1"


def test_allconv_is_conv_norm_gelu_eight_times_with_two_pools():
    kinds = [type(m).__name__ for m in AllConv().modules() if not list(m.children())]
    conv = ["Conv2d", "BatchNorm2d", "GELU"]
    pool = ["MaxPool2d"]
    assert kinds == conv * 3 + pool + conv * 3 + pool + conv * 2 + [
        "AdaptiveAvgPool2d",
        "Flatten",
        "Linear",
    ]
    sizes = [
        (m.out_channels, m.kernel_size[0]) for m in AllConv().modules() if isinstance(m, nn.Conv2d)
    ]
    assert sizes == [(96, 3)] * 3 + [(192, 3)] * 3 + [(192, 1)] * 2


def test_wide_resnet_has_six_blocks_of_two_convolutions_in_each_group_and_halves_the_size_twice():
    model, seen = WideResNet().eval(), {}
    for name in ("group1", "group2", "group3"):
        assert len(getattr(model, name)) == 6
        getattr(model, name).register_forward_hook(
            lambda _, __, out, name=name: seen.update({name: tuple(out.shape[1:])})
        )
    model(torch.rand(1, 3, 32, 32))
    assert seen == {"group1": (32, 32, 32), "group2": (64, 16, 16), "group3": (128, 8, 8)}
    with pytest.raises(UnseenError, match="depth must be 6 n"):
        WideResNet(depth=39)


def test_a_strided_block_has_the_same_gradients_in_either_memory_layout():
    torch.manual_seed(0)
    block, x = ResidualBlock(4, 8, stride=2).double(), torch.rand(3, 4, 8, 8).double()
    assert block(x).shape == (3, 8, 4, 4)
    plain = torch.autograd.grad(block(x).square().sum(), list(block.parameters()))
    block, x = (
        block.float().to(memory_format=torch.channels_last),
        x.float().to(memory_format=torch.channels_last),
    )
    for _ in range(5):
        grads = torch.autograd.grad(block(x).square().sum(), list(block.parameters()))
        for known, found in zip(plain, grads, strict=True):
            torch.testing.assert_close(found.double(), known, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("kind", [AllConv, WideResNet])
def test_invalid_width_is_refused(kind, width):
    with pytest.raises(UnseenError, match="width must be a number above 0"):
        kind(width=width)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_site_is_the_first_convolution_and_the_embedding_the_pooled_features(variant):
    task = cifar10_c(variant)
    assert task.variant == variant and model_settings(task).keys() == {"width"}
    model = task.model(width=0.25).eval()
    layers = [name for name, m in model.named_modules() if isinstance(m, PERTURBABLE)]
    assert task.sites == (layers[0],) == ("conv1",)
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad(), captured(model, ("pool",)) as seen:
        logits = model(x)
    assert seen["pool"].shape == (2, model.fc.in_features) and logits.shape == (2, 10)
    assert torch.equal(model.fc(seen["pool"]), logits)


@pytest.mark.parametrize("meta", ["first", "second"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_guided_step_changes_the_model_and_leaves_batch_norm_to_clean_passes(variant, meta):
    torch.manual_seed(0)
    task = cifar10_c(variant)
    few = {"meta": meta, "draws": 2, "warmup": 0, "adversary": Adversary(steps=2)}
    net = UncertaintyGuided(
        task.model(width=0.1), sites=task.sites, embedding=task.embedding, **few
    )
    before = net.model.conv1.weight.clone()
    logged = net.train().step(Batch((torch.rand(4, 3, 32, 32),), torch.tensor([0, 1, 2, 9])))
    assert torch.isfinite(logged["loss"]) and not torch.equal(net.model.conv1.weight, before)
    counted = {
        int(m.num_batches_tracked) for m in net.model.modules() if isinstance(m, nn.BatchNorm2d)
    }
    assert counted == {1}


def test_fast_is_a_quarter_wide_and_paper_is_as_printed():
    assert PRESETS["fast"]["width"] == 0.25
    paper = {
        "lr": 0.1,
        "lr_schedule": "linear",
        "batch_size": 128,
        "optimizer": "sgd",
        "weight_decay": 5e-4,
        "augment": "flip_crop",
    }
    assert PRESETS["paper"] == {**paper, "steps": 200 * (48_000 // 128)}
    with pytest.raises(UnseenError, match='no variant "resnet"; it has: allconv, wrn_40_2'):
        cifar10_c("resnet")


def test_a_model_with_a_narrow_strided_convolution_is_not_laid_out_channels_last():
    from torch import nn

    from unseen.nn.hooks import laid_out_for

    x = (torch.rand(2, 4, 8, 8),)
    narrow, wide = (
        nn.Sequential(nn.Conv2d(4, 8, 1, stride=2)),
        nn.Sequential(nn.Conv2d(4, 16, 3), nn.Conv2d(16, 8, 1, stride=2)),
    )
    assert laid_out_for(narrow, x)[0].is_contiguous()
    assert laid_out_for(wide, x)[0].is_contiguous(memory_format=torch.channels_last)

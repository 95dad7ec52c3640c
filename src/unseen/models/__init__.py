"""Backbones: plain modules that know nothing of methods."""

from unseen.models.allconv import AllConv
from unseen.models.digits import DigitsNet
from unseen.models.fcn32s import FCN32s
from unseen.models.lenet import LeNet
from unseen.models.resnet import ResNet
from unseen.models.review_mlp import ReviewMLP
from unseen.models.wide_resnet import WideResNet

__all__ = ["AllConv", "DigitsNet", "FCN32s", "LeNet", "ResNet", "ReviewMLP", "WideResNet"]

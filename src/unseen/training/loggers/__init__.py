"""Loggers: the numbers of a training in TensorBoard, Weights & Biases and MLflow."""

from unseen.training.loggers.logger import Logger, Training
from unseen.training.loggers.mlflow import MLflowLogger
from unseen.training.loggers.registry import LOGGERS, Loggers, make_loggers
from unseen.training.loggers.tensorboard import TensorBoardLogger
from unseen.training.loggers.wandb import WandbLogger

__all__ = [
    "LOGGERS",
    "Logger",
    "Loggers",
    "MLflowLogger",
    "TensorBoardLogger",
    "Training",
    "WandbLogger",
    "make_loggers",
]

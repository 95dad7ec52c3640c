"""Detectors, their alarm, the stream monitor and label-free accuracy estimation.

Start with detector.py, the contract. registry.py lists the detectors, one file each.
"""

from __future__ import annotations

from unseen.detection.accuracy import AccuracyEstimator
from unseen.detection.detector import Detector, Look
from unseen.detection.embedding_shift import EmbeddingShift
from unseen.detection.energy import Energy
from unseen.detection.entropy import Entropy
from unseen.detection.mahalanobis import Mahalanobis
from unseen.detection.max_softmax import MaxSoftmax
from unseen.detection.monitor import DomainMonitor, Reading, StreamSummary
from unseen.detection.predictive_variance import PredictiveVariance
from unseen.detection.registry import DETECTORS
from unseen.detection.sigma import SigmaDetector
from unseen.detection.total_variance import TotalVariance

__all__ = [
    "DETECTORS",
    "AccuracyEstimator",
    "Detector",
    "DomainMonitor",
    "EmbeddingShift",
    "Energy",
    "Entropy",
    "Look",
    "Mahalanobis",
    "MaxSoftmax",
    "PredictiveVariance",
    "Reading",
    "SigmaDetector",
    "StreamSummary",
    "TotalVariance",
]

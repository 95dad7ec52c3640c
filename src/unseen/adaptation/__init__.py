"""Adapting a trained model to a new domain with few labels: one file per method."""

from unseen.adaptation.fine_tune import draw_shots, fine_tune

__all__ = ["draw_shots", "fine_tune"]

"""How a metric is shown: fractions in percent, errors in the unit of their target."""

from __future__ import annotations

ERRORS = ("mae",)  # less is better; in the unit of the target
NAMES = {"miou": "mIoU", "map": "mAP", "mae": "mean absolute error"}


def is_error(metric: str) -> bool:
    return metric in ERRORS


def scale_of(metric: str) -> float:
    """Return the factor that a value is shown with."""
    return 1.0 if is_error(metric) else 100.0


def with_unit(label: str, metric: str) -> str:
    """Return the label of a column or an axis, with a percent sign for fractions."""
    return label if is_error(metric) else f"{label}, %"


def format_value(value: float, metric: str) -> str:
    """Return a value as it is shown, without its unit."""
    return f"{value:.3g}" if is_error(metric) else f"{100 * value:.1f}"


def format_difference(value: float, metric: str) -> str:
    """Return a signed difference of two values."""
    return f"{value:+.3g}" if is_error(metric) else f"{100 * value:+.1f}"

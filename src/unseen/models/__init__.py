"""Plain modules, with no method inside."""

from unseen.models.digits import DigitsNet

__all__ = ["DigitsNet"]

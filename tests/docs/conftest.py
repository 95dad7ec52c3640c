"""Runs of examples and tutorials are calibrated on fewer samples."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="session")
def quick_calibration():
    """Calibrate on 300 samples: enough for the rate of false alarms, a seventh of the time."""
    from unseen.training import train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "MAX_SAMPLES", 300)
        yield

"""Runs of examples and tutorials are calibrated on fewer samples."""

from __future__ import annotations

import pytest
from quick import quick_calibration as samples


@pytest.fixture(autouse=True, scope="module")
def quick_calibration():
    """Calibrate on 300 samples: enough for the rate of false alarms, a seventh of the time."""
    with samples(300):
        yield

"""A deterministic test sound of one second at 16 kHz."""

from __future__ import annotations

import numpy as np

_N = np.arange(16_000)
_T = _N / 16_000
# A sweep from 100 Hz to 3.9 kHz plus noise from integer arithmetic, equal on every machine.
SWEEP = 0.5 * np.sin(2 * np.pi * (100 * _T + 1900 * _T**2)) + 0.1 * (
    _N * _N * 7919 % 65537 / 65537 - 0.5
) * (1 + np.sin(20 * _T))

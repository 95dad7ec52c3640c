"""Names of 0.1 that moved or were renamed still import, with a DeprecationWarning."""

from __future__ import annotations

import importlib
import sys

import pytest

from unseen._deprecated import MODULES, NAMES

OWN = ("uncertainty", "sampled", "scores", "monitor", "accuracy_estimates", "synthetic_shifts")
OWN += ("metrics", "exam", "accuracy_exam", "comparison", "contracts")


@pytest.mark.parametrize("path", [p for p in NAMES if p.split(":")[0].split(".")[0] in OWN])
def test_old_name_is_the_new_one(path):
    module, name = path.split(":")
    new_module, new_name = NAMES[path].split(":")
    new = getattr(importlib.import_module(f"unseen.{new_module}"), new_name)
    sys.modules.pop(f"unseen.{module}", None)
    with pytest.warns(DeprecationWarning, match=f"is now unseen.{MODULES[module]}"):
        old = importlib.import_module(f"unseen.{module}")
    assert getattr(old, name) is new

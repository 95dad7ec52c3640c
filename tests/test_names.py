"""No package of unseen exports an attribute with the name of one of its submodules."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import unseen

PACKAGES = [
    "unseen",
    *(info.name for info in pkgutil.walk_packages(unseen.__path__, "unseen.") if info.ispkg),
]


def hidden_modules(package: ModuleType) -> list[str]:
    """Return the submodules that an attribute of the package hides.

    Submodules are imported first: importing one binds it to the package, and a function of the same
    name, imported later, would replace it.
    """
    names = [
        info.name for info in pkgutil.iter_modules(package.__path__) if info.name != "__main__"
    ]
    for name in names:
        importlib.import_module(f"{package.__name__}.{name}")
    return [name for name in names if not isinstance(getattr(package, name), ModuleType)]


@pytest.mark.parametrize("name", PACKAGES)
def test_package_exports_hide_no_submodule(name):
    assert hidden_modules(importlib.import_module(name)) == []

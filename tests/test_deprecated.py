"""Module paths and names of version 0.1 still import, with a warning."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import warnings

import pytest

import unseen
from unseen._deprecated import MODULES, NAMES

IMPORT_ALL = """
import importlib, json, sys, warnings
messages = {}
for name in json.loads(sys.argv[1]):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        importlib.import_module("unseen." + name)
    messages[name] = [str(w.message) for w in caught if w.category is DeprecationWarning]
print(json.dumps(messages))
"""


def test_every_old_module_imports_in_a_fresh_interpreter_with_a_warning():
    command = [sys.executable, "-c", IMPORT_ALL, json.dumps(list(MODULES))]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    for name, messages in json.loads(finished.stdout).items():
        new = f"unseen.{name} is now unseen.{MODULES[name]}; "
        assert [m for m in messages if m.startswith(new)] or "." in name, (name, messages)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", MODULES)
def test_old_module_has_the_objects_of_the_new_one(name):
    old = importlib.import_module(f"unseen.{name}")
    new = importlib.import_module(f"unseen.{MODULES[name]}")
    public = [n for n in vars(new) if not n.startswith("_") and f"{name}:{n}" not in NAMES]
    public = [n for n in public if f"{name}.{n}" not in MODULES]
    assert public and all(getattr(old, n) is getattr(new, n) for n in public)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_old_name_is_the_new_object(name):
    module, _, attribute = name.partition(":")
    new_module, _, new_attribute = NAMES[name].partition(":")
    new = getattr(importlib.import_module(f"unseen.{new_module}"), new_attribute)
    assert getattr(importlib.import_module(f"unseen.{module}"), attribute) is new


def test_old_module_is_an_attribute_of_the_package():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert unseen.contracts.Batch is unseen.Batch
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        unseen.nonsense  # noqa: B018


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_unknown_name_of_an_old_module_names_the_new_one():
    with pytest.raises(AttributeError, match=r"unseen\.contracts is now unseen\.api, which has no"):
        importlib.import_module("unseen.contracts").nonsense  # noqa: B018


def test_function_fit_is_no_module():
    assert callable(unseen.fit) and "fit" not in MODULES

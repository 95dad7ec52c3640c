"""The command line starts without torch."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from unseen.cli import COMMANDS, app

CHECK = """
import sys
from unseen.cli import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    assert not end.code, end.code
heavy = [name for name in ("torch", "scipy", "sklearn", "matplotlib") if name in sys.modules]
assert not heavy, heavy
"""


@pytest.mark.parametrize("words", [["--version"], ["--help"], []])
def test_version_and_help_do_not_import_torch(words):
    command = [sys.executable, "-c", CHECK, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert words == ["--version"] or "Judge a domain without labels" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_summary_of_a_command_is_the_first_sentence_of_its_help(name):
    command = app[name]
    text = command.help or inspect.getdoc(command.default_command)
    assert COMMANDS[name][1] == " ".join(text.split("\n\n")[0].split())


def test_help_of_a_command_has_its_whole_docstring(capsys):
    app(["score", "--help"], exit_on_error=False, result_action="return_value")
    assert "saves it in the run's folder" in " ".join(capsys.readouterr().out.split())


LOGS = """
import logging
from unseen.cli import main
try:
    main(["--version"])
except SystemExit:
    pass
logging.getLogger("torch").info("statistics of a cache")
logging.getLogger("torch").warning("careful")
logging.getLogger("unseen").info("cached")
"""


def test_of_other_packages_only_warnings_are_shown():
    command = [sys.executable, "-c", LOGS]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert done.stderr.splitlines() == ["unseen: careful", "unseen: cached"]

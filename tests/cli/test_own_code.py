"""A user's own code that fails is named with its file, line and exception; exit 2, no traceback."""

from __future__ import annotations

import sys

import own_task
import pytest
from command_line import unseen
from own_task import COMMANDS

import unseen as package


class Unprintable(Exception):
    def __str__(self):
        raise ValueError


class Rude(BaseException):
    pass


FAILURES = {
    "ValueError: two lines": ValueError("two\nlines"),
    "ZeroDivisionError": ZeroDivisionError(),
    "OSError: [Errno 5] disk": OSError(5, "disk"),
    "KeyError: 'x'": KeyError("x"),
    "StopIteration": StopIteration(),
    "MemoryError": MemoryError(),
    "SystemExit: 0": SystemExit(0),
    "Unprintable": Unprintable(),
    "Rude: bye": Rude("bye"),
}


def fail(error):
    def function(*_):
        raise error  # named in the message

    return function


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "run"
    done = unseen("train", "own_task:make", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(autouse=True)
def no_faults():
    own_task.faults.clear()
    yield
    own_task.faults.clear()


def refused(*words):
    done = unseen(*words)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("place", ["factory", "load", "item", "model", "forward"])
def test_code_that_raises_is_named_in_every_command(run, tmp_path, command, place):
    own_task.faults[place] = fail(ArithmeticError("oh no"))
    message = refused(*COMMANDS[command](run, tmp_path / "new"))
    assert f"{__file__}, line" in message and "in function" in message
    assert "ArithmeticError: oh no" in message


@pytest.mark.parametrize("text", FAILURES)
@pytest.mark.parametrize("place", ["factory", "load", "item", "model", "forward"])
def test_any_exception_is_named(run, tmp_path, place, text):
    own_task.faults[place] = fail(FAILURES[text])
    message = refused(*COMMANDS["evaluate"](run, tmp_path))
    assert f"{__file__}, line" in message and text in message


@pytest.mark.parametrize(
    ("place", "value", "text"),
    [
        ("factory", None, "must return an unseen.Task, got NoneType"),
        ("load", None, 'bars gives no split "test"'),
        ("load", [None] * 9, "cannot be stacked to a batch"),
        ("load", ["ab"] * 9, "yield"),
        ("load", [], "bars/test has 0 samples"),
        ("model", None, "model must be a torch.nn.Module, not NoneType"),
    ],
)
def test_nonsense_is_named(run, tmp_path, place, value, text):
    own_task.faults[place] = lambda *_: value
    assert text in refused(*COMMANDS["evaluate"](run, tmp_path))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("x = 1\nraise ValueError('at import')", "line 2, in <module>: ValueError: at import"),
        ("x = 1\ndef make(:\n", "line 2: SyntaxError"),
        ("import sys\nsys.exit(0)", "line 2, in <module>: SystemExit: 0"),
        ("import no_such_module", "line 1, in <module>: ModuleNotFoundError"),
        ("def make(): return make()", "line 1, in make: RecursionError"),
        ("make = 3", "TypeError: 'int' object is not callable; name a function"),
        ("", "has no attribute 'make'; name a function that returns a Task"),
        ("def make(): return 3", "must return an unseen.Task, got int"),
    ],
)
def test_module_that_fails_is_named(tmp_path, monkeypatch, code, text):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "failing_task.py").write_text(code)
    monkeypatch.delitem(sys.modules, "failing_task", raising=False)
    for words in (["tasks", "failing_task:make"], ["train", "failing_task:make", "--out", "x"]):
        assert text in refused(*words)
    grid = tmp_path / "grid.toml"
    grid.write_text('task = "failing_task:make"\n[[row]]\nmethod = "erm"\n')
    assert text in refused("bench", grid)


def test_installed_package_can_be_the_users_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("unseen.user_code._INSTALLED", [tmp_path])
    (tmp_path / "installed_task").mkdir()
    (tmp_path / "installed_task/__init__.py").touch()
    (tmp_path / "installed_task/tasks.py").write_text("def make():\n    return {}['key']\n")
    assert "tasks.py, line 2, in make: KeyError: 'key'" in refused(
        "tasks", "installed_task.tasks:make"
    )


def test_traceback_is_shown_on_demand(run, tmp_path, monkeypatch):
    monkeypatch.setenv("UNSEEN_DEBUG", "1")
    own_task.faults["forward"] = fail(ArithmeticError("oh no"))
    done = unseen(*COMMANDS["evaluate"](run, tmp_path))
    assert done.returncode == 2 and "Traceback" in done.stderr


def test_errors_of_our_own_stay_errors(monkeypatch):
    code = compile("def broken(*_): raise RuntimeError('a bug')", package.__file__, "exec")
    names = {}
    exec(code, names)
    monkeypatch.setattr("unseen.cli.methods.method_named", names["broken"])
    with pytest.raises(RuntimeError, match="a bug"):
        unseen("methods", "erm")

"""Run the command line in this process: a subprocess takes seconds to import torch."""

from __future__ import annotations

import contextlib
import io
import json
from typing import Any, NamedTuple

from unseen.cli import main


class Finished(NamedTuple):
    """Exit code and output of a command, as `subprocess.run` has them."""

    returncode: int
    stdout: str
    stderr: str

    def json(self) -> Any:
        assert self.returncode == 0, self.stderr
        return json.loads(self.stdout)


def unseen(*words: object) -> Finished:
    """Run `unseen WORDS`."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(word) for word in words])
        except SystemExit as exit:
            code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
    return Finished(code, out.getvalue(), err.getvalue())

"""A user's own method, named as package.module:Class."""

from __future__ import annotations

import importlib
import sys

from unseen.api import Method
from unseen.errors import Stopped, UnseenError
from unseen.user_code import describe_error, describe_failure, register

OWN_METHODS: dict[str, type[Method]] = {}  # by name; those that this process was asked to import


def own_method(spec: str) -> type[Method]:
    """Import "package.module:Class"; from then on its runs can be loaded by the name of the class.

    Whatever the code raises becomes one UnseenError that names its file and line.
    """
    module, _, name = spec.partition(":")
    if "" not in sys.path:  # a console script does not search the working directory
        sys.path.append("")  # last, so that it shadows no installed package
    try:
        method = getattr(importlib.import_module(module), name)
        register(module)
    except (KeyboardInterrupt, Stopped, UnseenError):
        raise
    except BaseException as error:  # also SystemExit, which would end the command without a word
        problem = describe_failure(error) or (
            f"{describe_error(error)}; name a subclass of unseen.Method, as package.module:Class, "
            "and run in the folder that contains the package"
        )
        raise UnseenError(f'cannot import the method "{spec}": {problem}') from error
    if not isinstance(method, type) or not issubclass(method, Method):
        kind = method.__name__ if isinstance(method, type) else type(method).__name__
        raise UnseenError(f'"{spec}" must be a subclass of unseen.Method, it is {kind}')
    if not isinstance(getattr(method, "name", None), str) or not method.name:
        raise UnseenError(f'"{spec}" has no name: add name = "..." to the class')
    OWN_METHODS[method.name] = method
    return method

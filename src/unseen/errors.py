"""The exception for errors that the caller can correct."""

from __future__ import annotations


class UnseenError(Exception):
    """Invalid input; the message names the place, what was expected and the remedy.

    The command line prints the message and exits with code 2.
    """

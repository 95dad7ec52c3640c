"""The one kind of error a user can mend: it names the place, what was expected, and what to do."""

from __future__ import annotations


class UnseenError(Exception):
    """Something the caller gave is wrong; the command line prints it and exits with code 2."""

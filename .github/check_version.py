"""Check that a release tag and the files that state the version agree.

python .github/check_version.py v0.2.0
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
STATED = {
    "pyproject.toml": r'^version = "([^"]+)"',
    "CITATION.cff": r"^version: (\S+)",
    "CHANGELOG.md": r"^## \[(\d[^\]]*)\]",  # the newest release
}


def versions() -> dict[str, str]:
    """Return the version that each file states."""
    found = {}
    for name, pattern in STATED.items():
        match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        if match is None:
            sys.exit(f"{name}: no line matches {pattern!r}")
        found[name] = match[1]
    return found


if __name__ == "__main__":
    expected = sys.argv[1].removeprefix("v")
    wrong = {name: version for name, version in versions().items() if version != expected}
    if wrong:
        sys.exit(f"the tag is {sys.argv[1]}, but {wrong}: make them equal and tag again")
    print(f"version {expected}")

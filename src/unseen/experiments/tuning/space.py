"""The space of settings that a search draws from, read from a TOML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AllowInfNan, Field, Strict

from unseen.errors import UnseenError
from unseen.experiments.grid import SettingsTable
from unseen.schema import Section, merge, read_toml, validate

Choice = bool | int | float | str
Number = Annotated[float, Strict(), AllowInfNan(False)]


class Range(Section):
    """Numbers from low to high, both included; whole numbers if both are."""

    low: Annotated[int, Strict()] | Number
    high: Annotated[int, Strict()] | Number
    log: bool = False  # draw the logarithm uniformly
    step: Annotated[int, Strict(), Field(ge=1)] | Number | None = None

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


Parameter = Range | list[Choice]


class SpaceFile(Section):
    """The file of `unseen tune`."""

    method: Annotated[str, Field(min_length=1)] | None = None
    preset: Annotated[str, Field(min_length=1)] = "fast"
    set: SettingsTable = Field(default_factory=dict)  # settings of every trial
    space: Annotated[dict[str, Any], Field(min_length=1)]


def read_space(path: Path) -> tuple[SpaceFile, dict[str, Parameter]]:
    """Read the file; return its contents and the parameters by dotted name."""
    content = validate(SpaceFile, read_toml(path), str(path))
    parameters: dict[str, Parameter] = {}
    for name, value in _leaves(content.space):
        if name in parameters:
            raise UnseenError(f"{path}, [space] {name}: is given twice, leave one out")
        parameters[name] = _parameter(value, f"{path}, [space] {name}")
    return content, parameters


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested tables by dotted name; a range is an entry."""
    for name, value in table.items():
        if isinstance(value, Mapping) and not {"low", "high"} & value.keys():
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _parameter(value: Any, where: str) -> Parameter:
    if isinstance(value, list):
        if len(value) < 2 or not all(isinstance(v, bool | int | float | str) for v in value):
            raise UnseenError(
                f"{where}: expected a list of at least two numbers, texts or booleans"
            )
        if len({repr(v) for v in value}) < len(value):
            raise UnseenError(f"{where}: expected different choices")
        return value
    if not isinstance(value, Mapping):
        raise UnseenError(
            f"{where}: expected a list of choices or {{ low = .., high = .. }}, not {value!r}"
        )
    found = validate(Range, value, where)
    if not found.low < found.high:
        raise UnseenError(f"{where}: low must be below high")
    if found.log and found.low <= 0:
        raise UnseenError(f"{where}: with log = true, low must be above 0")
    if found.log and found.step is not None:
        raise UnseenError(f"{where}: give either log or step")
    if found.whole and found.step is not None and not isinstance(found.step, int):
        raise UnseenError(f"{where}: the step between whole numbers must be whole")
    if found.step is not None and not _reaches(found.low, found.high, found.step):
        raise UnseenError(
            f"{where}: high must be a whole number of steps above low; {found.high} cannot be "
            f"reached from {found.low} in steps of {found.step}"
        )
    return found


def _reaches(low: float, high: float, step: float) -> bool:
    """Return whether a whole number of steps leads from low to high, up to rounding."""
    steps = (high - low) / step if step > 0 else 0.0
    return steps > 0.5 and abs(steps - round(steps)) < 1e-6


def distributions(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the parameters as Optuna's distributions."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    made: dict[str, Any] = {}
    for name, p in parameters.items():
        if isinstance(p, list):
            made[name] = CategoricalDistribution(p)
        elif p.whole:
            made[name] = IntDistribution(
                int(p.low), int(p.high), log=p.log, step=1 if p.step is None else int(p.step)
            )
        else:
            made[name] = FloatDistribution(float(p.low), float(p.high), log=p.log, step=p.step)
    return made


def corners(parameters: Mapping[str, Parameter]) -> Iterator[dict[str, Any]]:
    """Yield every choice and both ends of every range alone, to check them before any training."""
    for name, p in parameters.items():
        for value in p if isinstance(p, list) else (p.low, p.high):
            yield {name: value}


def settings_from(fixed: Mapping[str, Any], drawn: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings: the fixed ones, with what was drawn in place of them."""
    settings = dict(fixed)
    for name, value in drawn.items():
        nested: Any = None if value == "none" else value
        for part in reversed(name.split(".")):
            nested = {part: nested}
        settings = merge(settings, nested)
    return settings

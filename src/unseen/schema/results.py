"""What the files of results hold: runs.json, summary.json and scores.json. Needs no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AllowInfNan, ConfigDict, Field, Strict, StrictStr, model_validator

from unseen.schema.run_files import Index, Name, Table
from unseen.schema.validation import Section

Finite = Annotated[float, Strict(), AllowInfNan(False)]
Fraction = Annotated[float, Strict(), AllowInfNan(False), Field(ge=0, le=1)]
NotNegative = Annotated[float, Strict(), AllowInfNan(False), Field(ge=0)]


class _File(Section):
    """A newer version may write further fields."""

    model_config = ConfigDict(extra="allow")


# ---- runs.json of `unseen bench`


class _Loop(_File):
    steps: Index


class PublishedRunFields(_File):
    """One run of a grid."""

    format: Literal[1, 2] = 1  # those that schema.migration reads
    method: Name
    setting: Name
    seed: Index
    variant: Name = "default"
    loop: _Loop
    settings: Table
    model: Table = {}  # noqa: RUF012
    figures: dict[Name, dict[Name, Fraction]]
    chosen: dict[Name, Index]
    seconds: NotNegative
    processor: StrictStr | None = None
    trained_on: dict[Name, Index] | None = None

    @model_validator(mode="after")
    def _has_last(self) -> PublishedRunFields:
        if "last" not in self.figures:
            raise ValueError("a run with figures of the last checkpoint")
        return self


class _Variant(_File):
    domains: list[Name]


class PublishedRunsFile(_File):
    """All runs of a grid."""

    task: Name
    metric: Name = "accuracy"
    samples: Index | None = None
    variants: dict[Name, _Variant] = {}  # noqa: RUF012
    runs: list[PublishedRunFields]


class RunsPage(_File):
    """What tables of published results need of a runs.json: named averages, the paper's values."""

    averages: dict[Name, Any] = {}  # noqa: RUF012
    paper: dict[Name, dict[Name, dict[Name, Fraction]]] = {}  # noqa: RUF012


# ---- summary.json


class SummaryRow(_File):
    """Mean and standard deviation over seeds of one metric on one domain."""

    task: Name
    variant: Name
    method: Name
    setting: Name
    domain: Name
    metric: Name
    selection: Name
    mean: Finite
    std: Finite
    seeds: Annotated[list[Index], Field(min_length=1)]


class SummaryFile(_File):
    """A summary.json is a list; it is validated as {"rows": list}."""

    rows: list[SummaryRow]


# ---- scores.json of `unseen compare-scores`


class _DomainScore(_File):
    score: Finite
    low: Finite
    high: Finite
    auroc: Finite | None = None  # not of the source
    fpr95: Finite | None = None


class _Score(_File):
    ms_per_1000: Finite
    cost_ratio: Finite
    domains: dict[Name, _DomainScore]


class _ScoredRun(_File):
    method: Name
    seed: Index
    values: dict[Name, Finite]
    scores: dict[Name, _Score]


class ScoreComparison(_File):
    """Uncertainty scores over the domains of one task."""

    task: Name
    variant: Name
    metric: Name
    source: Name
    domains: Annotated[list[Name], Field(min_length=1)]
    samples: Index
    seed: Index
    device: Name
    threads: Index
    runs: Annotated[list[_ScoredRun], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_complete(self) -> ScoreComparison:
        for run in self.runs:
            for domain in (self.source, *self.domains):
                values = [score.domains.get(domain) for score in run.scores.values()]
                complete = all(
                    v is not None
                    and (domain == self.source or not (v.auroc is None or v.fpr95 is None))
                    for v in values
                )
                if domain not in run.values or not complete:
                    raise ValueError(f"a comparison with all values of {domain} in every run")
        return self


class ScoresFile(_File):
    """The comparisons of all tasks."""

    tasks: list[ScoreComparison]

"""Methods on the Hugging Face Hub, with a model card. `net.push_to_hub` and its like call this."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict
from torch import nn

from unseen.api import Method
from unseen.checks import check_path, check_type
from unseen.detection.accuracy import FILE as ESTIMATOR
from unseen.detection.detector import ENOUGH_HELD_OUT
from unseen.detection.sampling import MAX_SAMPLES
from unseen.errors import UnseenError
from unseen.files import read_json
from unseen.installed import package_version
from unseen.schema import construct_settings, validate
from unseen.schema.own_files import Count
from unseen.schema.validation import Section
from unseen.tasks import TASKS, task_named
from unseen.tasks.own_network import default_network
from unseen.training.checkpoint import CONFIG, MODEL, SOURCE, load_method, save_method
from unseen.training.config import factory_settings
from unseen.training.fit import accuracy_on, first_batches
from unseen.training.run import Run

try:
    from huggingface_hub import ModelCard, ModelCardData, ModelHubMixin, snapshot_download
except ImportError as error:
    raise UnseenError(
        f"the Hub needs the package huggingface_hub, which cannot be imported ({error}): "
        "pip install 'unseen[hub]'"
    ) from error

FILES = (CONFIG, MODEL, SOURCE, ESTIMATOR)
RATE = 0.01  # of false alarms, in the table of thresholds
BATCHES = (10, 50, 200)
# Of a run's config.json; its paths, command and machine stay at home.
SHARED = ("task", "variant", "preset", "seed", "loop", "model", "class_names", "commit")
TAGS = ["domain-generalization", "uncertainty", "out-of-distribution"]


class Network(Section):
    """The entry "network" of config.json: which of the networks that `unseen` ships."""

    model_config = ConfigDict(extra="forbid")

    modality: Literal["image", "sound", "text", "array", "table"]
    labels: Literal["classes", "several", "number", "map"]
    shape: tuple[Count, ...]  # of a sample
    outputs: Count


@dataclass(frozen=True)
class Card:
    """What a model card says beside what the method itself knows.

    Results are values by domain, such as {"night": 0.71}, of the metric.
    """

    title: str = ""
    source: str = "the source"
    results: Mapping[str, float] = field(default_factory=dict)
    source_value: float | None = None
    metric: str = "accuracy"
    license: str | None = None
    limits: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)  # further entries of config.json

    @classmethod
    def of_run(cls, folder: str | Path, **more: Any) -> Card:
        """Take results, source and network from a finished run."""
        run = Run(folder)
        config, records = run.config, run.records()
        last = max((r["step"] for r in records), default=0)
        metric = next((r["metric"] for r in reversed(records) if r["split"] == "val"), "accuracy")
        values = {
            (r["domain"], r["split"]): r["value"]
            for r in records
            if r["step"] == last and r["metric"] == metric
        }
        data = config.get("data") or {}
        source = data.get("source") or next((r["domain"] for r in records), "the source")
        kept = {name: config[name] for name in SHARED if name in config}
        if data and not data["own_network"]:
            kept["network"] = {
                "modality": data["modality"],
                "labels": data["labels"],
                "shape": data["shape"],
                "outputs": max(1, len(data["classes"])),
            }
        found = {
            "title": f"{config['method']} trained on {source}",
            "source": source,
            "metric": metric,
            "results": {
                d: v for (d, split), v in values.items() if split == "test" and d != source
            },
            "source_value": values.get((source, "test"), values.get((source, "val"))),
            "config": kept,
        }
        return cls(**{**found, **more})


class HubMethod(ModelHubMixin, library_name="unseen", tags=TAGS):
    """A method as the Hub's mixin sees it."""

    def __init__(self, net: Method, card: Card) -> None:
        self.net, self.card = net, card
        self.repo_id = ""

    def _save_pretrained(self, save_directory: Path) -> None:
        entries = {"versions": {"unseen": package_version()}, **self.card.config}
        save_method(self.net, save_directory, entries)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """Write the card from the method, its calibration and the results."""
        facts = self._hub_mixin_info.model_card_data.to_dict()
        if self.card.license:
            facts["license"] = self.card.license
        data = ModelCardData(**{**facts, "metrics": [self.card.metric]})
        return ModelCard(CARD.format(front=data.to_yaml(), **self._facts()))

    def _facts(self) -> dict[str, str]:
        net, card = self.net, self.card
        settings = [f"| `{name}` | `{value}` |" for name, value in net.settings().items()]
        return {
            "title": card.title or f"{net.name} trained on {card.source}",
            "method": f"`{net.name}` ({net.summary})",
            "paper": f" Paper: {net.paper}." if net.paper else "",
            "source": card.source,
            "results": _results(net, card),
            "alarm": _alarm(net),
            "limits": f"\n- {card.limits}" if card.limits else "",
            "settings": "\n".join(["| setting | value |", "| --- | --- |", *settings]),
            "repo": self.repo_id or "this-repository",
            "model": "" if _ships(card.config) else ", model=YourModel()",
            "version": package_version(),
        }

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        model: nn.Module | None = None,
        functions: Mapping[str, Any] | None = None,
        **ignored: Any,
    ) -> Any:
        folder = Path(model_id) if os.path.isdir(model_id) else Path(
            snapshot_download(
                model_id,
                revision=revision,
                cache_dir=cache_dir,
                force_download=force_download,
                local_files_only=local_files_only,
                token=token,
                allow_patterns=list(FILES),  # nothing else of the repository is fetched
            )
        )  # fmt: skip
        built = _build_network(folder) if model is None else model
        return load_method(folder, built, functions)


# ---- what `net.push_to_hub`, `net.save_pretrained` and `Method.from_pretrained` call


def push(net: Method, repo_id: str, card: Card | str | Path | None, options: Any) -> str:
    """Upload a method to a repository of the Hub; return the address of the commit."""
    shared = HubMethod(net, _card(net, card))
    shared.repo_id = check_type("repo_id", repo_id, str, 'a name such as "me/my-model"')
    try:
        return str(shared.push_to_hub(repo_id, **options))
    except UnseenError:
        raise
    except Exception as error:  # of a name, or of the HTTP library, which differs by version
        raise UnseenError(f"{repo_id} cannot be uploaded: {error}") from error


def save(net: Method, folder: str | Path, card: Card | str | Path | None) -> None:
    """Write a method and its card to a folder."""
    path = check_path("folder", folder)
    shared = HubMethod(net, _card(net, card))
    shared.save_pretrained(path)


def load(
    kind: type[Method], name: str | Path, model: nn.Module | None, options: Mapping[str, Any]
) -> Any:
    """Load a method from the Hub or from a folder."""
    known = ("revision", "cache_dir", "force_download", "local_files_only", "token")
    functions = {n: value for n, value in options.items() if n not in known}
    of_hub = {n: value for n, value in options.items() if n in known}
    if isinstance(name, Path) and not name.is_dir():
        raise UnseenError(f"{name} is not a folder")
    try:
        net: Any = HubMethod.from_pretrained(name, model=model, functions=functions, **of_hub)
    except UnseenError:
        raise
    except Exception as error:
        raise UnseenError(f"{name} cannot be loaded: {error}") from error
    if not isinstance(net, kind):
        raise UnseenError(
            f"{name} holds {net.name}, not {kind.name}: use unseen.Method.from_pretrained"
        )
    return net


def _card(net: Method, given: Card | str | Path | None) -> Card:
    if given is None:
        return Card()
    if isinstance(given, Card):
        return given
    if (trained := Run(given).config["method"]) != net.name:
        raise UnseenError(
            f"card: {given} is a run of {trained}, the method is {net.name}: give the folder of "
            "its own run, a Card(...), or none"
        )
    return Card.of_run(given)


def _ships(config: Mapping[str, Any]) -> bool:
    return "network" in config or config.get("task") in TASKS


def _build_network(folder: Path) -> nn.Module:
    """Build one of the networks that `unseen` ships; names of other code are not followed."""
    config, where = read_json(folder / CONFIG), str(folder / CONFIG)
    if not _ships(config):
        raise UnseenError(f"{where} names no network that unseen ships: give yours, model=...")
    if "network" in config:
        found = validate(Network, config["network"], f'{where}, "network"')
        factory = default_network(found.modality, found.labels, found.shape, found.outputs).factory
    else:
        variant = config.get("variant", "default")
        factory = task_named(config["task"] + ("" if variant == "default" else f"/{variant}")).model
    parameters = factory_settings(factory)
    chosen = construct_settings(parameters, config.get("model", {}), where, "network")
    if "pretrained" in chosen:  # the saved weights replace that file
        chosen["pretrained"] = ""
    return factory(**chosen)


# ---- the card


def _results(net: Method, card: Card) -> str:
    source = card.source_value
    if source is None and card.metric == "accuracy" and net.objective.classifies:
        source = _source_accuracy(net)
    rows = [
        f"| {card.source}, held out | {'not measured' if source is None else f'{source:.4f}'} |"
    ]
    rows += [f"| {domain}, unseen | {value:.4f} |" for domain, value in card.results.items()]
    if card.results:
        mean = sum(card.results.values()) / len(card.results)
        rows.append(f"| average of unseen domains | {mean:.4f} |")
    head = [f"| domain | {card.metric} |", "| --- | ---: |"]
    note = "" if card.results else "\n\nNo unseen domain was evaluated."
    return "\n".join([*head, *rows]) + note


def _source_accuracy(net: Method) -> float | None:
    """Return the accuracy on held-out source data, if they or an estimator are at hand."""
    if net.has_accuracy_estimator:
        return net.accuracy_estimator.source_accuracy
    if net.held_out is None:
        return None
    return accuracy_on(net, first_batches("held_out", net.held_out, MAX_SAMPLES))


def _alarm(net: Method) -> str:
    if net.detector.statistics is None:
        return "The alarm is not calibrated: call `unseen.calibrate(net, train, held_out)`."
    held_out = len(net.detector.statistics.held_out)
    rows = [f"| {n} | {net.threshold(n, RATE):.4g} |" for n in BATCHES]
    few = (
        ""
        if held_out >= ENOUGH_HELD_OUT
        else f" That is less than {ENOUGH_HELD_OUT}: false alarms may be more frequent than stated."
    )
    verdicts = (
        "`net.verdict(x)` estimates the accuracy without labels."
        if net.has_accuracy_estimator
        else "No accuracy estimator is included, so `net.verdict(x)` needs held-out source data."
    )
    return "\n".join(
        [
            f"Rate of false alarms: {RATE:.0%} of batches of the source, by default. Score: "
            f"`{net.detector.name}`, calibrated on {held_out} held-out samples.{few}",
            "",
            "| samples in a batch | threshold |",
            "| ---: | ---: |",
            *rows,
            "",
            verdicts,
        ]
    )


CARD = """---
{front}
---

# {title}

{method}, trained with `unseen` {version} on one source domain, {source}. It comes with a score of
how far samples are from that source.{paper}

## Use

```python
import unseen

net = unseen.Method.from_pretrained("{repo}"{model})
logits, score = net.predict_with_uncertainty(x)
alarm = net.alarm(x, false_alarm_rate=0.01)
```

Loading runs no code from the repository: settings are JSON, weights are safetensors.

## Results

{results}

## Alarm

{alarm}

## Limits

- The alarm means that samples do not come from the source, not that predictions are wrong.
- The rate holds for batches of independent samples of the source. Frames of one video are not.
- A shift that leaves the score unchanged is missed.
- Unseen domains that were not evaluated may be worse than those above.{limits}

## Settings

{settings}
"""

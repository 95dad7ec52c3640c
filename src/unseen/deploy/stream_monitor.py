"""A stream of batches of a run or an exported model, monitored in constant memory. No torch.

monitor = StreamMonitor(open_scorer("model.onnx"), false_alarms_per_thousand=1)
reading = monitor.update(x)
monitor.save("monitor.npz")  # StreamMonitor.load("monitor.npz", scorer) continues
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from unseen.checks import check_fraction, check_int, check_path, check_positive
from unseen.deploy.reductions import Array
from unseen.deploy.scorer import Scorer
from unseen.deploy.seen import Seen
from unseen.deploy.sums import Sums, same_source
from unseen.deploy.thresholds import null_scores, p_value_from, threshold_from
from unseen.errors import UnseenError
from unseen.files import write_atomically
from unseen.functional.stream import (
    Evidence,
    ForgettingMean,
    Reading,
    StreamSummary,
    e_value,
    tabulated_size,
    threshold_sizes,
)
from unseen.functional.verdict import TOLERANCE, outcome

FORMAT = 1
COUNTS = ("seen", "samples", "alarms")


class StreamMonitor:
    """Watches batches: `update(x)` judges a batch, `compute()` all of the stream.

    By default a source batch raises an alarm by its score, or by that of a forgetting mean of the
    stream, at a rate of at most `false_alarm_rate`. With `false_alarms_per_thousand`, alarms are
    those of the stream: at most that many of a thousand source batches raise one, in the long run.
    The memory does not grow with the stream.

    Args:
        scorer: what `open_scorer` returns.
        batch: the usual batch size; others are accepted.
        memory: length of the forgetting mean, in batches.
        tolerance: loss of accuracy against the source that is still fine.
    """

    def __init__(
        self,
        scorer: Scorer,
        *,
        batch: int = 64,
        false_alarm_rate: float = 0.01,
        false_alarms_per_thousand: float | None = None,
        memory: int = 20,
        tolerance: float = TOLERANCE,
    ) -> None:
        self.scorer = scorer
        self.tolerance = check_fraction("tolerance", tolerance, zero=True)
        self.batch = check_int("batch", batch, 1)
        self.false_alarm_rate = check_fraction("the false-alarm rate", false_alarm_rate)
        self.memory = check_int("memory", memory, 1)
        self.decay = 1 - 1 / self.memory
        self.limit: float | None = None  # of the evidence
        if false_alarms_per_thousand is not None:
            expected = check_positive("false_alarms_per_thousand", false_alarms_per_thousand)
            if expected > 500:
                raise UnseenError(f"false_alarms_per_thousand must be at most 500, not {expected}")
            self.limit = 1000 / expected
        self.sizes = threshold_sizes(self.batch, self.decay)
        self._null: dict[int, Array] = {}  # scores of source batches by size
        self._limits: dict[int, float] = {}  # thresholds by size
        self.reset()

    def reset(self) -> None:
        """Forget the stream so far."""
        features = self.scorer.calibration.held_out.shape[1]
        self.seen = self.samples = self.alarms = 0
        self._slow = ForgettingMean(np.zeros(features))
        self._evidence = Evidence()
        self._sums: Sums | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """What two monitors must have in common to be merged."""
        return {
            "batch": self.batch,
            "memory": self.memory,
            "false_alarm_rate": self.false_alarm_rate,
            "limit": self.limit,
            "tolerance": self.tolerance,
        }

    def update(self, x: Any) -> Reading:
        """Judge the next batch, and add it to the stream."""
        return self.update_from(self.scorer.observe(x))

    def update_from(self, seen: Seen) -> Reading:
        """Judge the next batch from an observation of it, and add it to the stream."""
        sums, n = self.scorer.sums(seen, self.samples), seen.n
        score = self.scorer.score_of_mean(sums.mean_features)
        slow = self._slow.add(sums.features, n, self.decay)
        slow_score = self.scorer.score_of_mean(slow.mean)
        thresholds = self.threshold(n), self.threshold(slow.effective_size)
        alarms = score > thresholds[0], slow_score > thresholds[1]
        judged = self._judge(sums, any(alarms))
        evidence = self._evidence
        if self.limit is not None:
            evidence = evidence.add(self._e_value(score, n, judged), self.limit)
            judged |= {"evidence": evidence.value, "evidence_limit": self.limit}
        # From here on nothing raises: a batch counts whole or not at all.
        self.seen, self.samples = self.seen + 1, self.samples + n
        self._slow, self._evidence = slow, evidence
        self._sums = sums if self._sums is None else self._sums.merge(sums)
        scores = (self.seen, n, score, thresholds[0], slow_score, thresholds[1])
        reading = Reading(*scores, *alarms, **judged)
        self.alarms += reading.alarm
        return reading

    def compute(self) -> StreamSummary:
        """Return the scores of all samples and of the forgetting mean, and a verdict on all."""
        if self._sums is None:
            raise UnseenError("the monitor has seen no batch yet: call update(x) first")
        score = self.scorer.score_of_mean(self._sums.mean_features)
        threshold = self.threshold(self.samples)
        slow, slow_threshold = (
            self.scorer.score_of_mean(self._slow.mean),
            self.threshold(self._slow.effective_size),
        )
        judged = self._judge(self._sums, score > threshold or slow > slow_threshold)
        counts = self.seen, self.samples, self.alarms
        return StreamSummary(*counts, score, threshold, slow, slow_threshold, **judged)

    def merge(self, other: StreamMonitor, *, after: bool = False) -> None:
        """Add the stream of another monitor of the same model and settings.

        Counts, scores and the verdict on all samples equal those of one monitor that saw both
        streams. So do the forgetting mean and the evidence, if the other's batches came `after`
        these; its alarms stay those that it raised. Otherwise the streams are parallel, aligned at
        their ends: the forgetting mean is that of a monitor whose k-th batch is both k-th batches,
        and the evidence is the mean of both.
        """
        if not isinstance(other, StreamMonitor) or other is self:
            raise UnseenError(f"a monitor merges with another StreamMonitor, not {other!r}")
        same = same_source(self.scorer.source_mean, other.scorer.source_mean)
        if not same or self.settings != other.settings:
            raise UnseenError("monitors to merge must have the same model and settings")
        if other._sums is None:
            return
        if after:
            self._slow = self._slow.then(other._slow, other.seen, self.decay)
            self._evidence = self._evidence.then(other._evidence)
        else:
            self._slow = self._slow.then(other._slow, 0, self.decay)
            mean_value = (self._evidence.value + other._evidence.value) / 2
            self._evidence = Evidence(mean_value if self._sums is not None else mean_value * 2)
        self._sums = other._sums if self._sums is None else self._sums.followed_by(other._sums)
        self.seen += other.seen
        self.samples += other.samples
        self.alarms += other.alarms

    def threshold(self, n: float) -> float:
        """Return the threshold of the largest tabulated size up to n, which is never too low."""
        size = tabulated_size(self.sizes, n)
        if size not in self._limits:
            self._limits[size] = threshold_from(self._null_scores(size), self.false_alarm_rate / 2)
        return self._limits[size]

    def _null_scores(self, size: int) -> Array:
        if size not in self._null:
            known = self.scorer.calibration
            scores = null_scores(known.held_out, known.reduction, size)
            if self.limit is None:  # only thresholds are needed
                return scores
            self._null[size] = scores
        return self._null[size]

    def _judge(self, sums: Sums, shifted: bool) -> dict[str, Any]:
        accuracy = self.scorer.calibration.accuracy
        if accuracy is None:
            return {}
        estimate = self.scorer.estimate_from(sums)
        return {
            "verdict": outcome(shifted, estimate, accuracy, self.tolerance, self.false_alarm_rate),
            "predicted_accuracy": estimate.accuracy,
            "interval": (estimate.low, estimate.high),
        }

    def _e_value(self, score: float, n: int, judged: Mapping[str, Any]) -> float:
        """Return the mean of the e-values of both tests: it is one whatever their dependence."""
        e = e_value(p_value_from(self._null_scores(tabulated_size(self.sizes, n)), score))
        accuracy = self.scorer.calibration.accuracy
        if accuracy is None:
            return e
        loss = judged["predicted_accuracy"] - accuracy.source_accuracy
        return (e + e_value(accuracy.null.p_value(n, loss))) / 2

    # ---- the file

    def state(self) -> dict[str, Array]:
        """Return the stream so far, as arrays by name."""
        about = {"format": FORMAT, **self.settings}
        about |= {name: getattr(self, name) for name in COUNTS}
        arrays = {
            "about": np.array(json.dumps(about)),
            "slow": self._slow.features,
            "numbers": np.array(
                [self._slow.weight, self._slow.squares, self._evidence.value,
                 self._evidence.product]
            ),
            "source": self.scorer.calibration.held_out.astype(np.float64).mean(0),
        }  # fmt: skip
        if self._sums is not None:
            arrays |= {f"sums/{n}": a for n, a in self._sums.to_arrays().items()}
        return arrays

    def load_state(self, arrays: Mapping[str, Array], place: str) -> None:
        """Restore what `state` returned; `place` begins an error."""
        try:
            about = json.loads(str(arrays["about"]))
            if about["format"] != FORMAT:
                raise UnseenError(f"{place} has format {about['format']}, expected {FORMAT}")
            source = self.scorer.calibration.held_out.astype(np.float64).mean(0)
            if arrays["source"].shape != source.shape or not np.allclose(arrays["source"], source):
                raise UnseenError(f"{place} was saved with another model")
            changed = [n for n, value in self.settings.items() if about[n] != value]
            if changed:
                name, value = changed[0], about[changed[0]]
                if name == "limit":  # nobody gives it
                    name, value = "false_alarms_per_thousand", value and f"{1000 / value:g}"
                raise UnseenError(
                    f"{place} was saved with another {name}, {value}: use that, or another file"
                )
            weight, squares, value, product = (float(v) for v in arrays["numbers"])
            sums = {n.removeprefix("sums/"): a for n, a in arrays.items() if n[:5] == "sums/"}
            self._sums = Sums.from_arrays(sums) if sums else None
            self._slow = ForgettingMean(np.asarray(arrays["slow"]), weight, squares)
            self._evidence = Evidence(value, product)
            for name in COUNTS:
                setattr(self, name, int(about[name]))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UnseenError(
                f"{place} is not a saved monitor ({type(error).__name__}: {error})"
            ) from error

    def save(self, path: str | Path) -> None:
        """Write the stream so far to a .npz file, atomically; the model is kept elsewhere."""
        write_atomically(check_path("path", path), npz_bytes(self.state()))

    @classmethod
    def load(cls, path: str | Path, scorer: Scorer, **settings: Any) -> StreamMonitor:
        """Continue a saved stream with the same model and settings."""
        monitor = cls(scorer, **settings)
        monitor.load_state(read_npz(check_path("path", path)), str(path))
        return monitor


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return the content of a .npz file."""
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file; it runs no code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError) as error:
        reason = "" if "pickle" in str(error) else f" ({error})"  # numpy's advice is to trust it
        raise UnseenError(
            f"{path} is not a saved monitor{reason}: use the file that --state or save() wrote, or "
            "another name for a new one"
        ) from None

"""Prometheus metrics of the service; docs/deploying.md explains each."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from unseen.deploy.service.streams import Stream, WindowReading

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
VERDICTS = ("ok", "shifted", "failing", "unknown")


class Metrics:
    """One registry for each service."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        domain = ("run", "domain")

        def gauge(name: str, about: str, labels: Any = domain) -> Gauge:
            return Gauge(name, about, labels, registry=registry)

        def counter(name: str, about: str, labels: Any = domain) -> Counter:
            return Counter(name, about, labels, registry=registry)

        self.requests = counter(
            "unseen_requests", "Requests by route and status.", ("route", "status")
        )
        self.seconds = Histogram(
            "unseen_request_seconds",
            "Time from the first byte of a request to its answer.",
            ("route",),
            registry=registry,
            buckets=SECONDS,
        )
        self.refused = counter("unseen_refused", "Refused requests by reason.", ("code",))
        self.batch = Histogram(
            "unseen_batch_samples",
            "Samples in a pass of the model.",
            ("run",),
            registry=registry,
            buckets=SIZES,
        )
        self.queue = gauge("unseen_queue_samples", "Samples that wait for the model.", ("run",))
        self.samples = counter("unseen_samples", "Samples predicted.")
        self.windows = counter("unseen_windows", "Windows judged.", ("run", "domain", "verdict"))
        self.alarms = counter("unseen_alarms", "Windows with an alarm.")
        self.alarm = gauge("unseen_alarm", "1 if the last window has an alarm.")
        self.score = gauge("unseen_domain_score", "Domain score of the last window.")
        self.threshold = gauge("unseen_domain_threshold", "Threshold of the domain score.")
        self.slow = gauge("unseen_slow_score", "Score of the forgetting mean over windows.")
        self.slow_threshold = gauge("unseen_slow_threshold", "Threshold of the slow score.")
        self.accuracy = gauge("unseen_predicted_accuracy", "Predicted accuracy of the last window.")
        self.low = gauge("unseen_predicted_accuracy_low", "Lower end of its 90 % interval.")
        self.high = gauge("unseen_predicted_accuracy_high", "Upper end of its 90 % interval.")
        self._by_domain = (
            self.alarm, self.score, self.threshold, self.slow, self.slow_threshold, self.accuracy,
            self.low, self.high,
        )  # fmt: skip
        self.source = gauge("unseen_source_accuracy", "Accuracy on the source.", ("run",))
        self._gauges = (*self._by_domain, self.source)
        self.loads = counter("unseen_loads", "Loads of a run by outcome.", ("run", "outcome"))
        self.webhooks = counter("unseen_webhooks", "Webhooks by outcome.", ("outcome",))

    def text(self) -> bytes:
        """Return the metrics in Prometheus' format."""
        return generate_latest(self.registry)

    def read(self, run: str, domain: str, reading: WindowReading) -> None:
        """Count a window."""
        self.windows.labels(run, domain, reading.verdict).inc()
        self.alarms.labels(run, domain).inc(reading.alarm)
        self.show(run, domain, reading)

    def show(self, run: str, domain: str, reading: WindowReading) -> None:
        """Set the gauges of a domain to its last reading."""
        values = {
            self.alarm: float(reading.alarm),
            self.score: reading.score,
            self.threshold: reading.threshold,
            self.slow: reading.slow_score,
            self.slow_threshold: reading.slow_threshold,
            self.accuracy: reading.predicted_accuracy,
            self.low: reading.low,
            self.high: reading.high,
        }
        for metric, value in values.items():
            if value is not None:
                metric.labels(run, domain).set(value)

    def restore(self, run: str, streams: dict[str, Stream], source: float | None) -> None:
        """Show a run that was loaded, with what its saved state knows, and nothing of another."""
        for metric in self._gauges:
            metric.remove_by_labels({"run": run})
        if source is not None:
            self.source.labels(run).set(source)
        for domain, stream in streams.items():
            if stream.latest is not None:
                self.show(run, domain, stream.latest)

    def forget(self, run: str, domain: str) -> None:
        """Remove everything about a domain."""
        for metric in (self.samples, self.windows, self.alarms, *self._by_domain):
            metric.remove_by_labels({"run": run, "domain": domain})

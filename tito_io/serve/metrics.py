"""What a gateway counts, in the form that Prometheus reads. No label holds anything that a client chose."""

from __future__ import annotations

import re
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tito_io.client.conversation import ClientTurn

from .commit import TurnOrigin

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BORN = re.compile(rb"^(?:# \w+ )?tito_\w+_created\b.*\n", re.MULTILINE)
"""Lines that the library adds for another format; here they would be so many more series."""
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
EXPECTED = (
    "Prompt ids that an earlier turn of the session had, of turns whose engine tells what it had cached"
)
CACHED = (
    "Of tito_expected_ids_total, those that the engine had cached; what it had cached besides is not counted"
)
"""A cache is of prefixes, and so is what is expected of it: the lesser of two counts is what they share."""


class Metrics:
    """The counters of one gateway."""

    def __init__(self) -> None:
        """Begin at nothing; each gateway has a registry of its own."""
        self.registry = CollectorRegistry()
        self.turns = self._counter("turns", "Turns that were sampled", "route", "dialect")
        self.refusals = self._counter("refusals", "Turns by messages although a step was there", "reason")
        self.committed = self._counter("committed", "Turns that were committed")
        self.unreceived = self._counter("unreceived", "Turns that were sampled and that no client received")
        self.declined = self._counter("declined", "Requests answered with an error", "status", "kind")
        self.forgiven = self._counter("forgiven", "Differences that did not count", "name")
        self.specials = self._counter("spelled_specials", "Special tokens that the world spelled out")
        self.prompt_ids = self._counter("prompt_ids", "Ids of prompts", "source")
        self.sampled_ids = self._counter("sampled_ids", "Ids that were sampled")
        self.expected_ids = self._counter("expected_ids", EXPECTED)
        self.cached_ids = self._counter("cached_ids", CACHED)
        self.drift_ids = self._counter("drift_ids", "Ids that a fresh rendering would change, as viewed")
        self.sessions = self._gauge("sessions", "Sessions in the store, as far as this gateway knows")
        self.loaded = self._gauge("sessions_loaded", "Sessions in memory")
        self.waiting = self._gauge("turns_waiting", "Turns that wait for a free place at the engine")
        self.running = self._gauge("turns_running", "Turns that are waited for or sampled now")
        told = "Seconds from request to whole reply"
        self.seconds = Histogram("tito_turn_seconds", told, buckets=SECONDS, registry=self.registry)

    def _counter(self, name: str, told: str, *labels: str) -> Counter:
        return Counter(f"tito_{name}", told, labels, registry=self.registry)

    def _gauge(self, name: str, told: str) -> Gauge:
        return Gauge(f"tito_{name}", told, registry=self.registry)

    def took(self, origin: TurnOrigin, turn: ClientTurn, seconds: float) -> None:
        """Count a turn that was sampled."""
        self.turns.labels(origin.route, origin.dialect).inc()
        if origin.refusal is not None:
            self.refusals.labels(origin.refusal).inc()
        self.forgave({name.lower(): 1 for name in origin.forgiven if name.isupper()})
        self.prompt_ids.labels("reused").inc(origin.expected)
        self.prompt_ids.labels("new").inc(len(turn.reply.prompt_ids) - origin.expected)
        self.sampled_ids.inc(turn.reply.usage.completion_tokens)
        if origin.cached is not None:
            self.expected_ids.inc(origin.expected)
            self.cached_ids.inc(min(origin.cached, origin.expected))
        self.seconds.observe(seconds)

    def forgave(self, taken: Mapping[str, int]) -> None:
        """Count differences that did not count."""
        for name, count in taken.items():
            self.forgiven.labels(name.replace("_", "-")).inc(count)

    def spelled(self, count: int) -> None:
        """Count special tokens that were read as text."""
        self.specials.inc(count)

    def text(self) -> bytes:
        """Return all counters as Prometheus reads them, without the times at which each began."""
        return BORN.sub(b"", generate_latest(self.registry))

"""Metrics of a gateway in the form that Prometheus reads.

No label holds anything that a client chose, but for names of fields in `tito_ignored_total`. There are at
most 256 of those, of at most 80 characters, and `other` for the rest. So it is for workers, which are known
by the names that a router gives them.

Metrics:
    tito_turns_total{route,dialect}: Turns that were sampled.
    tito_refusals_total{reason}: Turns whose prompt was sent as messages although the session had a step.
    tito_constrained_turns_total{kind}: Turns that were sampled under a constraint, by each of its kinds.
    tito_notices_total{name}: Turns with a notice, such as media-left-out, or other-text: text and ids differ.
    tito_committed_total: Turns that were committed.
    tito_unreceived_total: Turns that were sampled but that no client received.
    tito_uncommitted_total: Turns that were answered, but not committed: their session was deleted meanwhile.
    tito_recovered_total: Stored turns that were handed out again, to a request that was repeated.
    tito_declined_total{status,kind}: Requests that were answered with an error.
    tito_ignored_total{dialect,name}: Requests with a field or a tool that was accepted without effect.
    tito_forgiven_total{name}: Differences between prompts and stored history that were ignored.
    tito_spelled_specials_total: Special tokens spelled out by users or tools, and read as text.
    tito_prompt_ids_total{source}: Prompt ids; source is reused (an earlier turn had them) or new.
    tito_sampled_ids_total: Completion ids.
    tito_expected_ids_total: Reused prompt ids of turns whose engine reports its prefix cache.
    tito_cached_ids_total: Of tito_expected_ids_total, the ids that the engine had cached.
    tito_worker_expected_ids_total{worker}: The same of turns whose worker a router names.
    tito_worker_cached_ids_total{worker}: Of those, the ids that the worker had cached.
    tito_drift_ids_total: Prompt ids that a fresh rendering would change, counted when a page shows them.
    tito_fast_tokenizer: 1 while fastokens encodes in place of tokenizers, 0 otherwise.
    tito_fast_differences_total: Texts of which fastokens gave other ids; the first one ends its use.
    tito_sessions: Sessions in the store, as far as this gateway knows.
    tito_sessions_loaded: Sessions in memory.
    tito_turns_waiting: Turns that wait for a free place at the engine.
    tito_turns_running: Turns that wait or are sampled now.
    tito_turn_wait_seconds{turn}: Histogram of seconds until a turn, first or later, has its place.
    tito_turn_seconds: Histogram of seconds from request to whole reply.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tito_io.client.turn import ClientTurn
from tito_io.engines.constraint import Constraint
from tito_io.families.fast.fast_tokenizer import FastUse

from .commit import TurnOrigin

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CREATED = re.compile(rb"^(?:# \w+ )?tito_\w+_created\b.*\n", re.MULTILINE)
"""Lines that the library adds for another format; here they would be as many series again."""
MOST_WORKERS = 256
"""How many workers have a series of their own: those that start anew get new names."""
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


def _metric(kind: type, meaning: str, *labels: str, **options: Any) -> Any:
    """Return what makes a metric, once its name and registry are known."""
    return partial(kind, documentation=meaning, labelnames=labels, namespace="tito", **options)


counter, gauge = partial(_metric, Counter), partial(_metric, Gauge)
seconds = partial(_metric, Histogram, buckets=BUCKETS)


class Metrics:
    """The metrics of one gateway; each attribute is named like its metric.

    Attributes:
        registry: Holds all of them; each gateway has its own.
    """

    turns: Counter = counter("Turns that were sampled", "route", "dialect")
    refusals: Counter = counter(
        "Turns whose prompt was sent as messages although the session had a step", "reason"
    )
    constrained_turns: Counter = counter(
        "Turns that were sampled under a constraint, by each of its kinds", "kind"
    )
    notices: Counter = counter(
        "Turns with a notice, such as media-left-out, or other-text: text and ids differ", "name"
    )
    committed: Counter = counter("Turns that were committed")
    unreceived: Counter = counter("Turns that were sampled but that no client received")
    uncommitted: Counter = counter(
        "Turns that were answered, but not committed: their session was deleted meanwhile"
    )
    recovered: Counter = counter("Stored turns that were handed out again, to a request that was repeated")
    declined: Counter = counter("Requests that were answered with an error", "status", "kind")
    ignored: Counter = counter(
        "Requests with a field or a tool that was accepted without effect", "dialect", "name"
    )
    forgiven: Counter = counter("Differences between prompts and stored history that were ignored", "name")
    spelled_specials: Counter = counter("Special tokens spelled out by users or tools, and read as text")
    prompt_ids: Counter = counter("Prompt ids; source is reused (an earlier turn had them) or new", "source")
    sampled_ids: Counter = counter("Completion ids")
    expected_ids: Counter = counter("Reused prompt ids of turns whose engine reports its prefix cache")
    cached_ids: Counter = counter("Of tito_expected_ids_total, the ids that the engine had cached")
    worker_expected_ids: Counter = counter("The same of turns whose worker a router names", "worker")
    worker_cached_ids: Counter = counter("Of those, the ids that the worker had cached", "worker")
    drift_ids: Counter = counter(
        "Prompt ids that a fresh rendering would change, counted when a page shows them"
    )
    fast_tokenizer: Gauge = gauge("1 while fastokens encodes in place of tokenizers, 0 otherwise")
    fast_differences: Counter = counter("Texts of which fastokens gave other ids; the first one ends its use")
    sessions: Gauge = gauge("Sessions in the store, as far as this gateway knows")
    sessions_loaded: Gauge = gauge("Sessions in memory")
    turns_waiting: Gauge = gauge("Turns that wait for a free place at the engine")
    turns_running: Gauge = gauge("Turns that wait or are sampled now")
    turn_wait_seconds: Histogram = seconds(
        "Histogram of seconds until a turn, first or later, has its place", "turn"
    )
    turn_seconds: Histogram = seconds("Histogram of seconds from request to whole reply")

    def __init__(self) -> None:
        """Begin at zero."""
        self.registry = CollectorRegistry()
        self._workers: set[str] = set()
        for name, make in vars(type(self)).items():
            if isinstance(make, partial):
                setattr(self, name, make(name, registry=self.registry))

    def count_wait(self, *, later: bool, begun: float) -> None:
        """Count the seconds since `begun`, in which a session's first turn, or a later one, waited."""
        wait = self.turn_wait_seconds.labels("later" if later else "first")
        wait.observe(time.perf_counter() - begun)

    def count_turn(self, origin: TurnOrigin, turn: ClientTurn, seconds: float) -> None:
        """Count a turn that was sampled."""
        self.turns.labels(origin.route, origin.dialect).inc()
        if origin.refusal is not None:
            self.refusals.labels(origin.refusal).inc()
        # Names in capitals are the kernel's. The rules' names are counted by how often each found something.
        self.count_forgiven({name.lower(): 1 for name in origin.forgiven if name.isupper()})
        for name, count in turn.reply.notice_counts.items():
            self.notices.labels(name).inc(count)
        self.prompt_ids.labels("reused").inc(origin.expected)
        self.prompt_ids.labels("new").inc(len(turn.reply.prompt_ids) - origin.expected)
        self.sampled_ids.inc(turn.reply.usage.completion_tokens)
        if origin.cached is not None:
            self.expected_ids.inc(origin.expected)
            # An engine caches prefixes, and the expected ids are a prefix: the smaller number is the overlap.
            cached = min(origin.cached, origin.expected)
            self.cached_ids.inc(cached)
            if origin.worker is not None:
                worker = self._worker_label(origin.worker)
                self.worker_expected_ids.labels(worker).inc(origin.expected)
                self.worker_cached_ids.labels(worker).inc(cached)
        self.turn_seconds.observe(seconds)

    def _worker_label(self, name: str) -> str:
        """Return the label of a worker; `other` for those beyond `MOST_WORKERS`, as each is a series."""
        if len(self._workers) < MOST_WORKERS:
            self._workers.add(name)
        return name if name in self._workers else "other"

    def count_constrained(self, constraint: Constraint | None) -> None:
        """Count a turn that was sampled under a constraint."""
        for kind in () if constraint is None else constraint.kinds:
            self.constrained_turns.labels(kind).inc()

    def count_forgiven(self, counts: Mapping[str, int]) -> None:
        """Count differences that were ignored, by their names."""
        for name, count in counts.items():
            self.forgiven.labels(name.replace("_", "-")).inc(count)

    def watch(self, use: FastUse) -> None:
        """Show whether a fast tokenizer is in use, and count where it differs."""
        self.fast_tokenizer.set_function(lambda: float(use.off is None))
        use.on_difference = self.fast_differences.inc

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them, without the times at which each began."""
        return CREATED.sub(b"", generate_latest(self.registry))

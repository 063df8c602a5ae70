"""Format `tito`: calls as tito writes them. A line is one call, without what an earlier line already has.

A line is `{"conversation": id, "after": name or null, "call": {...}}`, where `call` is the call's plain
data. `after` names an earlier call of the conversation whose prompt and completion begin this prompt. Then
the step's `prompt`, `prompt_ids`, `prompt_ledger` and `media` have only what follows them. `engine`, if it
is there, names the engine whose prompts were rendered. `joins` identifies that call among others of its
name: its number of ids, and the CRC-32 of its completion ids' JSON. If the prompt's ledger differs from the
earlier call's, all of it is in `ledger`. So each turn of a long conversation costs only what is new in it,
in the file and in memory.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self
from uuid import uuid4

import attrs
import orjson

from tito_core import InputError, Ledger, Origin, Step
from tito_core.data import from_data, to_data
from tito_core.samples import Forest, RoutedExperts, StoredCall
from tito_io.atomic_write import open_alone
from tito_io.client.turn import ClientTurn

from .form import Batch, CallPlace, Record, StoredForm, first_id

KEYS = frozenset(("conversation", "after", "call", "engine", "joins", "ledger"))
"""The keys of a line."""


@attrs.define
class CallFile:
    """Writes the turns of one conversation as they are taken, so that an interrupted rollout loses none.

    Attributes:
        path: The file to write.
        conversation: The conversation's id. By default it is random, so that files can be concatenated.
        engine: Whose prompts were rendered, for `tito audit`; None does not say so.

    Raises:
        InputError: The file cannot be written, or another process writes it.
    """

    path: Path
    conversation: str = attrs.field(factory=lambda: f"rollout-{uuid4().hex[:16]}")
    engine: str | None = None
    _file: BinaryIO | None = attrs.field(default=None, init=False)
    _last: StoredCall | None = attrs.field(default=None, init=False)
    _count: int = attrs.field(default=0, init=False)

    def __enter__(self) -> Self:
        try:
            self._file = open_alone(self.path)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, turn: ClientTurn) -> None:
        """Write a turn and flush it; the file must be open."""
        if self._file is None:
            raise ValueError("the file is not open: use it in a with statement")
        self._count += 1
        call = call_of(turn, f"turn-{self._count}", self._count)
        self._file.write(line(self.conversation, call, self._last, self.engine))
        self._last = call
        self._file.flush()


def call_of(turn: ClientTurn, name: str, order: int) -> StoredCall:
    """Return a rollout's turn as a call; `name` must be unique in the conversation."""
    return StoredCall(
        name=name,
        step=turn.step,
        order=order,
        finish_reason=turn.reply.finish_reason,
        weight_versions=turn.reply.weight_versions,
        routed_experts=turn.reply.routed_experts,
    )


def write_calls(
    file: BinaryIO, conversation: str, calls: Iterable[StoredCall], after: StoredCall | None = None
) -> StoredCall | None:
    """Write one line per call; return the last call, which the next `write_calls` takes as `after`.

    A call that continues the one before it is written without their common history. Raises `InputError` as
    `line` does.
    """
    for call in calls:
        file.write(line(conversation, call, after))
        after = call
    return after


def line(
    conversation: str, call: StoredCall, after: StoredCall | None = None, engine: str | None = None
) -> bytes:
    """Return the line of a call; `after` is ignored if the call does not continue it.

    Raises `InputError` for a reward or a log-probability that JSON has no word for, and for metadata that are
    not JSON data.
    """
    check_finite(call)
    parent = after if after is not None and _continues(call.step, after.step) else None
    step = call.step
    if parent is not None:
        length = len(parent.step.ids)
        step = attrs.evolve(
            step,
            prompt=step.prompt[len(parent.step.messages) :],
            prompt_ids=step.prompt_ids[length:],
            prompt_ledger=Ledger.of(step.prompt_ledger.since(length)),
            media=[one.moved(-length) for one in step.media[len(parent.step.media) :]],
        )
    data = to_data(attrs.evolve(call, step=step, routed_experts=None))
    if call.routed_experts is not None:  # their positions count from the beginning of the whole prompt
        data["routed_experts"] = to_data(call.routed_experts)
    record = {"conversation": conversation, "after": None if parent is None else parent.name, "call": data}
    if engine is not None:
        record = {"engine": engine, **record}
    if parent is not None:
        record["joins"] = fingerprint(parent.step)
        if not _continues_ledger(call.step, parent.step):
            record["ledger"] = plain_runs(call.step.prompt_ledger.runs)
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise InputError(f"call {call.name!r:.60} cannot be written: {error}") from None


def check_finite(call: StoredCall) -> None:
    """Demand that the reward and the log-probabilities are finite: orjson would write others as null."""
    numbers = (call.reward, *(call.step.logprobs or ()))
    if not all(map(math.isfinite, filter(None, numbers))):
        raise InputError(f"call {call.name!r:.60} has a number that is not finite")


def _continues(step: Step, older: Step) -> bool:
    """Tell whether a prompt begins with all ids and messages of an older step."""
    messages = older.messages
    return (
        step.prompt_ids.starts_with(older.ids)
        and step.media[: len(older.media)] == list(older.media)
        and (
            step.prompt.extends(messages)
            or orjson.dumps([*islice(step.prompt, len(messages))]) == orjson.dumps([*messages])
        )
    )


def _continues_ledger(step: Step, older: Step) -> bool:
    """Tell whether a prompt's ledger begins with the runs of an older step; what both share is not read."""
    ledger, shared = step.prompt_ledger, older.prompt_ledger
    start = len(shared) if ledger.extends(shared) else 0
    return older.ledger.then(*ledger.since(len(older.ids))).since(start) == ledger.since(start)


def fingerprint(step: Step) -> list[int]:
    """Return the value of `joins`: the number of ids, and a checksum of the sampled ones."""
    return [len(step.ids), zlib.crc32(orjson.dumps(step.completion_ids.tolist()))]


def _batches(record: Record, _: int) -> Iterator[Batch]:
    yield Batch(conversation=first_id(record, "conversation"), parts=(partial(_read, record),))


def _read(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    unknown = sorted(record.keys() - KEYS)
    if unknown:
        names = ", ".join(map(repr, unknown))
        raise InputError(f"unknown keys: {names:.200}; what a call has, as its reward, is in 'call'")
    data, after = dict(record["call"]), record["after"]
    routed = data.pop("routed_experts", None)
    experts = None if routed is None else from_data(routed, RoutedExperts)
    call = from_data(data, StoredCall)
    if after is None:
        yield attrs.evolve(call, routed_experts=experts)
        return
    parent = place.calls.get(after) if isinstance(after, str) else None
    if parent is None:
        raise InputError(
            f"call {call.name!r:.60} follows {after!r:.60}, which is in no readable line before it"
        )
    if record.get("joins") not in (None, fingerprint(parent.step)):
        raise InputError(
            f"call {call.name!r:.60} follows another call named {after!r:.60} than the one before it: two "
            "conversations have the same id"
        )
    step, older, ledger = call.step, parent.step, record.get("ledger")
    step = attrs.evolve(
        step,
        prompt=older.messages.then(list(step.prompt)),
        prompt_ids=older.ids.then(tuple(step.prompt_ids)),
        media=older.media.then([one.moved(older.ids.length) for one in step.media]),
        prompt_ledger=older.ledger.then(*step.prompt_ledger.runs) if ledger is None else ledger_of(ledger),
    )
    yield attrs.evolve(call, step=step, routed_experts=experts)


def plain_runs(runs: Iterable[tuple[Origin, int]]) -> list[list[Any]]:
    """Return the runs of a ledger as plain data, which `ledger_of` reads.

    >>> ledger_of(plain_runs([(Origin.PROMPT, 2)]))
    Ledger(PROMPT[0:2])
    """
    return [[origin.name.lower(), count] for origin, count in runs]


def ledger_of(value: Any) -> Ledger:
    """Return the ledger of plain runs; raises `InputError` for anything else."""
    try:
        runs = [(Origin[name.upper()], count) for name, count in value]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"ledger is {value!r:.60}: give a list of [origin, number of ids]") from None
    if not all(type(count) is int and count >= 0 for _, count in runs):
        raise InputError("ledger has a count that is not a whole number, 0 or more")
    return Ledger.of(runs)


def write_forest(conversation: str, forest: Forest, _: bool) -> Iterator[bytes]:
    """Yield the line of each call, without the history of the call that it continues."""
    written: dict[str | None, StoredCall] = {}
    for node in forest.nodes:
        yield line(conversation, node.call, written.get(node.parent))
        written[node.name] = node.call


FORM = StoredForm(
    name="tito",
    description="calls that tito wrote",
    matches=lambda record: isinstance(record.get("call"), dict) and "after" in record,
    batches=_batches,
    write=write_forest,
)

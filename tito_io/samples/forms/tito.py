"""Calls as tito writes them: a line is a call, and says only what is new after an earlier one.

`{"conversation": id, "after": name or null, "call": {...}}`, where `call` is what `to_data` makes of a call.
`after` names an earlier line's call of the same conversation whose prompt and completion begin this prompt;
then the step's `prompt`, `prompt_ids` and `prompt_ledger` hold what follows them, and `joins` tells that
call from another of its name: how many ids it has, and the CRC-32 of its completion ids' JSON. Where the
prompt's ledger tells of the beginning otherwise than the earlier call does, it stands whole beside, as
`ledger`. So a long conversation costs what is new in each turn, in the file and, since the calls share it,
in memory.
"""

from __future__ import annotations

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
from tito_core.shared import Shared
from tito_io.client.conversation import ClientTurn

from .form import Batch, CallPlace, Record, StoredForm, named


def call_of(turn: ClientTurn, name: str, order: int) -> StoredCall:
    """Return a rollout's turn as a call; `name` is unlike that of any other call of the conversation."""
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
    """Write calls, a line each; return the last one, to be given as `after` the next time.

    A call that goes on from the one before it is written in what is new. Raises `InputError` where metadata
    are no JSON data.
    """
    last = after
    for call in calls:
        file.write(line(conversation, call, last))
        last = call
    return last


def write_forest(file: BinaryIO, conversation: str, forest: Forest) -> None:
    """Write all calls of a forest, each after the call that it continues."""
    written: set[str] = set()
    for node in forest.nodes:
        parent = node.parent if node.parent in written else None
        file.write(line(conversation, node.call, None if parent is None else forest[parent].call))
        written.add(node.name)


def line(conversation: str, call: StoredCall, after: StoredCall | None = None) -> bytes:
    """Return the line of a call; `after` is left out where the call does not go on from it."""
    parent = after if after is not None and _continues(call.step, after.step) else None
    step = call.step if parent is None else _new(call.step, parent.step)
    data = to_data(attrs.evolve(call, step=step, routed_experts=None))
    if call.routed_experts is not None:  # their positions are those of all ids
        data["routed_experts"] = to_data(call.routed_experts)
    said = {"conversation": conversation, "after": None if parent is None else parent.name, "call": data}
    if parent is not None:
        said["joins"] = _joint(parent.step)
    if parent is not None and not _agrees(call.step, parent.step):
        said["ledger"] = [[origin.name.lower(), count] for origin, count in call.step.prompt_ledger.runs]
    try:
        return orjson.dumps(said, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise InputError(f"call {call.name!r:.60} cannot be written: {error}") from None


def _continues(step: Step, older: Step) -> bool:
    """Tell whether ids and messages of a prompt begin with all those of a step."""
    told = older.messages
    return step.prompt_ids.starts_with(older.ids) and (
        step.prompt.extends(told) or orjson.dumps([*islice(step.prompt, len(told))]) == orjson.dumps([*told])
    )


def _joint(step: Step) -> list[int]:
    """Return what tells a step from another of its name: how many ids it has, and a sum of the sampled."""
    return [len(step.ids), zlib.crc32(orjson.dumps(step.completion_ids.tolist()))]


def _agrees(step: Step, older: Step) -> bool:
    """Tell whether a prompt's ledger goes on from a step's."""
    return older.ledger.then(*step.prompt_ledger.since(len(older.ids))) == step.prompt_ledger


def _new(step: Step, older: Step) -> Step:
    """Return a step with what its prompt has after an older one."""
    return attrs.evolve(
        step,
        prompt=_rest(step.prompt, older.messages.length),
        prompt_ids=_rest(step.prompt_ids, older.ids.length),
        prompt_ledger=Ledger.of(step.prompt_ledger.since(older.ids.length)),
    )


def _rest(chain: Shared[Any], start: int) -> list[Any]:
    """Return what stands behind a position, touching no part before it."""
    found: list[list[Any]] = []
    for link in chain.links():
        first = link.length - len(link.part)
        found.append(list(link.part[max(start - first, 0) :]))
        if first <= start:
            break
    return [item for part in reversed(found) for item in part]


def _batches(record: Record, _: int) -> Iterator[Batch]:
    yield Batch(conversation=named(record, "conversation"), parts=(partial(_read, record),))


def _read(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    said, after = dict(record["call"]), record["after"]
    routed = said.pop("routed_experts", None)
    experts = None if routed is None else from_data(routed, RoutedExperts)
    call = from_data(said, StoredCall)
    if after is None:
        yield attrs.evolve(call, routed_experts=experts)
        return
    parent = place.calls.get(after) if isinstance(after, str) else None
    if parent is None:
        raise InputError(
            f"call {call.name!r:.60} goes on after {after!r:.60}, which no readable line before it holds"
        )
    if record.get("joins") not in (None, _joint(parent.step)):
        raise InputError(
            f"call {call.name!r:.60} goes on after {after!r:.60}, and not after the one of that name before "
            "it: calls of two conversations stand under one name"
        )
    step = _joined(call.step, parent.step, record.get("ledger"))
    yield attrs.evolve(call, step=step, routed_experts=experts)


def _joined(step: Step, older: Step, ledger: object) -> Step:
    whole = older.ledger.then(*step.prompt_ledger.runs) if ledger is None else _ledger(ledger)
    return attrs.evolve(
        step,
        prompt=older.messages.then(list(step.prompt)),
        prompt_ids=older.ids.then(tuple(step.prompt_ids)),
        prompt_ledger=whole,
    )


def _ledger(found: Any) -> Ledger:
    try:
        runs = [(Origin[name.upper()], count) for name, count in found]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"ledger is {found!r:.60}: give a list of [origin, number of ids]") from None
    if not all(type(count) is int and count >= 0 for _, count in runs):
        raise InputError("ledger counts must be whole numbers")
    return Ledger.of(runs)


FORM = StoredForm(
    name="tito",
    told="calls as tito writes them",
    whole=False,
    knows=lambda record: isinstance(record.get("call"), dict) and "after" in record,
    batches=_batches,
)


@attrs.define
class CallFile:
    """Writes each turn when it is taken, so that a rollout that breaks off loses none of them.

    Raises `InputError` where the file cannot be made.
    """

    path: Path
    conversation: str = attrs.field(factory=lambda: f"rollout-{uuid4().hex[:16]}")
    """What the conversation is called; no two are alike unless told, so that files may be joined."""
    _file: BinaryIO | None = attrs.field(default=None, init=False)
    _last: StoredCall | None = attrs.field(default=None, init=False)
    _count: int = attrs.field(default=0, init=False)

    def __enter__(self) -> Self:
        try:
            self._file = self.path.open("wb")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, turn: ClientTurn) -> None:
        """Write a turn; the file is open."""
        if self._file is None:
            raise ValueError("the file is not open: use it in a with statement")
        self._count += 1
        call = call_of(turn, f"turn-{self._count}", self._count)
        self._last = write_calls(self._file, self.conversation, [call], after=self._last)
        self._file.flush()

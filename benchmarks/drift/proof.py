"""Are the rows what the engine sampled? Every answer that was heard, against every row that was made."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from tito_io.samples.conversation import Problem
from tito_io.samples.entry import Entry
from tito_io.samples.rows import ConversationRows


@attrs.define
class Proof:
    """What was compared, and what is wrong."""

    rows: int = 0
    calls: int = 0
    sampled: int = 0
    """Ids that the engine sampled."""
    trained: int = 0
    """Ids that train in some row, counted by the masks."""
    wrong: list[str] = attrs.field(factory=list)

    @property
    def holds(self) -> bool:
        """Whether every sampled id is in the rows, byte for byte, and trains once, and no other does."""
        return not self.wrong and self.sampled == self.trained > 0


def proof(made: Iterable[ConversationRows | Problem], heard: Mapping[str, Sequence[bytes]]) -> Proof:
    """Compare rows with what was heard, by conversation; the n-th answer is that of the call `turn-n`."""
    found = Proof(
        calls=sum(map(len, heard.values())),
        sampled=sum(len(ids) // 4 for answers in heard.values() for ids in answers),
    )
    trained: dict[str, dict[str, list[bytes]]] = {name: defaultdict(list) for name in heard}
    for one in made:
        if isinstance(one, Problem):
            found.wrong.append(str(one))
            continue
        for entry in one.entries:
            found.rows += 1
            found.trained += entry.row.trained
            found.wrong += _misplaced(entry)
            for call, ids in _turns(entry):
                trained.setdefault(entry.conversation, defaultdict(list))[call].append(ids)
    for name, calls in trained.items():
        found.wrong += _missing(name, calls, heard.get(name, ()))
    return found


def _turns(entry: Entry) -> Iterator[tuple[str, bytes]]:
    """Yield the turns that train in a row, with their ids."""
    ids = entry.row.ids.tolist()
    for turn in entry.row.turns:
        if turn.trained:
            yield turn.call, array("I", ids[turn.start : turn.stop]).tobytes()


def _misplaced(entry: Entry) -> Iterator[str]:
    """Say where a mask is not that of the turns that train."""
    wanted = bytearray(len(entry.row))
    for turn in entry.row.turns:
        if turn.trained:
            wanted[turn.start : turn.stop] = b"\1" * (turn.stop - turn.start)
    if bytes(wanted) != entry.row.loss_mask:
        yield f"{entry.conversation}: the mask of row {entry.row.name} is not on its turns"


def _missing(name: str, calls: Mapping[str, Sequence[bytes]], heard: Sequence[bytes]) -> Iterator[str]:
    """Say which answers are not in the rows once, as they were heard."""
    for number, ids in enumerate(heard, 1):
        if calls.get(f"turn-{number}", []) != [ids]:
            yield f"{name}: the {number}. answer, {len(ids) // 4} ids, does not train once as it was sampled"
    if len(calls) > len(heard):
        yield f"{name}: {len(calls)} calls train, and {len(heard)} answers were heard"

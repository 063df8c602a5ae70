"""Lines that are read together, found as they come: a conversation's, or those of a line that has several.

Of a line no more is held than its calls; of a conversation that is done with eight bytes, by which it is
known when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path

import attrs

from tito_core import InputError, TitoError

from .forms import FORMS, Batch, Record, StoredForm, recognized
from .lines import FileLine
from .open_conversation import Growing
from .problem import Nameless, Problem
from .reading import Group, ReadOptions
from .record import NoIdError, id_at, keys_of, record_of

__all__ = ["Chunk", "Collector", "Group", "ReadOptions", "Spot"]


Named = tuple[str, Batch]
"""A conversation's name, and what a line has of it."""

PATIENCE = 20
"""How many unreadable lines a file may begin with."""


@attrs.frozen
class Spot:
    """Where a line lies."""

    number: int
    start: int


@attrs.frozen(kw_only=True)
class Chunk:
    """Lines that are read together."""

    form: StoredForm
    lines: tuple[Spot, ...] = attrs.field(repr=False)
    conversations: Mapping[str, Growing] = attrs.field(repr=False)
    """The conversations that they make, by name; more than one where a line has several."""


@attrs.define
class Collector:
    """Puts lines together as they come."""

    path: Path
    reading: ReadOptions
    form: StoredForm | None = None
    """That of the first line that has one."""
    troubles: list[Problem] = attrs.field(factory=list)
    """Those that nobody was told of: all before the first line of a known form."""
    make: bool = True
    """Whether calls are made of lines; without, chunks say no more than which lines they are."""
    _names: list[str] | None = None
    """The conversations of the line before."""
    _lines: list[Spot] = attrs.field(factory=list)
    _growing: dict[str, Growing] = attrs.field(factory=dict)
    _done: set[bytes] = attrs.field(factory=set)

    def add(self, line: FileLine) -> Iterator[Chunk | Problem]:
        """Take in a line; yield what it completes, or why it belongs nowhere.

        Raises `InputError` where the file's first object is of no form, or not of the one that was named,
        and where a file begins with `PATIENCE` lines that are none at all.
        """
        record = record_of(line)
        odd = record if isinstance(record, str) else self._odd(record)
        if odd is not None and self.form is None and not isinstance(record, str):
            raise InputError(f"{self.path}, line {line.number}: {odd}")
        yield from self._told()
        if isinstance(record, str) or odd is not None:
            yield from self._endured(Problem(line.number, str(odd)))
            return
        try:
            batches = self._named(record, line.number)
        except NoIdError as error:
            yield Nameless(line.number, str(error))
            return
        except TitoError as error:
            yield Problem(line.number, str(error))
            return
        names = [name for name, _ in batches]
        if self._apart(names):
            yield from self.rest()
            late = self._late(names)
            if late is not None:
                yield Problem(line.number, late)
                return
        self._take(line, batches)

    def rest(self) -> Iterator[Chunk]:
        """Yield what is held."""
        if self._lines and self.form is not None:
            yield Chunk(form=self.form, lines=tuple(self._lines), conversations=self._growing)
        self._names, self._lines, self._growing = None, [], {}

    def _take(self, line: FileLine, batches: list[Named]) -> None:
        self._lines.append(Spot(line.number, line.start))
        for name, batch in batches if self.make else ():
            self._growing.setdefault(name, Growing(name, line.number)).take(batch, line.number)

    def _named(self, record: Record, number: int) -> list[Named]:
        """Return what a line holds, with the names of the conversations."""
        batches = list(self.form.batches(record, number)) if self.form else []
        return [(self._name(record, batch, number, index), batch) for index, batch in enumerate(batches)]

    def _name(self, record: Record, batch: Batch, number: int, index: int) -> str:
        if self.reading.group is Group.FILE:
            return self._stem
        name = batch.conversation
        if self.reading.id_field is not None:
            name = id_at(record, self.reading.id_field) + (f".{index}" if index else "")
        return f"{name or self._stem}:{number}" if self.reading.group is Group.LINE else name or self._stem

    @property
    def _stem(self) -> str:
        """The file's name without its endings."""
        return self.path.name.partition(".")[0] or self.path.name

    def _apart(self, names: list[str]) -> bool:
        """Tell whether a line does not belong to those that are held."""
        whole = self.form is not None and self.form.whole and self.reading.group is not Group.FILE
        return whole or names != self._names

    def _late(self, names: list[str]) -> str | None:
        """Say why a conversation cannot begin here: it was done with."""
        late = next((name for name in names if _digest(name) in self._done), None)
        if late is not None:
            return (
                f"conversation {late!r:.60} is in lines before, with others between: sort the lines, or "
                "read the whole file as one conversation"
            )
        self._names = names
        self._done.update(map(_digest, names))
        return None

    def _endured(self, problem: Problem) -> Iterator[Problem]:
        """Tell of a line, or hold it back while the file may hold nothing else, and is given up with it."""
        if self.form is not None:
            yield problem
            return
        self.troubles.append(problem)
        if len(self.troubles) >= PATIENCE:
            raise self.hopeless()

    def _told(self) -> Iterator[Problem]:
        """Tell of what was held back, once the file has a form."""
        if self.form is not None:
            yield from self.troubles
            self.troubles = []

    @property
    def named(self) -> bool:
        """Whether any line was of a conversation."""
        return bool(self._done)

    def hopeless(self) -> InputError:
        """Return what is to be said of a file without a line that can be read."""
        if not self.troubles:
            return InputError(f"{self.path} is empty: give a file with an object a line")
        more = len(self.troubles) - 1
        others = f", and {more} more line{'s' * (more != 1)} of which none can be read" if more else ""
        return InputError(f"{self.path}, {self.troubles[0]}{others}")

    def _odd(self, record: Record) -> str | None:
        """Settle the form by the first object; say why a later one, of another form, is none of this file."""
        wanted = self.form if self.reading.form is None else FORMS[self.reading.form]
        found = wanted if wanted is not None and wanted.knows(record) else recognized(record)
        if found is not None and wanted in (None, found):
            self.form = found
            return None
        looks = f"it looks like `{found.name}`" if found is not None else keys_of(record)
        if wanted is None:
            return f"is of no known form ({', '.join(FORMS)}): {looks}"
        return f"is none of the {wanted.told} (`{wanted.name}`): {looks}"


def _digest(name: str) -> bytes:
    return blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()

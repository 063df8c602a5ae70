"""Lines that are read together, found as they come: a conversation's, or those of a line that has several.

Of a line no more is held than its calls; of a conversation that is done with eight bytes, by which it is
known when it comes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from pathlib import Path
from typing import Any

import attrs
import orjson

from tito_core import InputError, TitoError
from tito_io.samples.forms.form import named

from .conversation import Growing, Nameless, Problem, without_id
from .forms import FORMS, Batch, Record, StoredForm, recognized
from .lines import FileLine

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


class Group(Enum):
    """Which lines are one conversation."""

    ID = "those that follow each other with one id; where lines have none, all that follow each other"
    FILE = "all lines of the file"
    LINE = "each line by itself"


@attrs.frozen(kw_only=True)
class ReadOptions:
    """How to read a file; raises `InputError` for a form that there is none of."""

    form: str | None = attrs.field(default=None)
    """The name of the lines' form; None to go by the first line that can be read."""
    group: Group = Group.ID
    id_field: str | None = None
    """Where lines have their conversation's id, in objects in objects with dots between; None for the
    form's own places."""

    @form.validator
    def _is_known(self, _: object, value: str | None) -> None:
        if value is not None and value not in FORMS:
            raise InputError(f"form is {value!r:.40}: give one of {', '.join(FORMS)}")


NOUNS: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


class NoIdError(InputError):
    """A line has no id where ids were to be."""


def record_of(line: FileLine) -> dict[str, Any] | str:
    """Return a line's object, or why it has none."""
    try:
        found = orjson.loads(line.text)
    except orjson.JSONDecodeError as error:
        return f"is no JSON: {error}"
    return found if isinstance(found, dict) else f"is {noun_of(found)}: give an object a line"


def noun_of(found: object) -> str:
    """Return what JSON calls a value, with its article.

    >>> noun_of(9), noun_of([]), noun_of(None), noun_of(True)
    ('a number', 'a list', 'null', 'a boolean')
    """
    return NOUNS.get(type(found), "something else")


def keys_of(record: Record) -> str:
    """Return an object's keys, to be shown."""
    shown = ", ".join(f"`{key:.20}`" for key in sorted(record)[:8])
    return f"its keys are {shown}" if shown else "it has no keys"


def id_at(record: Record, field: str) -> str:
    """Return the id at the end of a path of names with dots between; raises `NoIdError` for none.

    >>> id_at({"meta": {"session": 7}}, "meta.session")
    '7'
    """
    *path, last = field.split(".")
    holder: object = record
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    found = named(holder, last) if isinstance(holder, Mapping) else None
    if found is None:
        raise NoIdError(without_id(field))
    return found

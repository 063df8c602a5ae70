"""Group the lines of a file by conversation as they come.

Memory: the calls of the open group, and eight bytes for each conversation that is complete, by which a
later line of it is recognized.
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
from tito_io.fields import utf8_fault
from tito_io.samples.forms.form import at, first_id

from .conversation import OpenConversation, Problem
from .forms import FORMS, Batch, Record, StoredForm
from .lines import MAX_LINE, FileLine
from .progress import RunProgress

PATIENCE = 20
"""How many unreadable lines a file may begin with before it is given up."""
LONG = 1 << 20
"""Bytes of a line whose parts are shown as progress."""
NAME_A_FIELD = "give the name of a field that every line has"
SORT = "sort the lines by conversation; if the whole file is one conversation, give --group file"
NOUNS = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


class Group(Enum):
    """Which lines are one conversation; each value is its help text."""

    ID = "consecutive lines with the same id"
    FILE = "all lines of the file"
    LINE = "each line by itself"


@attrs.frozen(kw_only=True)
class ReadOptions:
    """How to read a file of stored trajectories.

    Attributes:
        form: The name of the lines' format; None to recognize it by the first readable line.
        group: Which lines are one conversation. With `Group.ID`, lines without an id in a row are one, too.
        id_field: The field with a line's conversation id, such as `meta.session`; None for the format's own.
        max_line: Bytes of the longest line. Values that are read from it take some ten times as much memory.

    Raises:
        InputError: There is no format of that name.
    """

    form: str | None = attrs.field(default=None)
    group: Group = Group.ID
    id_field: str | None = None
    max_line: int = MAX_LINE

    @form.validator
    def _is_known(self, _: object, value: str | None) -> None:
        if value is not None and value not in FORMS:
            raise InputError(f"there is no format {value!r:.40}: give one of {', '.join(FORMS)}")


@attrs.frozen
class MissingId(Problem):
    """A line without the id that was to name its conversation."""


@attrs.frozen
class SeparatedLine(Problem):
    """A line of an earlier conversation, after lines of another one."""


class NoIdError(InputError):
    """A line has no id in the field that was asked for."""


@attrs.frozen
class LinePlace:
    """Where a line begins: its number, counted from 1, and the bytes before it."""

    number: int
    start: int


@attrs.frozen(kw_only=True)
class LineGroup:
    """Lines that are read together.

    Attributes:
        form: Their format.
        lines: Where they are.
        conversations: The conversations in them by name; several if a line has several.
    """

    form: StoredForm
    lines: tuple[LinePlace, ...] = attrs.field(repr=False)
    conversations: Mapping[str, OpenConversation] = attrs.field(repr=False)


ROW = frozenset(("ids", "loss_mask", "spans"))
"""Keys of a training row; no format of calls has them."""


@attrs.define
class LineGrouper:
    """Groups lines as they come.

    Attributes:
        path: The file, for errors and for the name of a conversation without an id.
        reading: How to read it.
        form: The format of the first line that has one.
        make_calls: Whether calls are made of the lines; if not, groups say only which lines they are.
        progress: Updated at each part of a long line.
        unreadable: Problems of the lines before the first of a recognized format, which are not yielded yet.
        complete: Digests of the names of the conversations so far.
    """

    path: Path
    reading: ReadOptions
    form: StoredForm | None = None
    make_calls: bool = True
    progress: RunProgress = attrs.field(factory=RunProgress)
    unreadable: list[Problem] = attrs.field(factory=list)
    complete: set[bytes] = attrs.field(factory=set)
    _names: list[str] | None = None
    """The conversations of the line before."""
    _lines: list[LinePlace] = attrs.field(factory=list)
    _open: dict[str, OpenConversation] = attrs.field(factory=dict)

    def add(self, line: FileLine) -> Iterator[LineGroup | Problem]:
        """Add a line; yield the group that it completes, or why it belongs to none.

        Raises `InputError` if the file's first object is in no recognized format, or not in the one that was
        named, and if the file begins with `PATIENCE` lines that hold no object.
        """
        if len(line.raw) >= LONG:
            self.progress.on_step(f"line {line.number:,}: parsing JSON", draw=True)
        record = parsed(line)
        if isinstance(record, str) and self.form is None:
            # A file of another kind is refused as a whole, with one error and not one for each line.
            self.unreadable.append(Problem(line.number, record))
            if len(self.unreadable) >= PATIENCE:
                raise self.nothing_readable()
            return
        problem = record if isinstance(record, str) else self._form_mismatch(record)
        if self.form is None:
            raise InputError(f"{self.path}, line {line.number}: {problem}")
        yield from self.unreadable
        self.unreadable = []
        if isinstance(record, str) or problem is not None:
            yield Problem(line.number, str(problem))
        else:
            yield from self._grouped(line, record, self.form)

    def _grouped(self, line: FileLine, record: Record, form: StoredForm) -> Iterator[LineGroup | Problem]:
        """Add a line to the open group; if it belongs to another one, yield the open group first."""
        try:
            found = enumerate(form.batches(record, line.number))
            batches = [(self._name(record, batch, line.number, index), batch) for index, batch in found]
        except TitoError as error:
            kind = MissingId if isinstance(error, NoIdError) else Problem
            yield kind(line.number, str(error))
            return
        names = [name for name, _ in batches]
        if (form.whole and self.reading.group is not Group.FILE) or names != self._names:
            yield from self.finish()
            again = next((name for name in names if _digest(name) in self.complete), None)
            if again is not None:
                name = repr(again)[:60]
                text = f"conversation {name} also has earlier lines, and lines of another stand between"
                yield SeparatedLine(line.number, text)
                return
            self._names = names
            self.complete.update(map(_digest, names))
        self._take(line, batches)

    def finish(self) -> Iterator[LineGroup]:
        """Yield the open group, if there is one."""
        if self._lines and self.form is not None:
            yield LineGroup(form=self.form, lines=tuple(self._lines), conversations=self._open)
        self._names, self._lines, self._open = None, [], {}

    def nothing_readable(self) -> InputError:
        """Return the error of a file without a readable line."""
        if not self.unreadable:
            return InputError(f"{self.path} is empty: give a file with one JSON object per line")
        more = len(self.unreadable) - 1
        others = f"; {more} more line{'s' * (more != 1)} cannot be read either" if more else ""
        return InputError(f"{self.path}, {self.unreadable[0]}{others}")

    def _take(self, line: FileLine, batches: list[tuple[str, Batch]]) -> None:
        self._lines.append(LinePlace(line.number, line.start))
        if not self.make_calls:
            return
        done, count = 0, sum(len(batch.parts) for _, batch in batches)

        def on_part() -> None:
            nonlocal done
            done += 1
            if len(line.raw) >= LONG:
                self.progress.on_step(f"line {line.number:,}: part {done:,} of {count:,}")

        for name, batch in batches:
            conversation = self._open.setdefault(name, OpenConversation(name, line.number))
            conversation.add(batch, line.number, on_part)

    def _name(self, record: Record, batch: Batch, number: int, index: int) -> str:
        stem = self.path.name.partition(".")[0] or self.path.name
        if self.reading.group is Group.FILE:
            return stem
        name = batch.conversation
        if self.reading.id_field is not None:
            name = id_at(record, self.reading.id_field) + (f".{index}" if index else "")
        return f"{name or stem}:{number}" if self.reading.group is Group.LINE else name or stem

    def _form_mismatch(self, record: Record) -> str | None:
        """Set the format by the first object; return why an object is not in the file's format."""
        expected = self.form if self.reading.form is None else FORMS[self.reading.form]
        tried = (*([] if expected is None else [expected]), *FORMS.values())
        form = next((form for form in tried if form.matches(record)), None)
        if form is not None and expected in (None, form):
            if self.form is None:
                form.check_file(self.path)
            self.form = form
            return None
        if form is None and record.keys() >= ROW:
            return "these are training rows that `tito samples` wrote; give the calls that they were made of"
        keys = ", ".join(f"`{key:.20}`" for key in sorted(record)[:8])
        looks = f"its keys are {keys}" if keys else "it has no keys"
        if form is not None:
            looks = f"it looks like `{form.name}`"
        if expected is None:
            return f"is not in a recognized format ({', '.join(FORMS)}): {looks}"
        return f"is not in the format `{expected.name}` ({expected.description}): {looks}"


def _digest(name: str) -> bytes:
    return blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()


def parsed(line: FileLine) -> dict[str, Any] | str:
    """Return a line's JSON object, or why it has none."""
    try:
        value = orjson.loads(line.text)
    except orjson.JSONDecodeError as error:
        # The line is the file's, and is named; the decoder counts those of this text, which is one.
        return utf8_fault(line.text) or f"is not valid JSON: {error.msg}, at character {error.pos + 1}"
    return value if isinstance(value, dict) else f"is {noun_of(value)}: give one JSON object per line"


def noun_of(value: object) -> str:
    """Return what JSON calls a value, with its article.

    >>> noun_of(9), noun_of([]), noun_of(None), noun_of(True)
    ('a number', 'a list', 'null', 'a boolean')
    """
    return NOUNS.get(type(value), "a number")


def id_at(record: Record, field: str) -> str:
    """Return the id in a field; dots in `field` go into nested objects. Raises `NoIdError` for no id.

    >>> id_at({"meta": {"session": 7}}, "meta.session")
    '7'
    """
    *path, last = field.split(".")
    holder = at(record, *path)
    value = first_id(holder, last) if isinstance(holder, Mapping) else None
    if value is None:
        raise NoIdError(without_id(field))
    return value


def without_id(field: str, more: int = 0) -> str:
    """Return the reason of a line without an id in `field`, and of `more` such lines.

    >>> without_id("meta.s", 1)
    'has no id at `meta.s`, like 1 more line: give the name of a field that every line has'
    >>> without_id("meta.s", 2)
    'has no id at `meta.s`, like 2 more lines: give the name of a field that every line has'
    """
    return f"has no id at `{field}`{_like(more)}: {NAME_A_FIELD}"


def separated(first: SeparatedLine, more: int) -> Problem:
    """Return the problem of a separated line, and of `more` such lines, with what to do about all of them.

    >>> str(separated(SeparatedLine(3, "is late"), 1)).partition(": sort")[0]
    'line 3: is late, like 1 more line'
    """
    return Problem(first.line, f"{first.reason}{_like(more)}: {SORT}", more)


def _like(more: int) -> str:
    return f", like {more:,} more line{'s' * (more > 1)}" if more else ""

"""Render once what a template cannot tell apart: thousands of questions of a lint differ in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import attrs

from tito_core import Message, TemplateRefused
from tito_io.families.family import Bound
from tito_io.families.limits import LimitReached
from tito_io.families.recorded_reads import MessageReads, name_of

from .budget import Budget

ADDRESS = "0x"
"""What Python prints of an object that has no text of its own; it may be another in each render."""


class Asked(NamedTuple):
    """A conversation to render.

    Attributes:
        readings: What the template may print of the clock.
        speaking: Whether the generation prompt follows.
        names: The messages as the template gets them, each as bytes.
    """

    readings: tuple[str, ...]
    speaking: bool
    names: tuple[bytes, ...]


PRETTY = "pprint"
"""The filter that asks how a class prints. No known template has it; where one has, nothing is shared."""


@attrs.define(eq=False)
class SharedRenders:
    """The renders of one template with one set of variables.

    A render depends on what the template reads, and on nothing else. So conversations that agree in all keys
    which any render has read so far have one render. A key that a later render reads first tells earlier
    conversations apart, too.

    Attributes:
        bound: The template with its tools and arguments.
        budget: What each render is charged to.
    """

    bound: Bound
    budget: Budget
    _timed: bool = attrs.field(init=False)
    _reads: MessageReads = attrs.field(factory=MessageReads, init=False)
    _size: int = attrs.field(default=0, init=False)
    _plain: dict[bytes, dict[str, Any]] = attrs.field(factory=dict, init=False)
    _recording: dict[bytes, Mapping[str, Any]] = attrs.field(factory=dict, init=False)
    _seen: dict[bytes, bytes] = attrs.field(factory=dict, init=False)
    _rendered: dict[Asked, str | TemplateRefused] = attrs.field(factory=dict, init=False)
    _known: dict[Any, str | TemplateRefused] = attrs.field(factory=dict, init=False)

    @_timed.default
    def _prints_time(self) -> bool:
        moment = self.bound.moment()
        return bool(moment.readings) or not moment.fixed

    def text(self, messages: Sequence[Message], *, speaking: bool) -> str:
        """Return the text of messages; raises `TemplateRefused`."""
        if PRETTY in self.bound.template.source.text:
            with self.budget.charge():
                return self.bound.text(messages, add_generation_prompt=speaking)
        moment = self.bound.moment() if self._timed else None
        seen = self.bound.prepared(messages, add_generation_prompt=speaking)
        asked = Asked(() if moment is None else moment.readings, speaking, self._names(seen))
        found = self._known.get(self._read_of(asked)) if moment is None or moment.fixed else None
        if found is None:
            found = self._render(asked)
        if isinstance(found, TemplateRefused):
            raise TemplateRefused(*found.args)
        return found

    def _names(self, messages: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
        names = tuple([name_of(message) for message in messages])
        for name, message in zip(names, messages, strict=True):
            if name not in self._plain:
                self._plain[name] = message
                self._recording[name] = self._reads.recording(message)
        return names

    def _read_of(self, asked: Asked) -> Any:
        """Return what renders so far could tell apart in what is asked."""
        for name in asked.names:
            if name not in self._seen:
                self._seen[name] = self._reads.seen(self._plain[name])
        return asked.readings, asked.speaking, tuple([self._seen[name] for name in asked.names])

    def _render(self, asked: Asked) -> str | TemplateRefused:
        try:
            with self.budget.charge():
                text = self.bound.render(
                    [self._recording[name] for name in asked.names], add_generation_prompt=asked.speaking
                )
        except TemplateRefused as refused:
            if isinstance(refused.__cause__, LimitReached):
                raise
            found: str | TemplateRefused = TemplateRefused(*refused.args)
        else:
            found = text
        if ADDRESS not in str(found):
            self._rendered[asked] = found
            self._remember(asked, found)
        return found

    def _remember(self, asked: Asked, found: str | TemplateRefused) -> None:
        if self._reads.size == self._size:
            self._known[self._read_of(asked)] = found
        else:  # more was read than ever before, by this render or by one that is not remembered
            self._size = self._reads.size
            self._seen.clear()
            self._known = {self._read_of(one): text for one, text in self._rendered.items()}

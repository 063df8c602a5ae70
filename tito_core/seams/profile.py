"""What was found out about a chat template by asking it, as data that outlives the asking.

A profile claims nothing that was not shown: each case carries what it rests on, and what is no case is
proven anew each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from ..errors import InputError
from ..ids import checked
from ..refusal import Reason
from .case import TurnKind

VERSION = 1
"""The form of a profile; another one is not read."""


class Mode(Enum):
    """What a tail depends on."""

    FREE = "nothing before the turn but opening texts and the last user's: one short render"
    HISTORY = "the whole history: one render of it, of which only the tail is tokenized"
    REFUSED = "it cannot be proven"


@attrs.frozen(kw_only=True)
class Recipe:
    """How to ask for the tail once, and how to know it in the answer."""

    place: int | None
    """Which call's arguments hold the text to locate; None where the content does."""
    as_object: bool
    """Whether calls' arguments are written as an object."""
    past: int
    """Which of the short histories stands in for the real one."""
    mark: tuple[int, ...]
    """The last ids of the text to locate; the tail is what follows them."""
    rest: tuple[int, ...] | None
    """What the template writes between that text and the close; None where that depends on the call."""
    close: tuple[int, ...]
    """What the close begins with."""
    speaks: tuple[int, ...]
    """The generation prompt."""
    cut: bool
    """Whether a rendered text that is cut at the text to locate has the ids that the whole has from there."""


@attrs.frozen(kw_only=True)
class Case:
    """One kind of turn before one shape of environment."""

    kind: TurnKind
    shape: tuple[str, ...]
    mode: Mode
    recipe: Recipe | None = None
    reason: Reason | None = None
    """Why it is refused."""
    detail: str = ""
    renders: int = 0
    """How many renders the certificate rests on."""
    histories: int = 0
    """In how many unlike histories the tail was the same."""
    rewritten: bool = False
    """Whether rendering the turn as history changes what stood there when it was sampled."""


@attrs.frozen(kw_only=True)
class Facts:
    """What else a template does; None where it could not be told."""

    arguments: str | None = None
    """How it takes a call's arguments: `object`, `text`, `either`, or None where it writes no calls."""
    follows: tuple[str, ...] = ()
    """The roles that may follow an assistant turn."""
    grouped_results: bool | None = None
    """Whether two results rendered together are more than each rendered alone."""
    default_system: bool | None = None
    """Whether a conversation without a system text gets one."""
    random: bool = False
    """Whether the same question had two answers."""
    null_content: str | None = None
    """A null content beside an empty one: `same`, `differs` or `refused`."""
    absent_content: str | None = None
    """A missing content beside an empty one: `same`, `differs` or `refused`."""
    parts_content: str | None = None
    """A list of one text part beside its text: `same`, `differs` or `refused`."""
    opens_thought: bool | None = None
    """Whether the generation prompt goes on where a plain answer would not."""
    drops_reasoning: bool | None = None
    """Whether reasoning before the last user message is left out."""
    trims: bool | None = None
    """Whether white space around a content is left out."""
    opening: tuple[int, ...] = ()
    """How a conversation begins: the ids of a system text and a question, tools and all."""
    openers: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    """What opens a message of each role after an assistant turn, its close left out."""


def _once(_: Any, __: Any, cases: Sequence[Case]) -> None:
    if len({(case.kind, case.shape) for case in cases}) != len(cases):
        raise InputError("cases holds a kind and a shape twice")


def _is_known(_: Any, __: Any, version: object) -> None:
    if version != VERSION:
        raise InputError(
            f"version is {version!r:.20}, and this library reads {VERSION}: probe the template again"
        )


def _suffix(ids: Sequence[int]) -> tuple[int, ...]:
    return checked(ids, "suffix")


def _stop_ids(ids: Sequence[int]) -> tuple[int, ...]:
    return checked(ids, "stop_ids")


@attrs.frozen(kw_only=True)
class Profile:
    """A chat template with one rendering (tools, template arguments), as far as it was asked.

    >>> plain = TurnKind(before="user", reasoning=False, calls=0, content="text")
    >>> Profile(suffix=(9, 2)).case(plain, ("user",))
    """

    version: int = attrs.field(default=VERSION, validator=_is_known)
    suffix: tuple[int, ...] = attrs.field(converter=_suffix)
    """The close of an assistant turn."""
    stop_ids: tuple[int, ...] = attrs.field(default=(), converter=_stop_ids)
    """The ids that end a turn, where whoever asked knew them."""
    key: str | None = None
    """What it was rendered with (`render_key`), where whoever asked said so; it serves no other key then."""
    facts: Facts = attrs.field(factory=Facts)
    cases: tuple[Case, ...] = attrs.field(default=(), validator=_once)
    known: Mapping[tuple[TurnKind, tuple[str, ...]], Case] = attrs.field(init=False, eq=False, repr=False)
    """The cases by what they are about."""

    @known.default
    def _known(self) -> Mapping[tuple[TurnKind, tuple[str, ...]], Case]:
        return {(case.kind, case.shape): case for case in self.cases}

    @property
    def markers(self) -> tuple[int, ...]:
        """The stop ids that open the next role's message."""
        opening = {ids[0] for ids in self.facts.openers.values() if ids}
        return tuple(index for index in self.stop_ids if index in opening)

    def case(self, kind: TurnKind, shape: tuple[str, ...]) -> Case | None:
        """Return what is known of a kind of turn before a shape of environment."""
        return self.known.get((kind, shape))

    def then(self, *cases: Case) -> Profile:
        """Return this profile with more cases; a case that is known already is replaced."""
        new = {(case.kind, case.shape) for case in cases}
        kept = [case for case in self.cases if (case.kind, case.shape) not in new]
        return attrs.evolve(self, cases=(*kept, *cases))

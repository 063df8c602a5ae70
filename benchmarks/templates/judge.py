"""Ask the kernel about each conversation of a template, in each rendering, and judge its answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import attrs

from benchmarks.templates.corpus import Entry
from benchmarks.templates.kernel import Kernel
from benchmarks.templates.oracle import Stops, Truth, Unclear, changes, first_stop, shown, stops, truth
from benchmarks.templates.sampled import Sampled, closes, spelled
from benchmarks.templates.shapes import (
    QUESTION,
    SHAPES,
    SPELLINGS,
    SPOKEN,
    TOOL,
    Conversation,
    End,
    conversations,
)
from benchmarks.templates.stand_in import ODD, RememberingFamily, family_of, ids_of, undeclared
from benchmarks.templates.verdict import (
    DROPPED,
    REFUSED,
    UNCLEAR,
    UNRENDERED,
    WAYS,
    Answer,
    Cell,
    Judged,
    Rendered,
)
from tito_core import InputError, Step, TemplateRefused, suffix_ids
from tito_core.seams.profile import Profile
from tito_io.families.family import Bound
from tito_io.families.folder import FolderError
from tito_io.families.sandbox import Sandbox

SWITCHES: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            "enable_thinking", "thinking", "preserve_thinking", "clear_thinking", "keep_past_thinking",
            "truncate_history_thinking", "skip_thinking", "is_thinking",
        ),
        (False, True),
    ),
    "reasoning_effort": ("low", "high"),
}  # fmt: skip
"""Arguments that change what a template writes for a turn, and the values to try."""


Found = Truth | Unclear | TemplateRefused
"""What the oracle sees in a conversation, or the template's error."""
WHOLE = 3


def judged(entry: Entry, most: int | None = None, shapes: Sequence[str] = SHAPES) -> Judged:
    """Judge a template in conversations of some shapes, in each rendering or the first `most` of them."""
    began = time.process_time()
    result = Judged(entry.name, entry.digest, entry.repositories)
    try:
        family = family_of(entry)
    except FolderError as error:
        return attrs.evolve(result, error=str(error))
    names = undeclared(Sandbox(family.templates["default"].limits).parse(entry.text))
    seen: dict[tuple[str, ...], None] = {}
    found: list[Rendered] = []
    for label, arguments in islice(renderings(names), most):
        judge = Judge.of(family, arguments)
        texts = judge.texts()
        if texts not in seen:
            seen[texts] = None
            found += [judge.rendered(label, shapes)] if judge.located or not found else []
    return attrs.evolve(result, renderings=tuple(found), seconds=time.process_time() - began)


def renderings(names: frozenset[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the renderings of a template that reads these variables, the usual one first."""
    tools = (TOOL,) if "tools" in names else None
    label = "tools" if tools else "no tools"
    yield label, {"tools": tools}
    if tools:
        yield "no tools", {"tools": None}
    for name, values in SWITCHES.items():
        for value in values if name in names else ():
            yield f"{label}, {name}={value}", {"tools": tools, name: value}


@attrs.define
class Judge:
    """Judges one rendering; its profile grows as conversations come.

    Attributes:
        bound: The rendering.
        parts: Whether the template writes only lists of parts.
        write: Renders to text, in the form that the template takes.
        known: The oracle's answers, or the template's error, by shape.
        stops: What ends a turn.
    """

    bound: Bound
    parts: bool
    arguments: Mapping[str, Any]
    known: dict[str, tuple[Conversation, Found]]
    stops: Stops = attrs.field(default=Stops(None, frozenset()))
    kernel: Kernel | None = None
    error: str = ""

    @classmethod
    def of(cls, family: RememberingFamily, arguments: Mapping[str, Any]) -> Judge:
        """Ask the oracle about every conversation."""
        family = family.forgetful()
        parts = _takes_only_parts(family.tokenize_fn(**arguments))
        judge = cls(family.tokenize_fn(**arguments), parts, arguments, {})
        judge.ask_oracle()
        known = family.with_markers(judge.texts())
        if known is not family:
            judge.bound = known.tokenize_fn(**arguments)
        judge.stops = stops(judge.write, judge.located, known.markers() - {ODD})
        return judge

    @property
    def located(self) -> dict[str, tuple[Conversation, Truth]]:
        """The conversations in which the oracle sees the end of the turn."""
        known = self.known.items()
        return {shape: (one, found) for shape, (one, found) in known if isinstance(found, Truth)}

    @property
    def family(self) -> RememberingFamily:
        """The family of the rendering."""
        assert isinstance(self.bound.family, RememberingFamily)  # noqa: S101  # the only kind that is made here
        return self.bound.family

    def write(self, messages: Sequence[Any], *, speaking: bool = True) -> str:
        """Return the text of messages."""
        given = shown(messages) if self.parts else messages
        return self.bound.text(given, add_generation_prompt=speaking)

    def texts(self) -> tuple[str, ...]:
        """Return what tells one rendering from another: the text of every conversation."""
        return tuple(
            found.before + found.after if isinstance(found, Truth) else str(found)
            for _, found in self.known.values()
        )

    def ask_oracle(self) -> None:
        """Ask about each conversation, in the first spelling that the template takes and shows."""
        for place, shape in enumerate(SHAPES):
            self.known[shape] = self._first([conversations(one)[place] for one in SPELLINGS])

    def _first(self, spelled: Sequence[Conversation]) -> tuple[Conversation, Found]:
        """Return the first that the template writes whole, else what says most."""
        distinct = {repr(one.prompt()): one for one in reversed(spelled)}
        tried: list[tuple[Conversation, Found]] = []
        for one in reversed(distinct.values()):
            tried.append((one, self._truth(one)))
            if _worth(tried[-1][1]) == WHOLE:
                break
        return max(tried, key=lambda one: _worth(one[1]))

    def _truth(self, conversation: Conversation) -> Found:
        try:
            return truth(self.write, conversation)
        except TemplateRefused as refused:
            return refused

    def rendered(self, label: str, shapes: Sequence[str]) -> Rendered:
        """Judge the conversations of these shapes."""
        ends = ids_of(self.family, [*self.stops.all, ODD])
        try:
            self.kernel = Kernel(self.bound, Profile(suffix=suffix_ids(self.bound), stop_ids=ends))
        except (InputError, TemplateRefused) as error:
            self.error = f"no close: {_short(error)}"
        cells = tuple(self._cell(*self.known[shape]) for shape in shapes)
        return Rendered(label, cells, tuple(sorted(self.stops.all)), self._seams())

    def _seams(self) -> dict[str, str]:
        found = {}
        for shape in ("user", "system", "tool"):
            one = self.known[shape][1]
            if isinstance(one, Truth) and one.lost is None:
                found[shape] = one.after
        return found

    def _cell(self, conversation: Conversation, found: Found) -> Cell:
        shape = conversation.shape
        if isinstance(found, TemplateRefused):
            return Cell(shape, UNRENDERED, _short(found), tuple(self._beyond(conversation)))
        answers = tuple(self._answers(conversation, found))
        if isinstance(found, Unclear):
            return Cell(shape, UNCLEAR, found.why, answers)
        return Cell(shape, answers=answers, changed=changes(self.write, conversation, found))

    def _beyond(self, conversation: Conversation) -> Iterator[Answer]:
        """Yield what is answered although the template refuses the whole conversation."""
        try:
            self.write(conversation.history)
        except TemplateRefused:
            return
        for one in self._answers(conversation, Unclear("the template refuses the whole conversation")):
            if one.verdict == UNCLEAR:
                yield one

    def _answers(self, conversation: Conversation, found: Truth | Unclear) -> Iterator[Answer]:
        if self.kernel is None:
            lost = isinstance(found, Unclear) or found.lost is not None
            yield from (Answer(way, DROPPED if lost else REFUSED, self.error) for way in WAYS)
            return
        yield from self.kernel.answers(conversation, self._sampled(conversation, found))

    def _sampled(self, conversation: Conversation, found: Truth | Unclear) -> Sampled:
        """Return what the engine sampled, and the ids that should come out."""
        span = first_stop(found, self.stops.all) if isinstance(found, Truth) else None
        stop = self.stops.plain or ODD
        if isinstance(found, Truth):
            stop = ODD if span is None else found.after[slice(*span)]
        ended = {End.STOP: stop, End.ODD: ODD, End.CUT: None}[conversation.end]
        step = Step(
            prompt=conversation.history,
            completion=[conversation.turn],
            prompt_ids=self._prompt_ids(conversation),
            completion_ids=[*spelled(conversation.text), *ids_of(self.family, [ended] if ended else [])],
            truncated=conversation.end is End.CUT,
        )
        if isinstance(found, Unclear):
            return Sampled(step, unclear=found.why)
        if found.calls and span is None:
            return Sampled(step, found.lost, unclear="the template ends no call with a stop", unclosed=True)
        if conversation.end is End.STOP and span is not None:
            return Sampled(step, found.lost, (self.family.encode(found.after[span[1] :]),))
        tails = (
            self.family.encode(found.after[place:])
            for place in closes(conversation, found, span, self.stops.close)
        )
        return Sampled(step, found.lost, tuple(tails), unclosed=span is None)

    def _prompt_ids(self, conversation: Conversation) -> list[int]:
        try:
            return self.family.encode(self.write(conversation.history))
        except TemplateRefused:  # it takes the whole conversation, and not its beginning
            return spelled("?")


def _worth(found: Found) -> int:
    """Return how much the oracle's answer says."""
    if isinstance(found, Truth):
        return WHOLE if found.lost is None else WHOLE - 1
    return int(isinstance(found, Unclear))


def _takes_only_parts(bound: Bound) -> bool:
    """Return whether the template writes a turn's content as a list of parts and not as a text."""
    spoken = [QUESTION, {"role": "assistant", "content": SPOKEN}, QUESTION]
    for messages, parts in ((spoken, False), (shown(spoken), True)):
        try:
            if SPOKEN in bound.text(messages):
                return parts
        except TemplateRefused:
            continue
    return False


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

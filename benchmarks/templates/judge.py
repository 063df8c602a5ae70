"""Ask the kernel about each conversation of a template, in each rendering, and judge its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from benchmarks.templates.corpus import Entry
from benchmarks.templates.oracle import Stops, Truth, Unclear, changes, first_stop, shown, stops, truth
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
from tito_core import (
    Bridge,
    Extension,
    InputError,
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    answer,
    locate,
    stitch_questions,
    suffix_ids,
)
from tito_core.seams.case import case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Profile
from tito_io.embedded.vocabulary import vocabulary
from tito_io.families.family import Bound
from tito_io.families.folder import FolderError
from tito_io.families.sandbox import Sandbox

EXACT, REFUSED, DROPPED, WRONG = "exact", "refused", "dropped", "wrong"
UNRENDERED, UNCLEAR = "unrendered", "unclear"
UNCLOSED = "ODD_STOP: the template ends no turn with a stop; exact where the policy keeps the sampled one"
WAYS = ("stitch", "profile", "bridge", "bridge: turn", "bridge: history")
"""Ways to ask: `stitch` without and with a profile; `Bridge` with ids, with the turn, with the history."""
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


@attrs.frozen
class Answer:
    """One answer of the kernel, judged.

    Attributes:
        way: How it was asked; one of `WAYS`.
        verdict: `EXACT`, `REFUSED`, `WRONG`; `DROPPED` where it is refused and the template drops a new
            message, `UNCLEAR` where the oracle cannot judge it.
        reason: Why it was refused, or what is wrong.
    """

    way: str
    verdict: str
    reason: str = ""


@attrs.frozen
class Cell:
    """One conversation in one rendering.

    Attributes:
        shape: The conversation's name.
        verdict: `UNRENDERED` where the template refuses the conversation, else empty.
        reason: The template's error, or what the oracle could not see.
        answers: The kernel's answers.
        changed: What a re-render leaves out of the turn, and of the prompt that it was sampled after.
    """

    shape: str
    verdict: str = ""
    reason: str = ""
    answers: tuple[Answer, ...] = ()
    changed: tuple[str, ...] = ()


@attrs.frozen
class Rendered:
    """One rendering of a template.

    Attributes:
        label: Tools and arguments.
        cells: One for each shape.
        stops: The stops that it shows.
        seams: What follows a plain turn and a call: close, opener, generation prompt; by role.
    """

    label: str
    cells: tuple[Cell, ...]
    stops: tuple[str, ...] = ()
    seams: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class Judged:
    """All of a template.

    Attributes:
        name: Its name.
        digest: The hash of its text.
        repositories: The repositories that have it.
        renderings: Its renderings that differ.
        error: Why it cannot be loaded.
        seconds: Processor time.
    """

    name: str
    digest: str
    repositories: tuple[str, ...]
    renderings: tuple[Rendered, ...] = ()
    error: str = ""
    seconds: float = 0.0


def judged(entry: Entry) -> Judged:
    """Judge a template."""
    began = time.process_time()
    result = Judged(entry.name, entry.digest, entry.repositories)
    try:
        family = family_of(entry)
    except FolderError as error:
        return attrs.evolve(result, error=str(error))
    names = undeclared(Sandbox(family.templates["default"].limits).parse(entry.text))
    seen: dict[tuple[str, ...], None] = {}
    found: list[Rendered] = []
    for label, arguments in renderings(names):
        judge = Judge.of(family, arguments)
        texts = judge.texts()
        if texts not in seen:
            seen[texts] = None
            found += [judge.rendered(label)] if judge.located or not found else []
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
    profile: Profile | None = None
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

    def rendered(self, label: str) -> Rendered:
        """Judge every conversation."""
        try:
            suffix: tuple[int, ...] | str = suffix_ids(self.bound)
        except (InputError, TemplateRefused) as error:
            suffix = f"no close: {_short(error)}"
        if isinstance(suffix, tuple):
            ends = ids_of(self.family, [*self.stops.all, ODD])
            self.profile = Profile(suffix=suffix, stop_ids=ends)
        else:
            self.error = suffix
        cells = tuple(self._cell(*self.known[shape]) for shape in SHAPES)
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
            if one.verdict != REFUSED:
                yield one

    def _answers(self, conversation: Conversation, found: Truth | Unclear) -> Iterator[Answer]:
        if self.profile is None:
            yield from (Answer(way, REFUSED, self.error) for way in WAYS)
            return
        sampled = self._sampled(conversation, found)
        for way, ask in self._asks(sampled, conversation, self.profile):
            yield _verdict(way, ask, conversation, sampled)

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
            return Sampled(step, lost=found.lost, unclear="no stop ends the turn with calls")
        if conversation.end is End.STOP and span is not None:
            return Sampled(step, found.lost, (self.family.encode(found.after[span[1] :]),))
        tails = (self.family.encode(found.after[place:]) for place in closes(conversation, found, span))
        return Sampled(step, found.lost, tuple(tails), unclosed=span is None)

    def _prompt_ids(self, conversation: Conversation) -> list[int]:
        try:
            return self.family.encode(self.write(conversation.history))
        except TemplateRefused:  # it takes the whole conversation, and not its beginning
            return spelled("?")

    def _asks(
        self, sampled: Sampled, conversation: Conversation, profile: Profile
    ) -> Iterator[tuple[str, Any]]:
        step, prompt = sampled.step, conversation.prompt()
        learnt = self._learnt(step, prompt, profile)

        def stitched(one: Profile | None, policy: Policy) -> Stitched | Refusal:
            asking = stitch_questions([step], prompt, profile.suffix, profile=one, policy=policy)
            return answer(asking, self.bound)

        def extended(known: Any, policy: Policy) -> Extension | Refusal:
            bridge = Bridge(self.bound, profile.stop_ids, suffix=profile.suffix, spans=False, policy=policy)
            return bridge.extend(step.ids.tolist(), conversation.environment, **known)

        turn = {"turn": conversation.turn}
        yield WAYS[0], partial(stitched, None)
        yield WAYS[1], partial(stitched, learnt)
        yield WAYS[2], partial(extended, {})
        yield WAYS[3], partial(extended, turn)
        yield WAYS[4], partial(extended, {**turn, "history": conversation.history})

    def _learnt(self, step: Step, prompt: Sequence[Any], profile: Profile) -> Profile:
        """Return the profile with this conversation's case certified."""
        located = locate([step], prompt)
        named = None if isinstance(located, Refusal) else case_of(located.turn, located.environment)
        if named is None or profile.case(*named):
            return profile
        found = answer(certify_questions(*named, profile.suffix, profile.stop_ids), self.bound)
        self.profile = profile.then(found)
        return self.profile


@attrs.frozen
class Sampled:
    """A sampled turn, and what is right after it.

    Attributes:
        step: The step.
        lost: The role of a new message that the template drops; None if it drops none.
        tails: The ids that should follow the step's, any of them; none where that is unclear.
        unclear: Why it is unclear.
        unclosed: Whether no stop ends the turn in what the template writes.
    """

    step: Step
    lost: str | None = None
    tails: tuple[list[int], ...] = ()
    unclear: str = ""
    unclosed: bool = False

    def right(self, policy: Policy) -> list[list[int]]:
        """Return the ids that the next prompt may have; none where they are unclear."""
        ids = self.step.ids.tolist()
        kept = ids[:-1] if policy.odd_stop is OddStop.REPLACE else ids
        return [[*kept, *tail] for tail in self.tails]


def _verdict(way: str, ask: Callable[[Policy], Any], conversation: Conversation, sampled: Sampled) -> Answer:
    """Ask, and judge the answer."""
    policy = Policy(odd_stop=conversation.odd_stop)
    try:
        found = ask(policy)
    except Exception as error:  # noqa: BLE001  # whatever is raised, the kernel should have refused
        return Answer(way, WRONG, f"raised {type(error).__name__}: {_short(error)}")
    odd = isinstance(found, Refusal) and found.reason is Reason.ODD_STOP
    strict = conversation.odd_stop is OddStop.REFUSE
    if strict and conversation.end is End.ODD:
        return Answer(way, *((EXACT, "") if odd else _compared(found, sampled, [], "an odd stop")))
    if strict and conversation.end is End.STOP and sampled.unclosed:
        policy = Policy(odd_stop=OddStop.KEEP)
        verdict, reason = _compared(ask(policy), sampled, sampled.right(policy), "")
        if odd and verdict == EXACT:
            return Answer(way, REFUSED, UNCLOSED)
        return Answer(way, verdict, reason)
    return Answer(way, *_compared(found, sampled, sampled.right(policy), ""))


def _compared(found: Any, sampled: Sampled, right: list[list[int]], never: str) -> tuple[str, str]:
    """Return the verdict on an answer, and its reason. `never` is what must be refused."""
    if isinstance(found, Refusal):
        if sampled.lost is not None:
            return DROPPED, f"the template drops a new {sampled.lost} message"
        return REFUSED, f"{found.reason.name}: {found.detail}"
    if sampled.lost is not None:
        return WRONG, f"answered, and the template drops a new {sampled.lost} message"
    if never:
        return WRONG, f"answered after {never}"
    if not right:
        return UNCLEAR, f"answered: {sampled.unclear}"
    return (EXACT, "") if found.ids.tolist() in right else (WRONG, "other ids")


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


def closes(conversation: Conversation, found: Truth, span: tuple[int, int] | None) -> tuple[int, ...]:
    """Return where the close of a turn may begin that was cut, or that ended with an odd stop.

    After a plain turn that is right after its words. A call that was cut may be closed at the stop, or at the
    white space before it: which of that is the call's cannot be seen.
    """
    if span is None or not (conversation.calls and found.calls):
        return (0,)
    return span[0], len(found.after[: span[0]].rstrip())


def spelled(text: str) -> list[int]:
    """Return ids that spell a text byte by byte, as a model may sample it and no tokenizer writes it."""
    known = vocabulary()
    return [byte for index in known.spell_out(text) for byte in known.bytes_of(index)]


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

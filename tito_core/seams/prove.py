"""Prove what the template writes between a sampled turn and the place where the model speaks next.

The kernel asks in short stand-in conversations and believes an answer only with proof. The turn's text is
located by difference; an unlike conversation, and one akin to the real history, must give the same tail; no
new message may vanish. What differs between them is refused. What depends on anything else in the history,
such as the number of its messages, cannot be known at this price (see docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from operator import attrgetter
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import MediaRange
from ..message import Message, texts_in
from ..normalization.clean import lengthened, says
from ..questions import Questions, Rendered, ask, ask_rendered, bounded, if_taken, in_parts, relayed
from ..refusal import Reason, Refusal
from .close import (
    Cut,
    cut_questions,
    first_stop,
    following_questions,
    sampled_close_questions,
    whole_close_questions,
)
from .experiments import Experiment, experiments
from .history import STYLES, Context
from .seam import SHORT, Seam, Unlocated, after, common_prefix, grown, seam_questions
from .suffix import takes_parts_questions, takes_texts_questions
from .turn import Environment, LocatedTurn, SampledTurn
from .turn_form import TurnForm, calls_of, forms

RETRIED = (Reason.TEMPLATE_REFUSED, Reason.SWALLOWED)
"""Refusals that texts as lists of one part may overcome."""
MOST_WAYS = 9
"""Ways to write the turn that are tried."""
MOST, MOST_UNKNOWN = 16, 64
"""Questions about a turn without a profile, whose history is known or not."""
TOO_MANY = Refusal(Reason.UNPROVEN_TAIL, "the template would have to be asked too often: give a profile")
UNLOCATED = Refusal(Reason.UNPROVEN_TAIL, "the template loses, repeats or merges the turn's text")


@attrs.frozen(kw_only=True)
class Proof:
    """A proven tail.

    Attributes:
        located: The way in which it was asked.
        cut: Where in the seam's tail the turn's own text is over.
        generation_prompt: How many ids at the end are the generation prompt.
        parts: Whether every text is asked as a list of one part.
        media: Where the media of the new messages stand in `ids`.
    """

    located: LocatedTurn
    cut: Cut
    generation_prompt: int
    parts: bool = False
    media: tuple[MediaRange, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """The close, the environment and the generation prompt."""
        return self.located.seam.tail[self.cut.place :]

    def tail_of_questions(self, environment: Environment) -> Questions[tuple[int, ...]]:
        """Ask for the tail with other new messages; empty where what stands before it differs."""
        located = self.located
        ids = yield from ask(located.messages(environment), since=located.since)
        before = located.seam.ids[: located.seam.place + self.cut.place]
        return ids[len(before) :] if ids[: len(before)] == before else ()

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether another render ends with these ids, and with what stands before them: text and call.

        Where a template writes something between the turn and the next message in some histories only, its
        last id may be that of a text or of a call, too.
        """
        return self.located.seam.ends(ids)


def prove_questions(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`, with texts as they are, or as lists of one part.

    Each form takes at most `MOST` questions, `MOST_UNKNOWN` where the history is unknown, for each turn that
    it may be. They are as long as what is new.
    """
    proof = yield from _bounded(turn, environment)
    if not isinstance(proof, Refusal) or (proof.reason not in RETRIED and proof != UNLOCATED):
        return proof
    # SmolVLM and Nemotron-Parse write nothing of a content that is a string.
    in_texts = yield from takes_texts_questions()
    if in_texts or not (yield from takes_parts_questions()):
        return proof
    found = yield from relayed(_bounded(turn, environment), in_parts)
    return attrs.evolve(found, parts=True) if isinstance(found, Proof) else proof


def _bounded(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    most = (MOST if turn.history_known else MOST_UNKNOWN) * (1 + len(turn.others))
    return (yield from bounded(_proved(turn, environment), most, TOO_MANY))


def _proved(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    shown = yield from show_questions(turn, environment, turn.likely)
    if isinstance(shown, Refusal):
        return shown
    failed = yield from disagreement_questions(turn, shown)
    return failed or (yield from with_sampled_close(turn, shown))


def with_sampled_close(turn: SampledTurn, proof: Proof) -> Questions[Proof | Refusal]:
    """Return the proof with how much of its close a turn sampled that ends inside of it, or before it."""
    if not turn.end:
        return proof
    cut = yield from sampled_close_questions(turn, proof.located, proof.cut)
    if isinstance(cut, Refusal):
        return cut
    if not cut.sampled and turn.stop not in turn.stops:
        cut = yield from whole_close_questions(turn, proof.located, cut)
    return proof if cut is proof.cut else attrs.evolve(proof, cut=cut)


def whole_history_questions(
    turn: SampledTurn, environment: Environment, turn_forms: Sequence[TurnForm] | None = None
) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn` in the real history: O(history) to render, and O(new) to tokenize.

    For templates that are known to remember what messages say, such as how many results failed. `turn_forms`
    are those of `show_questions`.
    """
    since = None if says((*turn.past, *environment), SHORT) else SHORT
    shown = yield from show_questions(turn, environment, (turn.past,), turn_forms, since)
    if isinstance(shown, Refusal):
        return shown
    lost = yield from dropped_questions(shown.located)
    if lost is not None:
        return lost
    failed = yield from _depends_on_content(turn, shown)
    if failed is None and not shown.ends((yield from ask(shown.located.unlike(turn.past), since=since))):
        failed = "the turn has other words"
    if failed is not None:
        return Refusal(Reason.UNPROVEN_TAIL, f"the tail differs where {failed}")
    return (yield from with_sampled_close(turn, shown))


def show_questions(
    turn: SampledTurn,
    environment: Environment,
    histories: Sequence[Context],
    turn_forms: Sequence[TurnForm] | None = None,
    since: str | None = None,
) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn` in the first of `histories` that works; others may give another tail.

    `turn_forms` are the ways to write the turn. The first in which its text can be located counts. `since` is
    that of a `Question`.
    """
    located = yield from _locate(environment, histories, turn_forms or forms(turn.message), since)
    if isinstance(located, Refusal):
        return located
    cut = yield from cut_questions(turn, located)
    if isinstance(cut, Refusal):
        return cut
    prompt = yield from _generation_prompt(located)
    return Proof(located=located, cut=cut, generation_prompt=min(prompt, len(located.seam.tail) - cut.place))


def _locate(
    environment: Environment, histories: Sequence[Context], turn_forms: Sequence[TurnForm], since: str | None
) -> Questions[LocatedTurn | Refusal]:
    """Return the first way to write the turn in which its text can be located.

    The turn's calls are written as those of the history first: few templates take both objects and texts.
    Where a text is not written at all, it is not in the other way either.
    """
    refusal = Refusal(Reason.TEMPLATE_REFUSED)
    unwritten: set[int | None] = set()
    pairs = sorted(product(turn_forms, histories), key=_written_otherwise)
    for form, context in pairs[:MOST_WAYS]:
        if form.place in unwritten:
            continue
        try:
            seam = yield from seam_questions(form.within(context, environment), since=since)
        except TemplateRefused as refused:
            found = Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
        else:
            if isinstance(seam, Seam):
                return LocatedTurn(
                    context=context, form=form, environment=environment, seam=seam, since=since
                )
            found = UNLOCATED
            unwritten |= {form.place} if seam is Unlocated.UNWRITTEN else set()
        # A form that rendered says more than one that the template rejected.
        refusal = found if refusal.reason is Reason.TEMPLATE_REFUSED else refusal
    return refusal


def _written_otherwise(pair: tuple[TurnForm, Context]) -> bool:
    """Return whether the calls of a history have their arguments in another way than those of the turn."""
    form, context = pair
    calls = [call for message in context for call in calls_of(message)]
    return any(isinstance(call["function"]["arguments"], dict) != form.as_object for call in calls)


def disagreement_questions(
    turn: SampledTurn, proof: Proof, more: Sequence[Experiment] = (), taken: Taken | None = None
) -> Questions[Refusal | None]:
    """Return why the tail is not shown to be the same elsewhere, with every new message in it; None if it is.

    The first experiment is asked with longer messages, which shows both at once where ids do not merge.
    `more` are further experiments. `taken` learns what the template takes.
    """
    taken, alike = taken or Taken(), without_calls(proof.located.environment)
    rows = [*experiments(turn, proof.located.environment), *more]
    grows = bool(alike) and (yield from _grows(proof, rows[0].histories, taken))
    taken.shown = grows
    lost = yield from dropped_questions(proof.located, alike if grows else ())
    if lost is not None:
        return lost
    failed = yield from _depends_on_content(turn, proof)
    if failed is not None:
        return Refusal(Reason.UNPROVEN_TAIL, f"the tail differs where {failed}")
    # gpt-oss and Kimi-K2 write of a call what its result does not say.
    for message in (None, *turn.others):
        failed = yield from _differs(proof, rows[taken.shown and message is None :], taken, message)
        if failed is not None:
            return Refusal(Reason.UNPROVEN_TAIL, failed)
    return None


def _depends_on_content(turn: SampledTurn, proof: Proof) -> Questions[str | None]:
    """Return in which respect another content, or none, gives another tail; None if it does not.

    A call's null content may be an empty one to an engine. A turn that says nothing may be left out, or
    closed in another way, as in Inkling's template: then the stand-in text shows nothing.
    """
    located, form = proof.located, proof.located.form
    # vLLM and SGLang give the template an empty text where a client sends none.
    if calls_of(form.turn) and form.place is not None:
        *_, other = located.ways(located.context)
        ids = () if form.turn.get("content") is not None else (yield from _taken(located, other))
        return "a call has an empty content in place of none" if ids and not proof.ends(ids) else None
    # An unknown turn may say nothing, too: that is not asked about.
    if any(text.strip() for text in texts_in(form.turn)) or form.turn is not turn.message or turn.others:
        return None
    tail = proof.ids[first_stop(turn, proof.ids[: proof.cut.closed]) :]
    silent = yield from _taken(located, (*located.context, form.silent(), *located.environment))
    without = yield from _taken(located, (*located.context, *located.environment))
    return None if silent[-len(tail) :] == tail and silent != without else "the turn says nothing"


def _taken(located: LocatedTurn, messages: Sequence[Message]) -> Questions[tuple[int, ...]]:
    """Return a render; nothing where the template rejects the messages."""
    return (yield from if_taken(ask(messages, since=located.since), ()))


@attrs.define
class Taken:
    """The facts learned from a template during a proof.

    Attributes:
        first: The style to begin with; then that which was taken first.
        shown: Whether a history was taken that gave the tail.
        count: How many histories were taken.
        last: The one that was taken last.
        order: Positions of styles, that which was taken last before the others.
    """

    first: int = 0
    shown: bool = False
    count: int = 0
    last: Context = ()
    order: list[int] = attrs.field(init=False)

    @order.default
    def _from_first(self) -> list[int]:
        return [*range(self.first, len(STYLES)), *range(self.first)]

    def ordered(self, histories: Sequence[Context | None]) -> Iterator[tuple[int, Context]]:
        """Yield the histories that there are, those in a style that was taken before the others."""
        places = range(0, len(histories), len(STYLES))
        ordered = (place + number for place in places for number in tuple(self.order))
        found = ((number, histories[number]) for number in ordered if number < len(histories))
        return ((number % len(STYLES), history) for number, history in found if history is not None)

    def take(self, number: int, history: Context) -> None:
        """Try this style before the others from now on."""
        self.first = self.first if self.count else number
        self.shown, self.count, self.last = True, self.count + 1, history
        self.order.remove(number)
        self.order.insert(0, number)


def _differs(
    proof: Proof, rows: Sequence[Experiment], taken: Taken, message: dict[str, Any] | None
) -> Questions[str | None]:
    """Return in which experiment another tail was found, or none; None if they all have it.

    Another turn may have another rest of its call, the same in all histories. A turn that the template takes
    in none of them, while it takes another, cannot be the real one.
    """
    seam, place = proof.located.seam, proof.cut.place
    rests: set[tuple[int, ...] | None] = {seam.tail[:place]} if message is None else set()
    shown = taken.shown and message is None
    for name, group in groupby(rows, attrgetter("name")):
        found = set[tuple[int, ...] | None]()
        needed = False
        for row in group:
            rendered = yield from first_taken(proof.located, row.histories, message, taken=taken)
            found |= set() if rendered is None else {seam.rest(rendered.ids, place)}
            needed |= row.needed
        rests |= found
        shown |= bool(found)
        if None in rests or len(rests) > 1:
            return f"the tail differs where {name}"
        if needed and not found and message is None:
            return f"the template takes no history where {name}"
    return None if shown or message is not None else "the template takes no other history"


def _grows(proof: Proof, histories: Sequence[Context | None], taken: Taken) -> Questions[bool]:
    """Return whether an unlike history gives the same tail, and in it more of each longer message, once."""
    located, alike = proof.located, without_calls(proof.located.environment)
    longer = attrs.evolve(located, environment=twice_longer(located.environment, alike))
    found = yield from first_taken(longer, histories, taken=taken)
    rest = None if found is None else after(located.seam.text, found.ids)
    return rest is not None and grown(located.seam.tail, rest, len(alike))


def without_calls(environment: Environment) -> list[int]:
    """Return the positions of messages that are lengthened in the same words: those without calls."""
    return [place for place, message in enumerate(environment) if not calls_of(message)]


def twice_longer(environment: Environment, positions: Sequence[int]) -> Environment:
    """Return longer messages: twice, so that what stands beside the words is not taken for one of them."""
    for _ in range(2):
        environment = lengthened(environment, positions, graded=True)
    return environment


def first_taken(
    located: LocatedTurn,
    histories: Sequence[Context | None],
    message: dict[str, Any] | None = None,
    *,
    taken: Taken | None = None,
    ids: bool = True,
) -> Questions[Rendered | None]:
    """Render with other words, or as another turn, in the first of `histories` that the template takes.

    `ids` is whether they are needed beside a text.
    """
    taken = taken or Taken()
    for number, context in taken.ordered(histories):
        for asked in located.ways(context, message):
            found = yield from if_taken(ask_rendered(asked, since=located.since, ids=ids), None)
            if found is not None:
                taken.take(number, context)
                return found
    return None


def dropped_questions(located: LocatedTurn, known: Sequence[int] = ()) -> Questions[Refusal | None]:
    """Refuse unless every new message is written once after the turn; of those at `known` places it is known.

    A template may drop one, write it twice, or collect such texts in front of the conversation. All are
    lengthened at once, each by another number of words; then one by one, where ids merged at the end of one.
    """
    environment, tail = located.environment, located.seam.tail
    left = [place for place in range(len(environment)) if place not in known]
    alike = [place for place in left if not calls_of(environment[place])]
    # DeepSeek-V3 joins all system texts in front of the conversation.
    if len(alike) > 1:
        longer = yield from _after(located, twice_longer(environment, alike))
        if longer is not None and grown(tail, longer, len(alike)):
            left = [place for place in left if place not in alike]
    for place in left:
        longer = yield from _after(located, twice_longer(environment, (place,)))
        if longer is not None and not grown(tail, longer, 1):
            lost = yield from _misplaced(located, longer, place)
            if lost is not None:
                return lost
    return None


def _after(located: LocatedTurn, environment: Environment) -> Questions[tuple[int, ...] | None]:
    """Return what other messages add after the turn's text; nothing where what stands before it differs.

    It is None if the template rejects them.
    """
    ids = yield from if_taken(ask(located.messages(environment), since=located.since), None)
    place = located.seam.place
    return ids and (ids[place:] if ids[:place] == located.seam.ids[:place] else ())


def _misplaced(located: LocatedTurn, longer: tuple[int, ...], place: int) -> Questions[Refusal | None]:
    """Return why a message is not shown to be written once; `longer` is the tail with more text in it."""
    message, tail = located.environment[place], located.seam.tail
    role, content = message["role"], message.get("content")
    if longer and longer != tail:
        # A call that says nothing has a longer name, which may stand beside its result, too.
        once = _is_one_id(tail, longer) or (calls_of(message) and not content)
        twice = f"a new {role} message is not written once after the turn"
        return None if once else Refusal(Reason.UNPROVEN_TAIL, twice)
    # Tools that found nothing answer with an empty list, as MCP's do. A message that has no text to lose must
    # be written after the turn: an empty system text may be moved to the front.
    others = following_questions(located, (*located.environment[:place], *located.environment[place + 1 :]))
    if not content and not calls_of(message) and (yield from if_taken(others, None)) != tail:
        return None
    if content and texts_in(message) == []:
        form = f"the content of a {role} message is of type {type(content).__name__}, and has no texts"
        return Refusal(Reason.UNPROVEN_TAIL, form)
    return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")


def _is_one_id(tail: tuple[int, ...], longer: tuple[int, ...]) -> bool:
    """Return whether a longer text changes one id of the tail at most: that may be another beside it."""
    start = common_prefix(longer, tail)
    return len(tail) - start - common_prefix(longer[start:][::-1], tail[start:][::-1]) <= 1


def _generation_prompt(located: LocatedTurn) -> Questions[int]:
    """Return how many ids of the tail appear only because the model is to speak next."""
    messages = located.messages(located.environment)
    asking = ask(messages, add_generation_prompt=False, since=located.since)
    # DeepSeek-V3 writes no generation prompt after a result.
    shared = common_prefix(located.seam.ids, (yield from if_taken(asking, ())))
    return len(located.seam.ids) - shared if shared > located.seam.place else 0

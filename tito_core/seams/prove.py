"""What the template writes between a sampled turn and the place where the model speaks next.

It is asked for in short dummy conversations and believed only where it is proven: the turn's content is
located by difference, an unlike conversation and one akin to the real must give the same tail, and no
message may vanish.
What depends on the history beyond that cannot be known at this price, and is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..message import Message
from ..normalization.clean import clean, lengthened, readings
from ..questions import Questions, ask
from ..refusal import Reason, Refusal
from .seam import LONGER, OTHER, SHORT, Seam, after, common_prefix, find_seam
from .stand_in import CALL_ID, WORDS, Context, TurnForm, akin_histories, calls_of, contexts, forms

Environment = tuple[dict[str, Any], ...]
RETRIED = (Reason.TEMPLATE_REFUSED, Reason.SWALLOWED)
"""Refusals that another reading of the same environment may overcome."""
HISTORY = "the tail depends on the history before it"
UNLOCATED = Refusal(Reason.UNPROVEN_TAIL, "the template loses, repeats or merges the turn's text")


@attrs.frozen
class SampledTurn:
    """The sampled turn that a bridge follows."""

    message: dict[str, Any]
    """As the prompt restates it."""
    after: str
    """The role of the message before it."""
    history: Environment
    """What a template may read in the real history: its opening system messages, and the last user's."""
    stop: int | None
    """The id that it ended with; None where it was cut."""
    suffix: tuple[int, ...] = ()
    """The template's turn close."""
    prompt: Sequence[Message] = ()
    """The whole conversation."""
    place: int = 0
    """Where the turn stands in it."""

    @property
    def past(self) -> tuple[Message, ...]:
        """Every message before the turn, read only where the tail is known to depend on them."""
        return clean(self.prompt[: self.place])


@attrs.frozen
class LocatedTurn:
    """A way to ask in which the turn's text can be located."""

    context: Context
    form: TurnForm
    environment: Environment
    seam: Seam

    def messages(self, environment: Environment, text: str = SHORT) -> Environment:
        """Return the conversation to render, with another environment or text."""
        return (*self.context, self.form.write(text), *environment)

    def unlike(self, context: Context) -> Environment:
        """Return the conversation with another history, and other words wherever they should not matter."""
        return (*context, self.form.write(SHORT, WORDS[1]), *self.environment)


@attrs.frozen
class Proof:
    """A tail that can be believed."""

    found: LocatedTurn
    cut: int
    """Where in the tail the turn's own text is over and its close begins."""
    close: tuple[int, ...]
    """What it was known by: the suffix, or the stop; empty where nothing but the text stands before it."""
    generation_prompt: int
    """How many ids, at the end, are the generation prompt."""

    @property
    def bridge(self) -> tuple[int, ...]:
        """The close, the environment and the generation prompt."""
        return self.found.seam.tail[self.cut :]

    def ends(self, ids: Sequence[int]) -> bool:
        """Tell whether another render ends with the bridge, and the id before it."""
        return self.found.seam.ends(ids, self.cut)


def prove_questions(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`, in a bounded number of questions, each as long as what is new."""
    refusal = Refusal(Reason.UNPROVEN_TAIL, "results answer several calls of earlier turns")
    if len(_orphans(turn, environment)) > 1:
        return refusal
    for reading in readings(environment):
        proof = yield from _proving(turn, reading)
        if isinstance(proof, Proof):
            return proof
        refusal = proof
        if refusal.reason not in RETRIED:
            break
    return refusal


def _proving(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    proof = yield from show_questions(turn, environment, contexts(turn.after).likely)
    if isinstance(proof, Refusal) or (yield from _agrees(turn, proof)):
        return proof
    return Refusal(Reason.UNPROVEN_TAIL, HISTORY)


def show_questions(
    turn: SampledTurn,
    environment: Environment,
    histories: Sequence[Context],
    shapes: Sequence[TurnForm] | None = None,
) -> Questions[Proof | Refusal]:
    """Show the tail after `turn` in the first of some histories; it may be another after other ones.

    `shapes` are the ways to write the turn; the first in which its text can be located counts.
    """
    found = yield from _locate(environment, histories, shapes or forms(turn.message))
    return (yield from _shown(turn, found)) if isinstance(found, LocatedTurn) else found


def _locate(
    environment: Environment, histories: Sequence[Context], shapes: Sequence[TurnForm]
) -> Questions[LocatedTurn | Refusal]:
    """Find the first way to write the turn in which its text can be located."""
    seen = Refusal(Reason.TEMPLATE_REFUSED)
    for context in histories:
        for form in shapes:
            seam = yield from _seam(context, form, environment)
            if isinstance(seam, Seam):
                return LocatedTurn(context, form, environment, seam)
            seen = seam if seen.reason is Reason.TEMPLATE_REFUSED else seen
    return seen


def _shown(turn: SampledTurn, found: LocatedTurn) -> Questions[Proof | Refusal]:
    """Return the proof if everything about it can be shown."""
    cut = yield from _cut(turn, found)
    if isinstance(cut, Refusal):
        return cut
    lost = yield from _swallowed(found)
    if lost is not None:
        role = found.environment[lost]["role"]
        return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")
    prompt = yield from _generation_prompt(found)
    tail = found.seam.tail[cut:]
    return Proof(found, cut, _close(turn, tail), min(prompt, len(tail)))


def _close(turn: SampledTurn, tail: tuple[int, ...]) -> tuple[int, ...]:
    """Return what begins a tail: the whole suffix, or the stop."""
    if tail[: len(turn.suffix)] == turn.suffix:
        return turn.suffix or tail[: int(tail[:1] == (turn.stop,))]
    return tail[:1]


def _seam(context: Context, form: TurnForm, environment: Environment) -> Questions[Seam | Refusal]:
    try:
        short = yield from ask((*context, form.write(SHORT), *environment))
        longer = yield from ask((*context, form.write(LONGER), *environment))
    except TemplateRefused as refused:
        return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
    return find_seam(short, longer) or UNLOCATED


def _agrees(turn: SampledTurn, proof: Proof) -> Questions[bool]:
    """Tell whether an unlike history gives the same tail, and one that begins and asks as the real one."""
    call_id = next(iter(_orphans(turn, proof.found.environment)), CALL_ID)
    unlike = yield from _first_taken(proof.found, contexts(turn.after, call_id).unlike)
    if unlike is None or not proof.ends(unlike):
        return False
    akin = yield from _first_taken(proof.found, akin_histories(turn.after, turn.history))
    return akin is not None and proof.ends(akin)


def _first_taken(found: LocatedTurn, histories: Iterable[Context]) -> Questions[tuple[int, ...] | None]:
    """Render with other words in the first of some histories that the template takes."""
    for context in histories:
        try:
            return (yield from ask(found.unlike(context)))
        except TemplateRefused:
            continue
    return None


def _swallowed(found: LocatedTurn) -> Questions[int | None]:
    """Return the position of a new message whose text leaves no trace after the turn.

    A template may drop it, or collect such texts in front of the conversation. All are lengthened at once;
    where that adds more ids than it should, or fewer, each is tried.
    """
    count = len(found.environment)
    added = yield from _added(found, range(count))
    one = added
    if count > 1:
        one = yield from _added(found, range(1))
    if one and added == one * count:
        return None
    for position in range(count):
        if (yield from _added(found, (position,))) == 0:
            return position
    return None


def _added(found: LocatedTurn, positions: Iterable[int]) -> Questions[int | None]:
    """Return how many ids come after the turn with more text in some messages.

    None where the template rejects that.
    """
    try:
        ids = yield from ask(found.messages(lengthened(found.environment, positions)))
    except TemplateRefused:
        return None
    elsewhere = common_prefix(ids, found.seam.ids) < found.seam.place
    return 0 if elsewhere or ids == found.seam.ids else len(ids) - len(found.seam.ids)


def _generation_prompt(found: LocatedTurn) -> Questions[int]:
    """Return how many ids of the tail appear only because the model is to speak next."""
    try:
        ids = yield from ask(found.messages(found.environment), add_generation_prompt=False)
    except TemplateRefused:
        return 0
    shared = common_prefix(found.seam.ids, ids)
    return len(found.seam.ids) - shared if shared > found.seam.place else 0


def _cut(turn: SampledTurn, found: LocatedTurn) -> Questions[int | Refusal]:
    """Return where in the tail the turn's own text is over and its close begins."""
    tail, size = found.seam.tail, len(turn.suffix)
    if not calls_of(turn.message):
        begins = tail[:size] == turn.suffix or tail[:1] == (turn.stop,)
        return 0 if begins else _mismatch()
    call = yield from _call_close(found)
    if call is None:
        return Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call's turn cannot be shown")
    closed, stopped = _suffixes(tail, turn, call), _stops(tail, turn, call)
    places = {*closed, *stopped} - {i + j for i in closed for j in range(1, size)}
    if len(places) == 1:
        return places.pop()
    if not places and turn.stop is not None:
        return Refusal(Reason.ODD_STOP, f"the turn ended with {turn.stop}, which closes no tool call here")
    return Refusal(Reason.UNPROVEN_TAIL, f"{len(places)} places where the tool call's turn may end")


def _orphans(turn: SampledTurn, environment: Environment) -> set[str]:
    """Return the ids that results answer and that neither the turn nor a later message called."""
    called = [call.get("id") for message in (turn.message, *environment) for call in calls_of(message)]
    answered = [message.get("tool_call_id") for message in environment]
    return {name for name in answered if isinstance(name, str) and name not in called}


def _mismatch() -> Refusal:
    return Refusal(Reason.CLOSE_MISMATCH, "the template writes something else than the suffix after the turn")


def _suffixes(tail: tuple[int, ...], turn: SampledTurn, call: CallClose) -> list[int]:
    """Return where the suffix stands in what is always written, or right after it."""
    size = len(turn.suffix)
    places = [*range(call.shared - size + 1), *([call.end] if call.end == call.shared else [])]
    return [i for i in places if size and tail[i : i + size] == turn.suffix]


def _stops(tail: tuple[int, ...], turn: SampledTurn, call: CallClose) -> list[int]:
    """Return where the id that the turn stopped with closes the call, or opens what follows.

    It closes where it is the last id before anything follows, and stands there once; it opens where nothing
    is left of the call. Elsewhere it belongs to the call itself, and the turn broke off in the middle.
    """
    end = max(call.end, 0)
    if turn.suffix and tail[end : end + len(turn.suffix)] == turn.suffix:
        return []
    if tail[max(end - 1, 0) : end] == (turn.stop,) and tail[:end].count(turn.stop) == 1:
        return [end - 1]
    return [end] if call.shared == call.end and tail[end : end + 1] == (turn.stop,) else []


@attrs.frozen
class CallClose:
    """What the template writes after the text of a tool call."""

    shared: int
    """How many ids of the tail stand there whatever follows."""
    end: int
    """How many of them stand there before anything follows: the rest of the call, and its close."""


def _call_close(found: LocatedTurn) -> Questions[CallClose | None]:
    """Render the call with nothing after it, once with the generation prompt and once without."""
    try:
        other = yield from ask(found.messages(found.environment, OTHER))
        speaking = yield from ask(found.messages(()))
        silent = yield from ask(found.messages(()), add_generation_prompt=False)
    except TemplateRefused:
        return None
    text = found.seam.ids[common_prefix(found.seam.ids, other) : found.seam.place]
    rest, quiet = after(text, speaking), after(text, silent)
    if rest is None:
        return None
    end = -1 if quiet is None else common_prefix(rest, quiet)
    return CallClose(common_prefix(found.seam.tail, rest), end)

"""Prove what the template writes between a sampled turn and the place where the model speaks next.

The kernel asks in short stand-in conversations and believes an answer only with proof. The turn's text is
located by difference; an unlike conversation, and one akin to the real history, must give the same tail; no
new message may vanish. What depends on more of the history cannot be known at this price and is refused.
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
    """The sampled turn that a bridge follows.

    Attributes:
        message: The turn as the prompt restates it.
        after: Role of the message before it.
        history: What a template may read in the real history: its opening system messages, its last user's.
        stop: The id that the turn ended with; None if it was cut short.
        suffix: The template's turn close.
        prompt: The whole conversation.
        place: Position of the turn in it.
    """

    message: dict[str, Any]
    after: str
    history: Environment
    stop: int | None
    suffix: tuple[int, ...] = ()
    prompt: Sequence[Message] = ()
    place: int = 0

    @property
    def past(self) -> tuple[Message, ...]:
        """All messages before the turn; read only where the tail is known to depend on them."""
        return clean(self.prompt[: self.place])


@attrs.frozen
class LocatedTurn:
    """A way to ask in which the turn's text can be located.

    Attributes:
        context: The short history before the turn.
        form: How the turn is written.
        environment: The new messages after it.
        seam: The render, and where the turn's text ends in it.
    """

    context: Context
    form: TurnForm
    environment: Environment
    seam: Seam

    def messages(self, environment: Environment, text: str = SHORT) -> Environment:
        """Return the conversation to render, with another environment or text."""
        return (*self.context, self.form.write(text), *environment)

    def unlike(self, context: Context) -> Environment:
        """Return the conversation with another history and other words wherever they must not matter."""
        return (*context, self.form.write(SHORT, WORDS[1]), *self.environment)


@attrs.frozen
class Proof:
    """A proven tail.

    Attributes:
        located: The way in which it was asked.
        cut: Index in the seam's tail where the turn's own text is over and its close begins.
        close: What it was recognized by: the suffix, or the stop; empty if the text alone stands before it.
        generation_prompt: How many ids at the end are the generation prompt.
    """

    located: LocatedTurn
    cut: int
    close: tuple[int, ...]
    generation_prompt: int

    @property
    def ids(self) -> tuple[int, ...]:
        """The close, the environment and the generation prompt."""
        return self.located.seam.tail[self.cut :]

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether another render ends with these ids, and with the id before them."""
        return self.located.seam.ends(ids, self.cut)


def prove_questions(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`: a bounded number of questions, each as long as what is new."""
    refusal = Refusal(Reason.UNPROVEN_TAIL, "results answer several calls of earlier turns")
    if len(_orphans(turn, environment)) > 1:
        return refusal
    for reading in readings(environment):
        proof = yield from show_questions(turn, reading, contexts(turn.after).likely)
        if isinstance(proof, Proof):
            agrees = yield from _agrees(turn, proof)
            return proof if agrees else Refusal(Reason.UNPROVEN_TAIL, HISTORY)
        refusal = proof
        if refusal.reason not in RETRIED:
            break
    return refusal


def show_questions(
    turn: SampledTurn,
    environment: Environment,
    histories: Sequence[Context],
    turn_forms: Sequence[TurnForm] | None = None,
) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn` in the first of `histories` that works; others may give another tail.

    `turn_forms` are the ways to write the turn. The first in which its text can be located counts.
    """
    located = yield from _locate(environment, histories, turn_forms or forms(turn.message))
    if isinstance(located, Refusal):
        return located
    cut = yield from _cut(turn, located)
    if isinstance(cut, Refusal):
        return cut
    lost = yield from _swallowed(located)
    if lost is not None:
        role = environment[lost]["role"]
        return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")
    prompt = yield from _generation_prompt(located)
    tail = located.seam.tail[cut:]
    return Proof(located, cut, _close(turn, tail), min(prompt, len(tail)))


def _locate(
    environment: Environment, histories: Sequence[Context], turn_forms: Sequence[TurnForm]
) -> Questions[LocatedTurn | Refusal]:
    """Return the first way to write the turn in which its text can be located."""
    refusal = Refusal(Reason.TEMPLATE_REFUSED)
    for context in histories:
        for form in turn_forms:
            seam = yield from _seam(context, form, environment)
            if isinstance(seam, Seam):
                return LocatedTurn(context, form, environment, seam)
            # A form that rendered says more than one that the template rejected.
            refusal = seam if refusal.reason is Reason.TEMPLATE_REFUSED else refusal
    return refusal


def _seam(context: Context, form: TurnForm, environment: Environment) -> Questions[Seam | Refusal]:
    try:
        short = yield from ask((*context, form.write(SHORT), *environment))
        longer = yield from ask((*context, form.write(LONGER), *environment))
    except TemplateRefused as refused:
        return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
    return find_seam(short, longer) or UNLOCATED


def _close(turn: SampledTurn, tail: tuple[int, ...]) -> tuple[int, ...]:
    """Return what a tail begins with: the whole suffix, or the stop."""
    if tail[: len(turn.suffix)] == turn.suffix:
        return turn.suffix or tail[: int(tail[:1] == (turn.stop,))]
    return tail[:1]


def _agrees(turn: SampledTurn, proof: Proof) -> Questions[bool]:
    """Return whether two more histories give the same tail: an unlike one, and one akin to the real one.

    The unlike one shares no text, so that a tail which repeats earlier text is detected. The akin one has the
    real system texts and the real last user message, since templates look for switches such as `/no_think`.
    """
    call_id = next(iter(_orphans(turn, proof.located.environment)), CALL_ID)
    unlike = yield from _first_taken(proof.located, contexts(turn.after, call_id).unlike)
    if unlike is None or not proof.ends(unlike):
        return False
    akin = yield from _first_taken(proof.located, akin_histories(turn.after, turn.history))
    return akin is not None and proof.ends(akin)


def _first_taken(located: LocatedTurn, histories: Iterable[Context]) -> Questions[tuple[int, ...] | None]:
    """Render with other words in the first of `histories` that the template takes."""
    for context in histories:
        try:
            return (yield from ask(located.unlike(context)))
        except TemplateRefused:
            continue
    return None


def _swallowed(located: LocatedTurn) -> Questions[int | None]:
    """Return the position of a new message whose text leaves no trace after the turn, None if all do.

    A template may drop it, or collect such texts in front of the conversation. All messages are lengthened
    at once; each is tried only if that adds more or fewer ids than one message's share suggests.
    """
    count = len(located.environment)
    added = yield from _added(located, range(count))
    one = added
    if count > 1:
        one = yield from _added(located, range(1))
    if one and added == one * count:
        return None
    for position in range(count):
        if (yield from _added(located, (position,))) == 0:
            return position
    return None


def _added(located: LocatedTurn, positions: Iterable[int]) -> Questions[int | None]:
    """Return how many ids more text in some messages adds after the turn; None if the template rejects it."""
    try:
        ids = yield from ask(located.messages(lengthened(located.environment, positions)))
    except TemplateRefused:
        return None
    elsewhere = common_prefix(ids, located.seam.ids) < located.seam.place
    return 0 if elsewhere or ids == located.seam.ids else len(ids) - len(located.seam.ids)


def _generation_prompt(located: LocatedTurn) -> Questions[int]:
    """Return how many ids of the tail appear only because the model is to speak next."""
    try:
        ids = yield from ask(located.messages(located.environment), add_generation_prompt=False)
    except TemplateRefused:
        return 0
    shared = common_prefix(located.seam.ids, ids)
    return len(located.seam.ids) - shared if shared > located.seam.place else 0


def _cut(turn: SampledTurn, located: LocatedTurn) -> Questions[int | Refusal]:
    """Return where in the tail the turn's own text is over and its close begins.

    After content that is the first id. After a tool call the rest of the call comes first, and the close is
    found in it: by the suffix, or by the stop that the engine sampled. Exactly one place must qualify.
    """
    tail, size = located.seam.tail, len(turn.suffix)
    if not calls_of(turn.message):
        if tail[:size] == turn.suffix or tail[:1] == (turn.stop,):
            return 0
        return Refusal(Reason.CLOSE_MISMATCH, "after the turn the template does not write the suffix")
    call = yield from _call_close(located)
    if call is None:
        return Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call's turn cannot be shown")
    closed, stopped = _suffixes(tail, turn, call), _stops(tail, turn, call)
    places = {*closed, *stopped} - {i + j for i in closed for j in range(1, size)}  # not inside a close
    if len(places) == 1:
        return places.pop()
    if not places and turn.stop is not None:
        return Refusal(Reason.ODD_STOP, f"the turn ended with {turn.stop}, which closes no tool call here")
    return Refusal(Reason.UNPROVEN_TAIL, f"{len(places)} places where the tool call's turn may end")


def _orphans(turn: SampledTurn, environment: Environment) -> set[str]:
    """Return the ids that results answer and that neither the turn nor a new message called."""
    called = [call.get("id") for message in (turn.message, *environment) for call in calls_of(message)]
    answered = [message.get("tool_call_id") for message in environment]
    return {name for name in answered if isinstance(name, str) and name not in called}


@attrs.frozen
class CallClose:
    """What the template writes after the text of a tool call.

    Attributes:
        shared: How many ids of the tail stand there whatever follows.
        end: How many of them stand there if nothing follows: the rest of the call, and its close. -1 if
            that cannot be determined.
    """

    shared: int
    end: int


def _call_close(located: LocatedTurn) -> Questions[CallClose | None]:
    """Render the call with nothing after it, with and without the generation prompt."""
    try:
        other = yield from ask(located.messages(located.environment, OTHER))
        speaking = yield from ask(located.messages(()))
        silent = yield from ask(located.messages(()), add_generation_prompt=False)
    except TemplateRefused:
        return None
    text = located.seam.ids[common_prefix(located.seam.ids, other) : located.seam.place]
    rest, quiet = after(text, speaking), after(text, silent)
    if rest is None:
        return None
    end = -1 if quiet is None else common_prefix(rest, quiet)
    return CallClose(common_prefix(located.seam.tail, rest), end)


def _suffixes(tail: tuple[int, ...], turn: SampledTurn, call: CallClose) -> list[int]:
    """Return where the suffix stands in what is always written after the call, or right after that."""
    size = len(turn.suffix)
    places = [*range(call.shared - size + 1), *([call.end] if call.end == call.shared else [])]
    return [i for i in places if size and tail[i : i + size] == turn.suffix]


def _stops(tail: tuple[int, ...], turn: SampledTurn, call: CallClose) -> list[int]:
    """Return where the id that the turn stopped with closes the call, or opens what follows.

    It closes the call if it is the last id before anything follows, and occurs once. It opens what follows
    if nothing is left of the call. Anywhere else it belongs to the call: the turn broke off in the middle.
    """
    end = max(call.end, 0)
    if turn.suffix and tail[end : end + len(turn.suffix)] == turn.suffix:
        return []
    if tail[max(end - 1, 0) : end] == (turn.stop,) and tail[:end].count(turn.stop) == 1:
        return [end - 1]
    return [end] if call.shared == call.end and tail[end : end + 1] == (turn.stop,) else []

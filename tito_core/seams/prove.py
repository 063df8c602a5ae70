"""Prove what the template writes between a sampled turn and the place where the model speaks next.

The kernel asks in short stand-in conversations and believes an answer only with proof. The turn's text is
located by difference; an unlike conversation, and one akin to the real history, must give the same tail; no
new message may vanish. What differs between them is refused. What depends on anything else in the history,
such as the number of its messages, cannot be known at this price (see docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import MediaRange
from ..message import as_id, called_ids, texts_in
from ..normalization.clean import lengthened
from ..questions import Questions, Rendered, ask, ask_rendered, in_parts, relayed
from ..refusal import Reason, Refusal
from .close import Cut, cut_questions
from .seam import common_prefix, seam_questions
from .stand_in import LAST, Context, TurnForm, calls_of, forms
from .suffix import takes_parts_questions, takes_texts_questions
from .turn import Environment, LocatedTurn, SampledTurn

RETRIED = (Reason.TEMPLATE_REFUSED, Reason.SWALLOWED)
"""Refusals that texts as lists of one part may overcome."""
HISTORY = "the tail depends on the history before it"
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

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether another render ends with these ids, and with what stands before them: text and call.

        Where a template writes something between the turn and the next message in some histories only, its
        last id may be that of a text or of a call, too.
        """
        return self.located.seam.ends(ids)


def prove_questions(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`: a bounded number of questions, each as long as what is new."""
    proof = yield from _proved(turn, environment)
    if not isinstance(proof, Refusal) or (proof.reason not in RETRIED and proof != UNLOCATED):
        return proof
    in_texts = yield from takes_texts_questions()
    if in_texts or not (yield from takes_parts_questions()):
        return proof
    found = yield from relayed(_proved(turn, environment), in_parts)
    return attrs.evolve(found, parts=True) if isinstance(found, Proof) else proof


def _proved(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    proof = yield from show_questions(turn, environment, turn.likely)
    if isinstance(proof, Refusal) or (yield from agrees_questions(turn, proof)):
        return proof
    return Refusal(Reason.UNPROVEN_TAIL, HISTORY)


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
    cut = yield from cut_questions(turn, located)
    if isinstance(cut, Refusal):
        return cut
    lost = yield from swallowed_questions(located)
    if lost is not None:
        return lost
    prompt = yield from _generation_prompt(located)
    return Proof(located=located, cut=cut, generation_prompt=min(prompt, len(located.seam.tail) - cut.place))


def _locate(
    environment: Environment, histories: Sequence[Context], turn_forms: Sequence[TurnForm]
) -> Questions[LocatedTurn | Refusal]:
    """Return the first way to write the turn in which its text can be located."""
    refusal = Refusal(Reason.TEMPLATE_REFUSED)
    for context in histories:
        for form in turn_forms:
            try:
                seam = yield from seam_questions(form.within(context, environment))
            except TemplateRefused as refused:
                found = Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
            else:
                if seam is not None:
                    return LocatedTurn(context=context, form=form, environment=environment, seam=seam)
                found = UNLOCATED
            # A form that rendered says more than one that the template rejected.
            refusal = found if refusal.reason is Reason.TEMPLATE_REFUSED else refusal
    return refusal


def agrees_questions(turn: SampledTurn, proof: Proof) -> Questions[bool]:
    """Return whether other histories give the same tail, and other turns where the turn is unknown.

    Another turn may have another rest of its call, the same in all histories. A turn that the template takes
    in none of them, while it takes another, cannot be the real one.
    """
    orphans, names = _orphans(turn, proof.located.environment), _unnamed(proof.located.environment)
    for message in (None, *turn.others):
        same = {proof.located.seam.tail[: proof.cut.place]} if message is None else set[tuple[int, ...]]()
        rests, taken = set[tuple[int, ...] | None](same), False
        for needed, group in turn.histories(orphans, names):
            found = yield from _rests(proof, group, message)
            rests |= found
            if None in rests or len(rests) > 1:
                return False
            taken |= bool(found)
            if needed and not found and message is None:
                return False
        if not taken and message is None:
            return False
    return True


def _rests(
    proof: Proof, group: Sequence[Sequence[Context]], message: dict[str, Any] | None
) -> Questions[set[tuple[int, ...] | None]]:
    """Return what the members of a group have before the tail, None for one without it."""
    seam, rests = proof.located.seam, set[tuple[int, ...] | None]()
    for histories in group:
        found = yield from first_taken(proof.located, histories, message)
        if found is not None:
            rests.add(seam.rest(found.ids, proof.cut.place))
    return rests


def first_taken(
    located: LocatedTurn,
    histories: Iterable[Context],
    message: dict[str, Any] | None = None,
    *,
    ids: bool = True,
) -> Questions[Rendered | None]:
    """Render with other words, or as another turn, in the first of `histories` that the template takes.

    `ids` is whether they are needed beside a text.
    """
    for context in histories:
        try:
            return (yield from ask_rendered(located.unlike(context, message), since=located.since, ids=ids))
        except TemplateRefused:
            continue
    return None


def swallowed_questions(located: LocatedTurn) -> Questions[Refusal | None]:
    """Refuse if the text of a new message leaves no trace after the turn.

    A template may drop it, or collect such texts in front of the conversation. All messages without calls are
    lengthened at once, each by another number of words; they are tried one by one only if that adds more or
    fewer ids than the first one's share suggests. Calls are lengthened in other words, which have no share.
    """
    alike = {i: i + 1 for i, message in enumerate(located.environment) if not calls_of(message)}
    added = yield from _added(located, alike)
    first = next(iter(alike), 0)
    one = (yield from _added(located, (first,))) if len(alike) > 1 else added
    shown = alike if one and added and added * alike[first] == one * sum(alike.values()) else {}
    for position in range(len(located.environment)):
        if position not in shown and (yield from _added(located, (position,))) == 0:
            return _unfollowed(located.environment[position])
    return None


def _unfollowed(message: dict[str, Any]) -> Refusal:
    """Return why more text in a message adds nothing."""
    role, content = message["role"], message.get("content")
    if content and texts_in(message) == []:
        form = f"the content of a {role} message is of type {type(content).__name__}, and has no texts"
        return Refusal(Reason.UNPROVEN_TAIL, form)
    return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")


def _added(located: LocatedTurn, positions: Iterable[int]) -> Questions[int | None]:
    """Return how many ids more text in some messages adds after the turn; None if the template rejects it."""
    try:
        ids = yield from ask(
            located.messages(lengthened(located.environment, positions, graded=True)), since=located.since
        )
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


def _orphans(turn: SampledTurn, environment: Environment) -> set[Any]:
    """Return the ids that results answer and that neither the turn nor a new message called.

    A result without an id may be named by an earlier call without one.
    """
    called = set(called_ids(turn.message, environment))
    answered = (message.get("tool_call_id") for message in environment if message["role"] not in LAST)
    return {as_id(one) for one in answered} - called


def _unnamed(environment: Environment) -> list[str]:
    """Return the tools of results without an id: an earlier call of the same tool may give it one."""
    results = (message for message in environment if message["role"] not in LAST)
    names = (message.get("name") for message in results if message.get("tool_call_id") is None)
    return sorted({name for name in names if isinstance(name, str)})

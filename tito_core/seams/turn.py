"""The sampled turn before the new messages, and the short conversation in which its end was located."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import attrs

from ..media.ranges import Placeholders
from ..message import Message, Messages
from ..normalization.clean import clean
from ..normalization.media import Medium
from .seam import SHORT, Seam
from .stand_in import (
    LAST,
    NO_KEY,
    OF_SYSTEM,
    ON,
    SWITCHED,
    WORDS,
    Context,
    TurnForm,
    Turns,
    akin_histories,
    contexts,
    in_loop,
)

Environment = tuple[dict[str, Any], ...]
BEFORE = ("user", "tool")
"""Roles of the message before a turn that templates tell apart, in turns that agents take."""
MOST_BETWEEN = 64
"""How many messages before a turn are looked at for the tool loop that it may stand in."""
MOST_SHOWN = 64
"""Media that a stand-in history shows at most."""


@attrs.frozen(kw_only=True)
class SampledTurn:
    """The sampled turn that a bridge follows, as far as it is known.

    Attributes:
        message: The turn as the prompt restates it; the likeliest kind of turn if it is unknown.
        after: Role of the message before it.
        history: What a template may read in the real history: its opening system messages, and the last
            developer's and user's.
        history_known: Whether `after` and `history` are those of the real history.
        stop: The id that the turn ended with; None if it was cut short.
        end: The last sampled ids; others may stand before them where it is unknown how many were sampled.
        suffix: The template's turn close.
        stops: The ids that are known to end a turn.
        others: Turns of other kinds that it may be: the tail must be theirs, too.
        reused: Ids of its calls, and of calls in new messages, that an earlier call may have, too; None for
            a call without one.
        switched: Roles of earlier messages, after the opening, that may have a switch.
        prompt: The whole conversation.
        place: Position of the turn in it.
        media: The media of the new messages.
        placeholders: What the template writes for media; None if there may be none, before the turn or after.
        shown: How many media stand before the turn.
    """

    message: dict[str, Any]
    stop: int | None = None
    end: tuple[int, ...] = ()
    after: str = "user"
    history: Environment = ()
    history_known: bool = True
    suffix: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    others: tuple[dict[str, Any], ...] = ()
    reused: tuple[Any, ...] = ()
    switched: frozenset[str] = frozenset()
    prompt: Sequence[Message] = ()
    place: int = 0
    media: tuple[Medium, ...] = ()
    placeholders: Placeholders | None = None
    shown: int = 0

    @property
    def past(self) -> tuple[Message, ...]:
        """All messages before the turn; read only where the tail is known to depend on them."""
        return clean(self.prompt[: self.place])

    @property
    def loop(self) -> tuple[str, ...]:
        """The roles between a tool result and the turn, where its loop may go on; one for several alike.

        A plain answer ends it, unless the turn follows it at once: models and clients add notes.
        """
        peek = self.prompt.peek if isinstance(self.prompt, Messages) else self.prompt.__getitem__
        roles: list[str] = []
        for place in reversed(range(max(self.place - MOST_BETWEEN, 0), self.place)):
            role = peek(place)["role"]
            if role not in LAST:
                return tuple(roles[::-1])
            if role == "assistant" and (peek(place).get("tool_calls") or "user" in roles):
                break
            if roles[-1:] != [role]:
                roles.append(role)
        return ()

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the conversation may show, before the turn or after."""
        return tuple(modality for modality, _ in self.placeholders.runs) if self.placeholders else ()

    @property
    def unlike(self) -> Sequence[Context]:
        """Histories without a text of the likely ones; with as many media as the real one may have."""
        pasts = contexts(self.after, switched=self.switched)
        if not self.modalities:
            return pasts.unlike
        return pasts.showing(self.modalities, min(max(self.shown, 1), MOST_SHOWN))

    @property
    def likely(self) -> Sequence[Context]:
        """The shortest histories that the turn may stand in."""
        opened = bool(self.history) and self.history[0]["role"] != "user"
        return contexts(self.after, opened=opened).likely

    def histories(
        self, call_ids: Collection[Any] = (), names: Collection[str] = ()
    ) -> Iterator[tuple[bool, Sequence[Sequence[Context]]]]:
        """Yield groups of histories that must give one tail, each with whether one of it must be taken.

        Of each member of a group the first history that is taken counts. An unlike one shares no text, so
        that a tail which repeats earlier text is detected. Other ones call tools by the ids that may have
        been called before, and in both ways without an id; or tools of these `names`. One
        akin to the real one has its system texts and its last user message, since templates look for switches
        such as `/no_think`. Where there may be media, one shows some: a template may number them.
        """
        known, switched = self.history_known, self.switched
        for role in (self.after,) if known else (*BEFORE, *OF_SYSTEM):
            yield known, (contexts(role, switched=switched).unlike,)
        if known and self.loop:
            yield True, (in_loop(self.loop, switched=switched),)
        if switched and known:
            yield True, (contexts(self.after, switched=switched, words=ON).unlike,)
        roles = (self.after,) if known else BEFORE
        for ways in _called_before({*call_ids, *self.reused}):
            group = [_calling(role, way, switched) for way in ways for role in roles]
            loops = ways if known and self.loop else ()
            yield True, [*group, *(in_loop(self.loop, turns, switched) for way in loops for turns in way)]
        for name in names:
            yield True, [contexts(role, switched=switched, name=name).calling for role in roles]
        for modality in self.modalities:
            pasts = contexts(self.after, switched=switched)
            yield known, (pasts.showing((modality,)),)
            if self.shown:
                yield known, (pasts.showing_many(modality, min(self.shown, MOST_SHOWN)),)
        if known:
            yield True, (akin_histories(self.after, self.history),)
        else:
            yield from ((False, ((history,),)) for history in SWITCHED)


Ways = tuple[Turns, ...]
"""Ways in which calls of the same ids may be spread over turns; the first that a template takes counts."""


def _called_before(ids: set[Any]) -> Iterator[Sequence[Ways]]:
    """Yield groups of calls that may stand before a turn, each as its members.

    Named ones are called in one turn, and in a turn each where a template takes no more. A missing id may be
    None, or have no key: a template may take one of them alone, as it does of the real turn.
    """
    named = tuple(sorted((one for one in ids if one is not None), key=str))
    if named:
        yield [((named,), tuple((one,) for one in named))]
    if None in ids:
        yield [(((None,),),), (((NO_KEY,),),)]


def _calling(role: str, ways: Ways, switched: frozenset[str]) -> Sequence[Context]:
    return [one for turns in ways for one in contexts(role, turns, switched=switched).calling]


@attrs.frozen(kw_only=True)
class LocatedTurn:
    """A way to ask in which the turn's text can be located.

    Attributes:
        context: The short history before the turn.
        form: How the turn is written.
        environment: The new messages after it.
        seam: The render, and where the turn's text ends in it.
        since: The text from which on the render is needed; None for all of it.
    """

    context: Sequence[Message]
    form: TurnForm
    environment: Environment
    seam: Seam
    since: str | None = None

    def messages(self, environment: Environment, text: str = SHORT) -> tuple[Message, ...]:
        """Return the conversation to render, with another environment or text."""
        return (*self.context, self.form.write(text), *environment)

    def unlike(self, context: Context, turn: dict[str, Any] | None = None) -> tuple[Message, ...]:
        """Return the conversation with another history and other words wherever they must not matter.

        Another `turn` says the same everywhere: of its calls the template may write the first alone.
        """
        said = self.seam.said
        if turn is None:
            return (*context, self.form.write(said, WORDS[1]), *self.environment)
        return (*context, attrs.evolve(self.form, turn=turn).write(said, said), *self.environment)

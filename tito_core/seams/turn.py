"""The sampled turn before the new messages, and the short conversation in which its end was located."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from ..media.ranges import Placeholders
from ..message import Message, Messages, texts_in
from ..normalization.clean import clean
from ..normalization.media import Medium
from .history import LAST, Context, Past, shortest
from .seam import SHORT, Seam
from .turn_form import WORDS, TurnForm, calls_of

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
        earlier: The messages before the turn, as far as they are known.
        words: Words that the template looks for in messages, as far as that is known.
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
    earlier: Messages | None = None
    words: tuple[str, ...] = ()
    prompt: Sequence[Message] = ()
    place: int = 0
    media: tuple[Medium, ...] = ()
    placeholders: Placeholders | None = None
    shown: int = 0

    @property
    def past(self) -> Context:
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
    def said(self) -> list[str]:
        """The words that a template looks for and that earlier messages say; all where those are unknown."""
        words = tuple(dict.fromkeys(self.words))
        if not self.history_known or self.others:  # an unknown turn may say them, too
            return list(words)
        said = self.earlier.says(words) if self.earlier is not None and words else ()
        return [word for word in words if word in said or self._says(word)]

    def _says(self, word: str) -> bool:
        return any(word in text for text in texts_in(self.message))

    @property
    def shown_by_history(self) -> bool:
        """Whether the real history can show the tail, with other words in the turn: both are known.

        The turn says no word that the template looks for.
        """
        return self.history_known and not self.others and not any(map(self._says, self.words))

    @property
    def called(self) -> bool:
        """Whether an earlier turn is known to have called a tool."""
        return self.earlier is not None and bool(self.earlier.summary.called)

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the conversation may show, before the turn or after."""
        return tuple(modality for modality, _ in self.placeholders.runs) if self.placeholders else ()

    @property
    def likely(self) -> Sequence[Context]:
        """The shortest histories that the turn may stand in."""
        return shortest(self.after, opened=bool(self.history) and self.history[0]["role"] != "user")

    @property
    def unlike(self) -> Past:
        """A history without a text of the likely ones; with as many media as the real one may have."""
        shown = min(max(self.shown, 1), MOST_SHOWN)
        return Past(role=self.after, saying=self.switched, media=self.modalities, shown=shown)


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

    context: Context
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

    def ways(self, context: Context, turn: dict[str, Any] | None = None) -> Iterator[tuple[Message, ...]]:
        """Yield the ways to write `unlike`: of a call without a content also with an empty one.

        DeepSeek-V3.1's template takes none beside a call, in some histories only.
        """
        yield self.unlike(context, turn)
        given = self.form.turn if turn is None else turn
        if calls_of(given) and given.get("content") is None:
            filled = {**given, "content": ""}
            form = attrs.evolve(self.form, turn=filled)
            yield attrs.evolve(self, form=form).unlike(context, None if turn is None else filled)

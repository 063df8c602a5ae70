"""Spans: which ids of a proven tail belong to which new message, and which of them are its content.

The new messages are rendered with short texts in place of their own, one by one and together. The pieces in
which the renders differ are the contents; what they share is the template's. The pieces are believed only if
together they are the tail, id for id.
"""

from __future__ import annotations

from typing import Any

import attrs

from ..errors import TemplateRefused
from ..message import texts_in
from ..questions import Questions, in_parts, relayed
from ..refusal import Reason, Refusal
from .close import following_questions
from .prove import Proof
from .seam import common_prefix
from .turn import Environment

TEXTS = ("4096", "Quartz", "sky")
"""Texts in place of a content. One of them begins and ends with other characters than any given content."""


@attrs.frozen
class MessageSpan:
    """The ids of one new message, as positions in the added ids.

    Attributes:
        start: Position of its first id.
        stop: Position after its last id.
        content_start: Position of the first id of its content.
        content_stop: Position after the last id of its content; an id that the content shares with the
            template's text counts as content.
    """

    start: int
    stop: int
    content_start: int
    content_stop: int

    def moved(self, by: int) -> MessageSpan:
        """Return the span `by` positions further on; what lies before position 0 is left out.

        >>> MessageSpan(1, 9, 3, 7).moved(-2)
        MessageSpan(start=0, stop=7, content_start=1, content_stop=5)
        """
        return MessageSpan(*(max(place + by, 0) for place in attrs.astuple(self)))


@attrs.frozen
class Piece:
    """A message's content in two renders that differ in it alone.

    Attributes:
        start: Position of the content in both.
        stop: Position after the short text, in the render of short texts.
        ids: The content's own ids.
    """

    start: int
    stop: int
    ids: tuple[int, ...]


def spans_questions(proof: Proof) -> Questions[tuple[MessageSpan, ...] | Refusal]:
    """Ask for the spans of the new messages in the tail of `proof`: twice per message, short but for one.

    The result is a refusal where the template mixes the contents, or writes one outside of its message. A
    content that is written twice in its message is one content, with the ids between.
    """
    spans = _spans(proof)
    return (yield from relayed(spans, in_parts) if proof.parts else spans)


def _spans(proof: Proof) -> Questions[tuple[MessageSpan, ...] | Refusal]:
    short, clear = tuple(map(_shortened, proof.located.environment)), True
    try:
        tail = yield from proof.tail_of_questions(short)
        ends, pieces = [], []
        for place in range(len(short)):
            last = place == len(short) - 1
            silent = tail if last else (yield from _silent_tail(proof, short[: place + 1]))
            ends.append(len(tail) - proof.generation_prompt if last else common_prefix(tail, silent))
            pieces.append((yield from _piece(proof, short, tail, place, ends[-1])))
            clear &= last or bool(pieces[-1].ids) or _shows_end(short[place], silent, ends[-1])
    except TemplateRefused as refused:
        return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
    starts = [proof.cut.closed, *ends[:-1]]
    inside = [
        start <= piece.start <= piece.stop <= end
        for start, piece, end in zip(starts, pieces, ends, strict=True)
    ]
    if not clear or not all(inside) or _assembled(tail, pieces) != proof.ids:
        return Refusal(Reason.UNPROVEN_TAIL, "it is not clear which ids belong to which message")
    return _placed(starts, pieces, ends)


def _shortened(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a short text that begins and ends with other characters than its own."""
    text = "".join(texts_in(message))
    if not text:
        return message
    # Llama 3 and Gemma 3 trim a text; a template may change its case.
    ends = (text.strip() or text).lower()
    word = next(word for word in TEXTS if word[0].lower() != ends[0] and word[-1] != ends[-1])
    parts = isinstance(message["content"], list)
    return {**message, "content": [{"type": "text", "text": word}] if parts else word}


def _shows_end(message: dict[str, Any], silent: tuple[int, ...], end: int) -> bool:
    """Return whether a message without a text ends where a render with nothing after it goes another way.

    An assistant's last message may begin otherwise, as with reasoning that is dropped later.
    """
    # Qwen3 writes an empty thought in the last turn alone.
    return message["role"] != "assistant" or end == len(silent)


def _silent_tail(proof: Proof, environment: Environment) -> Questions[tuple[int, ...]]:
    """Return the same without a generation prompt, where the turn's reasoning may be written otherwise."""
    found = yield from following_questions(proof.located, environment, speaking=False)
    call = proof.located.seam.tail[: proof.cut.place]
    return found[len(call) :] if found is not None and found[: len(call)] == call else ()


def _piece(proof: Proof, short: Environment, tail: tuple[int, ...], place: int, end: int) -> Questions[Piece]:
    """Return where one message's content stands among short ones; at the message's `end` if it has none."""
    message = proof.located.environment[place]
    if message is short[place]:
        return Piece(end, end, ())
    alone = (*short[:place], message, *short[place + 1 :])
    ids = proof.ids if len(short) == 1 else (yield from proof.tail_of_questions(alone))
    start = common_prefix(tail, ids)
    rest = common_prefix(tail[start:][::-1], ids[start:][::-1])
    return Piece(start, len(tail) - rest, ids[start : len(ids) - rest])


def _assembled(tail: tuple[int, ...], pieces: list[Piece]) -> tuple[int, ...]:
    """Return the short tail with every message's own content."""
    ids: list[int] = []
    place = 0
    for piece in pieces:
        ids += (*tail[place : piece.start], *piece.ids)
        place = piece.stop
    return (*ids, *tail[place:])


def _placed(starts: list[int], pieces: list[Piece], ends: list[int]) -> tuple[MessageSpan, ...]:
    """Return the spans in the real tail, in which each content has its own length."""
    spans, moved = [], 0
    for start, piece, end in zip(starts, pieces, ends, strict=True):
        grown = len(piece.ids) - (piece.stop - piece.start)
        first = piece.start + moved
        spans.append(MessageSpan(start + moved, end + moved + grown, first, first + len(piece.ids)))
        moved += grown
    return tuple(spans)

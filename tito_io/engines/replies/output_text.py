"""The text of a sampled turn before what ended it: a stop token, or a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tito_io.engines.protocol import Reply

from .text_stream import INCOMPLETE


def until_stop(reply: Reply, decode: Callable[[Sequence[int]], str]) -> str:
    """Return a turn's text before what ended it."""
    ids = ids_before_stop(reply)
    stop = reply.stop_reason
    text = text_until(stop, ids, decode) if isinstance(stop, str) else None
    return decode(ids) if text is None else text


def ids_before_stop(reply: Reply) -> Sequence[int]:
    """Return a turn's ids without the stop token that ended it."""
    by_id = reply.finish_reason in ("stop", "tool_calls") and not isinstance(reply.stop_reason, str)
    return reply.completion_ids[:-1] if by_id else reply.completion_ids


def text_until(stop: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> str | None:
    """Return the text of ids before the stop string that ended it; None where it is not found.

    >>> text_until("a", [98, 97, 97], lambda ids: "".join(map(chr, ids)))
    'ba'
    """
    return before_stop(stop, decode(ids[:-1]), decode(ids))


def before_stop(stop: str, before: str, text: str) -> str | None:
    """Return the part of a `text` that stands before its stop string; None where it is not found.

    It ends within the last id, else right before that: some engines sample an id more. It is searched no
    earlier, since with a least number of ids the text may have it there, too. `before` is the text without
    the last id, which may end with a part of a character.

    >>> before_stop("END", "so END EN", "so END END"), before_stop("END", "so END", "so END.")
    ('so END ', 'so ')
    """
    first = len(before.rstrip(INCOMPLETE)) - len(stop)
    found = [place for start in (first + 1, first) if (place := text.find(stop, max(start, 0))) >= 0]
    return text[: found[0]] if found else None

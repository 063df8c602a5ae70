"""Find the stop string that a sampled id completes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .text_stream import Decode


def found_stop(stops: Iterable[str], ids: Sequence[int], decode: Decode) -> str | None:
    """Return the stop string that the last of `ids` completes; None where none is.

    A character may have four ids, and those before it are context for a tokenizer that looks at both sides.

    >>> found_stop(["b", "c"], [97, 99], lambda ids: "".join(map(chr, ids)))
    'c'
    """
    return next((stop for stop in stops if stop in decode(ids[-4 * len(stop) - 4 :])), None)

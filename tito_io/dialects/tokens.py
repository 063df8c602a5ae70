"""Log-probabilities as OpenAI's chat API tells them: an entry an id, with its text and bytes.

Where an engine sent a sentinel in place of a log-probability there is none, and -9999 says so, as it does on
the wire of the engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .protocol import TokenText, as_id

MISSING = -9999.0


def entries(
    ids: Sequence[int], logprobs: Sequence[float | None], spell: TokenText, *, as_ids: bool
) -> list[dict[str, Any]]:
    """Return the entries of ids.

    >>> entries([7], [-0.5], lambda index: "hi", as_ids=False)
    [{'token': 'hi', 'logprob': -0.5, 'bytes': [104, 105], 'top_logprobs': []}]
    >>> entries([7], [None], as_id, as_ids=False)
    [{'token': 'token_id:7', 'logprob': -9999.0, 'bytes': None, 'top_logprobs': []}]
    """
    return [
        _entry(index, MISSING if value is None else value, spell, as_ids=as_ids)
        for index, value in zip(ids, logprobs, strict=True)
    ]


def _entry(index: int, logprob: float, spell: TokenText, *, as_ids: bool) -> dict[str, Any]:
    text = None if spell is as_id else spell(index)
    return {
        "token": as_id(index) if as_ids or text is None else text,
        "logprob": logprob,
        "bytes": None if text is None else list(text.encode("utf-8", "surrogatepass")),
        "top_logprobs": [],
    }

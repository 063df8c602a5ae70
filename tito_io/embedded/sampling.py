"""How one request wants to be sampled: the part of a request that decides which ids come."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class Sampling:
    """What shapes a distribution (`top_p`, penalties) is not here: there is none to shape."""

    max_tokens: int
    """At most this many ids, the end token among them."""
    min_tokens: int = 0
    """No end before this many ids."""
    seed: int | None = None
    stop: tuple[str, ...] = ()
    """Strings that end the reply and are cut from its text, not from its ids."""
    stop_token_ids: frozenset[int] = frozenset()
    """Ids that end the reply, beside the family's own."""
    ignore_eos: bool = False
    """Whether the family's end tokens are ids like any other."""
    keep_stop: bool = False
    """Whether the text keeps the string or the token that ended it."""
    skip_special: bool = True
    """Whether special tokens are left out of the text."""
    must_call: str | None = None
    """The name of the tool that has to be called; `""` for any."""

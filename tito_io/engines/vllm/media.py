"""Images for vLLM's generate route: bytes once, then a key alone; and where they stand in the prompt.

A server keeps the images that it was sent, each under the `uuid` that came with it, for as long as it has
room. It answers 400 to a key that it does not have; nothing ran then. Each API process of a server has a
cache of its own.

The other form of the route, `features`, is never used: tensors would have to go along, a key that the engine
does not have ends the engine in some set-ups, and the two forms must not be mixed on one server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from http import HTTPStatus
from itertools import accumulate
from typing import Any

import attrs

from tito_core import InputError
from tito_core.media.expansion import collapse
from tito_core.media.ranges import MediaRange, Placeholders
from tito_io.engines.protocol import EngineError, PromptMedium, RequestError
from tito_io.engines.replies.invariants import Check

MOST_MISSES = 2
"""After how many misses an image always goes with its bytes: a server may keep none, or keep it elsewhere."""


@attrs.define
class Uploads:
    """The images that a server accepted, by identity; of more than `most` the oldest are forgotten.

    Attributes:
        most: How many are remembered.

    >>> uploads = Uploads(most=2)
    >>> uploads.accept(["a", "b", "c"])
    >>> sorted(uploads.known(["a", "b", "c"]))
    ['b', 'c']
    >>> uploads.miss(["b"]); uploads.accept(["b"]); uploads.miss(["b"]); uploads.accept(["b"])
    >>> sorted(uploads.known(["b", "c"]))
    ['c']
    """

    most: int = 4096
    _accepted: dict[str, bool] = attrs.field(factory=dict, init=False, repr=False)
    _misses: dict[str, int] = attrs.field(factory=dict, init=False, repr=False)

    def known(self, identities: Iterable[str]) -> frozenset[str]:
        """Return those whose bytes may be left out."""
        return frozenset(
            one for one in identities if one in self._accepted and self._misses.get(one, 0) < MOST_MISSES
        )

    def accept(self, identities: Iterable[str]) -> None:
        """Remember images that were in a request which was answered."""
        for one in identities:
            self._accepted.pop(one, None)
            self._accepted[one] = True
        _forget_oldest(self._accepted, self.most)

    def forget(self, identities: Iterable[str]) -> None:
        """Send the bytes of these again: a request in which they had none failed."""
        for one in identities:
            self._accepted.pop(one, None)

    def miss(self, identities: Iterable[str]) -> None:
        """Remember that a request was refused in which these had no bytes, and taken when they had."""
        for one in identities:
            self._misses[one] = self._misses.pop(one, 0) + 1
        _forget_oldest(self._misses, self.most)


def _forget_oldest(values: dict[str, Any], most: int) -> None:
    while len(values) > most:
        del values[next(iter(values))]


def content_parts(media: Sequence[PromptMedium], left_out: Collection[str]) -> list[dict[str, str]]:
    """Return the request's parts: flat ones, since this route does not read the form that chats have.

    Raises:
        InputError: An image has no bytes, and the server does not have them either.

    >>> from tito_core.media.ranges import MediaRange
    >>> cat = MediaRange(modality="image", identity="cat", offset=0, length=1, collapsed=(7,))
    >>> content_parts([PromptMedium(place=cat, url="data:,x")], ["cat"])
    [{'type': 'image_url', 'uuid': 'cat'}]
    """
    parts = []
    for number, one in enumerate(media):
        part = {"type": "image_url", "uuid": one.place.identity}
        if one.place.identity not in left_out:
            if one.url is None:
                raise InputError(
                    f"media[{number}]: the server may not have its bytes: give `url`. Nothing was sent"
                )
            part["url"] = one.url
        parts.append(part)
    return parts


def may_be_missing(error: EngineError) -> bool:
    """Whether a server may have refused a request for lack of an image; nothing was sampled then.

    The texts differ with the server's options: a miss, or a processor that was given nothing.
    """
    status = None if error.answer is None else error.answer.status
    return isinstance(error, RequestError) and status == HTTPStatus.BAD_REQUEST and error.partial is None


def collapsed(check: Check, body: Any, media: Placeholders) -> list[int]:
    """Return a rendered conversation's ids, with the placeholder of each image in place of its own ids."""
    ids, placeholder = list(check.ids(body, "token_ids")), media.ids("image")
    features = check.find(body, "features", dict) or {}
    if not features.get("mm_placeholders") or placeholder is None:
        return ids
    places = [
        MediaRange(modality="image", identity="", offset=offset, length=length, collapsed=placeholder)
        for offset, length in ranges(check, features)
    ]
    return collapse(ids, places)[0]


def ranges(check: Check, body: Any) -> list[tuple[int, int]]:
    """Return the offset and length of each image in the prompt, in the prompt's order and without overlap.

    vLLM counts an id into which it merged the texts around two images to both of them. Here it is the first
    one's.
    """
    holder = check.find(body, "mm_placeholders", dict) or {}
    if set(holder) != {"image"}:
        check.fail(
            "the answer does not say where the images stand: this server may not read `content_parts`, and "
            "take placeholders for text"
        )
    found = [check.typed(one, dict, "mm_placeholders") for one in check.get(holder, "image", list)]
    named = sorted((check.get(one, "offset", int), check.get(one, "length", int)) for one in found)
    stops = accumulate((offset + length for offset, length in named), max, initial=0)
    starts = [max(offset, stop) for (offset, _), stop in zip(named, stops, strict=False)]
    return [(start, offset + length - start) for start, (offset, length) in zip(starts, named, strict=True)]

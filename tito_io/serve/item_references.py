"""Put the items of a session's answers in the place of `item_reference` items of a Responses request.

Clients that let a server keep the items send each as its id alone, as the Vercel AI SDK does by default. An
id names its response, and the stored turn of that response makes the same items again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tito_io.dialects.protocol import TurnAnswer
from tito_io.dialects.responses.answer import named_items

from .commit import Commit
from .records import stored_reply
from .refusals import RequestRefused
from .session import Session

REFERENCE = "item_reference"
RESPONSE = re.compile(r"^[a-z]+_(?=resp_)|(?<=[0-9a-f])_\d+$")
"""What an item's id has beside that of its response."""


def resolved(session: Session, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request's body with the session's own items; raises `RequestRefused` for an unknown id.

    The error is 404 and has the words of OpenAI's server.
    """
    given = body.get("input")
    if not isinstance(given, list) or not any(map(_is_reference, given)):
        return dict(body)
    named = {RESPONSE.sub("", str(one.get("id"))) for one in given if _is_reference(one)}
    known: dict[str, Any] = {}
    for commit in session.commits.values():
        if commit.response in named:
            known |= _items(commit)
    return {**body, "input": [_item(known, place, one) for place, one in enumerate(given)]}


def _is_reference(item: Any) -> bool:
    """Return whether an item is an id alone; the API's clients may leave its type out."""
    if not isinstance(item, Mapping):
        return False
    kind = item.get("type")
    return kind == REFERENCE or (kind is None and {*item} - {"type"} == {"id"})


def _item(known: Mapping[str, Any], place: int, given: Any) -> Any:
    if not _is_reference(given):
        return given
    name = given.get("id")
    if isinstance(name, str) and name in known:
        return known[name]
    field = f"input[{place}].id"
    text = f"{field}: Item with id {name!r:.100} not found in this session; send the item itself"
    raise RequestRefused(404, "item_not_found", text, parameter=field)


def _items(commit: Commit) -> dict[str, dict[str, Any]]:
    """Return the items of a turn's answer by their ids."""
    answer = TurnAnswer.of(stored_reply(commit), id=commit.response, created=int(commit.at), model="")
    return named_items(answer)

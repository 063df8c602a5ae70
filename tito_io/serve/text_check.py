"""Compare the text of each turn with its ids, where the model's folder is known.

A text that belongs to other ids means that the engine, or something in front of it, mixed up turns, deltas or
ids, or that the folder is another model's. Such ids would train what the model never said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from logging import INFO, WARNING
from typing import Any

import attrs

from tito_io.engines.protocol import InvalidReplyError, Reply
from tito_io.engines.replies.spelling import OTHER_TEXT, Spelling

from .logs import LOG, short_id

DIFFERS = (
    "the engine's text is not that of its ids%s: look whether --family is the folder of the engine's model"
)


class OnOtherText(StrEnum):
    """How to treat a turn whose text is not that of its ids.

    Attributes:
        NOTICE: Count and log it.
        RAISE: Answer with an error; the turn is not kept.
    """

    NOTICE = "notice"
    RAISE = "raise"


@attrs.define
class TextCheck:
    """Compares the text of turns with their ids.

    Attributes:
        spelling: How the vocabulary writes ids.
        on_other_text: What to do about a turn that differs.
        warned: Whether one was logged as a warning; later ones are logged by `info`.
    """

    spelling: Spelling
    on_other_text: OnOtherText
    warned: bool = attrs.field(default=False, init=False)

    def differs(self, session: str, reply: Reply, stops: Sequence[str]) -> bool:
        """Return whether the text of a reply, or of one of its siblings, is not that of its ids, and log it.

        Raises `InvalidReplyError` where that was chosen. `stops` are the stop strings of the request.
        """
        found = [*filter(None, (self._difference(one, stops) for one in (reply, *reply.siblings)))]
        for text in found:
            LOG.log(INFO if self.warned else WARNING, "session %s: %s", short_id(session), text)
            self.warned = True
        if found and self.on_other_text is OnOtherText.RAISE:
            raise InvalidReplyError(f"{found[0]}; --on-other-text notice keeps such turns")
        return bool(found)

    def _difference(self, reply: Reply, stops: Sequence[str]) -> str | None:
        """Return where a turn differs, in words without anything of the conversation."""
        if OTHER_TEXT in reply.notices:  # its adapter compared the server's text, which is not in the reply
            return DIFFERS % ""
        if _parsed_by_server(reply.raw):
            return None
        ids = reply.completion_ids
        place = self.spelling.other_text(ids, reply.text, least_ids(reply, stops))
        return None if place is None else DIFFERS % f", from sampled id {place + 1} of {len(ids)} on"


def least_ids(reply: Reply, stops: Sequence[str]) -> int:
    """Return how many ids at least must stand in a turn's text: those before what ended it.

    A stop string may begin anywhere, and of an aborted turn some text may be missing.
    """
    ended = reply.finish_reason in ("stop", "tool_calls")
    by_string = ended and isinstance(reply.stop_reason, str if not stops else str | None)
    return 0 if by_string or reply.finish_reason == "abort" else len(reply.completion_ids) - ended


def _parsed_by_server(raw: Mapping[str, Any]) -> bool:
    """Return whether the server took the text apart: what it put where is not known here."""
    return any("message" in choice for choice in raw.get("choices") or ())

"""What vLLM answers: bodies become replies, every invariant checked on the way.

The chat route has the prompt's ids at the top and log-probabilities in entries; the completions route has
both in the choice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

from .hermes import Parsed
from .invariants import Check
from .protocol import Reply

NAMED = re.compile(r"token_id:(\d+)")
"""How a server started with `--return-tokens-as-token-ids` writes a token."""


def chat(check: Check, body: dict[str, Any]) -> Reply:
    """Read an answer of the chat route; its message is as the server's parsers made it."""
    choice = check.choice(body)
    ids = check.ids(choice, "token_ids")
    entries = check.get(_logprobs(choice, "content"), "content", list)
    _named(check, [check.get(entry, "token", str) for entry in entries], ids)
    message = check.message(choice, ids)
    return Reply(
        prompt_ids=(prompt := check.ids(body, "prompt_token_ids")),
        completion_ids=ids,
        logprobs=check.logprobs([entry.get("logprob") for entry in entries], len(ids)),
        message=message,
        text=message.get("content") or "",
        finish_reason=check.finish_reason(choice),
        usage=check.usage(body, prompt, ids),
        raw=body,
    )


def completion(check: Check, body: dict[str, Any]) -> Reply:
    """Read an answer of the completions route; it has a text and no message."""
    choice = check.choice(body)
    ids = check.ids(choice, "token_ids")
    logprobs = _logprobs(choice, "tokens", "token_logprobs")
    _named(check, check.get(logprobs, "tokens", list), ids)
    return Reply(
        prompt_ids=(prompt := check.ids(choice, "prompt_token_ids")),
        completion_ids=ids,
        logprobs=check.logprobs(check.get(logprobs, "token_logprobs", list), len(ids)),
        message=None,
        text=check.get(choice, "text", str),
        finish_reason=check.finish_reason(choice),
        usage=check.usage(body, prompt, ids),
        raw=body,
    )


def spoken(reply: Reply, parsed: Parsed) -> Reply:
    """Return a completion's reply with the message that its text says."""
    called = bool(parsed.calls) and reply.finish_reason == "stop"
    return attrs.evolve(
        reply,
        message=parsed.message(f"call-{reply.raw.get('id')}"),
        finish_reason="tool_calls" if called else reply.finish_reason,
    )


def _logprobs(choice: dict[str, Any], *names: str) -> object:
    """Return the log-probabilities' object; a turn of no ids may come without."""
    empty = choice.get("token_ids") == [] and choice.get("logprobs") is None
    return {name: [] for name in names} if empty else choice.get("logprobs")


def _named(check: Check, tokens: Sequence[object], ids: Sequence[int]) -> None:
    """Demand that tokens written as ids are the ids."""
    found = [NAMED.fullmatch(token) if isinstance(token, str) else None for token in tokens]
    if found and all(found) and [int(match[1]) for match in found if match] != list(ids):
        check.fail("the log-probabilities belong to other ids than were sampled")


@attrs.define
class Endings:
    """Tells a cut turn from a finished one where vLLM does not.

    The chat route says `tool_calls` of any turn in which a call was parsed, of one that was cut off after the
    call too. The one end that it does not name is the end-of-sequence id; it is learnt from other turns.
    """

    seen: set[int] = attrs.field(factory=set)
    """Ids that turns have ended with, where the server named no other reason."""

    def learn(self, reply: Reply) -> None:
        """Take note of how an honestly named end looks."""
        if reply.finish_reason == "stop" and _stop_reason(reply) is None:
            self.seen.update(reply.completion_ids[-1:])

    def settle(self, reply: Reply, limit: int | None) -> Reply:
        """Return a chat's reply with the reason that it ended for; `limit` is the most ids it could have.

        A turn that fills its limit was cut where its last id ends no turn. As long as no end is known, the
        server's word stands.
        """
        self.learn(reply)
        if reply.finish_reason != "tool_calls" or len(reply.completion_ids) != limit or not self.seen:
            return reply
        ended = _stop_reason(reply) is not None or reply.completion_ids[-1] in self.seen
        return reply if ended else attrs.evolve(reply, finish_reason="length")


def _stop_reason(reply: Reply) -> object:
    """Return which stop ended the turn: an id, a string, or None for the end-of-sequence id and for none."""
    return reply.raw["choices"][0].get("stop_reason")

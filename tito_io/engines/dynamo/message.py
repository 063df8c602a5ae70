"""What a sampled turn says: the engine's own message where it is whole, else one made from the ids.

Dynamo's parser drops a call that is malformed, and makes one up of a call that was cut off: of `{"name":
"get_we` a call of `get_we` without arguments. The ids have what was sampled, so the message is compared with
what they spell. With a model folder they are read here, in the Hermes manner, where what is no well-formed
call stays in the content; without one the message stays as it came, and a notice says that it is not all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Message
from tito_io.engines.local_tokenizer import LocalVocabulary
from tito_io.engines.protocol import Reply
from tito_io.engines.replies.hermes import CALL, CALLED, THINK, THOUGHT
from tito_io.engines.replies.output_parser import Speech

from .notices import DynamoNotice

UNSPOKEN = re.compile(rf"\s|\ufffd|{THINK}|{THOUGHT}")
"""What parsers take away rightly, or spell otherwise: blanks, tags of thoughts, halves of characters."""


@attrs.frozen
class Reader:
    """Makes messages of ids, with a model folder's vocabulary."""

    vocabulary: LocalVocabulary
    speech: Speech

    async def settle(self, reply: Reply, *, tools: bool) -> Reply:
        """Return a reply with a message that says all that was sampled."""
        message, family = reply.message, self.vocabulary.family
        if message is not None:
            decode = family.decode if message.get("tool_calls") else self.vocabulary.shown
            if not swallowed(message, self._until_stop(reply, decode)):
                return reply
        notices = () if reply.message is None else (DynamoNotice.READ_FROM_IDS,)
        return await self._from_ids(attrs.evolve(reply, notices=(*reply.notices, *notices)), tools=tools)

    async def _from_ids(self, reply: Reply, *, tools: bool) -> Reply:
        text = self._until_stop(reply, self.vocabulary.family.decode)
        whole = not isinstance(reply.stop_reason, str)
        ids = _spoken(reply)
        parsed = await self.speech.parsed(reply.prompt_ids, ids, text, whole=whole, tools=tools)
        ended = "tool_calls" if parsed.calls else "stop"
        return attrs.evolve(
            reply,
            message=parsed.message(f"call-{reply.raw.get('id')}"),
            finish_reason=reply.finish_reason if reply.truncated else ended,
        )

    @staticmethod
    def _until_stop(reply: Reply, decode: Any) -> str:
        """Return a turn's text before what ended it.

        A stop string ends within the last id, so it is looked for no earlier than that allows.
        """
        ids = _spoken(reply)
        text: str = decode(ids)
        if not isinstance(reply.stop_reason, str):
            return text
        before = len(decode(ids[:-1])) - len(reply.stop_reason)
        found = text.find(reply.stop_reason, max(before, 0))
        return text if found < 0 else text[:found]


def _spoken(reply: Reply) -> Sequence[int]:
    """Return a turn's ids without the id that ended it."""
    by_id = reply.finish_reason in ("stop", "tool_calls") and not isinstance(reply.stop_reason, str)
    return reply.completion_ids[:-1] if by_id else reply.completion_ids


def flagged(reply: Reply) -> Reply:
    """Return a reply that says so where its message lacks something and there is nothing to read ids with.

    The text of every sampled id comes with its log-probability, special ones excepted. Without these, only a
    message that says nothing at all gives it away.
    """
    if reply.message is None:
        return reply
    shown = _tokens(reply)
    if shown is None:
        lacking = len(_spoken(reply)) > 0 and not (said(reply.message) or reply.message.get("tool_calls"))
    else:
        lacking = not isinstance(reply.stop_reason, str) and swallowed(reply.message, shown)
    return attrs.evolve(reply, notices=(*reply.notices, DynamoNotice.UNSAID)) if lacking else reply


def _tokens(reply: Reply) -> str | None:
    choice = reply.raw["choices"][0]
    entries = (choice.get("logprobs") or {}).get("content")
    return "".join(str(entry.get("token")) for entry in entries) if entries else None


def swallowed(message: Message | Mapping[str, Any], text: str) -> bool:
    """Whether a message says less than the text that it was made of, or calls what that does not.

    Dynamo repeats the arguments of calls in the Hermes manner as they were sampled; those in other manners
    are not looked into.

    >>> swallowed({"content": "Hi", "reasoning_content": "hm"}, "<think>hm</think> Hi")
    False
    >>> swallowed({"content": None}, '<tool_call>{"name"')
    True
    >>> swallowed({"content": "", "tool_calls": [{}]}, "<tool_call>a</tool_call> <tool_call>b</tool_call>")
    True
    >>> call = {"function": {"name": "get_we", "arguments": "{}"}}
    >>> swallowed({"content": "", "tool_calls": [call]}, '<tool_call>{"name": "get_we')
    True
    """
    calls = message.get("tool_calls") or ()
    if calls:
        return CALL in text and (len(calls) != text.count(CALL) or not _sampled(calls, text))
    return len(said(message)) < len(UNSPOKEN.sub("", text))


def _sampled(calls: Sequence[Mapping[str, Any]], text: str) -> bool:
    """Whether calls stand in a text, whole and with their arguments."""
    arguments = [str((call.get("function") or {}).get("arguments")) for call in calls]
    return text.count(CALLED) >= len(calls) and all(said in text for said in arguments)


def said(message: Message | Mapping[str, Any]) -> str:
    """Return what a message says, reasoning first, without blanks."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content") or ""
    return UNSPOKEN.sub("", f"{reasoning}{content}")

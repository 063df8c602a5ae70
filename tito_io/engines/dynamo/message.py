"""Messages for Dynamo's replies: the server's own where it is complete, else one parsed from the ids.

Dynamo's parser drops a malformed call, and completes a call that was cut off: from `{"name": "get_we` it
makes a call of `get_we` without arguments. So the message is compared with the text of the ids. With a model
folder the ids are parsed here, in the Hermes format, which leaves a malformed call in the content. Without
one the message stays as it came, and a notice says that it is incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Self

import attrs

from tito_core import Message
from tito_io.engines.protocol import Rendering, Reply
from tito_io.engines.replies.hermes import CALL, CALLED, THINKS, THOUGHTS, any_of
from tito_io.engines.replies.output_parser import Hermes, LocalTokenizer, with_message
from tito_io.engines.replies.output_text import ids_before_stop, until_stop
from tito_io.engines.replies.template_calls import Render, TemplateCalls
from tito_io.families.family import Family

from .replies import DynamoNotice

NOT_COMPARED = re.compile(rf"\s|\ufffd|{any_of(THINKS + THOUGHTS).pattern}")
"""What parsers drop or write otherwise, rightly: white space, tags of reasoning, halves of characters."""


@attrs.frozen
class MessageReader:
    """Parses messages from ids with a model folder."""

    family: Family
    parser: Hermes

    @classmethod
    def of(cls, family: Family, render: Render) -> Self:
        """Return the reader of a folder; `render` asks its template."""
        tokenizer = LocalTokenizer(family)
        return cls(family, Hermes(tokenizer, calls=TemplateCalls(tokenizer, render)))

    async def checked(self, reply: Reply, rendering: Rendering | None) -> Reply:
        """Return a reply with a message that holds everything that was sampled."""
        message, notices = reply.message, reply.notices
        if message is not None:
            decode = self.family.decode if message.get("tool_calls") else self._without_special
            if not incomplete(message, until_stop(reply, decode)):
                return reply
            notices = (*notices, DynamoNotice.READ_FROM_IDS)
        text, whole = until_stop(reply, self.family.decode), not isinstance(reply.stop_reason, str)
        parsed = await self.parser.parsed(
            reply.prompt_ids, ids_before_stop(reply), text, whole=whole, rendering=rendering
        )
        return with_message(attrs.evolve(reply, notices=notices), parsed, f"call-{reply.raw.get('id')}")

    def _without_special(self, ids: Sequence[int]) -> str:
        """Return the text of ids as servers send it, special tokens left out."""
        return self.family.tokenizer.decode(list(ids), skip_special_tokens=True)


def flagged(reply: Reply) -> Reply:
    """Return a reply, with a notice where its message is incomplete and there is no tokenizer to parse ids.

    The text of every sampled id comes with its log-probability, except for special tokens. Without
    log-probabilities only an empty message shows it.
    """
    if reply.message is None:
        return reply
    entries = (reply.raw["choices"][0].get("logprobs") or {}).get("content")
    if not entries:
        empty = not (compared_text(reply.message) or reply.message.get("tool_calls"))
        lacking = len(ids_before_stop(reply)) > 0 and empty
    else:
        text = "".join(str(entry.get("token")) for entry in entries)
        lacking = not isinstance(reply.stop_reason, str) and incomplete(reply.message, text)
    return attrs.evolve(reply, notices=(*reply.notices, DynamoNotice.INCOMPLETE)) if lacking else reply


def incomplete(message: Message | Mapping[str, Any], text: str) -> bool:
    """Whether a message holds less than the text from which it was parsed, or a call that is not in it.

    Dynamo repeats the arguments of calls in the Hermes format as they were sampled. Calls in other formats
    are not compared.

    >>> incomplete({"content": "Hi", "reasoning_content": "hm"}, "<think>hm</think> Hi")
    False
    >>> incomplete({"content": None}, '<tool_call>{"name"')
    True
    >>> incomplete({"content": "", "tool_calls": [{}]}, "<tool_call>a</tool_call> <tool_call>b</tool_call>")
    True
    >>> call = {"function": {"name": "get_we", "arguments": "{}"}}
    >>> incomplete({"content": "", "tool_calls": [call]}, '<tool_call>{"name": "get_we')
    True
    """
    calls = message.get("tool_calls") or ()
    if calls:
        arguments = [str((call.get("function") or {}).get("arguments")) for call in calls]
        whole = len(calls) == text.count(CALL) <= text.count(CALLED) and all(one in text for one in arguments)
        return CALL in text and not whole
    return len(compared_text(message)) < len(NOT_COMPARED.sub("", text))


def compared_text(message: Message | Mapping[str, Any]) -> str:
    """Return a message's text that is compared: reasoning and content, without white space."""
    reasoning = message.get("reasoning_content") or message.get("reasoning") or ""
    content = message.get("content") or ""
    return NOT_COMPARED.sub("", f"{reasoning}{content}")

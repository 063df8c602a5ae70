"""Conversations whose prompts Miles' tokenizer merges."""

from __future__ import annotations

from typing import Any

from miles_tito_tokenizers import apply_chat_template, extract_tool_dicts

from tests.frameworks.laws.rollouts import QUESTION, TOOL, Given, Rollouts, Talk, results
from tito_io.integrations.miles import BridgeTITOTokenizer

CALL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 3, "b": 4}'}}
TURN = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "7"}


class ROLLOUTS(Rollouts):
    """Miles, which has no choice of what follows a refusal."""

    tools = tuple(extract_tool_dicts([TOOL]))  # what its templates get
    between = ({results("7")},) * 3
    choices = ()

    async def talk(self, given: Given) -> Talk:
        variables = given.template_args
        merger = BridgeTITOTokenizer(given.tokenizer, variables)
        messages: list[Any] = [QUESTION]
        ids = list(
            apply_chat_template(messages, tokenizer=given.tokenizer, tokenize=True, tools=[TOOL], **variables)
        )
        mask = [0] * len(ids)
        for number in range(self.turns):
            sampled = given.engine.sample(ids).ids
            ids, mask = [*ids, *sampled], [*mask, *[1] * len(sampled)]
            if number + 1 < self.turns:
                before, messages = [*messages, TURN], [*messages, TURN, RESULT]
                ids = merger.merge_tokens(before, messages, ids, [TOOL])
                mask += [0] * (len(ids) - len(mask))
        return Talk(ids, mask, None, merger.built["ids"], merger.refused)

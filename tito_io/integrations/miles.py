"""Miles: a `TITOTokenizer` for any chat template.

Relies on miles-tito-tokenizers 0.1: `miles_tito_tokenizers/tokenizer.py`, whose `TITOTokenizer.merge_tokens`
takes old and new messages, the ids of the old ones and tools, and returns the next prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tito_core import Refusal
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import CountsPrompts, NextPrompts, RefusedError

TAKES = ("old_messages", "new_messages", "pretokenized_token_ids", "tools")
SEAMS: Seams = {"miles_tito_tokenizers:TITOTokenizer.merge_tokens": TAKES}
required("miles-tokenizers", SEAMS)

from miles_tito_tokenizers import (
    TITOTokenizer,
    assert_messages_append_only_with_allowed_role,
    extract_tool_dicts,
    normalize_tool_arguments,
)


class CannotMergeError(RefusedError, ValueError):
    """Ids and messages cannot be merged; Miles handles errors of merging as `ValueError`."""


class BridgeTITOTokenizer(CountsPrompts, TITOTokenizer):
    """A `TITOTokenizer` that writes what the chat template writes, whatever the model family is.

    All given ids come back unchanged: none is trimmed, and a close that was not sampled is written after
    them. Use it in the place of the class of a family, with the model's own chat template or a fixed one.

        tokenizer = BridgeTITOTokenizer(AutoTokenizer.from_pretrained(name), allowed_append_roles=["tool"])

    Args:
        tokenizer: The tokenizer, with the chat template that renders.
        chat_template_kwargs: Variables for the template.
        stop_ids: The ids that end a turn. None: those of the tokenizer's folder or its end of sequence.
        given: Further arguments of `TITOTokenizer`.

    Raises:
        InputError: The tokenizer has no chat template.
    """

    _prompts: NextPrompts

    def __init__(
        self,
        tokenizer: Any,
        chat_template_kwargs: dict[str, Any] | None = None,
        *,
        stop_ids: Sequence[int] | None = None,
        **given: Any,
    ) -> None:
        super().__init__(tokenizer, chat_template_kwargs, **given)
        self._prompts = NextPrompts.of(
            tokenizer, stop_ids=stop_ids, template_args=chat_template_kwargs, on_refusal="end"
        )

    def merge_tokens(
        self,
        old_messages: list[dict[str, Any]],
        new_messages: list[dict[str, Any]],
        pretokenized_token_ids: list[int],
        tools: list[dict[str, Any]] | None = None,
    ) -> list[int]:
        """Return the ids so far, and what the template writes for the messages after `old_messages`.

        Raises:
            CannotMergeError: What the template writes cannot be proven, or it rejects the messages.
            ValueError: The messages do not extend the old ones, or one has a role that is not allowed.
        """
        assert_messages_append_only_with_allowed_role(old_messages, new_messages, self.allowed_append_roles)
        messages = normalize_tool_arguments(new_messages, "dict")  # as Miles renders them
        count = len(old_messages)
        found = self._prompts.extend(
            pretokenized_token_ids,
            messages[count:],
            tools=extract_tool_dicts(tools),
            turn=messages[count - 1] if count else None,
            history=messages[: max(count - 1, 0)],
        )
        if isinstance(found, Refusal):
            raise CannotMergeError(found)
        return found.ids.tolist()

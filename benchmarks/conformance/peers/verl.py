"""verl's Continuous Token builder: that of Qwen for templates of ChatML, the default one for others."""

from __future__ import annotations

from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder, QwenContinuousTokenBuilder

from benchmarks.conformance.asked import Asked

PACKAGE, OPERATION = "verl", "`merge_context_tokens` of a Continuous Token builder"


def next_prompt(asked: Asked) -> list[int] | None:
    """Merge the new messages into the ids."""
    kind = QwenContinuousTokenBuilder if asked.chatml else ContinuousTokenBuilder
    builder = kind(asked.tokenizer, chat_template_kwargs=asked.arguments)
    merged = builder.merge_context_tokens(
        asked.before, [*asked.before, *asked.new], asked.ids, tools=asked.tools
    )
    return list(merged.token_ids)

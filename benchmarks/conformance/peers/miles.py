"""Miles' tokenizers: that of Qwen3 for templates of ChatML, the default one for others."""

from __future__ import annotations

from miles_tito_tokenizers import TITOTokenizerType, get_tito_tokenizer

from benchmarks.conformance.asked import Asked

PACKAGE, OPERATION = "miles-tito-tokenizers", "`merge_tokens`"


def next_prompt(asked: Asked) -> list[int] | None:
    """Merge the new messages into the ids."""
    merger = get_tito_tokenizer(
        asked.tokenizer,
        TITOTokenizerType.QWEN3 if asked.chatml else TITOTokenizerType.DEFAULT,
        # A class may bring a template of its own; the vector's is used.
        chat_template_kwargs={**asked.arguments, "chat_template": asked.question["template"]},
        allowed_append_roles=["tool", "user"] if asked.chatml else ["tool", "user", "system"],
    )
    found = merger.merge_tokens(asked.before, [*asked.before, *asked.new], asked.ids, asked.tools)
    return list(found)

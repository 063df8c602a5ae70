"""TRL's ids of tool results, which the loop of `GRPOTrainer` appends to sampled ids."""

from __future__ import annotations

from types import SimpleNamespace

from trl.chat_template_utils import get_training_chat_template, is_chat_template_prefix_preserving
from trl.trainer.grpo_trainer import GRPOTrainer

from benchmarks.conformance.asked import Asked, NotOffered

PACKAGE, OPERATION = "trl", "tool results in the loop of `GRPOTrainer`"


def next_prompt(asked: Asked) -> list[int] | None:
    """Append the ids of tool results; the loop has no turn after anything else."""
    if not asked.new or any(message["role"] != "tool" for message in asked.new):
        raise NotOffered("messages other than tool results after a turn")
    tokenizer = asked.tokenizer
    kept = is_chat_template_prefix_preserving(tokenizer)
    trainer = SimpleNamespace(
        processing_class=tokenizer,
        chat_template=None if kept else get_training_chat_template(tokenizer),
        chat_template_kwargs=asked.arguments,
        _is_vlm=False,
        _tokenizer=tokenizer,
    )
    named = [{**message, "name": _name(asked, message)} for message in asked.new]  # as the loop writes them
    return [*asked.ids, *GRPOTrainer._get_tool_suffix_ids(trainer, named)]  # noqa: SLF001  # the loop's own step


def _name(asked: Asked, message: dict[str, object]) -> str:
    """Return the name of the tool whose result a message is."""
    calls = [call for one in asked.before for call in one.get("tool_calls") or ()]
    names = [call["function"]["name"] for call in calls if call["id"] == message.get("tool_call_id")]
    return str(names[-1]) if names else "unknown"

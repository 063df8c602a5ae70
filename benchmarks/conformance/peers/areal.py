"""AReaL's concatenation of an interaction with its parent."""

from __future__ import annotations

from importlib import import_module

import tests.frameworks.areal.conftest  # noqa: F401  # it lets AReaL be imported without its launchers
from benchmarks.conformance.asked import Asked

PACKAGE, OPERATION = "areal", "`concat_prompt_token_ids_with_parent`"
client = import_module("areal.experimental.openai.client")  # after its set-up
types = import_module("areal.experimental.openai.types")
requests = import_module("areal.api.io_struct")


def next_prompt(asked: Asked) -> list[int] | None:
    """Concatenate the new messages with the ids of the last interaction."""
    step = asked.step
    response = requests.ModelResponse(
        input_tokens=list(step["prompt_ids"]),
        output_tokens=list(step["sampled_ids"]),
        stop_reason="length" if step["cut"] else "stop",
        tokenizer=asked.tokenizer,
    )
    parent = types.InteractionWithTokenLogpReward(
        model_response=response,
        messages=list(step["messages"]),
        output_message_list=[step["turn"]],
        chat_template_type="concat",
    )
    more = {"chat_template_kwargs": asked.arguments}
    concatenate = client.concat_prompt_token_ids_with_parent
    return list(concatenate(asked.new, parent, asked.tokenizer, tools=asked.tools, extra_body=more))

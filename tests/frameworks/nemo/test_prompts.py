"""Prompt ids for NeMo-RL's chat servers."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_io.integrations.nemo import ServerPrompts
from tito_io.integrations.next_prompts import RefusedError

HELLO = {"role": "user", "content": "Hello."}
TURN = {"role": "assistant", "content": "Z"}
AGAIN = {"role": "user", "content": "And in Rome?"}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
WORD, STOP = 57, 1517


def rendered(tokenizer: Any, messages: Any, **options: Any) -> list[int]:
    ids: list[int] = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False, **options
    )
    return ids


def sampled(tokenizer: Any, *ids: int, **message: Any) -> dict[str, Any]:
    """Return a turn as Gym hands it to the next request."""
    return {
        **TURN,
        **message,
        "prompt_token_ids": rendered(tokenizer, [HELLO]),
        "generation_token_ids": list(ids),
        "generation_log_probs": [-0.5] * len(ids),
    }


def test_a_first_prompt_is_rendered(tokenizer: Any) -> None:
    prompts = ServerPrompts()
    assert prompts.replace_prefix_tokens(tokenizer, [], [HELLO]) == rendered(tokenizer, [HELLO])
    request = {"messages": [HELLO], "tools": [TOOL]}
    assert prompts.prompt_token_ids(tokenizer, request) == rendered(tokenizer, [HELLO], tools=[TOOL])
    assert prompts.built == {}


def test_ids_come_from_the_field_of_the_request_or_from_the_last_turn_that_has_them(tokenizer: Any) -> None:
    prompts, turn = ServerPrompts(), sampled(tokenizer, WORD, WORD)
    ids = [*turn["prompt_token_ids"], *turn["generation_token_ids"]]
    expected = prompts.replace_prefix_tokens(tokenizer, ids, [HELLO, TURN, AGAIN])
    named = {"messages": [HELLO, TURN, AGAIN], "required_prefix_token_ids": ids}
    assert prompts.prompt_token_ids(tokenizer, named) == expected
    assert prompts.prompt_token_ids(tokenizer, {"messages": [HELLO, turn, AGAIN]}) == expected
    other = {"messages": [HELLO, turn, AGAIN], "required_prefix_token_ids": [*ids[:-1], STOP]}
    assert prompts.prompt_token_ids(tokenizer, other)[: len(ids)] == [*ids[:-1], STOP]


def test_a_turn_without_ids_is_text_after_the_one_that_has_them(tokenizer: Any) -> None:
    turn = sampled(tokenizer, WORD, STOP)
    found = ServerPrompts().prompt_token_ids(tokenizer, {"messages": [HELLO, turn, AGAIN, TURN, AGAIN]})
    assert found == rendered(tokenizer, [HELLO, TURN, AGAIN, TURN, AGAIN])


def test_the_last_of_several_turns_with_ids_is_continued(tokenizer: Any) -> None:
    prompts, first = ServerPrompts(), sampled(tokenizer, WORD, WORD)
    prompt = prompts.prompt_token_ids(tokenizer, {"messages": [HELLO, first, AGAIN]})
    second = {**TURN, "prompt_token_ids": prompt, "generation_token_ids": [WORD, WORD]}
    found = prompts.prompt_token_ids(tokenizer, {"messages": [HELLO, first, AGAIN, second, AGAIN]})
    assert found[: len(prompt) + 2] == [*prompt, WORD, WORD]


@pytest.mark.parametrize(("text", "value"), [('{"city": "Oslo"}', {"city": "Oslo"}), ("", {})])
def test_arguments_are_rendered_as_objects(tokenizer: Any, text: str, value: Any) -> None:
    def conversation(arguments: Any) -> list[dict[str, Any]]:
        call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": arguments}}
        turn = {**TURN, "tool_calls": [call]}
        return [HELLO, turn, {"role": "tool", "tool_call_id": "a", "content": "sun"}]

    found = ServerPrompts().prompt_token_ids(tokenizer, {"messages": conversation(text), "tools": [TOOL]})
    assert found == rendered(tokenizer, conversation(value), tools=[TOOL])


def test_ids_on_messages_are_not_rendered(tokenizer: Any) -> None:
    counting = tokenizer
    counting.chat_template = "{% for message in messages %}{{ message | length }}{% endfor %}"
    turn = {**TURN, "generation_log_probs": [-0.5], "routed_experts": "x", "prompt_token_ids": [1]}
    found = ServerPrompts().prompt_token_ids(counting, {"messages": [HELLO, turn, AGAIN]})
    assert found == rendered(counting, [HELLO, TURN, AGAIN])


# Refusals and bad input


def test_images_are_an_error_whatever_the_choice(tokenizer: Any) -> None:
    request = {"messages": [HELLO, sampled(tokenizer, WORD, STOP), IMAGE]}
    for prompts in (ServerPrompts(), ServerPrompts(on_refusal="rerender")):
        with pytest.raises(RefusedError, match="MULTIMODAL"):
            prompts.prompt_token_ids(tokenizer, request)


@pytest.mark.parametrize("more", [{"add_generation_prompt": False}, {"continue_final_message": True}])
def test_a_turn_that_is_continued_is_an_error(tokenizer: Any, more: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="ids are only built for a new assistant turn"):
        ServerPrompts().prompt_token_ids(tokenizer, {"messages": [HELLO], **more})


def test_ids_without_a_turn_are_an_error(tokenizer: Any) -> None:
    with pytest.raises(InputError, match="messages have no assistant message"):
        ServerPrompts().replace_prefix_tokens(tokenizer, [1, 2], [HELLO])
    with pytest.raises(InputError, match="the request has no messages"):
        ServerPrompts().prompt_token_ids(tokenizer, {"prompt": "Hello."})

"""verl's Continuous Token builder on tito: its merges, its masks, its refusals."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.frameworks.verl.rollout import Rollout
from tito_core import InputError, OddStop, Policy
from tito_core.policy import Truncated
from tito_core.seams.seam import common_prefix
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.verl import TitoContinuousTokenBuilder

HELLO = {"role": "user", "content": "Hello."}
TURN = {"role": "assistant", "content": "Z"}
AGAIN = {"role": "user", "content": "And in Rome?"}
WORD, STOP, NEWLINE = 57, 1517, 198
CALL = {"type": "function", "function": {"name": "weather", "arguments": {}}}
CALLING = {"role": "assistant", "content": "Z", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "sun"}
NO_CUT_TURNS = Policy(truncated=Truncated.REFUSE)
IMAGE = {"role": "user", "content": [{"type": "image", "image": "cat.png"}]}


@pytest.fixture
def builder(tokenizer: Any) -> Any:
    return TitoContinuousTokenBuilder(tokenizer)


def merged(builder: Any, *sampled: int, new: Any = AGAIN, turn: Any = TURN) -> Any:
    ids = [*builder.build_initial_tokens([HELLO]), *sampled]
    return builder.merge_context_tokens([HELLO, turn], [HELLO, turn, new], ids)


def test_the_close_is_inserted_and_the_rest_appended(builder: Any, tokenizer: Any) -> None:
    for sampled, inserted in (([WORD, STOP], [NEWLINE]), ([WORD], [STOP, NEWLINE])):
        found = merged(builder, *sampled)
        render = tokenizer.apply_chat_template(
            [HELLO, TURN, AGAIN], add_generation_prompt=True, return_dict=False
        )
        assert found.inserted_token_ids == inserted
        assert found.removed_prefix_token_count == 0
        assert found.kind == "context"
        start = len(found.token_ids) - found.appended_token_count
        assert found.token_ids[start:] == render[-found.appended_token_count :]
        assert found.token_ids[start - len(inserted) : start] == inserted
        assert start == len(builder.build_initial_tokens([HELLO])) + len(sampled) + len(inserted)


def test_a_replaced_stop_is_a_removed_id(tokenizer: Any) -> None:
    shared = SharedPrompts(stop_ids=[STOP, 1515], policy=Policy(odd_stop=OddStop.REPLACE))
    found = merged(TitoContinuousTokenBuilder(tokenizer, shared=shared), WORD, 1515)
    assert (found.removed_prefix_token_count, found.inserted_token_ids) == (1, [STOP, NEWLINE])
    prompt = len(tokenizer.apply_chat_template([HELLO], add_generation_prompt=True, return_dict=False))
    assert found.token_ids[prompt : prompt + 3] == [WORD, STOP, NEWLINE]


def test_the_content_may_have_the_text_of_the_stop(builder: Any, tokenizer: Any) -> None:
    """Parsers of verl decode a turn with its special tokens, and leave them in the content."""
    turn = {**CALLING, "content": tokenizer.decode([WORD, STOP])}
    assert turn["content"] == "Z<|done|>"
    ids = [*builder.build_initial_tokens([HELLO]), WORD, STOP]
    found, plain = (
        builder.merge_context_tokens([HELLO, one], [HELLO, one, RESULT], ids) for one in (turn, CALLING)
    )
    assert found == plain
    assert found.inserted_token_ids == [NEWLINE]


def test_nothing_new_changes_nothing(builder: Any) -> None:
    found = builder.merge_context_tokens([HELLO, TURN], [HELLO, TURN], [1, 2, 3])
    assert (found.token_ids, found.appended_token_count, found.inserted_token_ids) == ([1, 2, 3], 0, [])


def test_the_name_of_verl_0_9_0_is_the_same_merge() -> None:
    assert (
        TitoContinuousTokenBuilder.merge_non_assistant_tokens
        is TitoContinuousTokenBuilder.merge_context_tokens
    )


def test_changed_messages_are_an_error(builder: Any) -> None:
    with pytest.raises(ValueError, match="append-only"):
        builder.merge_context_tokens([HELLO, TURN], [AGAIN, TURN, AGAIN], [1, 2, 3])
    with pytest.raises(InputError, match="previous_messages is empty: give the messages up to"):
        builder.merge_context_tokens([], [AGAIN], [1, 2, 3])


def test_a_prompt_without_a_turn_is_refused(builder: Any) -> None:
    with pytest.raises(RefusedError, match=r"NOT_ASSISTANT: .*: the turn is a user message"):
        builder.merge_context_tokens([HELLO], [HELLO, AGAIN], builder.build_initial_tokens([HELLO]))


def test_template_arguments_of_verls_configuration_are_used(tokenizer: Any) -> None:
    omegaconf = importlib.import_module("omegaconf")  # what verl's configuration is made of
    arguments = omegaconf.OmegaConf.create({"enable_thinking": False, "nested": {"a": [1]}})
    found = TitoContinuousTokenBuilder(tokenizer, chat_template_kwargs=arguments)
    assert found.prompts.template_args == {"enable_thinking": False, "nested": {"a": [1]}}
    assert merged(found, WORD, STOP).appended_token_count > 0


def test_builders_of_one_tokenizer_share_what_was_asked(tokenizer: Any) -> None:
    shared = SharedPrompts()
    one, other = (TitoContinuousTokenBuilder(tokenizer, shared=shared) for _ in range(2))
    assert one.prompts is other.prompts
    third = TitoContinuousTokenBuilder(tokenizer, shared=shared, chat_template_kwargs={"a": 1})
    assert third.prompts is not one.prompts


# Refusals


def test_a_fresh_render_trains_only_what_it_shares(tokenizer: Any) -> None:
    shared = SharedPrompts(policy=NO_CUT_TURNS, on_refusal="rerender")
    rollout = Rollout(TitoContinuousTokenBuilder(tokenizer, shared=shared), [HELLO])
    rollout.sample([WORD, STOP], TURN)
    rollout.answer(AGAIN)
    rollout.sample([WORD, WORD, WORD], {**TURN, "content": "Zq"})
    before = rollout.ids
    rollout.answer(AGAIN)
    render = tokenizer.apply_chat_template(rollout.messages, add_generation_prompt=True, return_dict=False)
    same = common_prefix(before, render)
    assert rollout.ids == render
    assert rollout.trained() == [(at, one) for at, one in rollout.sampled if at < same]
    assert len(rollout.trained()) == 3
    assert len(rollout.mask) == len(rollout.logprobs)
    assert shared.refused == {"TRUNCATED": 1}


def test_a_fresh_render_may_share_less_than_the_prompt(tokenizer: Any) -> None:
    builder = TitoContinuousTokenBuilder(tokenizer, shared=SharedPrompts(on_refusal="rerender"))
    found = builder.merge_context_tokens([HELLO], [HELLO, AGAIN], [1, 2, 3])
    render = builder.build_initial_tokens([HELLO, AGAIN])
    assert (found.token_ids, found.removed_prefix_token_count) == (render, 3)
    assert builder.align_response_metadata(found, [1], [-1.0]) == ([0] * len(render), [0.0] * len(render))


def test_images_are_an_error_whatever_the_choice(tokenizer: Any) -> None:
    for shared in (SharedPrompts(), SharedPrompts(on_refusal="rerender")):
        with pytest.raises(RefusedError, match="MULTIMODAL"):
            merged(TitoContinuousTokenBuilder(tokenizer, shared=shared), WORD, STOP, new=IMAGE)
        assert shared.refused == {"MULTIMODAL": 1}

"""Why rollouts end, and what the rows then hold."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tito_core import InputError
from tito_io.integrations.trl import ToolRollout

from .families import RESPONSE, own
from .training import QUESTION, Engine, Model, made, multiply, train


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return own(tmp_path)


def rows(model: Model, replies: list[list[int]], folder: Path, **given: Any) -> tuple[Any, Engine, Any]:
    """Train on two conversations with these replies; return the rewarded columns of the first one."""
    engine = Engine([replies] * 2, model.tokenizer.pad_token_id)
    rollout = ToolRollout(given.pop("functions", [multiply]), parse=model.parse)
    seen = train(model, engine, folder, rollout_func=rollout, **given)
    columns = seen.rewarded[0]
    found = {name: columns[name][0] for name in ("rollout_end", "rollout_messages", "completion_ids")}
    return found, engine, seen


def roles(row: Any) -> list[str]:
    return [message["role"] for message in row["rollout_messages"]]


SPOKEN, CALLED = ["assistant"], ["assistant", "tool"]
ENDS: list[tuple[str, list[Any], dict[str, int], list[str]]] = [
    ("answer", [(3, 4), "48"], {}, [*CALLED, *SPOKEN]),
    ("length", ["4848"], {"max_completion_length": 3}, SPOKEN),
    ("turns", [(n, 2) for n in range(2, 6)], {"max_tool_calling_iterations": 2}, [*CALLED, *CALLED, *SPOKEN]),
]


@pytest.mark.parametrize(("end", "said", "limits", "expected"), ENDS, ids=[end for end, *_ in ENDS])
def test_a_rollout_ends_for_a_reason(
    model: Model, tmp_path: Path, end: str, said: list[Any], limits: Any, expected: list[str]
) -> None:
    replies = [model.answering(one) if isinstance(one, str) else model.calling(*one) for one in said]
    row, engine, seen = rows(model, replies, tmp_path, **limits)
    assert (row["rollout_end"], roles(row)) == (end, expected)
    turns = expected.count("assistant")
    assert [len(prompts) for prompts in engine.prompts] == [turns] * 2
    sampled = list(chain(*replies[:turns]))
    assert seen.sampled()[0] == sampled[: limits.get("max_completion_length")]
    if end == "answer":
        assert row["rollout_messages"][-1]["content"] == "48"


def test_ids_after_the_limit_are_cut_from_later_turns(model: Model, tmp_path: Path) -> None:
    replies = [model.calling(3, 4), model.answering("x" * 100)]
    most = len(model.calling(3, 4)) + 50
    row, engine, seen = rows(model, replies, tmp_path, max_completion_length=most)
    added = len(engine.prompts[0][1]) - len(engine.prompts[0][0]) - len(replies[0])
    assert row["rollout_end"] == "length"
    assert len(row["completion_ids"]) == most
    assert seen.sampled()[0] == replies[0] + replies[1][: 50 - added]


def test_no_tool_runs_after_the_limit(model: Model, tmp_path: Path) -> None:
    ran: list[int] = []

    def multiply(a: int, b: int) -> int:
        """Multiply two integers.

        Args:
            a: The first integer.
            b: The second integer.
        """
        ran.append(a * b)
        return a * b

    call = model.calling(3, 4)
    row, _, _ = rows(model, [call], tmp_path, functions=[multiply], max_completion_length=len(call))
    assert (row["rollout_end"], roles(row), ran) == ("length", ["assistant"], [])


@pytest.mark.parametrize("limit", ["max_completion_length", "context"])
def test_tool_results_that_do_not_fit_are_left_out(model: Model, tmp_path: Path, limit: str) -> None:
    call = model.calling(3, 4)
    prompt = len(
        made(model, tmp_path).trainer.processing_class.apply_chat_template([QUESTION], tools=[multiply])[
            "input_ids"
        ]
    )
    most = {"max_completion_length": len(call) + 5, "context": prompt + len(call) + 10}[limit]
    row, _, seen = rows(model, [call, model.answering()], tmp_path, **{limit: most})
    assert (row["rollout_end"], roles(row)) == ("length", ["assistant"])
    assert seen.sampled()[0] == row["completion_ids"] == call


def test_a_model_may_have_no_limit_of_its_own(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = made(model, tmp_path).trainer
    monkeypatch.setattr(type(trainer.model.config), "get_text_config", lambda _: object())
    replies = iter([model.calling(3, 4), model.answering()])
    trainer._generate_single_turn = lambda *_: ([next(replies)], None)
    found = ToolRollout([multiply], parse=model.parse)([[QUESTION]], trainer)
    assert found["rollout_end"] == ["answer"]
    trainer.args.vllm_max_model_length = len(found["prompt_ids"][0]) + len(found["completion_ids"][0]) - 5
    replies = iter([model.calling(3, 4)])
    assert ToolRollout([multiply], parse=model.parse)([[QUESTION]], trainer)["rollout_end"] == ["length"]


def test_a_reply_that_cannot_be_parsed_is_text(model: Model, tmp_path: Path) -> None:
    broken = model.calling(3, 4)
    broken[-6] = broken[-7]
    row, _, seen = rows(model, [broken], tmp_path)
    assert row["rollout_end"] == "answer"
    assert row["rollout_messages"] == [
        {"role": "assistant", "content": model.tokenizer.decode(broken, skip_special_tokens=True)}
    ]
    assert seen.sampled()[0] == broken


def test_a_stop_that_the_template_does_not_write_is_kept(model: Model, tmp_path: Path) -> None:
    odd = [*model.calling(3, 4)[:-1], model.stops[1]]
    row, engine, seen = rows(model, [odd, model.answering()], tmp_path)
    added = engine.prompts[0][1][len(engine.prompts[0][0]) + len(odd) :]
    assert row["rollout_end"] == "answer"
    assert added[0] == model.stops[0]
    assert seen.sampled()[0] == odd + model.answering()


def without_results(model: Model) -> None:
    """Give the tokenizer a template that rejects tool results."""
    model.tokenizer.chat_template = model.tokenizer.chat_template.replace("message.role == 'tool'", "false")


def test_a_refusal_ends_a_rollout(model: Model, tmp_path: Path) -> None:
    without_results(model)
    engine = Engine([[model.calling(3, 4)], [model.answering()]], model.tokenizer.pad_token_id)
    rollout = ToolRollout([multiply], parse=model.parse)
    seen = train(model, engine, tmp_path, rollout_func=rollout)
    assert seen.rewarded[0]["rollout_end"] == ["refused", "answer"]
    assert [len(messages) for messages in seen.rewarded[0]["rollout_messages"]] == [1, 1]
    assert seen.sampled() == [model.calling(3, 4), model.answering()]
    assert rollout.refused == {"TEMPLATE_REFUSED": 1}
    assert rollout.built == 0


def test_without_tools_there_is_one_turn(model: Model, tmp_path: Path) -> None:
    engine = Engine([[model.answering()], [model.calling(3, 4)]], model.tokenizer.pad_token_id)
    seen = train(model, engine, tmp_path, rollout_func=ToolRollout())
    rendered = model.tokenizer.apply_chat_template([QUESTION], add_generation_prompt=True)["input_ids"]
    assert engine.prompts == [[rendered]] * 2
    assert seen.rewarded[0]["rollout_end"] == ["answer"] * 2
    assert seen.sampled() == [model.answering(), model.calling(3, 4)]


def test_tools_of_the_trainer_are_refused(model: Model, tmp_path: Path) -> None:
    class Playing(ToolRollout):
        """Stands for a rollout function that was given beside tools."""

    trainer = made(model, tmp_path, rollout_func=Playing([multiply], parse=model.parse)).trainer
    trainer.tools = [multiply]
    with pytest.raises(InputError, match="tools: give them to ToolRollout alone"):
        trainer.rollout_func([[QUESTION]], trainer)


def test_a_prompt_that_is_a_text_is_rejected(model: Model, tmp_path: Path) -> None:
    trainer = made(model, tmp_path).trainer
    with pytest.raises(InputError, match="prompt: give a list of messages, and not a text"):
        ToolRollout([multiply], parse=model.parse)(["What is 3 * 4?"], trainer)


def test_a_parser_is_asked_for_where_trl_has_none(model: Model, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="parse: TRL has no parser for this chat template"):
        ToolRollout([multiply])([[QUESTION]], made(model, tmp_path).trainer)


def test_the_tokenizers_own_parser_is_used(model: Model, tmp_path: Path) -> None:
    model.tokenizer.response_template = RESPONSE
    replies = [[model.calling(3, 4), model.answering()]] * 2
    engine = Engine(replies, model.tokenizer.pad_token_id)
    seen = train(model, engine, tmp_path, rollout_func=ToolRollout([multiply]))
    assert seen.rewarded[0]["rollout_messages"][0][1]["content"] == "12"
    assert seen.sampled() == [list(chain(*one)) for one in replies]

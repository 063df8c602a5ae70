"""What a dialect answered comes back as the message that the engine gave."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from anthropic.types import Message
from hypothesis import given
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tito_core import Forgiveness
from tito_core.normalization.canonical import normalize
from tito_core.normalization.compare import same
from tito_io.dialects import Anthropic, Chat, Dialect, Google, Responses
from tito_io.dialects.message_parts import RAW
from tito_io.dialects.wire import dumps

from .dialect_turns import HELLO, answer, messages

CHAT, ANTHROPIC, RESPONSES, GOOGLE = Chat(), Anthropic(), Responses(), Google()
DIALECTS: tuple[Dialect, ...] = (CHAT, ANTHROPIC, RESPONSES, GOOGLE)
ASKING = {"choices": [{"message": HELLO}], "content": "", "output": [], "candidates": [{"content": {}}]}
"""What `echo` makes a first request of."""
SAYING = {"role": "user", "parts": [{"text": "hi"}]}


def echo(dialect: Dialect, whole: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a client that appends what it was answered."""
    if dialect is CHAT:
        return {"messages": [HELLO, whole["choices"][0]["message"], HELLO]}
    if dialect is ANTHROPIC:
        said = {"role": "assistant", "content": whole["content"]}
        return {"max_tokens": 9, "messages": [HELLO, said, HELLO]}
    if dialect is GOOGLE:
        return {"contents": [SAYING, whole["candidates"][0]["content"], SAYING]}
    return {"input": [HELLO, *whole["output"], HELLO]}


def by_sdk(dialect: Dialect, whole: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a client that appends the objects of its SDK, as the SDK writes them."""
    if dialect is CHAT:
        said = ChatCompletion.model_validate(whole).choices[0].message
        return {"messages": [HELLO, said.model_dump(exclude_none=True), HELLO]}
    if dialect is ANTHROPIC:
        param = Message.model_validate(whole).to_param()
        blocks = [one.model_dump() for one in param["content"]]  # type: ignore[union-attr]  # objects, as answered
        return {"max_tokens": 9, "messages": [HELLO, {"role": "assistant", "content": blocks}, HELLO]}
    if dialect is GOOGLE:
        return echo(dialect, whole)  # its client runs in `tests/agents`
    output = [one.model_dump() for one in Response.model_validate(whole).output]
    return {"input": [HELLO, *output, HELLO]}


def wire(body: dict[str, Any]) -> dict[str, Any]:
    """Return a body as it comes out of the other end of a wire."""
    found: dict[str, Any] = orjson.loads(dumps(body))
    return found


@given(message=messages())
@pytest.mark.parametrize("echoing", [echo, by_sdk])
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_was_answered_comes_back_the_same(
    dialect: Dialect, echoing: Any, message: dict[str, Any]
) -> None:
    asked = dialect.parse(echo(dialect, ASKING))
    body = echoing(dialect, wire(dialect.answer_body(asked, answer(message))))
    back = dialect.parse(wire(body)).messages
    assert [one["role"] for one in back] == ["user", "assistant", "user"]
    assert normalize(back[1]) == normalize(message)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_what_is_forgiven_is_spelling(dialect: Dialect) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    message = {"role": "assistant", "content": "so", "reasoning": "hm", "tool_calls": [call]}
    asked = dialect.parse(echo(dialect, ASKING))
    back = dialect.parse(wire(echo(dialect, wire(dialect.answer_body(asked, answer(message)))))).messages[1]
    forgiven: dict[Dialect, set[Forgiveness]] = {
        CHAT: {Forgiveness.ABSENT, Forgiveness.OTHER_KEYS, Forgiveness.REASONING_NAME}
    }
    found = same(message, back)
    assert found is not None
    assert found <= forgiven.get(dialect, {Forgiveness.ARGUMENTS})


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        *((text, {RAW: text}) for text in ('{"a": ', '{"n": 1e400}', "[1]", '{"tito_raw_arguments": "x"}')),
        ('{"a": 1, "a": 2}', {"a": 2}),  # as every JSON reader has them
    ],
)
def test_arguments_that_are_no_object_come_as_their_text(arguments: str, given: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    asked = ANTHROPIC.parse({"messages": [HELLO], "max_tokens": 9})
    whole = ANTHROPIC.answer_body(asked, answer({"role": "assistant", "content": None, "tool_calls": [call]}))
    assert whole["content"] == [{"type": "tool_use", "id": "c", "name": "f", "input": given}]


@pytest.mark.parametrize(
    ("finish", "stop", "told"),
    [
        ("stop", None, ("tool_use", None)),
        ("tool_calls", None, ("tool_use", None)),
        ("length", None, ("max_tokens", None)),
        ("stop", "END", ("tool_use", "END")),
        ("stop", "END", ("stop_sequence", "END")),
        ("stop", 7, ("end_turn", None)),
    ],
)
def test_calls_are_why_a_turn_ended_whatever_an_engine_calls_it(finish: str, stop: Any, told: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = ANTHROPIC.parse({"messages": [HELLO], "max_tokens": 9, "stop_sequences": ["END"]})
    calls = {} if told[0] in ("stop_sequence", "end_turn") else {"tool_calls": [call]}
    message = {"role": "assistant", "content": "so", **calls}
    whole = ANTHROPIC.answer_body(asked, answer(message, finish_reason=finish, stop_reason=stop))
    assert (whole["stop_reason"], whole["stop_sequence"]) == told


def test_an_aborted_turn_is_no_answer() -> None:
    with pytest.raises(ValueError, match="finish_reason"):
        answer({"role": "assistant", "content": "so"}, finish_reason="abort")


def test_half_a_character_and_a_missing_log_probability_are_told_too() -> None:
    asked = CHAT.parse({"messages": [HELLO], "logprobs": True})
    said = answer({"role": "assistant", "content": "\ud83d"}, (7,), logprobs=(None,))
    choice = CHAT.answer_body(asked, said)["choices"][0]
    assert choice["logprobs"]["content"][0]["logprob"] == -9999.0
    assert b"\\ud83d" in dumps(CHAT.answer_body(asked, said))


@pytest.mark.parametrize(
    ("dialect", "asking", "place"),
    [
        (CHAT, {"messages": [HELLO], "logprobs": True}, ("choices", "logprobs", "content", "logprob")),
        (
            GOOGLE,
            {"contents": [SAYING], "generationConfig": {"responseLogprobs": True}},
            ("candidates", "logprobsResult", "chosenCandidates", "logProbability"),
        ),
    ],
    ids=["chat", "google"],
)
def test_a_log_probability_of_0_is_none_that_is_missing(
    dialect: Dialect, asking: dict[str, Any], place: tuple[str, str, str, str]
) -> None:
    """A forced or certain id has exactly 0."""
    choices, holder, entries, value = place
    said = answer({"role": "assistant", "content": "so"}, (7, 8, 9), logprobs=(0.0, None, -0.5))
    (choice,) = dialect.answer_body(dialect.parse(asking), said)[choices]
    assert [entry[value] for entry in choice[holder][entries]] == [0.0, -9999.0, -0.5]


def test_a_thought_comes_back_from_what_it_was_sealed_in() -> None:
    asked = RESPONSES.parse({"input": "hi", "include": ["reasoning.encrypted_content"], "store": False})
    output = RESPONSES.answer_body(
        asked, answer({"role": "assistant", "content": "so", "reasoning": "hm 🙂"})
    )["output"]
    bare = {name: value for name, value in output[0].items() if name != "content"}
    back = RESPONSES.parse({"input": [HELLO, bare, output[1]]}).messages[1]
    assert back == {"role": "assistant", "content": "so", "reasoning": "hm 🙂"}


@given(message=messages())
def test_the_sdk_knows_the_items_it_gets(message: dict[str, Any]) -> None:
    asked = RESPONSES.parse({"input": "hi"})
    Response.model_validate(RESPONSES.answer_body(asked, answer(message)))


def test_turns_one_after_the_other_stay_apart() -> None:
    asked = RESPONSES.parse({"input": "hi"})
    items: list[Any] = []
    given: list[dict[str, Any]] = []
    for place in range(3):
        call = {"id": f"c{place}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        message = {"role": "assistant", "content": "", "reasoning": f"hm {place}", "tool_calls": [call, call]}
        given.append(message)
        items += RESPONSES.answer_body(asked, answer(message))["output"]
        items.append({"type": "function_call_output", "call_id": f"c{place}", "output": "ok"})
    back = RESPONSES.parse({"input": [HELLO, *items]}).messages
    assert [normalize(one) for one in back if one["role"] == "assistant"] == list(map(normalize, given))
    assert [one["content"] for one in back if one["role"] == "tool"] == ["ok"] * 3

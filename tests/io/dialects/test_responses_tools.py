"""Tools of the Responses API that are not functions, and compaction: what is answered comes back the same."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response

from tito_core.normalization.canonical import normalize
from tito_io.dialects import Responses, UntranslatableError
from tito_io.dialects.wire import dumps
from tito_io.engines.protocol import Delta, InvalidReplyError

from .dialect_turns import ARGUMENTS, HELLO, answer, streamed

RESPONSES = Responses()
LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
PATCH = {"type": "custom", "name": "patch", "description": "Patch files.", "format": GRAMMAR}
SPACE = {"type": "namespace", "name": "web", "description": "The web.", "tools": [LOOK, PATCH]}
FIND = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find.",
    "parameters": {"type": "object"},
}
TOOLS = [LOOK, PATCH, SPACE, FIND, {"type": "web_search"}]
INPUTS = st.sampled_from(
    (
        '{"input": "ls"}',
        '{"input":"é\\n"}',
        '{"input": "tito_raw_arguments:x"}',
        '{"input": 1}',
        '{"input": "a", "b": 1}',
    )
)
NAMES = ("look", "patch", "web__look", "web__patch", "tool_search", "unknown")


@given(calls=st.lists(st.tuples(st.sampled_from(NAMES), ARGUMENTS | INPUTS), min_size=1, max_size=3))
@pytest.mark.parametrize("way", ["whole", "streamed", "by the SDK"])
def test_calls_come_back_as_the_same_message(way: str, calls: list[tuple[str, str]]) -> None:
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(calls)
    ]
    message = {"role": "assistant", "content": "so", "tool_calls": made}
    asked = RESPONSES.parse({"input": "hi", "tools": TOOLS})
    whole = RESPONSES.answer_body(asked, answer(message))
    if way == "streamed":
        whole = streamed(RESPONSES, asked, iter(()), answer(message))[-1]["response"]
    output = orjson.loads(dumps(whole))["output"]
    if way == "by the SDK":
        output = [one.model_dump(exclude_none=True) for one in Response.model_validate(whole).output]
    back = RESPONSES.parse({"input": [HELLO, *output, HELLO], "tools": TOOLS}).messages
    assert normalize(back[1]) == normalize(message)


def test_calls_have_the_form_of_their_tool() -> None:
    given = {
        "web__look": "{}",
        "patch": '{"input": "*** Begin"}',
        "web__patch": '{"patch": 1}',
        "look": "{}",
    }
    made = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in given.items()
    ]
    asked = RESPONSES.parse({"input": "hi", "tools": TOOLS})
    message = {"role": "assistant", "content": None, "tool_calls": made}
    found = RESPONSES.answer_body(asked, answer(message))["output"]
    plain = [{k: v for k, v in one.items() if k not in ("id", "status", "call_id")} for one in found]
    assert plain == [
        {"type": "function_call", "name": "look", "namespace": "web", "arguments": "{}"},
        {"type": "custom_tool_call", "name": "patch", "input": "*** Begin"},
        {
            "type": "custom_tool_call",
            "name": "patch",
            "namespace": "web",
            "input": 'tito_raw_arguments:{"patch": 1}',
        },
        {"type": "function_call", "name": "look", "arguments": "{}"},
    ]
    kinds = [one["type"] for one in streamed(RESPONSES, asked, iter(()), answer(message))]
    assert kinds.count("response.custom_tool_call_input.delta") == 2
    assert kinds.count("response.function_call_arguments.done") == 2


# Compaction.


@pytest.mark.parametrize("stream", [False, True])
def test_a_summary_replaces_the_conversation(*, stream: bool) -> None:
    asked = RESPONSES.parse({"input": [HELLO, {"type": "compaction_trigger"}], "tools": [LOOK]})
    assert [one["role"] for one in asked.messages] == ["user", "user"]
    assert len(asked.tools) == 1  # so that the prompt begins as the turns before it
    end = answer({"role": "assistant", "content": "we said hi", "reasoning": "hm"})
    response = RESPONSES.answer_body(asked, end)
    if stream:
        found = streamed(RESPONSES, asked, iter([Delta(ids=(7,), text="we said")]), end)
        assert not [one for one in found if "output_text" in one["type"]]
        response = found[-1]["response"]
    (item,) = response["output"]
    assert item["type"] == "compaction"
    back = RESPONSES.parse({"input": [HELLO, item, HELLO]}).messages
    assert [one["role"] for one in back] == ["user"] * 3
    assert back[1]["content"].endswith("we said hi")


def test_a_summary_without_text_is_an_error() -> None:
    """The conversation would be lost."""
    asked = RESPONSES.parse({"input": [HELLO, {"type": "compaction_trigger"}]})
    for reply in ({"content": None}, {"content": " \n"}, {"content": "", "reasoning": "hm"}):
        with pytest.raises(InvalidReplyError, match="no text"):
            RESPONSES.answer_body(asked, answer({"role": "assistant", **reply}))


def test_the_endpoint_of_compaction_answers_what_users_said_and_the_summary() -> None:
    dialect = Responses(compacts=True)
    asked = dialect.parse({"input": [HELLO, {"role": "assistant", "content": "so"}], "instructions": "Be."})
    whole = dialect.answer_body(asked, answer({"role": "assistant", "content": "we said hi"}))
    assert whole["object"] == "response.compaction"
    assert [one["type"] for one in whole["output"]] == ["message", "compaction"]
    assert RESPONSES.parse({"input": whole["output"]}).messages[0] == HELLO
    with pytest.raises(UntranslatableError, match="stream"):
        dialect.parse({"input": "hi", "stream": True})

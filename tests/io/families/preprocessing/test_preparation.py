"""What a template gets of messages, engine by engine, in examples that a person can read."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tito_core import InputError, TemplateRefused
from tito_io.families.preprocessing.engines import RULES, rules_for
from tito_io.families.preprocessing.preparation import Preparation

Message = dict[str, Any]
TEXTS = "{% for m in messages %}{{ m.content }}{% endfor %}"
LISTS = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"
ONE, TWO = ({"type": "text", "text": word} for word in ("one", "two"))


def given(engine: str, *messages: Message, source: str = TEXTS, speaking: bool = False) -> list[Message]:
    """Return what a template gets."""
    return Preparation.of(rules_for(engine), source).messages(messages, speaking=speaking)


def content(engine: str, message: Message, source: str = TEXTS) -> Any:
    """Return the content that a template gets of one message; `absent` without one."""
    (found,) = given(engine, message, source=source)
    return found.get("content", "absent")


def calling(arguments: Any = "{}", **more: Any) -> Message:
    function = {"name": "f", "arguments": arguments}
    return {
        "role": "assistant",
        **more,
        "tool_calls": [{"id": "a", "type": "function", "function": function}],
    }


@pytest.mark.parametrize(
    ("engine", "joined", "in_lists", "absent", "absent_in_lists"),
    [
        ("vllm", "one\ntwo", "one\ntwo", "", []),
        ("sglang", "one two", "one two", "", ""),
        ("dynamo", "one\ntwo", [ONE, TWO], "absent", "absent"),
        ("llamacpp", "one\ntwo", [ONE, TWO], "", [{"type": "text", "text": ""}]),
        ("lmdeploy", "one\ntwo", "one\ntwo", "", ""),
        ("tensorrt-llm", "one\ntwo", "one\ntwo", "", ""),
        ("transformers", [ONE, TWO], [ONE, TWO], "absent", "absent"),
    ],
)
def test_texts_are_joined_and_a_call_without_a_content_has_what_the_engine_gives_it(
    engine: str, joined: Any, in_lists: Any, absent: Any, absent_in_lists: Any
) -> None:
    """`in_lists` is a tool result, where the template takes lists."""
    assert content(engine, {"role": "user", "content": [ONE, TWO]}) == joined
    result = {"role": "tool", "content": [ONE, TWO]}
    assert [content(engine, result, source) for source in (TEXTS, LISTS)] == [joined, in_lists]
    for message in (calling(), calling(content=None)):
        assert [content(engine, message, one) for one in (TEXTS, LISTS)] == [absent, absent_in_lists]


def test_a_result_without_a_content_is_a_text_in_vllm_also_where_the_template_takes_lists() -> None:
    assert content("vllm", {"role": "tool", "tool_call_id": "a"}, LISTS) == ""


@pytest.mark.parametrize(
    ("engine", "names"),
    [
        ("vllm", {"reasoning", "reasoning_content"}),
        ("sglang", {"reasoning_content"}),
        ("dynamo", set()),
        ("llamacpp", {"reasoning_content"}),
        ("tensorrt-llm", {"reasoning_content"}),
    ],
)
@pytest.mark.parametrize("sent", ["reasoning", "reasoning_content"])
def test_reasoning_has_the_names_that_the_engine_gives_it(engine: str, names: set[str], sent: str) -> None:
    (found,) = given(engine, {"role": "assistant", "content": "a", sent: "hm"})
    assert {key for key, value in found.items() if value == "hm"} == names
    if engine == "dynamo":
        assert found["content"] == "<think>hm</think>a"


@pytest.mark.parametrize("sent", ["reasoning", "reasoning_content", "thinking"])
def test_transformers_adds_names_of_reasoning(sent: str) -> None:
    (found,) = given("transformers", {"role": "assistant", "content": "a", sent: "hm"})
    assert {key for key, value in found.items() if value == "hm"} == {"reasoning_content", "thinking", sent}


@pytest.mark.parametrize(
    ("engine", "cut"),
    [("vllm", {}), ("lmdeploy", '{"k": "v'), ("transformers", '{"k": "v'), ("sglang", None)],
)
def test_arguments_are_objects_and_cut_ones_what_the_engine_makes_of_them(engine: str, cut: Any) -> None:
    source = "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}"

    def arguments(text: str) -> Any:
        (found,) = given(engine, calling(text), source=source)
        return found["tool_calls"][0]["function"]["arguments"]

    assert arguments('{"k": "v"}') == {"k": "v"}
    if cut is None:
        with pytest.raises(TemplateRefused, match=r"messages\[0\].tool_calls\[0\].function.arguments is"):
            arguments('{"k": "v')
    else:
        assert arguments('{"k": "v') == cut


def test_sglang_makes_a_last_assistants_message_a_users() -> None:
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "So"}]
    assert given("sglang", *talk, speaking=True)[-1] == {"role": "user", "content": "So"}
    assert (
        given("sglang", *talk)[-1]["role"] == given("vllm", *talk, speaking=True)[-1]["role"] == "assistant"
    )


def test_vllm_takes_the_billing_line_off() -> None:
    billed = "x-anthropic-billing-header: cch=1;\nBe brief."
    assert content("vllm", {"role": "system", "content": billed.partition("\n")[0]}, LISTS) == []
    for said in (billed, [{"type": "text", "text": billed}]):
        assert content("vllm", {"role": "system", "content": said}) == "Be brief."
    assert content("sglang", {"role": "system", "content": billed}) == billed


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ({"role": "user", "content": [{"type": "text"}]}, r"messages\[1\].content\[0\] has no text: vLLM"),
        ({"role": "user", "content": [{"type": "refusal", "text": "x"}]}, r"content\[0\] has no text: vLLM"),
        ({"role": "user", "content": [{"type": "x"}]}, r"content\[0\].type is 'x': vLLM"),
        ({"role": "user", "content": [{"text": "x"}]}, r"content\[0\] has no type: vLLM"),
        ({"role": "user", "content": [None]}, r"content\[0\] is null: vLLM"),
        ({"role": "user", "content": [ONE, {"type": "x"}]}, r"messages\[1\].content\[1\].type is 'x': vLLM"),
        ({"role": "user", "content": [ONE, None]}, r"messages\[1\].content\[1\] is null: vLLM"),
        ({"role": "system", "content": [ONE, None]}, r"messages\[1\].content\[1\] is null: vLLM"),
        ({"role": "user", "content": [ONE, 3]}, r"messages\[1\].content\[1\] is a number: vLLM"),
        ({"role": "user", "content": 3}, r"messages\[1\].content is a number: vLLM"),
        ({"role": "user", "content": None}, r"messages\[1\].content is null: vLLM"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a"}]},
            r"messages\[1\].tool_calls\[0\] has no function",
        ),
    ],
)
def test_what_vllm_rejects_is_refused_with_its_path(message: Message, complaint: str) -> None:
    with pytest.raises(TemplateRefused, match=complaint):
        given("vllm", {"role": "user", "content": "q"}, message)


@pytest.mark.parametrize(
    "talk",
    [
        [{"role": "user", "content": [{"type": ["text"], "text": "x"}]}],
        [{"role": "developer", "content": "d"}, {"content": "x"}],
        [{"role": ["user"], "content": None}],
        [{"role": "system", "content": ["a"]}, {"role": "system", "content": "b"}],
        [{"role": "system", "content": 5}, {"role": "system", "content": "b"}],
        [{"role": "user", "content": "q"}, calling({"a": 10**5000})],
    ],
)
@pytest.mark.parametrize("engine", RULES)
def test_what_nobody_should_send_is_taken_or_refused(engine: str, talk: list[Message]) -> None:
    late = "{% for m in messages %}{% if m.role == 'system' and loop.index0 %}{{ raise_exception('late') }}"
    for source in (TEXTS, LISTS, f"{late}{{% endif %}}{{{{ m.content }}}}{{% endfor %}}"):
        with suppress(TemplateRefused):
            given(engine, *talk, source=source)


def test_sglang_parses_integers_as_orjson_and_writes_roles_small() -> None:
    source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}"
    (found,) = given("sglang", calling('{"k": 18446744073709551616}'), source=source)
    assert found["tool_calls"][0]["function"]["arguments"] == {"k": float(2**64)}
    assert [one["role"] for one in given("sglang", {"role": "System", "content": "s"})] == ["system"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_function_is_deferred_with_its_tool(engine: str) -> None:
    tool = {"type": "function", "defer_loading": True, "function": {"name": "f"}}
    found = Preparation.of(rules_for(engine), TEXTS).tools([tool])
    assert found is not None
    assert found[0]["defer_loading"] is found[0]["function"]["defer_loading"] is True


def test_a_reference_to_a_tool_is_its_name_where_vllm_joins_texts() -> None:
    message = {"role": "tool", "content": [ONE, {"type": "tool_reference", "name": "f", "more": 1}]}
    assert content("vllm", message) == "one\nf"
    assert content("vllm", message, LISTS) == [ONE, {"type": "tool_reference", "name": "f"}]


@pytest.mark.parametrize("engine", RULES)
def test_messages_are_not_changed_and_prepared_twice_they_are_the_same(engine: str) -> None:
    talk = [{"role": "user", "content": [ONE, TWO]}, calling('{"k": 1}'), {"role": "tool", "content": [ONE]}]
    before = repr(talk)
    assert given(engine, *talk) == given(engine, *talk)
    assert repr(talk) == before


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"engine is 'vlm': name one of transformers, vllm, sglang"):
        rules_for("vlm")

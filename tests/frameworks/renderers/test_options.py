"""The renderer's options, and what is wrong with some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from renderers import CustomRendererConfig, create_renderer
from renderers.base import (
    ParsedResponse,
    ParsedToolCall,
    ToolCallParseStatus,
    load_tokenizer,
    merge_chat_template_kwargs,
)

from tests.frameworks.renderers.models import (
    NEXT,
    OWN,
    PATH,
    QUESTION,
    SYSTEM,
    case_of,
    model,
)
from tests.model_folders import needs_families
from tito_core import InputError
from tito_io.embedded import write_family
from tito_io.integrations.next_prompts import NextPrompts


@pytest.fixture
def tokenizer(tmp_path: Path) -> Any:
    return load_tokenizer(str(write_family(tmp_path / "model")))


def test_stop_ids_are_those_of_the_folder_unless_given(tokenizer: Any) -> None:
    assert create_renderer(tokenizer, CustomRendererConfig(import_path=PATH)).get_stop_token_ids() == [
        1517,
        1515,
    ]
    given = CustomRendererConfig(import_path=PATH, stop_ids=[1517])
    assert create_renderer(tokenizer, given).get_stop_token_ids() == [1517]


def test_a_template_may_be_given(tokenizer: Any) -> None:
    config = CustomRendererConfig(import_path=PATH, template="{{ messages[0].content }}")
    assert tokenizer.decode(create_renderer(tokenizer, config).render_ids([QUESTION])) == QUESTION["content"]


@pytest.mark.parametrize("place", ["config", "request"])
def test_a_variable_of_the_template_is_passed(tokenizer: Any, place: str) -> None:
    template = "{{ mood }}: {{ messages[0].content }}"
    config = CustomRendererConfig(import_path=PATH, template=template)
    if place == "config":
        config = CustomRendererConfig(import_path=PATH, template=template, mood="calm")
    kwargs = {"mood": "calm"} if place == "request" else None
    renderer = create_renderer(tokenizer, config, chat_template_kwargs=kwargs)
    assert tokenizer.decode(renderer.render_ids([QUESTION])).startswith("calm: ")


def test_a_misspelt_option_is_named(tokenizer: Any) -> None:
    config = CustomRendererConfig(import_path=PATH, on_refusals="raise")
    with pytest.raises(
        InputError, match="on_refusals: the chat template has no such variable, and the options are"
    ):
        create_renderer(tokenizer, config)


def test_an_option_is_no_variable_of_the_template() -> None:
    config = CustomRendererConfig(import_path=PATH)
    with pytest.raises(ValueError, match="Unsupported chat_template_kwargs"):
        merge_chat_template_kwargs(config, {"on_refusal": "raise"})


@pytest.mark.parametrize(
    "wrong", [{"on_refusal": "end"}, {"thinking_retention": "some"}, {"stop_ids": "x"}, {"remembered": -1}]
)
def test_a_wrong_value_is_rejected_with_the_configuration(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        CustomRendererConfig(import_path=PATH, **wrong)


def test_an_unknown_parser_is_named(tokenizer: Any) -> None:
    for options, text in (({"parser": "x"}, "name='x'"), ({"tool_parser": "y"}, "tool_parser 'y'")):
        with pytest.raises(ValueError, match=text):
            create_renderer(tokenizer, CustomRendererConfig(import_path=PATH, **options))


def test_parsers_of_the_default_renderer_read_completions() -> None:
    one, case = model(OWN), case_of("tool", OWN)
    _, completion = one.sampled([QUESTION], case)
    parsed = one.renderer().parse_response(completion)
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("weather", {"city": "Oslo"})]
    assert parsed.reasoning_content == "\nIt rains there.\n"
    plain = one.renderer(tool_parser=None)
    assert plain.parse_response(completion).tool_calls == []
    assert (one.renderer().supports_tools, plain.supports_tools) == (True, False)


@needs_families
def test_the_parser_of_another_renderer_reads_completions() -> None:
    one, case = model("qwen3"), case_of("two tools", "qwen3")
    prompt, completion = one.sampled([QUESTION], case)
    own, hand = (
        each.parse_response(completion, tools=case.tools, prompt_ids=prompt)
        for each in (one.renderer(), one.by_hand())
    )
    assert own == hand
    assert len(own.tool_calls) == 2
    assert one.renderer().supports_tools


@needs_families
def test_a_parser_gets_the_variables_that_it_knows() -> None:
    renderer = model("qwen3").renderer(enable_thinking=False)
    assert renderer.effective_thinking_retention == "tool_cycle"
    ids = renderer.render_ids([QUESTION], add_generation_prompt=True)
    assert model("qwen3").tokenizer.decode(ids).endswith("<think>\n\n</think>\n\n")
    assert renderer._reader.config.enable_thinking is False


@pytest.mark.parametrize(
    ("retention", "shape", "goes"),
    [
        (None, "tool", True),
        (None, "user", False),
        (None, "tool then user", False),
        ("tool_cycle", "tool", True),
        ("tool_cycle", "user", False),
        ("all", "user", True),
        ("all", "tool then user", True),
    ],
)
def test_messages_are_rendered_anew_where_reasoning_is_dropped(
    retention: Any, shape: str, goes: bool
) -> None:
    one, case = model(OWN), case_of(shape, OWN)
    renderer = one.renderer(thinking_retention=retention, on_refusal="raise")
    assert renderer.effective_thinking_retention == (retention or "tool_cycle")
    prompt, completion = one.sampled([SYSTEM, QUESTION], case)
    bridged = renderer.bridge_to_next_turn(prompt, completion, case.after, tools=case.tools)
    assert (bridged is not None) is goes
    assert dict(renderer.prompts.built) == ({"ids": 1} if goes else {"rendered": 1})


def test_a_template_that_keeps_no_reasoning_is_always_rendered() -> None:
    one, case = model(OWN), case_of("tool", OWN)
    said = "{% if loop.last %}{{ m.reasoning_content }}{% endif %}{{ m.content }}"
    last = f"{{% for m in messages %}}{said}{{% endfor %}}"
    renderer = one.renderer(template=last)
    assert renderer.effective_thinking_retention == "template"
    assert renderer.bridge_to_next_turn([1, 2], [3], case.after) is None
    assert renderer.bridge_to_next_turn([1, 2], [3], [NEXT]) is None
    assert renderer.prompts.built["rendered"] == 2


@pytest.mark.parametrize(("remembered", "known"), [(4096, [1, 3, 1]), (1, [1, 3, None]), (0, [None] * 3)])
def test_messages_of_prompts_are_remembered(
    remembered: int, known: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, case, histories, extend = model(OWN), case_of("user", OWN), [], NextPrompts.extend

    def watched(*given: Any, **rest: Any) -> Any:
        histories.append(rest["history"])
        return extend(*given, **rest)

    monkeypatch.setattr(NextPrompts, "extend", watched)
    renderer = one.renderer(thinking_retention="all", remembered=remembered)
    _, completion = one.sampled([QUESTION], case)
    first = renderer.render_ids([QUESTION], add_generation_prompt=True)
    second = renderer.bridge_to_next_turn(first, completion, [NEXT]).token_ids
    renderer.bridge_to_next_turn(second, completion, [NEXT])
    renderer.bridge_to_next_turn(first, completion, [NEXT])
    assert [None if one is None else len(one) for one in histories] == known
    said = {"role": "assistant", "content": "\n\nFjord.", "reasoning_content": "\nIt rains there.\n"}
    assert histories[1] in (None, (QUESTION, said, NEXT))


class Whole:
    """A parser that reads a turn only with its opener, as gpt-oss's does."""

    def __init__(self, opener: list[int], status: ToolCallParseStatus) -> None:
        self.opener, self.status = opener, status

    def parse_response(self, token_ids: list[int], **_: Any) -> ParsedResponse:
        count = len(self.opener)
        if token_ids[:count] != self.opener:
            return ParsedResponse(content="<|turn|>", tool_calls=[])
        call = ParsedToolCall(raw="{}", name="add", token_span=(count, count + 2), status=self.status)
        return ParsedResponse(content="Sunny.", tool_calls=[call])


@pytest.mark.parametrize("status", [ToolCallParseStatus.OK, ToolCallParseStatus.INVALID_JSON])
def test_a_parser_gets_the_opener_if_it_reads_nothing_without(tokenizer: Any, status: Any) -> None:
    renderer = create_renderer(tokenizer, CustomRendererConfig(import_path=PATH))
    opener = tokenizer.encode("<|turn|>assistant\n")
    renderer._reader = Whole(opener, status)
    found = renderer.parse_response([57, 58, 1517])
    if status == ToolCallParseStatus.OK:
        assert (found.content, found.tool_calls[0].token_span) == ("Sunny.", (0, 2))
    else:  # a call that is not whole is no better reading
        assert (found.content, found.tool_calls) == ("<|turn|>", [])


def read_by(renderer: Any) -> list[list[int]]:
    """Let a parser read turns that keeps what it is asked."""
    asked: list[list[int]] = []

    def parse(ids: list[int], **_: Any) -> ParsedResponse:
        asked.append(ids)
        return ParsedResponse(content="Sunny.")

    renderer._reader = type("Reader", (), {"parse_response": staticmethod(parse)})()
    return asked


def test_a_turn_that_is_read_is_parsed_once(tokenizer: Any) -> None:
    renderer = create_renderer(tokenizer, CustomRendererConfig(import_path=PATH))
    asked = read_by(renderer)
    renderer.parse_response([57])
    assert asked == [[57]]


def test_what_was_read_after_the_same_prompt_is_not_read_again(tokenizer: Any) -> None:
    renderer = create_renderer(tokenizer, CustomRendererConfig(import_path=PATH, thinking_retention="all"))
    asked = read_by(renderer)
    prompt = renderer.render_ids([QUESTION], add_generation_prompt=True)
    first = renderer.bridge_to_next_turn(prompt, [57, 1517], [NEXT])
    renderer.parse_response([57, 1517], prompt_ids=prompt).content = "Rainy."
    assert renderer.bridge_to_next_turn(prompt, [57, 1517], [NEXT]) == first
    assert asked == [[57, 1517]]
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    renderer.bridge_to_next_turn(prompt, [57, 1517], [NEXT], tools=[tool])
    renderer.bridge_to_next_turn([*prompt, 57], [1517], [NEXT])
    assert asked[1:] == [[57, 1517], [1517]]
    renderer.parse_response([57, 1517])  # after nothing
    assert len(asked) == 4

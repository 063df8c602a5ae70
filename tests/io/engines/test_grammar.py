"""Grammars are in the template's own syntax, and made only where the parser reads calls back from it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.model_folders import FAMILIES, needs_families
from tito_core import InputError, TemplateRefused
from tito_io.engines.constraint import Constraint
from tito_io.engines.grammar import (
    NAMES,
    TEXT_BEFORE_CALLS,
    WORDS,
    CallForm,
    Format,
    GrammarMaker,
    answer_grammar,
    call_form,
    stand_in_calls,
    with_reasoning,
)
from tito_io.engines.protocol import Rendering
from tito_io.engines.replies.hermes import Tags
from tito_io.engines.replies.output_parser import Harmony, Hermes, LocalTokenizer, choose_parser
from tito_io.families import Family

pytestmark = pytest.mark.anyio

IDS = {"<think>": 90, "</think>": 91, "<tool_call>": 92, "</tool_call>": 93}
TAGS = Tags(IDS, frozenset([10]))
FORM = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")
LOOK, LISTEN = (
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "title": name}}}
    for name in ("look", "listen")
)
SCHEMA = {"type": "array"}
JSON: Format = {"type": "json_schema", "json_schema": SCHEMA}


def written(call: str, between: str, opening: str = "<im>assistant\n", close: str = "<im_end>\n") -> str:
    """Return a conversation in which a template writes both calls; `call` has a name and a word in it."""
    calls = [
        call.replace("NAME", name).replace("WORD", word) for name, word in zip(NAMES, WORDS, strict=True)
    ]
    tools = "".join(f'{{"name": "{name}"}}' for name in NAMES)
    return f"<im>system\n{tools}<im>user\nHello.<im_end>\n{opening}{between.join(calls)}{close}"


HERMES = '<tool_call>\n{"name": "NAME", "arguments": {"place": "WORD"}}\n</tool_call>'


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (written(HERMES, "\n"), FORM),
        (written(HERMES, "\n", opening="<im>assistant\n<think>\n\n</think>\n\n"), FORM),
        (written(HERMES, "\n", close="\n<im_end>"), FORM),  # what follows begins as the separator does
        (written(HERMES, ""), attrs.evolve(FORM, between="")),
        (
            written('<tool_call>{"arguments": {"place": "WORD"}, "name": "NAME"}</tool_call>', "\n"),
            None,  # the name is to be known before its arguments
        ),
        (
            written("<tool_call>\n<function=NAME>\n<parameter=place>\nWORD\n</parameter></tool_call>", "\n"),
            None,
        ),
        (written('<tool_call>NAME\n{"place": "WORD"}</tool_call>', "\n"), None),
        (written('[TOOL_CALLS]{"name": "NAME", "arguments": {"place": "WORD"}}', ", "), None),
        (written('{"name": "NAME", "parameters": {"place": "WORD"}}', "\n"), None),
        ("nothing of them", None),
    ],
)
def test_the_form_of_calls_is_read_off_the_template(text: str, form: CallForm | None) -> None:
    assert call_form(text, TAGS) == form


def flat(grammar: Format) -> list[Format]:
    """Return the formats without parts, in order."""
    parts = grammar.get("elements") or ([grammar["content"]] if "content" in grammar else [])
    return [one for part in parts for one in flat(part)] if parts else [grammar]


def token(tag: str) -> Format:
    return {"type": "token", "token": IDS[tag]}


def call_of(tool: Any) -> list[Format]:
    """Return the grammar of a call, as a list of its parts."""
    function = tool["function"]
    before = f'\n{{"name": "{function["name"]}", "arguments": '
    return [
        token("<tool_call>"),
        {"type": "const_string", "value": before},
        {"type": "json_schema", "json_schema": function["parameters"]},
        {"type": "const_string", "value": "}\n"},
        token("</tool_call>"),
    ]


def test_a_forced_call_is_of_a_tool_that_was_named() -> None:
    one = answer_grammar(Constraint(must_call=("listen",), one_call=True), [LOOK, LISTEN], FORM, TAGS)
    assert flat(one) == call_of(LISTEN)
    several = answer_grammar(Constraint(must_call=()), [LOOK], FORM, TAGS)
    assert several["elements"][1]["type"] == "star"
    assert flat(several) == [*call_of(LOOK), {"type": "const_string", "value": "\n"}, *call_of(LOOK)]


def test_a_schema_leaves_calls_possible_and_one_call_leaves_text_possible() -> None:
    either = answer_grammar(Constraint(schema=SCHEMA, one_call=True), [LOOK], FORM, TAGS)
    assert (either["type"], either["elements"][1]) == ("or", JSON)
    free = answer_grammar(Constraint(one_call=True), [LOOK], FORM, TAGS)
    assert flat(free) == [TEXT_BEFORE_CALLS, *call_of(LOOK)]
    assert with_reasoning(free, [1], TAGS) == free


def test_tools_that_are_not_allowed_are_not_in_the_grammar() -> None:
    free = answer_grammar(Constraint(may_call=("look",)), [LOOK, LISTEN], FORM, TAGS)
    between = {"type": "const_string", "value": "\n"}
    assert flat(free) == [TEXT_BEFORE_CALLS, *call_of(LOOK), between, *call_of(LOOK)]
    assert free["elements"][1]["type"] == "optional"
    either = answer_grammar(Constraint(may_call=("look",), schema=SCHEMA), [LOOK, LISTEN], FORM, TAGS)
    assert flat(either) == [*call_of(LOOK), between, *call_of(LOOK), JSON]


def test_a_name_is_written_as_json() -> None:
    odd = {"type": "function", "function": {"name": 'a"b\\'}}
    parts = flat(answer_grammar(Constraint(must_call=(), one_call=True), [odd], FORM, TAGS))
    assert parts[1]["value"] == '\n{"name": "a\\"b\\\\", "arguments": '
    assert parts[2]["json_schema"] == {"type": "object"}


def test_a_tag_that_is_no_token_is_its_letters() -> None:
    parts = flat(answer_grammar(Constraint(must_call=(), one_call=True), [LOOK], FORM, Tags()))
    assert parts[0]["value"] == '<tool_call>\n{"name": "look", "arguments": '


@pytest.mark.parametrize(
    ("prompt", "tags", "before"),
    [
        ([1, 2], TAGS, ["optional"]),
        ([1, 90, 10], TAGS, ["any_tokens", "token", "regex"]),
        ([1, 90, 10, 91, 10], TAGS, []),
        ([1, 2], Tags(), []),
    ],
)
def test_reasoning_is_free_where_there_may_be_some(prompt: list[int], tags: Tags, before: list[str]) -> None:
    whole = with_reasoning(JSON, prompt, tags)
    parts = [one["type"] for one in whole.get("elements", [whole])]
    assert parts == [*before, "json_schema"]


async def test_a_template_that_refuses_two_calls_has_no_form() -> None:
    async def render(*_: object, **__: object) -> list[int]:
        raise TemplateRefused("one call at a time")

    maker, parser = GrammarMaker(render), Hermes(None, TAGS)  # type: ignore[arg-type]  # it is not asked
    rendering = Rendering(tools=(LOOK,))
    assert await maker.answer_format(Constraint(must_call=()), rendering, parser) is None
    assert await maker.answer_format(Constraint(schema=SCHEMA), Rendering(), parser) == JSON
    harmony = Harmony(None)  # type: ignore[arg-type]  # likewise
    assert await maker.answer_format(Constraint(schema=SCHEMA), Rendering(), harmony) is None
    with pytest.raises(InputError, match="has no tools"):
        await maker.answer_format(Constraint(must_call=()), None, parser)


@needs_families
@pytest.mark.parametrize(
    ("name", "known"), [("qwen3", True), ("qwen2.5", True), ("llama3", False), ("qwen3.5", False)]
)
async def test_real_templates_have_the_form_that_they_write(name: str, *, known: bool) -> None:
    family = Family.load(FAMILIES / name)
    messages, tools = stand_in_calls()
    try:
        ids = family.ids(messages, tools=tools)
    except TemplateRefused:
        assert not known
        return
    parser = await choose_parser(LocalTokenizer(family), None)
    form = call_form(family.decode(ids), await parser.tags())
    assert form == (FORM if known else None)

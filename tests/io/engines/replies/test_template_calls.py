"""Calls in the syntax of a model's own template: learned, read back, checked, and kept as text where not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, Template, UndefinedError

from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_core import Message, TemplateRefused
from tito_io.engines.protocol import Delta, Rendering, RequestError
from tito_io.engines.replies.call_syntax import LONGEST_LITERAL, MOST_BROKEN, CallSyntax, learned
from tito_io.engines.replies.output_parser import Hermes, LocalTokenizer, choose_parser
from tito_io.engines.replies.template_calls import KEPT, CallTextFilter, TemplateCalls, is_hermes
from tito_io.families import Family

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # nothing waits

TURN = (
    "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content or '' }}"
    "{% if m.tool_calls %}@opened{% for c in m.tool_calls %}{% set f = c.function %}@call{% endfor %}@closed"
    "{% endif %}"
    "<|end|>\n{% endfor %}"
)
PAIRS = "{% for k, v in f.arguments.items() %}@pair{% endfor %}"
VALUE = "{{ v if v is string else v | tojson }}"
KEYED = f"\n<key>{{{{ k }}}}</key>\n<value>{VALUE}</value>"
TAGGED = f"\n<parameter={{{{ k }}}}>\n{VALUE}\n</parameter>"
QUOTED = f'<parameter name="{{{{ k }}}}">{VALUE}</parameter>'
FORMS = {
    "object": ("", '\n<call>{"name": "@name", "parameters": @json}</call>', ""),
    "list": ("[CALLS] [", '{"name": "@name", "arguments": @json}{{ ", " * (not loop.last) }}', "]"),
    "bare": ("", '{"name": "@name", "parameters": @json}', ""),
    "json": ("<calls>", "<call>@name<sep>@json</call>", "</calls>"),
    "identified": ("", "[CALLS]@name[ID]{{ c.id }}[ARGS]@json", ""),
    "numbered": ("<calls>", "<call>functions.@name:{{ loop.index0 }}<args>@json</call>", "</calls>"),
    "id-for-name": ("<calls>", "<call>{{ c.id }}<args>@json</call>", "</calls>"),
    "keys": ("", f"\n<call>@name{PAIRS}\n</call>".replace("@pair", KEYED), ""),
    "xml": ("", f"\n<call>\n<function=@name>{PAIRS}\n</function>\n</call>".replace("@pair", TAGGED), ""),
    "attributes": (
        "<calls>",
        f'<invoke name="@name">{PAIRS}</invoke>'.replace("@pair", QUOTED),
        "</calls>",
    ),
}
"""How templates write calls: before them, each, after them."""
WITH_IDS = {"identified", "numbered", "id-for-name"}
"""Forms in which calls are sampled with their ids."""
PROPERTIES = {
    "place": {"type": "string"},
    "count": {"type": "integer"},
    "deep": {"type": "object"},
    "many": {"type": "array"},
    "sure": {"type": "boolean"},
    "any": {},
}
SCHEMA = {"type": "object", "properties": PROPERTIES}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}]
RENDERING = Rendering(tools=tuple(TOOLS))
TAGS = re.compile(r"<\|?/?[a-z]+\|?>|\[/?[A-Z]+\]")


@cache
def compiled(template: str) -> Template:
    return Environment(autoescape=False).from_string(template)  # noqa: S701  # no HTML


@attrs.define
class Model:
    """A template with a tokenizer of letters, in which each tag is a token."""

    form: str
    one_at_a_time: bool = False
    nine_letters: bool = False
    fails: bool = False
    rendered: int = 0
    vocabulary: dict[str, int] = attrs.field(factory=dict)

    @property
    def template(self) -> str:
        opened, call, closed = FORMS[self.form]
        written = call.replace("@name", "{{ f.name }}").replace("@json", "{{ f.arguments | tojson }}")
        return TURN.replace("@opened", opened).replace("@closed", closed).replace("@call", written)

    def text(self, messages: Sequence[Message]) -> str:
        for message in messages:
            if self.one_at_a_time and len(message.get("tool_calls") or ()) > 1:
                raise TemplateRefused("one call at a time")
            ids = [call["id"] for call in message.get("tool_calls") or ()]
            if self.nine_letters and any(len(one) != len("a1b2c3d40") or not one.isalnum() for one in ids):
                raise TemplateRefused("ids are nine letters and digits")
        try:
            return compiled(self.template).render(messages=messages)
        except UndefinedError as error:
            raise TemplateRefused("the arguments have another form") from error

    async def render(self, messages: Sequence[Message], rendering: Rendering, **_: bool) -> Sequence[int]:
        assert rendering.tools
        self.rendered += 1
        if self.fails:
            raise RequestError("no such route")
        return await self.encode(self.text(messages))

    async def encode(self, text: str) -> Sequence[int]:
        ids, place = list[int](), 0
        for match in [*TAGS.finditer(text), None]:
            ids += map(ord, text[place : match.start() if match else None])
            if match:
                ids.append(self.vocabulary.setdefault(match.group(), 0x110000 + len(self.vocabulary)))
                place = match.end()
        return ids

    async def decode(self, ids: Sequence[int]) -> str:
        named = {index: tag for tag, index in self.vocabulary.items()}
        return "".join(named.get(index) or chr(index) for index in ids)

    def parser(self) -> Hermes:
        return Hermes(self, calls=TemplateCalls(self, self.render))


def turn(content: str, *arguments: Any) -> Message:
    calls = [
        {
            "id": f"functions.look_up:{place}",
            "type": "function",
            "function": {"name": "look_up", "arguments": one},
        }
        for place, one in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def sampled(model: Model, message: Message) -> str:
    """Return what a model samples that writes as its template does."""
    whole = model.text([{"role": "user", "content": "?"}, message])
    return whole.rpartition("<|turn|>assistant\n")[2].removesuffix("<|end|>\n")


async def parsed(
    model: Model, text: str, ids: Sequence[int] | None = None, rendering: Rendering | None = RENDERING
) -> Any:
    parser = model.parser()
    await parser.ready(None, rendering, [])
    given = await model.encode(text) if ids is None else ids
    return await parser.parsed([1], given, text, whole=True, rendering=rendering)


def read(found: Any) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in found.calls]


HERMES = '<tool_call>\n{"name": "look_up", "arguments": {"place": "rm"}}\n</tool_call>'
PLAIN = [{"place": "Paris", "count": 3}, {}, {"deep": {"a": [1, None]}, "many": [], "sure": True}]
SPELLING = {"place": f"Write {HERMES}."}


MARKED = [one for one in FORMS if one != "bare"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", ["", "Let me see.\nThen:"])
async def test_calls_are_read_as_the_template_writes_them(form: str, content: str) -> None:
    """Also where the template takes one call alone, and where a value spells the Hermes form."""
    for arguments, alone in (([PLAIN[0]], False), (PLAIN, False), ([SPELLING], True)):
        model = Model(form, one_at_a_time=alone)
        if form == "bare" and (content or len(arguments) > 1):
            continue
        found = await parsed(model, sampled(model, turn(content, *arguments)))
        assert read(found) == [("look_up", one) for one in arguments]
        assert (found.content, found.notices) == (content, ())
        ids = [f"functions.look_up:{place}" for place in range(len(arguments))]
        assert list(found.ids) == (ids if form in WITH_IDS else [None] * len(arguments))


@pytest.mark.parametrize("written", ['{"name"', '{"id": "call_1", "name"'])
async def test_ids_are_such_that_the_template_accepts_them(written: str) -> None:
    """Mistral-Nemo's template rejects ids that are not nine letters and digits; a model may sample others."""
    model = Model("list", nine_letters=True)
    text = sampled(Model("list"), turn("", *PLAIN[:2])).replace('{"name"', written)
    found = await parsed(model, text)
    assert read(found) == [("look_up", one) for one in PLAIN[:2]]
    ids = {call["id"] for call in found.message("call-1")["tool_calls"]}
    assert len(ids) == 2
    assert all(len(one) == len("a1b2c3d40") and one.isalnum() for one in ids)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.text("ab\n \"'<>/{}=", max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "place": st.text("ab\n <>/{}\"'[]=é", max_size=8),
        "count": st.integers(-9, 99),
        "deep": st.dictionaries(st.sampled_from("ab"), VALUES, max_size=2),
        "any": VALUES,
    },
)


@given(st.data())
async def test_what_is_read_is_what_was_written_or_it_is_text(data: st.DataObject) -> None:
    model = Model(data.draw(st.sampled_from(sorted(FORMS))))
    several = 1 if model.form == "bare" else 3
    arguments = data.draw(st.lists(ARGUMENTS, min_size=1, max_size=several))
    content = "" if model.form == "bare" else data.draw(st.sampled_from(["", "So:", "a {b} <c>"]))
    found = await parsed(model, text := sampled(model, turn(content, *arguments)))
    if found.calls:
        written = [turn("", *(json.loads(one) for _, one in found.calls))]
        assert sampled(model, written[0]).split() == sampled(model, turn("", *arguments)).split()
    else:
        assert found.content.strip("\n") == text.strip("\n")


@given(st.sampled_from(sorted(FORMS)), st.text('{}<>[]callsCALLS:"/=parameter name,', max_size=60))
async def test_any_text_is_read_or_kept(form: str, text: str) -> None:
    found = await parsed(Model(form), text)
    assert found.calls or found.content == text


@pytest.mark.parametrize("form", ["json", "keys", "xml", "identified"])
async def test_tags_that_are_spelled_in_letters_are_text(form: str) -> None:
    model = Model(form)
    text = sampled(model, turn("", PLAIN[0]))
    found = await parsed(model, text, [ord(letter) for letter in text])
    assert (found.calls, found.content) == ((), text)


WHOLE = {"object": '"}}', "list": '"}}'}
"""With what objects end that are whole, where not with the arguments."""


@pytest.mark.parametrize("form", [one for one in FORMS if one not in ("bare", "identified")])
async def test_a_call_that_was_cut_is_text_unless_its_object_is_whole(form: str) -> None:
    model = Model(form)
    text = sampled(model, turn("So:", PLAIN[0])).rstrip()
    for size in range(len("So:"), len(text) - len(FORMS[form][2]) - 1):
        cut = text[:size]
        found = await parsed(model, cut)
        if cut.endswith(WHOLE.get(form, '"}')):  # only marks are missing
            assert (read(found), found.content) == ([("look_up", PLAIN[0])], "So:")
        else:
            assert (found.calls, found.content) == ((), cut)


async def test_what_the_template_would_write_otherwise_stays_text() -> None:
    """A value with the mark that ends values: the call that is read is not the one that is written."""
    model = Model("keys")
    text = sampled(model, turn("", {"place": "a</value>\n<key>count</key>\n<value>7"}))
    found = await parsed(model, text)
    assert read(found) == [("look_up", {"place": "a", "count": 7})]  # the template writes these alike
    odd = text.replace("</key>", "</key> ")
    assert (await parsed(model, odd)).calls
    broken = "<call>look_up\n<key>place</key>\n<value> a\n\n</value>\n</call>"
    found = await parsed(Model("xml"), broken)
    assert (found.calls, found.content) == ((), broken)


async def test_a_call_that_is_not_written_back_is_kept_with_a_notice() -> None:
    model = Model("json")
    parser = model.parser()
    text = sampled(model, turn("So:", PLAIN[0]))
    await parser.ready(None, RENDERING, [])
    model.form = "keys"  # the template has changed meanwhile
    found = await parser.parsed([1], await model.encode(text), text, whole=True, rendering=RENDERING)
    assert (found.calls, found.content, found.notices) == ((), text, (KEPT,))


async def test_without_tools_nothing_is_asked_and_nothing_is_a_call() -> None:
    model = Model("json")
    text = sampled(model, turn("", PLAIN[0]))
    for rendering in (Rendering(), None):
        found = await parsed(model, text, rendering=rendering)
        assert (found.calls, found.content) == ((), text)
    assert not model.rendered


async def test_a_server_that_renders_nothing_reads_the_hermes_format_alone() -> None:
    model = Model("json", fails=True)
    text = sampled(model, turn("", PLAIN[0]))
    assert (await parsed(model, text)).content == text
    hermes = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    assert (await parsed(model, hermes)).calls == (("f", "{}"),)


async def test_it_is_learned_once() -> None:
    model = Model("json")
    parser = model.parser()
    for _ in range(3):
        await parser.ready(None, RENDERING, [])
    assert model.rendered == 2


ARRANGED = {
    "a text between calls": ("@one\nAnd:\n@two", None, "And:", 2),
    "a line break between calls": ("@one\n@two", None, "", 2),
    "white space around a call": (" \n@one \n", None, "", 1),
    "white space alone": (" \n", None, " \n", 0),
    "a call in reasoning that is not closed": ("<think>\nSo\n@one", "So", "", 1),
    "a call in reasoning": ("<think>\nSo @one no.\n</think>\n\nYes.", "So @one no.", "Yes.", 0),
    "calls in reasoning and after it": ("<think>\nSo @two no.\n</think>\n\n@one", "So @two no.", "", 1),
    "a tag in reasoning": ("<think>\nhm <call> \n</think>\n\nSo: @one", "hm <call> ", "So: ", 1),
    "reasoning of Mistral": ("[THINK]hm[/THINK]So: @one", "hm", "So: ", 1),
    "the Hermes form": (f"Not {HERMES}.", None, f"Not {HERMES}.", 0),
    "the Hermes form before a call": (f"Not {HERMES}.@one", None, f"Not {HERMES}.", 1),
    "a broken call after a call": ("@one@broken", None, "@broken", 1),
    "a broken call before a call": ("@broken@one", None, "@broken", 1),
}
"""What is sampled: reasoning, content, and how many of the two calls are read."""
BREAKABLE = ("json", "numbered", "identified", "object")
"""Forms in which a call without its end is none."""


@pytest.mark.parametrize("case", ARRANGED)
@pytest.mark.parametrize("form", FORMS)
async def test_calls_stand_between_texts_and_after_reasoning(form: str, case: str) -> None:
    text, reasoning, content, count = ARRANGED[case]
    if (form == "bare" and "white" not in case) or ("@broken" in text and form not in BREAKABLE):
        return
    model = Model(form)
    one, two = (sampled(model, turn("", arguments)) for arguments in PLAIN[:2])
    broken = one.replace('"Paris"', '"Paris"]').strip()

    def written(text: str) -> str:
        return text.replace("@one", one).replace("@two", two).replace("@broken", broken)

    found = await parsed(model, written(text))
    assert read(found) == [("look_up", given) for given in PLAIN[:count]]
    assert found.reasoning == (reasoning and written(reasoning))
    said = found.content.strip() if "@broken" in text else found.content
    assert said == written(content)


async def test_the_syntax_is_learned_of_an_engine_that_makes_a_list_of_an_empty_text() -> None:
    """As vLLM's rules do for Kimi K2, whose template then prints the list."""

    @attrs.define
    class Wrapping(Model):
        def text(self, messages: Sequence[Message]) -> str:
            listed = [
                {**one, "content": [one["content"]]} if one.get("content") == "" else one for one in messages
            ]
            return super().text(listed)

    model = Wrapping("json")
    found = await parsed(model, f"So: {sampled(Model('json'), turn('', PLAIN[0]))}")
    assert (read(found), found.content) == ([("look_up", PLAIN[0])], "So: ")


async def test_after_many_broken_calls_nothing_is_read() -> None:
    good = sampled(Model("json"), turn("", PLAIN[0]))
    text = good.replace("{", "[") * (MOST_BROKEN + 1) + good
    found = await parsed(Model("json"), text)
    assert (found.calls, found.content) == ((), text)


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({}, "1", "1"),
        ({}, '{"a": 1}', '{"a": 1}'),
        (True, "1", "1"),
        ({"anyOf": [{"type": "integer"}, NULL]}, "1", 1),
        ({"anyOf": [{"type": "string"}, NULL]}, "1", "1"),
        ({"anyOf": [{"type": "string"}, NULL]}, "null", None),
        ({"anyOf": [{"type": "string"}, NULL]}, '"a"', '"a"'),
        ({"type": ["string", "number"]}, "1", 1),
        ({"type": ["string", "array"]}, "[1]", [1]),
        ({"enum": ["1", "2"]}, "1", "1"),
        ({"enum": [1, 2]}, "1", 1),
        ({"$ref": "#/$defs/One"}, '{"a": 1}', {"a": 1}),
        ({"type": "integer"}, "NaN", "NaN"),
        ({"type": "integer"}, '"3"', "3"),
        ({"type": "array"}, '"[1]"', "[1]"),
        ({"type": "string"}, '"3"', '"3"'),
        ({"type": "number"}, "1e999", "1e999"),
        ({"type": "array"}, "[NaN]", "[NaN]"),
        ({"type": "boolean"}, "True", True),
        ({"type": "array"}, "[1, None]", [1, None]),
        ({"type": "string"}, "True", "True"),
        ({}, "True", "True"),
        ({"type": "array"}, "[" * LONGEST_LITERAL, "[" * LONGEST_LITERAL),
    ],
)
async def test_arguments_have_the_types_of_the_schema(schema: Any, text: str, value: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": schema}}}}]
    call = f"<call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</call>"
    rendering = Rendering(tools=tuple(tools))
    assert read(await parsed(Model("xml"), call, rendering=rendering)) == [("f", {"a": value})]


@pytest.mark.parametrize("form", ["keys", "xml", "attributes"])
async def test_of_equal_keys_the_last_counts(form: str) -> None:
    model = Model(form)
    text = sampled(model, turn("", {"place": "Paris", "plaza": "Rome"})).replace("plaza", "place")
    assert read(await parsed(model, text)) == [("look_up", {"place": "Rome"})]


async def learned_of(form: str) -> CallSyntax:
    model = Model(form)
    found = await TemplateCalls(model, model.render).learn(RENDERING)
    assert found is not None
    return found.syntax


async def test_a_name_before_an_object_is_no_call_by_itself() -> None:
    said, called = (
        "<u>Quagga.<a>Zebra<e>",
        '<u>Quagga.<a>consult_almanac {"place": "tidewater", "count": 41}<e>',
    )
    assert learned(said, called, 1) is None


async def test_long_texts_are_searched_in_linear_time() -> None:
    for form in FORMS:
        syntax = await learned_of(form)
        for text in (
            "a" * 200_000,
            "{" * 20_000,
            "<call>" * 20_000,
            "[CALLS]" * 20_000,
            "<parameter=" * 20_000,
        ):
            assert syntax.read(text, TOOLS)[1] == []


# Streams.


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
async def test_a_stream_brings_no_text_of_calls(form: str, data: st.DataObject) -> None:
    model = Model(form)
    content = "" if form == "bare" else data.draw(st.sampled_from(["", "So <be it", "[C", "a {b} <c"]))
    text = sampled(model, turn(content, PLAIN[0]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(text)), max_size=6)))
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    watching = CallTextFilter(watch, await learned_of(form))
    for place, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(text)], strict=True)):
        await watching(Delta(ids=(place,), text=text[start:stop]))
    said = "".join(delta.text for delta in heard)
    assert content.startswith(said.rstrip("\n"))
    assert [index for delta in heard for index in delta.ids] == list(range(len(cuts) + 1))


async def test_a_stream_of_an_answer_comes_whole() -> None:
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    watching = CallTextFilter(watch, await learned_of("bare"))
    pieces = ["  ", "So: ", '{"a": 1}', " < <ca", "ll"]
    for place, piece in enumerate(pieces):
        await watching(Delta(ids=(place,), text=piece))
    assert [delta.text for delta in heard] == pieces


# Real templates.

WITHOUT = {"gemma3", "phi3", "phi4", "smollm3"}
"""Templates that write no calls."""


@needs_families
@pytest.mark.parametrize("name", NAMES)
async def test_a_real_template_is_read_back(name: str) -> None:
    family = Family.load(FAMILIES / name)

    async def render(messages: Sequence[Message], rendering: Rendering, **options: bool) -> Sequence[int]:
        return family.tokenize_fn(tools=list(rendering.tools))(messages, **options)

    calls = TemplateCalls(LocalTokenizer(family), render)
    found = await calls.learn(RENDERING)
    assert (found is None) is (name in WITHOUT)
    if found is None:
        return
    assert is_hermes(found.syntax) is (name in ("qwen2.5", "qwen3"))
    prompt = [{"role": "user", "content": "?"}]
    for arguments in PLAIN:
        for form in (arguments, json.dumps(arguments)):
            try:
                whole = family.text([*prompt, turn("", form)], tools=TOOLS)
            except TemplateRefused:
                continue
            start = whole.find("{", whole.rfind("?")) if found.syntax.bare else whole.rfind("?")
            _, read_calls = found.syntax.read(whole[start:], TOOLS)
            assert [(one.name, json.loads(one.arguments)) for one in read_calls] == [("look_up", arguments)]
            break
    parser = await choose_parser(LocalTokenizer(family), None, render)
    assert isinstance(parser, Hermes) is (name != "gpt-oss")

"""Grammars for constrained turns, in the syntax in which a model's own chat template writes tool calls.

The template is asked to write two calls that no real turn makes. What stands around their names and
arguments is the syntax, and it counts only if the parser of sampled turns reads both calls back from it.
The grammar is a structural tag: xgrammar's form, which vLLM and SGLang take.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

import attrs

from tito_core import InputError, Message, TemplateRefused, render_key

from .constraint import ANY_OBJECT, Constraint, tool_name, tool_schema
from .protocol import Rendering, Sampling, UnsupportedError
from .replies import hermes
from .replies.hermes import CALL, THINK, THOUGHT, Tags
from .replies.output_parser import Hermes, OutputParser

Format = Mapping[str, Any]
"""A node of a structural tag, as xgrammar's `structural_tag.py` defines them."""
Render = Callable[..., Awaitable[Sequence[int]]]

NAMES, WORDS = ("consult_almanac", "consult_atlas"), ("tidewater", "moorland")
"""Functions that no real turn calls, and the arguments that they are called with."""
LINES: Format = {"type": "regex", "pattern": "\\n{0,2}"}
"""The line breaks between reasoning and the answer."""
TEXT_BEFORE_CALLS: Format = {"type": "any_text", "excludes": [CALL]}
"""Any text in which no call begins; reasoning may be part of it.

Not `any_tokens`, as in reasoning: xgrammar 0.2.8 takes two such formats for the same one where they differ in
tokens alone, and mixes up their masks.
"""
CLOSED = 3
"""How many ids of a prompt's end show that it closes the reasoning: the tag, and line breaks after it."""


@attrs.frozen
class CallForm:
    """The text around a tool call's name and its arguments.

    Attributes:
        begin: The text before the name.
        middle: The text between the name and the arguments.
        end: The text after the arguments.
        between: The white space between two calls.
    """

    begin: str
    middle: str
    end: str
    between: str

    def text(self, name: str, arguments: str) -> str:
        """Return a call.

        >>> CallForm('{"name": "', '", "arguments": ', "}", "").text("f", "{}")
        '{"name": "f", "arguments": {}}'
        """
        return f"{self.begin}{_quoted(name)}{self.middle}{arguments}{self.end}"


def call_form(text: str, tags: Tags) -> CallForm | None:
    r"""Return the form in which a template wrote the calls of `stand_in_calls`; None where none is found.

    >>> call = '<tool_call>\n{"name": "%s", "arguments": {"place": "%s"}}\n</tool_call>'
    >>> calls = [call % pair for pair in zip(NAMES, WORDS)]
    >>> call_form("assistant:" + "\n".join(calls) + "<end>", Tags()).middle
    '", "arguments": '
    """
    places = list(_places(text))
    if len(places) != len(NAMES) * 2:
        return None
    first, one, second, two = places
    middle, rest = text[first[1] : one[0]], text[two[1] :]
    inside = text[one[1] : second[0]]
    end = _common_prefix(inside, rest)
    marks = list(tags.pattern.finditer(end))
    # What follows two calls may begin alike by chance.
    end = end[: marks[-1].end()] if marks else end.rstrip()
    begin = _common_suffix(inside[len(end) :], text[: first[0]])
    between = inside[len(end) : len(inside) - len(begin)]
    stripped = begin.lstrip()
    form = CallForm(stripped, middle, end, between + begin[: len(begin) - len(stripped)])
    same = middle == text[second[1] : two[0]] and not form.between.strip()
    return form if same and _is_read_back(form) else None


def _places(text: str) -> Sequence[tuple[int, int]]:
    """Return where the names and arguments of both calls stand, in the order of the text, as far as found."""
    found: list[tuple[int, int]] = []
    limit = len(text)
    for name, word in zip(reversed(NAMES), reversed(WORDS), strict=True):
        pattern = re.compile(rf'\{{\s*"place"\s*:\s*"{word}"\s*\}}')
        arguments = [match.span() for match in pattern.finditer(text, 0, limit)]
        start = text.rfind(name, 0, arguments[-1][0]) if arguments else -1
        if start < 0:
            break
        found += [arguments[-1], (start, start + len(name))]
        limit = start
    return found[::-1]


def _common_suffix(one: str, other: str) -> str:
    return _common_prefix(one[::-1], other[::-1])[::-1]


def _common_prefix(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    return one[: len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))]


def _is_read_back(form: CallForm) -> bool:
    """Whether the parser of sampled turns reads two calls back from this form, and nothing else."""
    calls = tuple((name, json.dumps({"place": word})) for name, word in zip(NAMES, WORDS, strict=True))
    text = form.between.join(form.text(*call) for call in calls)
    read = hermes.parse(text, Tags().marks(text))
    return (read.calls, read.content, read.reasoning) == (calls, "", None)


def stand_in_calls() -> tuple[list[Message], list[dict[str, Any]]]:
    """Return a conversation that ends with two calls, and the tools that they call."""
    place = {"type": "object", "properties": {"place": {"type": "string"}}}
    functions = [{"name": name, "description": "Not called.", "parameters": place} for name in NAMES]
    calls = [
        {
            "id": f"a1b2c3d4{number}",  # nine letters and digits: some templates take nothing else
            "type": "function",
            "function": {"name": name, "arguments": {"place": word}},
        }
        for number, (name, word) in enumerate(zip(NAMES, WORDS, strict=True))
    ]
    user = {"role": "user", "content": "Hello."}
    turn = {"role": "assistant", "content": "", "tool_calls": calls}
    return [user, turn], [{"type": "function", "function": function} for function in functions]


@attrs.define
class GrammarMaker:
    """Makes the grammars of one model's constrained turns.

    Attributes:
        render: Renders messages to ids with a `Rendering`, as engines do.
        forms: The form of calls by template arguments, once it was asked for.
    """

    render: Render
    forms: dict[str, CallForm | None] = attrs.field(factory=dict)

    async def answer_format(
        self, constraint: Constraint, rendering: Rendering | None, parser: OutputParser
    ) -> Format | None:
        """Return the grammar of an answer, without reasoning.

        None means that no grammar can be made here: of tool calls that the template writes in another form,
        or of a model whose answers are not plain text after the reasoning.

        Raises:
            InputError: A call is demanded, and the rendering has no tools.
        """
        tools = () if rendering is None else rendering.tools
        if constraint.must_call is not None and not tools:
            raise InputError("Sampling.constraint: a call is demanded, and `rendering` has no tools")
        if not isinstance(parser, Hermes):
            return None
        if not tools:
            return _json(ANY_OBJECT if constraint.schema is None else constraint.schema)
        form = await self._form(rendering or Rendering(), parser)
        if form is None:
            return None
        return answer_grammar(constraint, tools, form, await parser.tags())

    async def _form(self, rendering: Rendering, parser: OutputParser) -> CallForm | None:
        """Return the form of calls; None where the template writes no such calls, or writes one at a time."""
        key = render_key((), rendering.template_args)
        if key not in self.forms:
            messages, tools = stand_in_calls()
            asked = attrs.evolve(rendering, tools=tuple(tools))
            tags = await parser.tags()
            try:
                ids = await self.render(messages, asked, add_generation_prompt=False)
            except TemplateRefused:
                self.forms[key] = None
            else:
                self.forms[key] = call_form(await parser.tokenizer.decode(ids), tags)
        return self.forms[key]


def _json(schema: Mapping[str, Any]) -> Format:
    return {"type": "json_schema", "json_schema": schema}


def _sequence(elements: Sequence[Format]) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": list(elements)}


def _either(elements: Sequence[Format]) -> Format:
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": list(elements)}


def answer_grammar(
    constraint: Constraint, tools: Sequence[Mapping[str, Any]], form: CallForm, tags: Tags
) -> Format:
    """Return the grammar of an answer for which tools are offered."""
    allowed = [one for one in tools if not constraint.callable or tool_name(one) in constraint.callable]
    call = _either([_call(one, form, tags) for one in allowed])
    again = _sequence([*_literal(form.between, tags), call])
    calls = call if constraint.one_call else _sequence([call, {"type": "star", "content": again}])
    if constraint.must_call is not None:
        return calls
    if constraint.schema is not None:
        return _either([calls, _json(constraint.schema)])
    return _sequence([TEXT_BEFORE_CALLS, {"type": "optional", "content": calls}])


def _call(tool: Mapping[str, Any], form: CallForm, tags: Tags) -> Format:
    """Return the grammar of one tool's call; its arguments keep to the tool's schema."""
    before = _literal(form.begin + _quoted(tool_name(tool)) + form.middle, tags)
    return _sequence([*before, _json(tool_schema(tool)), *_literal(form.end, tags)])


def _literal(text: str, tags: Tags) -> list[Format]:
    """Return the grammar of a fixed text. A tag that is a token is that token, and not its letters."""
    parts, begin = list[Format](), 0
    for mark in tags.pattern.finditer(text):
        if mark.group() in tags.ids:
            parts += [*_string(text[begin : mark.start()]), _token(tags.ids[mark.group()])]
            begin = mark.end()
    return [*parts, *_string(text[begin:])]


def _string(text: str) -> list[Format]:
    return [{"type": "const_string", "value": text}] if text else []


def _token(index: int) -> Format:
    return {"type": "token", "token": index}


def _quoted(name: str) -> str:
    """Return a name as it stands between the quotes of a JSON string."""
    return json.dumps(name, ensure_ascii=False)[1:-1]


def reasoning_open(prompt_ids: Sequence[int], tags: Tags) -> bool:
    """Whether a prompt ends inside reasoning that the turn has to close."""
    return THOUGHT in tags.ids and tags.thinking(prompt_ids)


def may_reason(prompt_ids: Sequence[int], tags: Tags) -> bool:
    """Whether reasoning may come before the answer: the model has tags for it, and the prompt closes none."""
    has_tags = THOUGHT in tags.ids and THINK in tags.ids
    return has_tags and tags.ids[THOUGHT] not in prompt_ids[-CLOSED:]


def with_reasoning(answer: Format, prompt_ids: Sequence[int], tags: Tags) -> Format:
    """Return the grammar of a whole turn after a prompt: free reasoning, then the answer.

    >>> with_reasoning({"type": "token", "token": 1}, [5], Tags())
    {'type': 'token', 'token': 1}
    """
    if not may_reason(prompt_ids, tags):
        return answer
    if answer["type"] == "sequence" and answer["elements"][0] == TEXT_BEFORE_CALLS:
        return answer
    closed = tags.ids[THOUGHT]
    thoughts = [{"type": "any_tokens", "exclude_tokens": [closed]}, _token(closed), LINES]
    if reasoning_open(prompt_ids, tags):
        return _sequence([*thoughts, answer])
    whole = _sequence([_token(tags.ids[THINK]), *thoughts])
    return _sequence([{"type": "optional", "content": whole}, answer])


def opening_tag(tags: Tags) -> Format:
    """Return the grammar of a turn that opens reasoning first thing, for a question to the server."""
    return _sequence([_token(tags.ids[THINK]), *_string("\n\n\n")])


def structural_tag(grammar: Format) -> str:
    """Return the JSON text of a structural tag, which engines take."""
    return json.dumps({"type": "structural_tag", "format": grammar}, ensure_ascii=False)


def vllm_keys(answer: Format) -> dict[str, Any]:
    """Return vLLM's parameter for a grammar; a schema alone goes where every backend takes it."""
    if answer["type"] == "json_schema":
        return {"structured_outputs": {"json": answer["json_schema"]}}
    return {"structured_outputs": {"structural_tag": structural_tag(answer)}}


def sglang_keys(answer: Format) -> dict[str, str]:
    """Return SGLang's sampling parameter for a grammar; each is JSON text."""
    if answer["type"] == "json_schema":
        return {"json_schema": json.dumps(answer["json_schema"])}
    return {"structural_tag": structural_tag(answer)}


def no_grammar() -> UnsupportedError:
    """Return the error of a model for whose answers no grammar can be made."""
    return UnsupportedError(
        "tool_choice, parallel_tool_calls and response_format cannot be honoured for this model: its "
        "chat template writes answers in a form for which no grammar is known here. Nothing was sent",
        parameter="sampling",
    )


GRAMMARS = frozenset(("ebnf", "grammar", "json_schema", "regex", "structural_tag", "structured_outputs"))
"""Keys of `Sampling.extra` that constrain a turn, too."""


def constrained(sampling: Sampling, keys: Mapping[str, Any]) -> Sampling:
    """Return sampling parameters with an engine's own keys in place of the constraint.

    Raises:
        InputError: `Sampling.extra` has a grammar of its own.
    """
    both = sorted(GRAMMARS & sampling.extra.keys())
    if both:
        raise InputError(
            f"Sampling.extra: {both[0]} and tool_choice, parallel_tool_calls or response_format bind the "
            "same turn: leave one of them out"
        )
    return attrs.evolve(sampling, constraint=None, extra={**sampling.extra, **keys})


def check_unconstrained(sampling: Sampling, engine: str, why: str) -> None:
    """Raise `UnsupportedError` where an engine is asked to constrain a turn and cannot be trusted to."""
    if sampling.constraint is not None:
        raise UnsupportedError(
            f"tool_choice, parallel_tool_calls and response_format cannot be honoured with {engine}: {why}. "
            "Nothing was sent",
            parameter="sampling",
        )

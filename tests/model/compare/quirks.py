"""Chat templates made of quirks: every combination is a template of the model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import attrs

from tests.model.compare.picks import Picks
from tests.model.messages import Message
from tests.model.templates import Page
from tests.model.tokenizers import Tokenizer
from tito_core import TemplateRefused
from tito_core.testing.toys import Toy

PAD = "<pad>"
ROLES = ("system", "developer", "user", "assistant", "tool")
SPECIALS = {
    "chatml": ("<|im_start|>", "<|im_end|>", "<|eom|>", "<|endoftext|>"),
    "marks": (*(f"<|{role}|>" for role in ROLES), "<|end|>", "<|eom|>", "<|endoftext|>"),
    "script": ("<|eom|>",),
}
ALWAYS = ("<think>", "</think>", "<vision>", PAD, "</vision>")
HEADS = {"chatml": "<|im_start|>{role}\n", "marks": "<|{role}|>\n", "script": "{role}: "}
CLOSES = {
    "chatml": (
        "<|im_end|>\n",
        "<|im_end|>",
        "\n<|im_end|>\n",
        " <|im_end|>\n",
        "<|im_end|><|im_end|>",
        "\n\n<|im_end|>",
    ),
    "marks": ("", "<|end|>", "<|end|>\n", "\n<|end|>\n", "<|end|>\n<|end|>\n", "\n"),
    "script": ("\n", "\n\n", "</s>\n"),
}
MERGES = (
    (),
    ("ab", "ba", "user", "assistant", "\n\n"),
    ("a\n", "b\n", "}\n", "o\n", "ab"),
    ("\n<", "\nu", "\na", "s: "),
)
PER_TURN = ("kept", "dropped before the last user", "ignored")
CALLS = ("json", "json, id last", "arguments first", "mapping only", "text only", "name only", "lines")
ASIDES = ("", "[r", "x]", "[x]", "\n", "<|endoftext|>")
HISTORIES = (
    "",
    "",
    "",
    "",
    "numbered results",
    "numbered messages",
    "tool changes heads",
    "switch",
    "results by name",
    "results by first name",
)


@attrs.frozen
class Quirky:
    """A chat template. Each field is a quirk; its first choice is the plain one."""

    style: str = "chatml"
    close: str = "<|im_end|>\n"
    begin: bool = False
    default_system: bool = False
    opens_thinking: bool = False
    reasoning: str = "kept"
    calls: str = "json"
    calls_close: bool = False
    closed_later: bool = False
    eos_when_done: bool = False
    grouped: bool = False
    trims: bool = False
    contents: str = "either"
    developer: str = "taken"
    alternates: bool = False
    late_system: str = "taken"
    history: str = ""
    counts_pictures: bool = False
    note: bool = False
    capitals: bool = False
    aside: str = ""
    called_close: str = "<|eom|>"
    called_by: str = ""

    @property
    def reads(self) -> frozenset[str]:
        """Keys that it reads beside those of every template."""
        return frozenset({"note"}) if self.note else frozenset()

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings at which its engine stops."""
        marks = [one for one in (*SPECIALS[self.style][-3:], "</s>") if one in self.close]
        if self.style == "marks" and not marks:
            marks = ["<|user|>", "<|tool|>"]
        eom = self.calls_close and "<|eom|>" in self.called_close
        return (*(marks or ["\n"]), *(["<|eom|>"] if eom else []), "<|endoftext|>")

    def head(self, role: str) -> str:
        """Return what it writes before a message."""
        return HEADS[self.style].format(role=role)

    def close_of(self, message: Message, *, last: bool) -> str:
        """Return what it writes after a message."""
        calls = message.get("tool_calls") if message["role"] == "assistant" else None
        if calls and self.calls_close and self.called_by in calls[0]["function"]["name"]:
            return self.called_close
        return "" if self.closed_later and message["role"] == "assistant" and last else self.close

    def page(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Page:
        """Render a conversation."""
        page, state = Page(), _State(self, messages)
        page.write("<think>" if self.begin else "")
        if self.default_system and [m["role"] for m in messages[:1]] != ["system"]:
            page.write(self.head("system") + "be good" + self.close)
        for index, message in enumerate(messages):
            if state.takes(index):
                self.turn(page, state, index, message)
        page.prompt = len(page.text)
        if add_generation_prompt:
            page.write(
                state.before(len(messages)) + self.head("assistant") + "<think>\n" * self.opens_thinking
            )
            said = [str(m.get("content")) for m in messages if m["role"] in {"system", "user"}]
            page.write(
                "<think>" if self.history == "switch" and not any("/no_think" in one for one in said) else ""
            )
        else:
            page.write("<|endoftext|>" if self.eos_when_done else "")
        return page

    def turn(self, page: Page, state: _State, index: int, message: Message) -> None:
        """Write one message."""
        joined = self.grouped and message["role"] == "tool"
        first = not (joined and state.roles[index - 1 : index] == ["tool"])
        start, _ = page.write(
            state.before(index) + self.head("user" if joined else message["role"]) if first else ""
        )
        page.write("\n[result]" if joined else "")
        page.write(state.heading(index, message))
        body = len(page.text)
        self.body(page, state, index, message)
        page.bodies[index] = (body, len(page.text))
        page.write(f"{'[/result]' * joined}{state.aside(index)}")
        if not (joined and state.roles[index + 1 : index + 2] == ["tool"]):
            page.write(self.close_of(message, last=index == len(state.messages) - 1))
        page.wholes[index] = (start, len(page.text))

    def body(self, page: Page, state: _State, index: int, message: Message) -> None:
        """Write the words of a message."""
        thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
        keeps = self.reasoning == "kept" or (self.reasoning != "ignored" and index > state.last_user)
        if thoughts and keeps and message["role"] == "assistant":
            page.write(f"<think>{thoughts}</think>")
        called = [self.call(call) for call in message.get("tool_calls") or ()]
        page.write("".join(called) if self.calls == "arguments first" else "")
        self.content(page, state, index, message)
        page.write("".join(called) if self.calls != "arguments first" else "")

    def content(self, page: Page, state: _State, index: int, message: Message) -> None:
        """Write the content, with a placeholder for each medium."""
        content = message.get("content")
        if (isinstance(content, list) and self.contents == "strings") or (
            isinstance(content, str) and content and self.contents == "parts"
        ):
            page.lost.add(index)
            return
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        texts = (
            ["".join(p.get("text", "") for p in parts)] if all(p["type"] == "text" for p in parts) else None
        )
        for part in [{"type": "text", "text": texts[0]}] if texts else parts:
            if part["type"] == "text":
                text = part["text"].strip() if self.trims else part["text"]
                page.write(text.upper() if self.capitals else text)
                continue
            state.pictures += 1
            page.write(f"Picture {state.pictures}: " if self.counts_pictures else "")
            page.write("<vision>")
            page.media.append(page.write(PAD))
            page.write("</vision>")

    def call(self, call: Message) -> str:
        """Write one tool call."""
        function, given = call["function"], call["function"].get("arguments")
        name = f'"name": "{function["name"]}"'
        if (self.calls == "mapping only" and not isinstance(given, Mapping)) or (
            self.calls == "text only" and not isinstance(given, str)
        ):
            raise TemplateRefused("arguments in another form")
        text = given if isinstance(given, str) else json.dumps(given)
        return {
            "json, id last": f'[{{{name}, "arguments": {text}, "id": "{call.get("id")}"}}]',
            "lines": f'[{{"arguments": {text},{" " if self.style == "script" else chr(10)}{name}}}]',
            "arguments first": f'[{{"arguments": {text}, {name}}}]',
            "name only": f"[{function['name']}]",
        }.get(self.calls, f'[{{{name}, "arguments": {text}}}]')


class _State:
    """What a render remembers from message to message."""

    def __init__(self, template: Quirky, messages: Sequence[Message]) -> None:
        self.template, self.messages, self.pictures, self.results = template, messages, 0, 0
        self.roles = [message["role"] for message in messages]
        self.last_user = max((i for i, role in enumerate(self.roles) if role == "user"), default=-1)

    def takes(self, index: int) -> bool:
        """Return whether a message is written. Raises `TemplateRefused` for what the template refuses."""
        role, template = self.roles[index], self.template
        talk = [one for one in self.roles if one not in {"system", "developer"}]
        if template.alternates and talk != [("user", "assistant")[i % 2] for i in range(len(talk))]:
            raise TemplateRefused("user and assistant must alternate")
        late = role in {"system", "developer"} and index > 0
        if (late and template.late_system == "refused") or (
            role == "developer" and template.developer == "refused"
        ):
            raise TemplateRefused(f"no {role} here")
        dropped = (late and template.late_system == "dropped") or (
            role == "developer" and template.developer == "dropped"
        )
        return not dropped

    def before(self, index: int) -> str:
        """Return what the history writes before the head of a message, or before the generation prompt."""
        answered = "tool" in self.roles[:index]
        if self.template.history == "numbered messages":
            return f"[{index}]"
        return "[after a tool]" if self.template.history == "tool changes heads" and answered else ""

    def aside(self, index: int) -> str:
        """Return what stands between the words of a turn and its close, in a conversation with results."""
        told = self.roles[index] == "assistant" and "tool" in self.roles[:index]
        return self.template.aside if told and self.roles[index - 1] != "tool" else ""

    def heading(self, index: int, message: Message) -> str:
        """Return what stands before the words of a message."""
        note = f"[{message.get('note')}]" if self.template.note and message.get("note") is not None else ""
        if message["role"] != "tool":
            return note
        self.results += 1
        if self.template.history in {"results by name", "results by first name"}:
            calls = [call for earlier in self.messages[:index] for call in earlier.get("tool_calls") or ()]
            named = [c["function"]["name"] for c in calls if c.get("id") == message.get("tool_call_id")]
            named = named[:1] if self.template.history == "results by first name" else named[-1:]
            return f"{note}{named[0] if named else None}: "
        return f"{note}[{self.results}]" if self.template.history == "numbered results" else note


@attrs.frozen
class FromToy:
    """A toy of `tito_core.testing` as a template of the model. It does not say what closes a turn."""

    toy: Toy
    reads: frozenset[str] = frozenset()

    @property
    def stops(self) -> tuple[str, ...]:
        """The strings at which its engine stops."""
        return self.toy.stops

    @property
    def close(self) -> str:
        """What it writes after an ordinary turn."""
        return self.toy.close

    def page(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Page:
        """Render a conversation."""
        page = self.toy.page(messages, add_generation_prompt=add_generation_prompt)
        closes = (self.close, *self.stops)
        ends = {
            i: b + next((len(one) for one in closes if page.text.startswith(one, b)), 0)
            for i, (_, b) in page.bodies.items()
        }
        wholes = {index: (start, ends[index]) for index, (start, _) in page.bodies.items()}
        return Page(page.text, dict(page.bodies), wholes, set(page.lost))


@lru_cache(4_000)
def rendered_ids(family: Family, messages: str, add_generation_prompt: bool) -> tuple[int, ...]:
    """Return the ids of a conversation that is given as JSON. The kernel asks the same of many cases."""
    page = family.template.page(json.loads(messages), add_generation_prompt=add_generation_prompt)
    return tuple(family.tokenizer.encode(page.text))


@attrs.frozen(slots=False, eq=False)
class Family:
    """A template and a tokenizer: what the kernel is given as `tokenize_fn`, and the model sees inside of."""

    template: Quirky | FromToy
    tokenizer: Tokenizer

    def __call__(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of a rendered conversation."""
        return list(rendered_ids(self, json.dumps(messages), add_generation_prompt))

    @cached_property
    def suffix(self) -> tuple[int, ...]:
        """The ids that close an ordinary turn."""
        return tuple(self.tokenizer.encode(self.template.close))

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""
        stops = [self.tokenizer.encode(stop) for stop in self.template.stops]
        return tuple(dict.fromkeys(ids[0] for ids in stops if len(ids) == 1))


def a_quirk(picks: Picks) -> dict[str, object]:
    """Return one quirk, or none."""
    style = picks.pick(("chatml", "chatml", "marks", "script"))
    quirks: dict[str, object] = {"style": style, "close": picks.pick(CLOSES[style])}
    options: dict[str, Sequence[object]] = {
        "begin": (True,),
        "default_system": (True,),
        "opens_thinking": (True,),
        "reasoning": PER_TURN[1:],
        "calls": CALLS[1:],
        "calls_close": (True,),
        "closed_later": (True,),
        "eos_when_done": (True,),
        "grouped": (True,),
        "trims": (True,),
        "contents": ("strings", "parts"),
        "developer": ("dropped", "refused"),
        "alternates": (True,),
        "late_system": ("dropped", "refused"),
        "history": HISTORIES,
        "counts_pictures": (True,),
        "note": (True,),
        "capitals": (True,),
        "aside": ASIDES[1:],
        "called_close": ("", "<|eom|>\n"),
        "called_by": ("e", "i"),
    }
    for _ in range(picks.pick((0, 1, 1, 2, 3, 5))):
        name = picks.pick((*options, "note", "history"))
        quirks[name] = picks.pick(options[name])
    if quirks["close"] == "\n" and style == "marks":
        quirks["grouped"] = False  # the next marker, as results have that of users, would be called a close
    return quirks


def quirky(picks: Picks) -> Family:
    """Return a template with some quirks, and a tokenizer with some habits."""
    template = Quirky(**a_quirk(picks))  # type: ignore[arg-type]  # each value is one of its field's
    specials = (*(() if picks.once_in(8) else SPECIALS[template.style]), *ALWAYS)
    if "<|eom|>" not in specials:  # a close that is no id is text of the call, as `</tool_call>` is
        template = attrs.evolve(template, called_close="<|eom|>")
    merges = picks.pick(MERGES)
    return Family(template, Tokenizer(specials, merges, ranked=picks.once_in(3), bytewise=picks.once_in(4)))

"""Outputs that models might sample, by output format: valid, cut and broken calls, and reasoning.

The formats, and the arguments that are tried, are in `formats.toml`.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs

LETTERS = "\ue000"
"""Divides a text into parts that are encoded alone, so that a tag is sampled as letters."""
CUT = "\ue001"
"""Ends a text that was cut: no stop token follows."""

PROPERTIES = {
    "place": {"type": "string"},
    "count": {"type": "integer"},
    "deep": {"type": "object"},
    "many": {"type": "array"},
    "sure": {"type": "boolean"},
    "any": {},
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema}}
    for name, schema in (
        ("look_up", {"type": "object", "properties": PROPERTIES}),
        ("set_mode", {"type": "object", "properties": {"place": {"type": "string"}}}),
    )
]

GIVEN = tomllib.loads((Path(__file__).parent / "formats.toml").read_text(encoding="utf-8"))
Values = Sequence[tuple[str, str]]
PLAIN, OTHER = '{"place": "Paris", "count": 3}', '{"place": "Rome"}'


@attrs.frozen(kw_only=True, slots=False)  # a property is kept
class Format:
    """An output format, and who reads it.

    Attributes:
        folder: The model's folder, and a template in it by name.
        vllm: Names of vLLM's parsers: of calls, of reasoning.
        sglang: Those of SGLang.
        call: A call, with `@name`, `@args` and maybe `@place`; empty where only `more` is tried.
        pair: An argument with `@key` and `@value`; empty where arguments are one JSON object.
        between: Stands between calls, as `opened` and `closed` stand around them.
        think: Begins and ends reasoning; empty without reasoning.
        opens: Whether the prompt opens the reasoning.
        say: A text, where it has marks of its own.
        arguments: What the chat template is given.
        more: Outputs of this format alone.
        lacks: Tokens of the folder that the model's own vocabulary has not.
    """

    folder: Sequence[str]
    vllm: tuple[str, str]
    sglang: tuple[str, str]
    call: str = ""
    pair: str = ""
    between: str = "\n"
    opened: str = ""
    closed: str = ""
    think: tuple[str, str] = ("", "")
    opens: bool = False
    say: str = "@text"
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    more: Mapping[str, str] = attrs.field(factory=dict)
    lacks: Sequence[str] = ()

    @property
    def template(self) -> str:
        """The file of the chat template."""
        return ".".join(("chat_template", *self.folder[1:], "jinja"))

    def one(self, arguments: str | Values = PLAIN, name: str = "look_up") -> str:
        """Return one call; JSON becomes pairs where arguments are written so."""
        if self.pair and isinstance(arguments, str):
            members = json.loads(arguments).items()
            arguments = [(key, one if isinstance(one, str) else json.dumps(one)) for key, one in members]
        if not isinstance(arguments, str):
            pairs = (self.pair.replace("@key", key).replace("@value", value) for key, value in arguments)
            arguments = "".join(pairs)
        return self.call.replace("@name", name).replace("@args", arguments)

    def calls(self, *calls: str) -> str:
        """Return calls with what stands around them."""
        placed = (call.replace("@place", str(place)) for place, call in enumerate(calls))
        return self.opened + self.between.join(placed) + self.closed

    def said(self, text: str) -> str:
        """Return a text with its marks."""
        return self.say.replace("@text", text) if text else ""

    def outputs(self) -> dict[str, str]:
        """Return the texts that a model might sample, by name; each text once."""
        thought = self._written("@before\nHm.\n@thought\n\n") if self.think[1] else ""
        found = [*self.more.items()]
        found += [(name, thought + text) for name, text in self._called()] if self.call else []
        found += self._tried("reasoning") if self.think[1] else []
        if self.say != "@text":  # a message of harmony begins with its role
            found = [(name, HEADER.sub(r"\1<|start|>assistant", text)) for name, text in found]
        names: dict[str, str] = {}
        for name, text in found:
            names.setdefault(text.replace("@place", "0"), name)
        return {name: text for text, name in names.items()}

    def _called(self) -> Iterator[tuple[str, str]]:
        for name, arguments in GIVEN["pairs" if self.pair else "objects"].items():
            yield f"arguments/{name}", self.calls(self.one(arguments))
        end = self._parts["end"].strip()
        for name, inside in (("end-inside", end), ("end-in-letters", lettered(end))):
            value = f"a {inside} b"
            text = json.dumps({"place": value}, ensure_ascii=False)
            yield f"arguments/{name}", self.calls(self.one([("place", value)] if self.pair else text))
        yield from self._tried("turn")
        if self.opened:
            yield from self._tried("section")
        if '"@name"' in self.call:
            before, after = self.call.partition("{")[0], self.call.rpartition("}")[2]
            name, arguments = re.findall(r'"(\w+)": (?="@name"|@args)', self.call)
            for case, members in GIVEN["object"].items():
                inner = members.replace("@name", name).replace("@arguments", arguments)
                yield f"object/{case}", self.calls(f"{before}{inner}{after}")
        call, both = self.calls(self.one()), self.calls(self.one(), self.one(OTHER, "set_mode"))
        for name, last in GIVEN["cut"].items():
            yield f"cut/{name}", self.said("So:\n") + call[: call.rindex(last) + len(last)] + CUT
        yield "cut/end", self.said("So:\n") + (self.opened + self.one())[:-1] + CUT
        yield "cut/second-call", both[: both.index("Rome")] + CUT
        yield "cut/text", self.say.partition("@text")[0] + "So" + CUT

    def _tried(self, group: str) -> Iterator[tuple[str, str]]:
        for name, text in GIVEN[group].items():
            yield f"{group}/{name}", self._written(text)

    def _written(self, text: str) -> str:
        r"""Return a text of `formats.toml`: `«So:»` is said, and `@call` and others are of the format."""
        said = re.sub(r"(?s)«(.*?)»", lambda match: self.said(match[1]), text)
        names = "|".join(sorted(self._parts, key=len, reverse=True))
        return re.sub(f"@({names})", lambda match: self._parts[match[1]], said)

    @cached_property
    def _parts(self) -> dict[str, str]:
        one, two, (before, end) = self.one(), self.one(OTHER, "set_mode"), self.think
        broken = one.replace(self.pair.partition("@value")[2] or ', "count"', "", 1)
        call, ending = self.calls(one), self.call.partition("@args")[2]
        named = {f"named_{key}": self.calls(self.one(OTHER, name)) for key, name in GIVEN["names"].items()}
        return {
            **named,
            "named_count": self.calls(self.one(PLAIN, "nothing")),
            "call": call,
            "other": self.calls(two),
            "both": self.calls(one, two),
            "same": self.calls(one, one),
            "broken": self.calls(broken),
            "broken_first": self.calls(broken, two),
            "broken_last": self.calls(two, broken),
            "letters": lettered(call),
            "less": re.sub(r"\n+", "", call),
            "more": re.sub(r"(?<=[>\]])(?=[<{\n])|\n", "\n \n", call),
            "empty": self.calls(re.sub(r"(?s)[^\n\]>]*@name.*@args[^\n<`]*", "", self.call)),
            "unclosed": self.opened + one.removesuffix(ending),
            "one": one,
            "open": self.opened,
            "close": self.closed,
            "begin": self.call.partition("@name")[0],
            "end": ending,
            "think": before,
            "before": "" if self.opens else before,
            "thought": end,
            "thought_letters": lettered(end),
            "cut": CUT,
        }


def lettered(text: str) -> str:
    """Return a text whose tags are letters.

    >>> lettered("<a>").replace(LETTERS, "*")
    '<*a>'
    """
    return re.sub(r"(?<=[<\[])(?=[\w/|\uff5c])", LETTERS, text)


HEADER = re.compile(r"(<\|(?:end|call)\|>)\s*(?=<\|channel)")
FORMATS = {name: Format(**given) for name, given in GIVEN["formats"].items()}

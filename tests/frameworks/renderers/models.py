"""Model folders, their renderers, and what a model samples."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import attrs
import pytest
from renderers import config_from_name, create_renderer
from renderers.base import load_tokenizer
from renderers.configs import CustomRendererConfig

from tests.frameworks.renderers.refused import REFUSED
from tests.model_folders import FAMILIES, needs_families
from tito_core import TemplateRefused
from tito_io.embedded import write_family

OWN = "own"
HAND = {
    "deepseek-v3": "deepseek-v3",
    "glm4.5": "glm-4.5",
    "gpt-oss": "gpt-oss",
    "kimi-k2": "kimi-k2",
    "llama3": "llama-3",
    "nemotron3": "nemotron-3",
    "qwen3": "qwen3",
    "qwen3.5": "qwen3.5",
}
"""The renderers that renderers has by hand for these families."""
OF_DEFAULT = {"qwen2.5", "smollm3", OWN}
"""Families whose calls one of the parsers of `DefaultRenderer` reads."""
PATH = "tito_io.integrations.renderers.StitchedRenderer"
FOURTEEN = (
    *("deepseek-v3", "gemma3", "glm4.5", "gpt-oss", "kimi-k2", "llama3", "mistral-tekken", "nemotron3"),
    *("phi3", "phi4", "qwen2.5", "qwen3", "qwen3.5", "smollm3"),
)
CHOSEN = [name for name in os.environ.get("TITO_FRAMEWORK_FAMILIES", "").split(",") if name] or FOURTEEN
"""The families to test; each takes some twenty seconds."""
NAMES = [OWN, *(pytest.param(name, marks=needs_families) for name in CHOSEN)]
BY_HAND = [pytest.param(name, marks=needs_families) for name in HAND if name in CHOSEN]

SYSTEM = {"role": "system", "content": "Answer in one word."}
QUESTION = {"role": "user", "content": "Where is it raining?"}
NEXT = {"role": "user", "content": "And tomorrow?"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def called(name: str, count: int) -> list[dict[str, Any]]:
    """Return tool calls, with ids as the family's models write them."""
    ids = [
        f"functions.weather:{place}" if name == "kimi-k2" else f"aB3dE5gH{place}" for place in range(count)
    ]
    function = {"name": "weather", "arguments": json.dumps({"city": "Oslo"})}
    return [{"id": one, "type": "function", "function": function} for one in ids]


def result(call: dict[str, Any], text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call["id"], "name": "weather", "content": text}


@attrs.frozen
class Case:
    """What was sampled, and what comes next.

    Attributes:
        turn: The sampled turn.
        after: The new messages.
        tools: Tools in the prompt.
        cut: How many of the turn's last ids were not sampled any more.
    """

    turn: dict[str, Any]
    after: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    cut: int = 0


SHAPES = ("user", "user after a cut turn", "tool", "two tools", "tool then user", "user after a cut call")


def case_of(shape: str, name: str) -> Case:
    """Return a case in the words of a family."""
    one, two = called(name, 1), called(name, 2)
    thought = {"reasoning_content": "It rains there."}
    answer = {"role": "assistant", "content": "Fjord.", **thought}
    calling = {"role": "assistant", "content": "", **thought}
    rain, sun = result(one[0], "rain, 7 C"), result(two[1], "sun")
    return {
        "user": Case(answer, [NEXT]),
        "user after a cut turn": Case(answer, [NEXT], cut=3),
        "tool": Case({**calling, "tool_calls": one}, [rain], TOOLS),
        "two tools": Case({**calling, "tool_calls": two}, [rain, sun], TOOLS),
        "tool then user": Case({**calling, "tool_calls": one}, [rain, NEXT], TOOLS),
        "user after a cut call": Case({**calling, "tool_calls": one}, [NEXT], TOOLS, cut=4),
    }[shape]


def taken(name: str, shapes: Sequence[str]) -> list[Case]:
    """Return those cases that the family's template takes, with the tools in all if any has some."""
    found = [shape for shape in shapes if (name, shape) not in REFUSED]
    tools = TOOLS if any("tool" in shape for shape in found) else None
    return [attrs.evolve(case_of(shape, name), tools=tools) for shape in found]


def conversations(name: str) -> dict[str, tuple[list[Any], Any]]:
    """Return conversations to render, with their tools."""
    one, two = called(name, 1), called(name, 2)
    calling = {"role": "assistant", "content": "", "reasoning_content": "It rains there."}
    answer = {"role": "assistant", "content": "Fjord."}
    rain, sun = result(one[0], "rain, 7 C"), result(two[1], "sun")
    return {
        "question": ([QUESTION], None),
        "system": ([SYSTEM, QUESTION], None),
        "tools": ([SYSTEM, QUESTION], TOOLS),
        "answer": ([SYSTEM, QUESTION, answer, NEXT], None),
        "last answer": ([QUESTION, answer], None),
        "call": ([QUESTION, {**calling, "tool_calls": one}, rain], TOOLS),
        "two calls": ([SYSTEM, QUESTION, {**calling, "tool_calls": two}, rain, sun, answer, NEXT], TOOLS),
    }


SAID = tuple(conversations(""))


@attrs.frozen(eq=False)
class Model:
    """A model folder."""

    name: str
    folder: Path
    tokenizer: Any
    stops: list[int]

    def config(self, **options: Any) -> CustomRendererConfig:
        """Return the configuration that names the renderer."""
        parsers: dict[str, Any] = {"parser": HAND.get(self.name)}
        if self.name in OF_DEFAULT:
            parsers = {"tool_parser": "qwen3", "reasoning_parser": "think"}
        return CustomRendererConfig(import_path=PATH, **{**parsers, "stop_ids": self.stops, **options})

    def renderer(self, **options: Any) -> Any:
        """Return the renderer under test."""
        return create_renderer(self.tokenizer, self.config(**options))

    def by_hand(self, **options: Any) -> Any:
        """Return the renderer that somebody wrote for the family."""
        chosen = config_from_name(HAND[self.name])
        return create_renderer(self.tokenizer, type(chosen)(**options))

    def sampled(self, prompt: Sequence[dict[str, Any]], case: Case) -> tuple[list[int], list[int]]:
        """Return the ids of a prompt and of the turn after it, in pieces as no tokenizer makes them."""
        renderer = self.renderer()
        begun = renderer.render_ids(prompt, tools=case.tools, add_generation_prompt=True)
        if self.name == "gpt-oss":
            ids = self._harmony(case.turn)
        else:
            written = self._written(renderer, begun, prompt, case)
            end = next((place for place, one in enumerate(written) if one in self.stops), len(written))
            ids = [*apart(self.tokenizer, written[:end]), *written[end : end + 1]]
        if ids[-1] not in self.stops:
            ids.append(self._closing(renderer, prompt, case))
        return begun, ids[: len(ids) - case.cut]

    def _written(
        self, renderer: Any, begun: Sequence[int], prompt: Sequence[dict[str, Any]], case: Case
    ) -> list[int]:
        """Return what the template writes of a turn, less what the generation prompt has of it."""
        try:
            ids = renderer.render_ids([*prompt, case.turn], tools=case.tools)
        except TemplateRefused:  # a model may call two tools where the template takes one
            ids = renderer.render_ids([*prompt, {**case.turn, "tool_calls": None}], tools=case.tools)
        shared = next(place for place, one in enumerate([*begun, None]) if one != ids[place])
        return list(ids[shared:])

    def _closing(self, renderer: Any, prompt: Sequence[dict[str, Any]], case: Case) -> int:
        """Return the stop after which the new messages come, where only their opener closes a turn."""
        turn = {**case.turn, "reasoning_content": ""}  # which the template drops when a user speaks
        before = renderer.render_ids([*prompt, turn], tools=case.tools)
        after: list[int] = renderer.render_ids([*prompt, turn, case.after[0]], tools=case.tools)
        return next(one for one in after[len(before) :] if one in self.stops)

    def _harmony(self, turn: dict[str, Any]) -> list[int]:
        """Return the turn as gpt-oss samples it; its template writes the parts of a call in another order."""
        encode = partial(self.tokenizer.encode, add_special_tokens=False)
        ids = encode("<|channel|>analysis<|message|>")
        ids += [
            *apart(self.tokenizer, encode(turn["reasoning_content"])),
            *encode("<|end|><|start|>assistant"),
        ]
        for call in turn.get("tool_calls", ()):
            ids += encode("<|channel|>commentary to=functions.weather <|constrain|>json<|message|>")
            ids += [*apart(self.tokenizer, encode(call["function"]["arguments"])), *encode("<|call|>")]
        if "tool_calls" in turn:
            return list(ids)
        said = apart(self.tokenizer, encode(turn["content"]))
        return [*ids, *encode("<|channel|>final<|message|>"), *said, *encode("<|return|>")]


def apart(tokenizer: Any, ids: Sequence[int]) -> list[int]:
    """Return ids of the same text, one for each letter where there is one."""
    pieces: list[int] = []
    for one in ids:
        text = tokenizer.decode([one])
        letters = [index for one in text for index in tokenizer.encode(one, add_special_tokens=False)]
        simple = text.isascii() and text.strip().isalpha() and tokenizer.decode(letters) == text
        pieces += letters if simple else [one]
    return pieces


@cache
def model(name: str) -> Model:
    """Load a model folder once."""
    if name == OWN:
        folder = write_family(Path(mkdtemp()) / "model")
        stops = json.loads((folder / "generation_config.json").read_text())["eos_token_id"]
    else:
        folder = FAMILIES / name
        stops = list(json.loads((folder / "meta.json").read_text())["stop_tokens"].values())
    if name == "gpt-oss":
        write_harmony(folder)
    return Model(name, folder, load_tokenizer(str(folder)), stops)


def write_harmony(folder: Path) -> None:
    """Write the vocabulary file that `openai_harmony` would download."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    letters = dict(_letters())
    target = Path(mkdtemp()) / "o200k_base.tiktoken"
    with target.open("wb") as file:
        for token, index in sorted(vocabulary.items(), key=lambda pair: pair[1]):
            file.write(base64.b64encode(bytes(letters[one] for one in token)) + b" %d\n" % index)
    os.environ["TIKTOKEN_ENCODINGS_BASE"] = str(target.parent)


def _letters() -> Iterator[tuple[str, int]]:
    """Yield how byte-level vocabularies write each byte."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    yield from ((chr(byte), byte) for byte in printed)
    yield from ((chr(256 + place), byte) for place, byte in enumerate(others))

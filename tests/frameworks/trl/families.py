"""Models whose calls TRL parses, and one whose calls a parser of ours reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from tito_io.embedded import write_family

from .training import Model

RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|turn|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close": "<|done|>", "content": "text"},
    },
}
"""How the parser of transformers reads the turns of `own`."""


def own(folder: Path) -> Model:
    """Return the small family of this project, which needs no download and no data."""
    return of(AutoTokenizer.from_pretrained(write_family(folder / "model")))


def of(tokenizer: Any) -> Model:
    """Return the model of that family's tokenizer."""
    call = '<tool_call>\n{"name": "multiply", "arguments": {"a": {a}, "b": {b}}}\n</tool_call><|done|>'

    def parse(ids: list[int], _: list[int]) -> dict[str, Any]:
        text: str = tokenizer.decode(ids)
        calls = [json.loads(one) for one in re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)]
        content = text.partition("<tool_call>")[0].removesuffix("<|done|>").removesuffix("<|over|>")
        nested = [{"type": "function", "function": one} for one in calls]
        return {"role": "assistant", "content": content, **({"tool_calls": nested} if nested else {})}

    return Model(tokenizer, stops(tokenizer, "<|done|>", "<|over|>"), call, "{}<|done|>", parse)


def stops(tokenizer: Any, *tokens: str) -> tuple[int, ...]:
    """Return the ids of stop tokens."""
    return tuple(tokenizer.convert_tokens_to_ids(list(tokens)))


def loaded(families: str, name: str) -> Any:
    """Return a real tokenizer, which pads with its end of a sequence."""
    tokenizer = AutoTokenizer.from_pretrained(Path(families) / name)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer


def qwen3(families: str) -> Model:
    """Return a family whose template TRL knows, and replaces in its own loop."""
    tokenizer = loaded(families, "qwen3")
    call = '<tool_call>\n{"name": "multiply", "arguments": {"a": {a}, "b": {b}}}\n</tool_call><|im_end|>'
    thought = "<think>\nMultiply.\n</think>\n\n"
    return Model(tokenizer, stops(tokenizer, "<|im_end|>", "<|endoftext|>"), thought + call, "{}<|im_end|>")


def glm(families: str) -> Model:
    """Return a family that ends a turn with the first token of the next one."""
    tokenizer = loaded(families, "glm4.5")
    call = (
        "\n<think>Multiply.</think>\n<tool_call>multiply\n<arg_key>a</arg_key>\n<arg_value>{a}</arg_value>\n"
        "<arg_key>b</arg_key>\n<arg_value>{b}</arg_value>\n</tool_call><|observation|>"
    )
    ends = stops(tokenizer, "<|endoftext|>", "<|user|>", "<|observation|>")
    return Model(tokenizer, ends, call, "\n<think></think>\n{}<|user|>")


def mistral(families: str) -> Model:
    """Return a family for whose template TRL's loop and TRL's parsers raise."""
    tokenizer = loaded(families, "mistral-tekken")

    def parse(ids: list[int], _: list[int]) -> dict[str, Any]:
        text: str = tokenizer.decode(ids).removesuffix("</s>")
        content, *written = text.split("[TOOL_CALLS]")
        calls = []
        for one in written:
            name, identifier, arguments = re.split(r"\[CALL_ID\]|\[ARGS\]", one)
            function = {"name": name, "arguments": json.loads(arguments)}
            calls.append({"id": identifier, "type": "function", "function": function})
        return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}

    call = '[TOOL_CALLS]multiply[CALL_ID]a1b2c3d4{b}[ARGS]{"a": {a}, "b": {b}}</s>'
    return Model(tokenizer, stops(tokenizer, "</s>"), call, "{}</s>", parse)

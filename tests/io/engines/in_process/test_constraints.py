"""Constrained turns: what vLLM's and SGLang's objects are given, and who refuses them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.io.engines.scripted import MODEL
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

from .fakes import made

pytestmark = pytest.mark.anyio
TAKING = pytest.mark.parametrize("kind", ["vllm-llm", "vllm-async", "sglang-engine"])
SCHEMA = {"type": "object", "required": ["at"]}
BOUND = Sampling(max_tokens=9, constraint=Constraint(schema=SCHEMA))
TOOLS = Rendering(tools=({"type": "function", "function": {"name": "look", "parameters": SCHEMA}},))
FORCED = Sampling(max_tokens=9, constraint=Constraint(must_call=("look",), one_call=True))
OPEN = [*MODEL.encode("Well."), *MODEL.encode("<think>\n")]
CLOSED = [*OPEN, *MODEL.encode("</think>\n\n")]


async def given(kind: str, ids: list[int], sampling: Sampling, rendering: Rendering, **options: Any) -> Any:
    """Return the grammar that an object is given: a schema, or a structural tag."""
    engine, fake = made(kind, **options)
    await engine.from_ids(ids, sampling, rendering)
    keys = fake.seen[0].given
    if kind == "sglang-engine":
        return json.loads(keys.get("json_schema") or keys["structural_tag"])
    ((_, grammar),) = keys.structured_outputs[1].items()
    return json.loads(grammar) if isinstance(grammar, str) else grammar


@TAKING
async def test_a_schema_alone_is_a_parameter_and_a_forced_call_a_grammar(kind: str) -> None:
    assert await given(kind, CLOSED, BOUND, Rendering()) == SCHEMA
    grammar = (await given(kind, CLOSED, FORCED, TOOLS))["format"]
    assert '"look"' in json.dumps(grammar).replace("\\", "")
    assert SCHEMA in [one.get("json_schema") for one in grammar["elements"]]


async def test_reasoning_that_is_open_is_left_to_a_parser_that_frees_it() -> None:
    parser = SimpleNamespace(structured_outputs_config=SimpleNamespace(reasoning_parser="qwen3"))
    assert await given("vllm-llm", OPEN, BOUND, Rendering(), vllm_config=parser) == SCHEMA
    bound = await given("vllm-llm", OPEN, BOUND, Rendering())
    assert bound["format"]["elements"][0]["type"] == "any_tokens"


@pytest.mark.parametrize("kind", ["transformers", "mlx"])
async def test_objects_without_grammars_refuse(kind: str) -> None:
    for sampling, rendering in ((BOUND, None), (FORCED, TOOLS)):
        with pytest.raises(
            UnsupportedError, match=r"response_format cannot be honoured with .* takes no grammar"
        ):
            await made(kind)[0].from_ids(CLOSED, sampling, rendering)


@TAKING
async def test_two_grammars_are_one_too_many(kind: str) -> None:
    name = "json_schema" if kind == "sglang-engine" else "structured_outputs"
    with pytest.raises(InputError, match="bind the same turn"):
        await made(kind)[0].from_ids(CLOSED, attrs.evolve(BOUND, extra={name: {"regex": "a"}}))
    with pytest.raises(InputError, match="`rendering` has no tools"):
        await made(kind)[0].from_ids(CLOSED, FORCED)

"""Constrained turns: what vLLM's and SGLang's objects are given, and who refuses them."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.io.engines.in_process.fakes import LLM, MODEL, AsyncLLM, SglangObject, fake_vllm
from tests.io.engines.in_process.test_transformers import model
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.in_process import MlxModel, SglangEngine, TransformersModel, VllmAsync, VllmLLM
from tito_io.engines.protocol import Rendering, Sampling, UnsupportedError

pytestmark = pytest.mark.anyio

SCHEMA = {"type": "object", "required": ["at"]}
BOUND = Sampling(max_tokens=9, constraint=Constraint(schema=SCHEMA))
TOOLS = Rendering(tools=({"type": "function", "function": {"name": "look", "parameters": SCHEMA}},))
FORCED = Sampling(max_tokens=9, constraint=Constraint(must_call=("look",), one_call=True))
OPEN = [*MODEL.encode("Well."), *MODEL.encode("<think>\n")]
CLOSED = [*OPEN, *MODEL.encode("</think>\n\n")]


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm(monkeypatch)


async def given(ids: list[int], sampling: Sampling, rendering: Rendering, *, parser: str = "") -> Any:
    """Return the `structured_outputs` that vLLM's object is given."""
    llm = LLM()
    config = SimpleNamespace(structured_outputs_config=SimpleNamespace(reasoning_parser=parser))
    core: Any = llm.llm_engine
    object.__setattr__(llm, "llm_engine", Configured(core, config))
    await VllmLLM(llm, MODEL).from_ids(ids, sampling, rendering)
    kind, keys = core.seen[0].params.structured_outputs
    assert kind == "structured"
    return keys


class Configured:
    """An engine with a config beside it."""

    def __init__(self, core: Any, config: Any) -> None:
        self.core, self.vllm_config = core, config

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)


async def test_a_schema_alone_is_a_parameter_of_its_own() -> None:
    assert await given(CLOSED, BOUND, Rendering()) == {"json": SCHEMA}


async def test_a_forced_call_is_a_grammar_in_the_templates_form() -> None:
    (name,) = await given(CLOSED, FORCED, TOOLS)
    assert name == "structural_tag"
    grammar = json.loads((await given(CLOSED, FORCED, TOOLS))[name])["format"]
    assert '"look"' in json.dumps(grammar).replace("\\", "")
    assert SCHEMA in [one.get("json_schema") for one in grammar["elements"]]


async def test_reasoning_that_is_open_is_left_to_a_parser_that_frees_it() -> None:
    free = await given(OPEN, BOUND, Rendering(), parser="qwen3")
    bound = await given(OPEN, BOUND, Rendering())
    assert free == {"json": SCHEMA}
    assert json.loads(bound["structural_tag"])["format"]["elements"][0]["type"] == "any_tokens"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_async_object_is_given_the_same() -> None:
    engine: Any = AsyncLLM()
    seen: list[Any] = []
    generate = engine.generate

    def kept(prompt: Any, params: Any, name: str) -> Any:
        seen.append(params.structured_outputs)
        return generate(prompt, params, name)

    wrapped: Any = SimpleNamespace(
        generate=kept, model_config=engine.model_config, output_handler=engine.output_handler
    )
    await VllmAsync(wrapped, MODEL).from_ids(CLOSED, BOUND)
    assert seen == [("structured", {"json": SCHEMA})]


async def test_sglang_takes_json_text() -> None:
    loop = asyncio.new_event_loop()
    made: Any = SglangObject(loop=loop)
    try:
        await SglangEngine(made, MODEL).from_ids(CLOSED, BOUND)
        await SglangEngine(made, MODEL).from_ids(CLOSED, FORCED, TOOLS)
    finally:
        loop.close()
    schema, tag = made.calls
    assert json.loads(schema["json_schema"]) == SCHEMA
    assert SCHEMA in [
        one.get("json_schema") for one in json.loads(tag["structural_tag"])["format"]["elements"]
    ]


@pytest.mark.parametrize("kind", [TransformersModel, MlxModel])
async def test_objects_without_grammars_refuse(kind: Any) -> None:
    for sampling, rendering in ((BOUND, None), (FORCED, TOOLS)):
        with pytest.raises(
            UnsupportedError, match=r"response_format cannot be honoured with .* takes no grammar"
        ):
            await kind(model(), MODEL).from_ids(CLOSED, sampling, rendering)


async def test_two_grammars_are_one_too_many() -> None:
    both = attrs.evolve(BOUND, extra={"structured_outputs": {"regex": "a"}})
    with pytest.raises(InputError, match="bind the same turn"):
        await VllmLLM(LLM(), MODEL).from_ids(CLOSED, both)
    with pytest.raises(InputError, match="`rendering` has no tools"):
        await VllmLLM(LLM(), MODEL).from_ids(CLOSED, FORCED)

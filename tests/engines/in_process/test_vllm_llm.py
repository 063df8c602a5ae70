"""What a `vllm.LLM` does otherwise than one may expect."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tito_io.engines.in_process import VllmLLM
from tito_io.engines.protocol import Sampling, UnsupportedError
from tito_io.families import Family

pytestmark = pytest.mark.anyio

PROMPT = list(range(100, 400))
GREEDY = Sampling(max_tokens=6, temperature=0.0)


async def test_the_owner_may_use_the_object_between_turns(engine: VllmLLM) -> None:
    """VLLM's own default is 16 ids; the engine's is all that fit."""
    before = await engine.from_ids(PROMPT, GREEDY)
    params = engine.llm.get_default_sampling_params()
    params.temperature, params.ignore_eos = 0.0, True
    (output,) = engine.llm.generate({"prompt_token_ids": PROMPT}, params, use_tqdm=False)
    assert len(output.outputs[0].token_ids) == 16
    after = await engine.from_ids(PROMPT, GREEDY)
    assert tuple(output.outputs[0].token_ids[:6]) == before.completion_ids == after.completion_ids


async def test_unfinished_requests_of_the_owner_are_left_alone(engine: VllmLLM) -> None:
    engine.llm.enqueue({"prompt_token_ids": PROMPT}, use_tqdm=False)
    with pytest.raises(UnsupportedError, match="unfinished requests of another caller"):
        await engine.from_ids(PROMPT, GREEDY)
    (output,) = engine.llm.wait_for_completion(use_tqdm=False)
    assert output.finished
    assert (await engine.from_ids(PROMPT, GREEDY)).completion_ids


async def test_a_wrong_parameter_ends_one_turn_alone(engine: VllmLLM) -> None:
    replies: list[Any] = []

    async def turn(extra: dict[str, Any]) -> None:
        try:
            replies.append(await engine.from_ids(PROMPT, Sampling(max_tokens=20, extra=extra)))
        except Exception as error:  # noqa: BLE001  # looked at below
            replies.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn, {"ignore_eos": True})
        tasks.start_soon(turn, {"top_p": 7.0})
        tasks.start_soon(turn, {"logit_bias": {"99999": 1.0}})
    kinds = sorted(type(one).__name__ for one in replies)
    assert kinds == ["Reply", "RequestError", "RequestError"], replies


async def test_the_models_own_parameters_are_the_defaults(
    engine: VllmLLM, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's `generation_config.json` counts, as with vLLM's server and with `LLM.generate`."""
    config = engine.llm.llm_engine.model_config
    monkeypatch.setattr(config, "override_generation_config", {"temperature": 0.0, "max_new_tokens": 7})
    replies = [await engine.from_ids(PROMPT, Sampling(extra={"ignore_eos": True})) for _ in range(3)]
    assert {len(reply.completion_ids) for reply in replies} == {7}
    assert len({reply.completion_ids for reply in replies}) == 1
    assert family.vocab_size == config.get_vocab_size()

"""What `HttpEngine` does for every adapter beside a turn: its arguments, and the list of models."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import PROMPT, completion_answer, mocked
from tito_core import InputError
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.http_engine import HttpEngine, ServedModel
from tito_io.engines.protocol import Delta, EngineError, ModelLimits, Rendering, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.turn_groups import TurnGroups
from tito_io.engines.vllm import COMPLETIONS, VLLM

pytestmark = pytest.mark.anyio
HELLO = [{"role": "user", "content": "hi"}]
MODELS = "/v1/models"


class Callback:
    """An object that can be awaited with a delta."""

    async def __call__(self, delta: Delta) -> None: ...


@pytest.mark.parametrize("wrong", [print, lambda _: None, 5, Callback])
async def test_a_callback_that_cannot_be_awaited_is_found_before_anything_is_sent(wrong: Any) -> None:
    """Else the turn would be sampled, and lost at its first delta."""
    engine, mock = mocked({COMPLETIONS: completion_answer()})
    for sampler in (engine, TurnGroups(engine)):
        for n in (1, 2):
            sampling = Sampling(max_tokens=2, n=n)
            with pytest.raises(InputError, match=r"watch is .*: pass a coroutine function"):
                await sampler.from_ids(PROMPT, sampling, watch=wrong)
            with pytest.raises(InputError, match=r"watch is .*: pass a coroutine function"):
                await sampler.from_messages(HELLO, Rendering(), sampling, watch=wrong)
    assert mock.asked == []


@pytest.mark.parametrize(
    "failing", [httpx2.Response(500), httpx2.Response(429), httpx2.Response(200, json={"data": [{}]})]
)
async def test_a_turn_does_not_need_the_list_of_models(
    failing: httpx2.Response, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged once, and the list is used as soon as it works."""
    engine, mock = mocked({MODELS: failing, COMPLETIONS: completion_answer()}, model="m")
    for _ in range(2):
        assert (await engine.from_ids(PROMPT, Sampling(max_tokens=3))).completion_ids == (7, 8)
    assert [one.getMessage()[:30] for one in caplog.records] == ["the list of models fails, so t"]
    del mock.answers[MODELS]
    assert await engine.limits() == ModelLimits(max_model_len=50)


@pytest.mark.parametrize(
    ("named", "checked", "sent"),
    [(None, False, None), ("m", False, "m"), (None, True, "default"), ("m", True, None)],
)
async def test_only_a_model_that_is_certain_goes_without_a_list(
    named: str | None, checked: bool, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where requests do not name the model, a name may be that of an adapter, which only the list shows."""
    monkeypatch.setattr(VLLM, "checks_name", checked)
    engine, _ = mocked({MODELS: httpx2.Response(500)}, model=named)
    if sent is None:
        with pytest.raises(EngineError, match=MODELS):
            await engine.served()
    else:
        assert await engine.served() == ServedModel(sent)


def test_engines_whose_requests_do_not_name_the_model_check_the_name() -> None:
    assert all(kind.checks_name for kind in (FamilyEngine, SGLang))
    assert not any(kind.checks_name for kind in (VLLM, Dynamo))


@pytest.mark.parametrize("adapter", [VLLM, SGLang, Dynamo])
def test_an_argument_that_does_not_exist_is_rejected(adapter: Any) -> None:
    with pytest.raises(TypeError, match="modell"):
        adapter("http://h", modell="m")


async def test_what_an_adapter_must_write_is_not_there() -> None:
    models = httpx2.Response(200, json={"data": [{"id": "m", "max_model_len": 8}]})
    async with HttpEngine("http://h", transport=httpx2.MockTransport(lambda _: models)) as engine:
        with pytest.raises(NotImplementedError):
            await engine.from_ids([1], Sampling())

"""Objects of vLLM: parameters, outputs that do not hold together, and the thread that steps a `vllm.LLM`."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.io.engines.scripted import PROMPT, spelled
from tito_io.engines.protocol import (
    AbortedError,
    InvalidReplyError,
    OverlongError,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)

from .fakes import (
    YES,
    LLMEngine,
    ModelConfig,
    Request,
    RequestOutputKind,
    Sampled,
    SamplingParams,
    VLLMValidationError,
    made,
)

pytestmark = pytest.mark.anyio
SHORT = Sampling(max_tokens=9)
OBJECTS = pytest.mark.parametrize("kind", ["vllm-llm", "vllm-async"])


@OBJECTS
async def test_every_parameter_is_stated(kind: str) -> None:
    config = ModelConfig(defaults={"temperature": 0.6, "top_k": 20, "max_tokens": 50})
    engine, fake = made(kind, model_config=config)
    sampling = Sampling(seed=4, stop_ids=(9,), extra={"top_p": 0.5, "structured_outputs": {"regex": "a"}})
    await engine.from_ids(PROMPT, sampling)
    other = Sampling(max_tokens=70, temperature=1.0, stop=("x",), extra={"top_k": 0})
    await engine.from_ids(PROMPT, other)
    first, second = (one.given for one in fake.seen)
    assert first == SamplingParams(
        temperature=0.6,
        top_k=20,
        top_p=0.5,
        max_tokens=50,
        seed=4,
        stop=[],
        stop_token_ids=[9],
        logprobs=0,
        structured_outputs=("structured", {"regex": "a"}),
        detokenize=False,  # vLLM need not make text
        skip_special_tokens=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )
    assert (second.temperature, second.top_k, second.top_p, second.max_tokens) == (1.0, 0, 1.0, 70)
    assert second.detokenize


@OBJECTS
@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits"])
def test_logits_are_no_log_probabilities(kind: str, mode: str) -> None:
    with pytest.raises(UnsupportedError, match=mode):
        made(kind, model_config=ModelConfig(logprobs_mode=mode))
    processed = ModelConfig(logprobs_mode="processed_logprobs")
    assert made(kind, model_config=processed)[0].logprobs_mode == "processed"


@OBJECTS
async def test_a_reply_has_what_the_object_reports_beside_the_ids(kind: str) -> None:
    def without(one: Any) -> None:
        del one.outputs[0].logprobs[1][YES.ids[1]]

    reply = await made(kind, change=without)[0].from_ids(PROMPT, SHORT)
    assert reply.usage.cached_tokens == 3
    assert [(one.version, one.start, one.stop) for one in reply.weight_versions] == [("w1", 0, 5)]
    assert [value is None for value in reply.logprobs] == [False, True, False, False, False]


@OBJECTS
@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda one: one.outputs[0].logprobs.pop(), "4 log-probabilities for 5 sampled ids"),
        (lambda one: one.prompt_token_ids.pop(0), "other prompt ids than were sent"),
        (lambda one: setattr(one.outputs[0], "index", 1), "turn 1 was sampled, and 1 were requested"),
        (lambda one: setattr(one.outputs[0], "token_ids", (10**9,) * 5), "outside the vocabulary"),
        (lambda one: setattr(one.outputs[0], "finish_reason", "new"), "unknown reason"),
    ],
)
async def test_outputs_that_do_not_hold_together_are_rejected(kind: str, change: Any, problem: str) -> None:
    engine, fake = made(kind, change=change)
    with pytest.raises(InvalidReplyError, match=problem):
        await engine.from_ids(PROMPT, SHORT)
    assert not fake.running


@OBJECTS
async def test_a_turn_that_failed_or_has_no_id_is_an_error(kind: str) -> None:
    with pytest.raises(ServerError, match="failed while it sampled"):
        await made(kind, Sampled(ids=spelled("Ye"), finish_reason="error"))[0].from_ids(PROMPT, SHORT)
    with pytest.raises(AbortedError) as caught:
        await made(kind, Sampled(ids=(), finish_reason="abort"))[0].from_ids(PROMPT, SHORT)
    assert caught.value.partial is None


@OBJECTS
async def test_what_vllm_rejects_ends_one_turn_alone(kind: str) -> None:
    engine, fake = made(kind)
    with pytest.raises(RequestError, match=r"VLLMValidationError \(top_p must be in \(0, 1\], got 7.0\)"):
        await engine.from_ids(PROMPT, attrs.evolve(SHORT, extra={"top_p": 7.0}))
    fake.failing = VLLMValidationError("prompt is longer than the maximum model length of 5")
    with pytest.raises(OverlongError):
        await engine.from_ids(PROMPT, SHORT)
    fake.failing = ValueError("The decoder prompt 'secret' is wrong")
    with pytest.raises(RequestError, match="generate raised ValueError") as caught:
        await engine.from_ids(PROMPT, SHORT)
    assert "secret" not in str(caught.value)
    fake.failing = None
    assert (await engine.from_ids(PROMPT, SHORT)).text == "Yes."


async def test_a_request_that_is_not_taken_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _ = made("vllm-llm")

    def refusing(*_: Any) -> str:
        raise VLLMValidationError("prompt is longer than the maximum model length of 5")

    with monkeypatch.context() as patched:
        patched.setattr(LLMEngine, "add_request", refusing)
        with pytest.raises(OverlongError):
            await engine.from_ids(PROMPT, SHORT)
    assert (await engine.from_ids(PROMPT, SHORT)).text == "Yes."


async def test_requests_of_another_caller_are_left_alone() -> None:
    """Stepping them here would lose their outputs."""
    engine, core = made("vllm-llm")
    core.requests["0"] = ours = Request("0", PROMPT, SamplingParams(), core.turns)
    with pytest.raises(UnsupportedError, match="unfinished requests of another caller"):
        await engine.from_ids(PROMPT, SHORT)
    assert core.requests == {"0": ours}
    assert core.steps == 0


async def test_outputs_of_another_caller_end_the_turns() -> None:
    engine, core = made("vllm-llm", change=lambda one: setattr(one, "request_id", "0"))
    with pytest.raises(UnsupportedError, match="another caller used the LLM"):
        await engine.from_ids(PROMPT, SHORT)
    assert not core.running

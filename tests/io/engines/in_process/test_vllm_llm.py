"""A `vllm.LLM`: one thread steps it for all turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest

from tests.io.engines.in_process.fakes import (
    CONTEXT,
    END,
    LLM,
    MODEL,
    YES,
    LLMEngine,
    ModelConfig,
    Request,
    RequestOutputKind,
    Sampled,
    SamplingParams,
    VLLMValidationError,
    fake_vllm,
    output,
    spelled,
)
from tito_core import InputError, Message, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.in_process import VllmLLM
from tito_io.engines.in_process.vllm_values import EXTRAS
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    InvalidReplyError,
    OverlongError,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.replies.harmony import CALLS, MARKERS, RETURN

pytestmark = pytest.mark.anyio

PROMPT = [5, 6, 7, 8]
ENDLESS = Sampled(ids=spelled("abc"), finish_reason=None)
"""It goes on until it is given up."""


@pytest.fixture(autouse=True)
def _vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_vllm(monkeypatch)


def made(*turns: Sampled, **config: Any) -> VllmLLM:
    """Return an engine whose object samples these turns."""
    return VllmLLM(LLM(LLMEngine(ModelConfig(**config), turns or (YES,))), MODEL)


async def idle(engine: VllmLLM) -> None:
    """Wait until the thread has ended; nothing may be left in the object."""
    while engine._stepper._running:
        await anyio.lowlevel.checkpoint()
    assert not engine.llm.llm_engine.requests


async def test_a_conversation_keeps_its_ids() -> None:
    engine = made()
    client = TokenClient(engine)
    steps, messages = Trajectory(), list[Message]()
    for question in ("Is it raining?", "Sure?", "Really?"):
        messages.append({"role": "user", "content": question})
        done = await client.turn(steps, messages, sampling={"max_tokens": 16})
        steps = steps.append(done.step)
        messages.append(done.message)
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: 2}
    assert [step.completion_ids.tolist() for step in steps] == [YES.ids] * 3
    for before, after in pairwise(steps):
        assert after.prompt_ids.starts_with(before.ids)
    assert [request.prompt for request in engine.llm.llm_engine.seen] == [
        s.prompt_ids.tolist() for s in steps
    ]
    await idle(engine)


async def test_a_reply_has_what_the_object_reports() -> None:
    reply = await made().from_ids(PROMPT, Sampling(max_tokens=9))
    assert (reply.completion_ids, reply.logprobs) == (tuple(YES.ids), tuple(YES.values))
    assert reply.message == {"role": "assistant", "content": "Yes."}
    assert (reply.text, reply.finish_reason, reply.stop_reason) == ("Yes.", "stop", None)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.cached_tokens) == (4, 5, 3)
    assert [(one.version, one.start, one.stop) for one in reply.weight_versions] == [("w1", 0, 5)]


async def test_a_stream_adds_up_to_the_reply() -> None:
    turns = (YES, Sampled(ids=spelled("No, 🙂."), finish_reason="length"))
    deltas: list[Delta] = []

    async def watch(delta: Delta) -> None:
        deltas.append(delta)

    engine = made(*turns)
    reply = await engine.from_ids(PROMPT, Sampling(max_tokens=30, n=2), watch=watch)
    assert engine.llm.llm_engine.seen[0].params.output_kind is RequestOutputKind.DELTA
    for index, turn in enumerate((reply, *reply.siblings)):
        own = [delta for delta in deltas if delta.index == index]
        assert (
            tuple(one for delta in own for one in delta.ids) == turn.completion_ids == tuple(turns[index].ids)
        )
        assert tuple(one for delta in own for one in delta.logprobs or ()) == turn.logprobs
        assert "".join(delta.text for delta in own) == turn.text
    assert reply.siblings[0].text == "No, 🙂."
    whole = await made(*turns).from_ids(PROMPT, Sampling(max_tokens=30, n=2))
    assert (whole.completion_ids, whole.siblings[0].text) == (reply.completion_ids, "No, 🙂.")


async def test_a_stop_string_is_cut_from_the_text_and_never_streamed() -> None:
    sampled = Sampled(ids=spelled("Yes. END"), stop_reason="END")
    texts: list[str] = []

    async def watch(delta: Delta) -> None:
        texts.append(delta.text)

    engine = made(sampled)
    reply = await engine.from_ids(PROMPT, Sampling(max_tokens=9, stop=("END",)), watch=watch)
    assert reply.completion_ids == tuple(sampled.ids)
    assert (reply.text, "".join(texts)) == ("Yes. ", "Yes. ")
    assert engine.llm.llm_engine.seen[0].params.detokenize
    assert not engine.llm.llm_engine.seen[0].params.skip_special_tokens


# Parameters.


async def test_every_parameter_is_stated() -> None:
    engine = made(defaults={"temperature": 0.6, "top_k": 20, "max_tokens": 50})
    sampling = Sampling(seed=4, stop_ids=(9,), extra={"top_p": 0.5, "structured_outputs": {"regex": "a"}})
    await engine.from_ids(PROMPT, sampling)
    await engine.from_ids(PROMPT, attrs.evolve(sampling, max_tokens=70, temperature=1.0, extra={"top_k": 0}))
    first, second = (request.params for request in engine.llm.llm_engine.seen)
    assert (first.temperature, first.top_k, first.top_p, first.max_tokens) == (0.6, 20, 0.5, 50)
    assert (first.seed, first.stop_token_ids, first.logprobs) == (4, [9], 0)
    assert first.structured_outputs == ("structured", {"regex": "a"})
    assert not first.detokenize, "vLLM need not make text"
    assert (second.temperature, second.top_k, second.top_p, second.max_tokens) == (1.0, 0, 1.0, 70)


async def test_a_turn_without_a_limit_takes_what_is_left() -> None:
    """VLLM's own default is 16 ids (vllm/sampling_params.py:323)."""
    engine = made()
    await engine.from_ids(PROMPT, Sampling())
    await engine.from_ids(PROMPT, Sampling(max_tokens=10_000))
    assert [one.params.max_tokens for one in engine.llm.llm_engine.seen] == [CONTEXT - 4] * 2


@pytest.mark.parametrize(
    ("sampling", "problem", "name"),
    [
        (Sampling(extra={"n": 2}), UnsupportedError, "'n'"),
        (Sampling(extra={"truncate_prompt_tokens": 3}), UnsupportedError, "truncate_prompt_tokens"),
        (Sampling(extra={"skip_special_tokens": False}), UnsupportedError, "skip_special_tokens"),
        (Sampling(extra={"logprobs": 3}), UnsupportedError, "logprobs"),
        (Sampling(max_tokens=0), InputError, "max_tokens"),
        (Sampling(n=0), InputError, r"Sampling\.n"),
    ],
)
async def test_what_cannot_be_honoured_is_refused_by_name(
    sampling: Sampling, problem: type[Exception], name: str
) -> None:
    engine = made()
    with pytest.raises(problem, match=name):
        await engine.from_ids(PROMPT, sampling)
    assert not engine.llm.llm_engine.seen


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        ([], InputError),
        ([1, MODEL.vocab_size], InputError),
        ([1] * CONTEXT, OverlongError),
    ],
)
async def test_ids_are_checked_here(ids: Sequence[int], problem: type[Exception]) -> None:
    """VLLM checks neither for a prompt that has a type."""
    engine = made()
    with pytest.raises(problem):
        await engine.from_ids(ids, Sampling(max_tokens=1))
    assert not engine.llm.llm_engine.seen


async def test_no_parameter_is_both_owned_and_extra() -> None:
    owned = {"n", "seed", "temperature", "stop", "stop_token_ids", "max_tokens", "logprobs", "output_kind"}
    assert not EXTRAS & owned
    assert "truncate_prompt_tokens" not in EXTRAS


async def test_a_harmony_turn_ends_at_its_own_markers() -> None:
    """Objects do not add them where a prompt goes by ids."""
    family = MODEL.with_special_tokens(MARKERS)
    llm = LLM()
    await VllmLLM(llm, family).from_ids(PROMPT, Sampling(max_tokens=5, stop_ids=(3,)))
    stops = [family.encode(marker)[0] for marker in (RETURN, CALLS)]
    assert llm.llm_engine.seen[0].params.stop_token_ids == [3, *stops]


@pytest.mark.parametrize("mode", ["raw_logits", "processed_logits"])
def test_logits_are_no_log_probabilities(mode: str) -> None:
    with pytest.raises(UnsupportedError, match=mode):
        made(logprobs_mode=mode)
    assert made(logprobs_mode="processed_logprobs").logprobs_mode == "processed"


async def test_images_are_refused() -> None:
    """The template would write a placeholder, and the model would see no image."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    engine = made()
    messages: list[Message] = [{"role": "user", "content": [image]}]
    with pytest.raises(MediaUnsupportedError, match="vllm-llm"):
        await engine.from_messages(messages, Rendering(), Sampling(max_tokens=1))
    with pytest.raises(MediaUnsupportedError):
        await TokenClient(engine).turn([], messages, sampling={"max_tokens": 1})
    assert not engine.llm.llm_engine.seen


# What does not hold together.


def changed(engine: VllmLLM, change: Any) -> VllmLLM:
    """Return an engine whose outputs are changed."""
    read = engine._stepper.read
    engine._stepper.read = lambda one: read(change(one) or one)
    return engine


async def test_a_missing_log_probability_is_none() -> None:
    def without(one: Any) -> None:
        del one.outputs[0].logprobs[1][YES.ids[1]]

    reply = await changed(made(), without).from_ids(PROMPT, Sampling(max_tokens=9))
    assert reply.logprobs is not None
    assert [value is None for value in reply.logprobs] == [False, True, False, False, False]


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
async def test_outputs_that_do_not_hold_together_are_rejected(change: Any, problem: str) -> None:
    def changing(one: Any) -> None:
        change(one)

    engine = changed(made(), changing)
    with pytest.raises(InvalidReplyError, match=problem):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    await idle(engine)


async def test_an_aborted_turn_keeps_its_ids() -> None:
    with pytest.raises(AbortedError) as caught:
        await made(Sampled(ids=spelled("Ye"), finish_reason="abort")).from_ids(PROMPT, Sampling(max_tokens=9))
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == tuple(spelled("Ye"))
    with pytest.raises(AbortedError) as caught:
        await made(Sampled(ids=(), finish_reason="abort")).from_ids(PROMPT, Sampling(max_tokens=9))
    assert caught.value.partial is None


async def test_a_failed_turn_is_a_server_error() -> None:
    engine = made(Sampled(ids=spelled("Ye"), finish_reason="error"))
    with pytest.raises(ServerError, match="failed while it sampled"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9))


# The thread.


async def test_turns_are_sampled_together() -> None:
    engine = made()
    replies = []

    async def turn() -> None:
        replies.append(await engine.from_ids(PROMPT, Sampling(max_tokens=9)))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(turn)
    assert [reply.completion_ids for reply in replies] == [tuple(YES.ids)] * 4
    await idle(engine)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_cancelled_turn_is_aborted_before_its_caller_goes_on(anyio_backend: str) -> None:
    del anyio_backend
    engine = made(ENDLESS)
    with anyio.CancelScope() as scope:

        async def watch(_: Delta) -> None:
            scope.cancel()

        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    assert scope.cancelled_caught
    core = engine.llm.llm_engine
    assert core.aborted == list(core.aborted[:1])
    assert core.seen[0].name in core.aborted[0]
    await idle(engine)
    core.turns = (YES,)
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=9))).completion_ids == tuple(YES.ids)


async def test_a_failing_watch_aborts_the_turn() -> None:
    async def watch(_: Delta) -> None:
        raise KeyError("watch")

    engine = made(ENDLESS)
    with pytest.raises(KeyError):
        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    assert engine.llm.llm_engine.aborted
    await idle(engine)


async def test_an_engine_that_fails_fails_every_turn_and_keeps_none() -> None:
    engine = made()
    engine.llm.llm_engine.failing = RuntimeError("CUDA error: secret prompt")
    with pytest.raises(ServerError, match="raised RuntimeError: the engine failed") as caught:
        await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    assert "secret" not in str(caught.value)
    assert "secret" in str(caught.value.__cause__)
    await idle(engine)
    engine.llm.llm_engine.failing = None
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=9))).text == "Yes."


async def test_a_parameter_that_vllm_rejects_is_a_request_error() -> None:
    engine = made()
    with pytest.raises(RequestError, match=r"VLLMValidationError \(top_p must be in \(0, 1\], got 7.0\)"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9, extra={"top_p": 7.0}))


async def test_a_request_that_vllm_rejects_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()

    def refusing(*_: Any) -> str:
        raise VLLMValidationError("prompt is longer than the maximum model length of 5")

    with monkeypatch.context() as patched:
        patched.setattr(LLMEngine, "add_request", refusing)
        with pytest.raises(OverlongError):
            await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=9))).text == "Yes."


async def test_requests_of_another_caller_are_left_alone() -> None:
    """Stepping them here would lose their outputs."""
    engine = made()
    core = engine.llm.llm_engine
    core.requests["0"] = ours = Request("0", PROMPT, SamplingParams(), core.turns)
    with pytest.raises(UnsupportedError, match="unfinished requests of another caller"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    assert core.requests == {"0": ours}
    assert core.steps == 0


async def test_outputs_of_another_caller_end_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = made()
    strange = output("0", PROMPT, 0, YES, slice(None), finished=True, end=True)
    monkeypatch.setattr(LLMEngine, "step", lambda _: [strange])
    with pytest.raises(UnsupportedError, match="another caller used the LLM"):
        await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    await idle(engine)


# Messages.


async def test_calls_are_read_only_where_there_are_tools() -> None:
    text = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    engine = made(Sampled(ids=[*MODEL.encode(text), END]))
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
    with_tools, without = [
        await engine.from_ids(PROMPT, Sampling(max_tokens=99), Rendering(tools=tools))
        for tools in ((tool,), ())
    ]
    assert with_tools.finish_reason == "tool_calls"
    assert with_tools.message is not None
    assert with_tools.message["tool_calls"][0]["function"]["name"] == "add"
    assert without.message == {"role": "assistant", "content": text}

"""What every engine in this process keeps, over scripted objects. `tests/engines` has the real ones."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.engines.scripted import CALL, END, MODEL, PROMPT, Heard, spelled
from tito_core import InputError, Message, SamplingMask, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.in_process import InProcessEngine
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.replies.harmony import CALLS, MARKERS, RETURN
from tito_io.engines.sampling_masks import MasksUnsupportedError

from . import fakes
from .fakes import CONTEXT, ENDLESS, MAKERS, YES, Model, Sampled, made

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", MAKERS)]
STREAMED = pytest.mark.parametrize("streamed", [False, True])
SHORT = Sampling(max_tokens=9)
S = spelled("s")[0]
ENDS = {
    "its stop token": (Sampling(), 5, "stop", (END, None), "Yes."),
    "an id of the caller": (Sampling(stop_ids=(S,)), 3, "stop", (S,), "Ye"),
    "a text of the caller": (Sampling(stop=("es",)), 3, "stop", ("es",), "Y"),
    "its limit": (Sampling(max_tokens=2), 2, "length", (None,), "Ye"),
    "its stop token, where more is asked for than fits": (
        Sampling(max_tokens=9999),
        5,
        "stop",
        (END, None),
        "Yes.",
    ),
}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@STREAMED
@pytest.mark.parametrize("end", ENDS)
async def test_a_turn_has_the_ids_up_to_its_end_and_their_text(kind: str, end: str, streamed: bool) -> None:
    sampling, count, finish, reasons, text = ENDS[end]
    engine, fake = made(kind, attrs.evolve(YES, ids=[*YES.ids, *spelled("more")]))
    heard = Heard()
    reply = await engine.from_ids(PROMPT, sampling, watch=heard if streamed else None)
    assert reply.prompt_ids == PROMPT
    assert (reply.completion_ids, reply.logprobs) == (tuple(YES.ids[:count]), tuple(YES.values[:count]))
    assert (reply.finish_reason, reply.text) == (finish, text)
    assert reply.stop_reason in reasons
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(PROMPT), count)
    assert reply.message == {"role": "assistant", "content": text}
    most = min(sampling.max_tokens or CONTEXT, CONTEXT - len(PROMPT))  # engines' own limits are 16 and 128
    assert [(tuple(one.prompt), one.most) for one in fake.seen] == [(PROMPT, most)]
    if streamed:
        assert (heard.ids, heard.logprobs, heard.text) == (reply.completion_ids, reply.logprobs, text)
        assert len(heard.deltas) == count


@given(texts=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3))
async def test_a_stream_adds_up_to_the_reply(kind: str, texts: list[str]) -> None:
    engine, _ = made(kind, *(Sampled(ids=[*MODEL.encode(one), END]) for one in texts))
    heard, sampling = Heard(), Sampling(n=len(texts))
    reply = await engine.from_ids(PROMPT, sampling, watch=heard)
    turns = [reply, *reply.siblings]
    assert [turn.text for turn in turns] == texts
    for index, turn in enumerate(turns):
        own = Heard([one for one in heard.deltas if one.index == index])
        assert (own.ids, own.logprobs, own.text) == (turn.completion_ids, turn.logprobs, turn.text)
    whole = await engine.from_ids(PROMPT, sampling)
    for one, turn in zip((whole, *whole.siblings), turns, strict=True):
        assert (one.completion_ids, one.logprobs, one.text) == (turn.completion_ids, turn.logprobs, turn.text)
    assert whole.usage == reply.usage
    await engine.aclose()


MASKS = Sampling(sampling_masks=True, extra={"top_k": 4})
OPTIONS: dict[str, dict[str, Any]] = {
    "vllm-llm": {"model_config": fakes.ModelConfig(return_sampling_mask=True)},
    "vllm-async": {"model_config": fakes.ModelConfig(return_sampling_mask=True)},
    "sglang-engine": {},
    "sglang-engine, new ids only": {},
}
"""What makes an object that gives sampling masks; a model of `transformers` needs real logits for that."""


@STREAMED
async def test_each_sampled_id_comes_with_its_mask(kind: str, streamed: bool) -> None:
    if kind not in OPTIONS:
        return
    other = Sampled(ids=[*spelled("No"), END])
    engine, _ = made(kind, YES, other, **OPTIONS[kind])
    heard = Heard()
    reply = await engine.from_ids(PROMPT, attrs.evolve(MASKS, n=2), watch=heard if streamed else None)
    for index, (turn, sampled) in enumerate(zip((reply, *reply.siblings), (YES, other), strict=True)):
        assert (turn.sampling_mask, turn.logprobs) == (SamplingMask.of(sampled.kept), tuple(sampled.values))
        streamed_masks = [kept for one in heard.of(index).deltas for kept in one.sampling_mask or ()]
        assert not streamed or SamplingMask.of(streamed_masks) == turn.sampling_mask


@STREAMED
async def test_a_sampling_mask_of_other_ids_is_refused_and_ids_are_kept(kind: str, streamed: bool) -> None:
    def change(reported: Any) -> None:
        if isinstance(reported, dict):
            reported["meta_info"]["output_token_sampling_mask"] = [
                [9] for _ in reported["meta_info"]["output_token_sampling_mask"]
            ]
        elif reported.outputs[0].sampling_mask is not None:
            reported.outputs[0].sampling_mask.token_ids = [[9] for _ in reported.outputs[0].token_ids]

    if kind not in OPTIONS:
        return
    engine, fake = made(kind, **OPTIONS[kind])
    fake.change = change
    with pytest.raises(InvalidReplyError, match="lacks") as caught:
        await engine.from_ids(PROMPT, MASKS, watch=Heard() if streamed else None)
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == tuple(YES.ids)[: 1 if streamed else None]
    assert len(fake.seen) == 1


async def test_an_object_without_masks_is_refused_before_it_samples(kind: str) -> None:
    engine, fake = made(kind)
    sampling = Sampling(sampling_masks=True)  # no top-k and no top-p, which transformers needs
    if kind.startswith("sglang"):  # SGLang itself rejects such a request
        return
    with pytest.raises(
        MasksUnsupportedError, match=r"return_sampling_mask=True|top_p, top_k or|leave them out"
    ):
        await engine.from_ids(PROMPT, sampling)
    assert not fake.seen


async def test_a_conversation_keeps_its_ids(kind: str) -> None:
    engine, fake = made(kind)
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
    assert [one.prompt for one in fake.seen] == [step.prompt_ids.tolist() for step in steps]


async def test_turns_of_several_callers_go_on_together(kind: str) -> None:
    engine, _ = made(kind)
    replies = []

    async def turn() -> None:
        replies.append(await engine.from_ids(PROMPT, SHORT))

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(turn)
    assert [reply.completion_ids for reply in replies] == [tuple(YES.ids)] * 4


@STREAMED
async def test_calls_are_read_only_where_there_are_tools(kind: str, streamed: bool) -> None:
    engine, _ = made(kind, Sampled(ids=CALL.ids))
    called, said = [
        await engine.from_ids(PROMPT, Sampling(), Rendering(tools=tools), watch=Heard() if streamed else None)
        for tools in ((LOOK,), ())
    ]
    assert called.finish_reason == "tool_calls"
    assert called.message["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "sky"}'}
    assert said.message == {"role": "assistant", "content": MODEL.decode(CALL.ids[:-1])}


async def test_a_harmony_turn_ends_at_its_own_markers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects do not know them where a prompt goes by ids."""
    family = MODEL.with_special_tokens(MARKERS)
    monkeypatch.setattr(fakes, "MODEL", family)
    for marker in (RETURN, CALLS):
        stop = family.encode(marker)[0]
        engine, _ = made(kind, Sampled(ids=[*spelled("a"), stop, *spelled("more")]))
        reply = await engine.from_ids(PROMPT, Sampling(max_tokens=5, stop_ids=(3,)))
        assert reply.completion_ids == (*spelled("a"), stop)


# What is refused, and nothing is sampled.

OWNED = (
    *("n", "seed", "temperature", "stop", "stop_token_ids", "max_tokens", "max_new_tokens", "sampling_seed"),
    *("logprobs", "output_kind", "skip_special_tokens", "truncate_prompt_tokens", "no_such_name"),
)
REFUSED = {
    "no id": ([], SHORT, InputError, "at least one id"),
    "an id beyond the vocabulary": ([1, MODEL.vocab_size], SHORT, InputError, "not in the vocabulary"),
    "a full context": ([1] * CONTEXT, SHORT, OverlongError, "Nothing was sent"),
    "no id to sample": (PROMPT, Sampling(max_tokens=0), InputError, "max_tokens"),
    "no turn to sample": (PROMPT, Sampling(n=0), InputError, r"Sampling\.n"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_sampled_is_refused_by_name(kind: str, case: str) -> None:
    ids, sampling, problem, named = REFUSED[case]
    engine, fake = made(kind)
    with pytest.raises(problem, match=named):
        await engine.from_ids(ids, sampling)
    assert not fake.seen


async def test_a_parameter_is_passed_in_one_way(kind: str) -> None:
    engine, fake = made(kind)
    for name in OWNED:
        with pytest.raises(UnsupportedError, match=f"{name!r} cannot be passed.*{min(engine.extras)}"):
            await engine.from_ids(PROMPT, Sampling(extra={name: 1}))
    assert not fake.seen


async def test_images_are_refused(kind: str) -> None:
    """The template would write a placeholder, and the model would see no image."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    engine, fake = made(kind)
    messages: list[Message] = [{"role": "user", "content": [image]}]
    with pytest.raises(MediaUnsupportedError, match=engine.name):
        await engine.from_messages(messages, Rendering(), Sampling(max_tokens=1))
    with pytest.raises(MediaUnsupportedError):
        await TokenClient(engine).turn([], messages, sampling={"max_tokens": 1})
    assert not fake.seen


async def test_a_missing_package_is_named(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"vllm": "vllm.sampling_params", "transformers": "torch", "mlx": "mlx_lm.generate"}
    name = names.get(kind.partition("-")[0])
    if name is None:
        return  # SGLang's is not used
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UnsupportedError, match=rf"^{name} cannot be imported.*run tito in the environment"):
        await made(kind)[0].from_ids(PROMPT, SHORT)


# How a turn fails, or is given up.


@STREAMED
async def test_a_cancelled_turn_is_given_up_before_its_caller_goes_on(kind: str, streamed: bool) -> None:
    engine, fake = made(kind, ENDLESS)
    with anyio.CancelScope() as scope:

        async def cancel(_: Delta) -> None:
            scope.cancel()

        if not streamed:
            scope.cancel()
        await engine.from_ids(PROMPT, Sampling(), watch=cancel if streamed else None)
    assert scope.cancelled_caught
    await nothing_runs(engine, fake)


async def test_a_failing_watch_gives_the_turn_up(kind: str) -> None:
    async def watch(_: Delta) -> None:
        raise KeyError("watch")

    engine, fake = made(kind, ENDLESS)
    with pytest.raises(KeyError):
        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    await nothing_runs(engine, fake)


async def nothing_runs(engine: InProcessEngine, fake: Any) -> None:
    """Demand that an endless turn has ended, and that the object can be used."""
    steps = fake.steps
    await anyio.sleep(0.01)
    assert (fake.running, fake.steps) == (0, steps)
    assert steps < CONTEXT - len(PROMPT) or not isinstance(fake, Model), "it was not given up"
    fake.turns, fake.failing = (YES,), None
    assert (await engine.from_ids(PROMPT, SHORT)).completion_ids == tuple(YES.ids)
    await engine.aclose()


async def test_a_failing_object_is_a_server_error_with_its_words_in_the_cause(kind: str) -> None:
    engine, fake = made(kind)
    fake.failing = RuntimeError("CUDA error: secret prompt")
    with pytest.raises(ServerError, match="raised RuntimeError: the engine failed") as caught:
        await engine.from_ids(PROMPT, SHORT)
    assert engine.where in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "secret" in str(caught.value.__cause__)
    await nothing_runs(engine, fake)


@STREAMED
async def test_an_aborted_turn_keeps_its_ids(kind: str, streamed: bool) -> None:
    aborted = Sampled(ids=spelled("Ye"), finish_reason="abort")
    engine, fake = made(kind, aborted)
    if isinstance(fake, Model):
        return  # nobody else aborts its turns
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, SHORT, watch=Heard() if streamed else None)
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == tuple(aborted.ids)
    assert caught.value.partial.logprobs == tuple(aborted.values)
    await nothing_runs(engine, fake)

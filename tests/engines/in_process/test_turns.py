"""What every engine in this process keeps, with a real object of each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import attrs
import pytest

from tests.engines.talk import HELLO, PLAIN, TOOLED, marker_id
from tito_core import InputError, OddStop, Policy, Step, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Delta, OverlongError, Rendering, Reply, Sampling, UnsupportedError
from tito_io.families import Family

from .objects import CONTEXT, Subject
from .reference import Reference

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
SPECIAL = 3063
"""The first id of markers and tags in the tiny model's vocabulary."""
CLOSE = 1e-4
"""How far log-probabilities in float32 may be from the forward pass."""


@attrs.define
class Heard:
    """Collects deltas."""

    deltas: list[Delta] = attrs.field(factory=list)

    async def __call__(self, delta: Delta) -> None:
        self.deltas.append(delta)

    def ids(self, index: int = 0) -> tuple[int, ...]:
        return tuple(itertools.chain(*(one.ids for one in self.deltas if one.index == index)))

    def logprobs(self, index: int = 0) -> tuple[float | None, ...]:
        return tuple(itertools.chain(*(one.logprobs or () for one in self.deltas if one.index == index)))

    def text(self, index: int = 0) -> str:
        return "".join(one.text for one in self.deltas if one.index == index)


@attrs.frozen
class Asker:
    """Asks for turns after one prompt."""

    engine: Any
    family: Family
    subject: Subject

    def prompt(self, text: str = "Say hello.") -> list[int]:
        return self.family.ids([*HELLO[:1], {"role": "user", "content": text}], add_generation_prompt=True)

    async def __call__(self, *, text: str = "Say hello.", watch: Any = None, **sampling: Any) -> Reply:
        wanted = Sampling(**{"temperature": 1.0, **sampling})
        reply: Reply = await self.engine.from_ids(self.prompt(text), wanted, PLAIN, watch=watch)
        return reply


@pytest.fixture
def ask(engine: Any, family: Family, subject: Subject) -> Asker:
    return Asker(engine, family, subject)


def step_of(reply: Reply) -> Step:
    return Step(
        prompt=HELLO,
        completion=[reply.message or {}],
        prompt_ids=reply.prompt_ids,
        completion_ids=reply.completion_ids,
        logprobs=reply.logprobs,
        truncated=reply.truncated,
    )


# Conversations.


async def test_twenty_turns_with_tools_keep_every_id(
    engine: Any, family: Family, subject: Subject, reference: Reference, say: Callable[[str], None]
) -> None:
    client = TokenClient(engine, policy=Policy(odd_stop=OddStop.KEEP))
    steps, messages, distances, called = Trajectory(), list(HELLO), [], 0
    for number in range(20):
        calling = number % 4 == 1
        extra = subject.call(family) if calling else {}
        sampling = {"max_tokens": 64 if calling else 12, "temperature": 1.0, "extra_body": extra}
        sampling |= {"seed": number} if subject.seeds else {}
        client.sampling_names = frozenset(extra)
        done = await client.turn(steps, messages, tools=TOOLED.tools, sampling=sampling)
        steps = steps.append(done.step)
        messages.append(done.message)
        calls = done.message.get("tool_calls") or ()
        called += len(calls)
        if calls:
            messages += [{"role": "tool", "tool_call_id": calls[0]["id"], "content": f"rain {number}"}]
        messages += [{"role": "user", "content": f"Go on, {number} é 🙂"}]
        if not calling:  # a grammar or a bias changes what some engines report
            distances.append(reference.distance(done.step))
    assert not client.counts.refusals
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: 19}
    assert called == 5
    for before, after in pairwise(steps):
        assert after.prompt_ids.starts_with(before.ids)
    say(f"largest distance to the forward pass {max(distances):.2e}")
    assert max(distances) < CLOSE


async def test_two_branches_continue_one_step(engine: Any, reference: Reference) -> None:
    client = TokenClient(engine)
    first = await client.turn([], HELLO, sampling={"max_tokens": 8})
    replies = []
    for text in ("Left?", "Right?"):
        prompt = [*HELLO, first.message, {"role": "user", "content": text}]
        replies.append(await client.turn([first.step], prompt, sampling={"max_tokens": 8}))
    assert [one.turn.route for one in replies] == [Route.TITO, Route.TITO]
    for one in replies:
        assert one.step.prompt_ids.starts_with(first.step.ids)
        assert reference.distance(one.step) < CLOSE


async def test_a_cut_turn_is_continued(engine: Any, subject: Subject) -> None:
    client = TokenClient(engine)
    client.sampling_names = frozenset(subject.endless)
    first = await client.turn([], HELLO, sampling={"max_tokens": 3, "extra_body": dict(subject.endless)})
    assert first.step.truncated
    prompt = [*HELLO, first.message, {"role": "user", "content": "Go on."}]
    second = await client.turn([first.step], prompt, sampling={"max_tokens": 4})
    assert second.turn.route is Route.TITO
    assert second.step.prompt_ids.starts_with(first.step.ids)


async def test_concurrent_turns_are_those_of_single_ones(ask: Asker) -> None:
    texts = [f"Question {number}" for number in range(5)]
    single = [(await ask(text=text, max_tokens=20, temperature=0.0)).completion_ids for text in texts]
    together: dict[str, Reply] = {}

    async def turn(text: str) -> None:
        together[text] = await ask(text=text, max_tokens=20, temperature=0.0)

    async with anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(turn, text)
    assert [together[text].completion_ids for text in texts] == single


# Ids and log-probabilities.


@pytest.mark.parametrize("streamed", [False, True])
async def test_log_probabilities_are_those_of_the_forward_pass(
    ask: Asker, reference: Reference, streamed: bool
) -> None:
    reply = await ask(max_tokens=40, watch=Heard() if streamed else None)
    assert reference.distance(step_of(reply)) < CLOSE


async def test_log_probabilities_of_a_temperature_are_those_that_are_documented(
    ask: Asker, reference: Reference
) -> None:
    step = step_of(await ask(max_tokens=20, temperature=0.5))
    own, other = (1.0, 0.5) if not ask.subject.processed else (0.5, 1.0)
    assert reference.distance(step, own) < CLOSE < reference.distance(step, other)


async def test_every_id_of_a_prompt_is_seen(
    ask: Asker, engine: Any, family: Family, reference: Reference
) -> None:
    """The padding token is one like others: hidden, it would change what follows."""
    padding = marker_id(family, "<|endoftext|>")
    prompt = [padding, padding, *ask.prompt(), padding]
    reply = await engine.from_ids(prompt, Sampling(max_tokens=8, temperature=1.0))
    assert reference.distance(step_of(reply)) < CLOSE
    assert list(reply.prompt_ids) == prompt


async def test_siblings_follow_the_same_prompt(ask: Asker, reference: Reference) -> None:
    heard = Heard()
    for watch in (None, heard):
        reply = await ask(max_tokens=12, n=3, watch=watch)
        turns = [reply, *reply.siblings]
        assert len(turns) == 3
        assert len({turn.completion_ids for turn in turns}) > 1
        assert reply.usage.completion_tokens == sum(len(turn.completion_ids) for turn in turns)
        assert max(reference.distance(step_of(turn)) for turn in turns) < CLOSE
    for index, turn in enumerate(turns):
        assert (heard.ids(index), heard.logprobs(index), heard.text(index)) == (
            turn.completion_ids,
            turn.logprobs,
            turn.text,
        )


async def test_a_seed_repeats_a_turn(ask: Asker) -> None:
    if not ask.subject.seeds:
        with pytest.raises(UnsupportedError, match=r"Sampling\.seed"):
            await ask(max_tokens=12, seed=5)
        return
    replies = [await ask(max_tokens=12, seed=seed) for seed in (5, 5, 6)]
    assert replies[0].completion_ids == replies[1].completion_ids != replies[2].completion_ids


async def test_a_stream_adds_up_to_the_reply(ask: Asker) -> None:
    heard = Heard()
    reply = await ask(max_tokens=30, watch=heard)
    assert len(heard.deltas) > 1
    assert (heard.ids(), heard.logprobs(), heard.text()) == (reply.completion_ids, reply.logprobs, reply.text)


# How a turn ends.


async def test_a_turn_ends_at_its_limit(ask: Asker) -> None:
    reply = await ask(max_tokens=5, extra=ask.subject.endless)
    assert (len(reply.completion_ids), reply.finish_reason, reply.truncated) == (5, "length", True)


async def test_a_turn_without_a_limit_takes_what_is_left(engine: Any, subject: Subject) -> None:
    """Engines' own limits are 16, 20 and 128 ids."""
    limits = await engine.limits()
    assert limits.max_model_len == CONTEXT
    length = limits.max_prompt_len or CONTEXT - 200
    length = min(length, CONTEXT - 200)
    prompt = list(itertools.islice(itertools.cycle(range(100, 900)), length))
    reply = await engine.from_ids(prompt, Sampling(extra=subject.endless))
    assert reply.finish_reason == "length"
    assert CONTEXT - 200 <= length + len(reply.completion_ids) <= CONTEXT
    assert len(reply.completion_ids) >= 190


@pytest.mark.parametrize("marker", ["<|im_end|>", "<|endoftext|>"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_end_of_the_models_own_is_sampled(
    ask: Asker, family: Family, marker: str, streamed: bool
) -> None:
    heard = Heard()
    end = marker_id(family, marker)
    reply = await ask(max_tokens=8, extra=ask.subject.only([end]), watch=heard if streamed else None)
    assert reply.completion_ids == (end,)
    assert (reply.finish_reason, reply.text, reply.message) == (
        "stop",
        "",
        {"role": "assistant", "content": ""},
    )
    assert heard.text() == ""


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_stop_string_cuts_the_text_and_no_id(ask: Asker, family: Family, streamed: bool) -> None:
    (index,) = family.encode(" return")
    heard = Heard()
    watch = heard if streamed else None
    reply = await ask(max_tokens=8, stop=("tur",), extra=ask.subject.only([index]), watch=watch)
    assert reply.completion_ids == (index,)
    assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", "tur", " re")
    assert heard.text() == (" re" if streamed else "")


async def test_a_stop_string_may_be_a_special_token(ask: Asker, family: Family) -> None:
    """Engines leave special tokens out of the text in which they look for stop strings."""
    marker = "<|im_start|>"
    extra = ask.subject.only([marker_id(family, marker)])
    reply = await ask(max_tokens=4, stop=(marker,), extra=extra)
    assert reply.completion_ids == (marker_id(family, marker),)
    assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", marker, "")


async def test_a_stop_id_is_sampled(ask: Asker, family: Family) -> None:
    (index,) = family.encode(" return")
    reply = await ask(max_tokens=8, stop_ids=(index,), extra=ask.subject.only([index]))
    assert reply.completion_ids == (index,)
    assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", index, "")


async def test_half_a_character_loses_no_id(ask: Asker, family: Family) -> None:
    first = family.encode("🙂")[0]
    reply = await ask(max_tokens=3, extra=ask.subject.only([first]), watch=Heard())
    assert reply.completion_ids == (first,) * 3


# What is refused before anything is sampled.


async def test_an_id_of_another_model_is_refused(engine: Any) -> None:
    size = (await engine.limits()).vocab_size
    for wrong in (size, size + 10_000):
        with pytest.raises(InputError, match="not in the vocabulary"):
            await engine.from_ids([1, wrong], Sampling(max_tokens=1))
    assert (await engine.from_ids([1, size - 1], Sampling(max_tokens=1))).completion_ids


async def test_a_full_context_is_refused(engine: Any) -> None:
    for length in (CONTEXT, CONTEXT + 1000):
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([100] * length, Sampling(max_tokens=1))


async def test_what_cannot_be_honoured_is_refused_by_name(ask: Asker) -> None:
    for name in ("truncate_prompt_tokens", "logprobs", "n", "skip_special_tokens", "no_such_name"):
        with pytest.raises(UnsupportedError, match=name):
            await ask(max_tokens=1, extra={name: 1})
    if not ask.subject.constrains:
        with pytest.raises(UnsupportedError, match="response_format"):
            await ask(max_tokens=1, constraint=Constraint(schema={"type": "object"}))


# Constraints.


def no_blanks(family: Family) -> dict[str, Any]:
    """Return further keys without which a random model writes little but white space between JSON's marks."""
    blank = [index for index in range(family.vocab_size) if not family.decode([index]).strip()]
    return {"logit_bias": {str(index): -100.0 for index in blank if index < SPECIAL}}


async def test_an_answer_keeps_to_a_json_schema(engine: Any, family: Family, subject: Subject) -> None:
    if not subject.constrains:
        return
    constraint = Constraint(schema=SCHEMA)
    prompt = [*family.ids(HELLO, add_generation_prompt=True), *family.encode("<think>\n\n</think>\n\n")]
    for streamed in (False, True):
        heard = Heard()
        wanted = Sampling(max_tokens=300, temperature=1.0, constraint=constraint, extra=no_blanks(family))
        reply = await engine.from_ids(prompt, wanted, PLAIN, watch=heard if streamed else None)
        assert constraint.unmet(reply.message) is None
        assert set(json.loads(reply.message["content"])) == {"ok"}
        assert heard.ids() == (reply.completion_ids if streamed else ())


async def test_a_call_is_forced(engine: Any, family: Family, subject: Subject) -> None:
    """In the form of the model's own template, after any reasoning."""
    if not subject.constrains:
        return
    tool = {"name": "look", "parameters": {**SCHEMA, "type": "object"}}
    rendering = Rendering(tools=({"type": "function", "function": tool},))
    constraint = Constraint(must_call=("look",), one_call=True)
    ids = family.ids(HELLO, tools=rendering.tools, add_generation_prompt=True)
    prompt = [*ids, *family.encode("<think>\n\n</think>\n\n")]
    wanted = Sampling(max_tokens=300, temperature=1.0, constraint=constraint, extra=no_blanks(family))
    reply = await engine.from_ids(prompt, wanted, rendering)
    assert constraint.unmet(reply.message) is None
    (call,) = reply.message["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"ok"}


# Cancellation, and event loops.


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_turn_leaves_the_engine_usable(ask: Asker, streamed: bool) -> None:
    """Cancelled once ids have come, or as soon as it was started."""
    extra = ask.subject.endless
    before = (await ask(max_tokens=10, temperature=0.0)).completion_ids
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def stop_after_five(delta: Delta) -> None:
            heard.append(delta)
            if len(heard) == 5:
                scope.cancel()

        heard: list[Delta] = []

        async def cancelled() -> None:
            with scope:
                await ask(max_tokens=7000, extra=extra, watch=stop_after_five if streamed else None)

        tasks.start_soon(cancelled)
        other = await ask(max_tokens=10, temperature=0.0)
        if not streamed:
            scope.cancel()
    assert scope.cancelled_caught
    assert other.completion_ids == before
    assert (await ask(max_tokens=10, temperature=0.0)).completion_ids == before


async def test_a_failing_watch_ends_the_turn(ask: Asker) -> None:
    async def failing(_: Delta) -> None:
        raise KeyError("watch")

    with pytest.raises(KeyError):
        await ask(max_tokens=5000, extra=ask.subject.endless, watch=failing)
    assert (await ask(max_tokens=3)).completion_ids


def asked_elsewhere(ask: Asker, backend: str, texts: Sequence[str]) -> list[tuple[int, ...]]:
    """Return turns that were asked for in an event loop of another thread."""

    async def turns() -> list[tuple[int, ...]]:
        return [(await ask(text=text, max_tokens=8, temperature=0.0)).completion_ids for text in texts]

    return anyio.run(turns, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_another_event_loop_gets_the_same_turns(ask: Asker, backend: str) -> None:
    texts = ["One?", "Two?"]
    here = [(await ask(text=text, max_tokens=8, temperature=0.0)).completion_ids for text in texts]
    there = await anyio.to_thread.run_sync(partial(asked_elsewhere, ask, backend, texts))
    assert here == there

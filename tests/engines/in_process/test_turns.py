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
from tito_io.engines.protocol import Delta, Rendering, Reply, Sampling, UnsupportedError
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


async def test_log_probabilities_of_a_temperature_are_those_that_are_documented(
    ask: Asker, reference: Reference
) -> None:
    step = step_of(await ask(max_tokens=20, temperature=0.5))
    own, other = (1.0, 0.5) if not ask.subject.processed else (0.5, 1.0)
    assert reference.distance(step, own) < CLOSE < reference.distance(step, other)


async def test_cached_ids_are_counted(engine: Any, subject: Subject) -> None:
    """VLLM counts whole blocks, of 128 ids each on a CPU."""
    sampling = Sampling(max_tokens=2)
    counts = [(await engine.from_ids([*range(500, 900)], sampling)).usage.cached_tokens for _ in range(2)]
    if not subject.caches:
        assert counts == [None, None]
    else:
        assert counts[0] < counts[1] >= 384


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
        reply = await ask(max_tokens=20, n=3, watch=watch)
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


# How a turn ends.


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


END = -1
"""In the place of an id: the only one that is sampled."""
STOPS: dict[str, tuple[str, dict[str, Any], int | str, str]] = {
    "the end of a turn": ("<|im_end|>", {}, END, ""),
    "the end of a text": ("<|endoftext|>", {}, END, ""),
    "a string": (" return", {"stop": ("tur",)}, "tur", " re"),
    # Engines leave special tokens out of the text in which they look for stop strings.
    "a string that is a special token": ("<|im_start|>", {"stop": ("<|im_start|>",)}, "<|im_start|>", ""),
    "an id": (" return", {"stop_ids": (END,)}, END, ""),
}


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_turn_that_is_stopped_has_every_id_and_the_text_before(
    ask: Asker, family: Family, stop: str, streamed: bool
) -> None:
    only, given, reason, text = STOPS[stop]
    (index,) = family.encode(only)
    sampling = {"stop_ids": (index,)} if "stop_ids" in given else given
    heard = Heard()
    reply = await ask(
        max_tokens=8, extra=ask.subject.only([index]), watch=heard if streamed else None, **sampling
    )
    assert (reply.completion_ids, reply.finish_reason, reply.text) == ((index,), "stop", text)
    assert reply.message == {"role": "assistant", "content": text}
    assert reply.stop_reason == (index if reason == END else reason) or not given
    assert heard.text() == (text if streamed else "")


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

"""The vLLM adapter against a real vLLM."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import anyio
import attrs
import pytest

from tests.engines.conftest import asked_for
from tests.engines.server import Server, free_port
from tests.engines.talk import CALL, CALL_PATTERN, HELLO, PLAIN, TOOLED, marker_id
from tests.engines.vllm import VERSION
from tito_core import (
    InputError,
    Message,
    Policy,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    stitch_questions,
    suffix_questions,
)
from tito_io.client.driver import answer
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import (
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnreachableError,
)
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

Way = Literal["messages", "completions", "chat"]
WAYS: tuple[Way, ...] = ("messages", "completions", "chat")
ROUTES: tuple[Literal["completions", "chat"], ...] = ("completions", "chat")


@pytest.fixture(scope="session")
def family(vllm_server: Server) -> Family:
    """Load the served model's folder here."""
    return Family.load(vllm_server.family)


@pytest.fixture(scope="session")
def special(family: Family) -> Callable[[str], int]:
    """Return the id of a marker or a tag."""
    return partial(marker_id, family)


@attrs.frozen
class Asker:
    """Asks for a turn after the same conversation by each way."""

    server: Server
    family: Family

    async def __call__(self, way: Way, rendering: Rendering = PLAIN, **sampling: Any) -> Reply:
        """Return a turn's reply."""
        wanted = Sampling(**{"temperature": 1.0, "seed": 1, **sampling})
        async with VLLM(self.server.base_url, route="chat" if way == "chat" else "completions") as engine:
            if way == "messages":
                return await engine.from_messages(HELLO, rendering, wanted)
            return await engine.from_ids(self.prompt(rendering), wanted, rendering)

    def prompt(self, rendering: Rendering = PLAIN) -> list[int]:
        """Return the conversation's ids."""
        return self.family.ids(
            HELLO, tools=rendering.tools or None, add_generation_prompt=True, **rendering.template_args
        )


@pytest.fixture
def ask(vllm_server: Server, family: Family) -> Asker:
    """Return what asks."""
    return Asker(vllm_server, family)


def forced(*ids: int) -> dict[str, Any]:
    """Return the request keys that let nothing but these ids be sampled."""
    return {"allowed_token_ids": list(ids)}


async def test_the_server_is_what_it_says(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url + "/v1") as engine:
        assert await engine.version() == VERSION
        assert await engine.models() == (ServedModel(vllm_server.model, 8192, owner="vllm"),)


# Rendering.


def call(arguments: object) -> dict[str, Any]:
    """Return a call of the tool, as a message has it."""
    return {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


CALLING = {"role": "assistant", "content": "So: ", "tool_calls": [call('{"city": "Ulm"}')]}
MAPPED = call({"city": "Ulm", "days": [1, 2.5], "é": None})
CONVERSATIONS: dict[str, list[Message]] = {
    "user": [{"role": "user", "content": "hé 🙂\n\n  <|im_end|> <tool_call>"}],
    "system": HELLO,
    "assistant": [*HELLO, {"role": "assistant", "content": "Hello!"}],
    "thought": [*HELLO, {"role": "assistant", "content": "Hello!", "reasoning": "Shall I?"}],
    "old thought": [*HELLO, {"role": "assistant", "content": "Hi", "reasoning": "Hm."}, *HELLO[1:]],
    "call": [*HELLO, CALLING],
    "call with a mapping": [*HELLO, {**CALLING, "tool_calls": [MAPPED]}],
    "result": [*HELLO, CALLING, {"role": "tool", "tool_call_id": "1", "content": "rain\n"}],
}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("rendering", [PLAIN, TOOLED, Rendering(template_args={"thinking": True})])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_server_renders_as_the_family_does(
    vllm_server: Server, family: Family, name: str, rendering: Rendering, add_generation_prompt: bool
) -> None:
    messages = CONVERSATIONS[name]
    async with VLLM(vllm_server.base_url) as engine:
        rendered = await engine.render(messages, rendering, add_generation_prompt=add_generation_prompt)
        options = {"tools": rendering.tools or None, "add_generation_prompt": add_generation_prompt}
        assert rendered == family.ids(messages, **options, **rendering.template_args)


async def test_the_server_writes_arguments_anew(vllm_server: Server, family: Family) -> None:
    """What differs from the family here: text that is JSON reaches the template as an object."""
    spaced = [*HELLO, {**CALLING, "tool_calls": [call('{"city":"Ulm"}')]}]
    async with VLLM(vllm_server.base_url) as engine:
        rendered = await engine.render(spaced, PLAIN, add_generation_prompt=False)
    assert rendered == family.ids([*HELLO, CALLING])
    assert rendered != family.ids(spaced)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([*HELLO, HELLO[0]], "A system message comes first or not at all."),
        ([{"role": "poet", "content": "O"}], "No template for the role poet"),
    ],
)
async def test_what_the_template_refuses_is_a_refusal(
    vllm_server: Server, messages: list[Message], told: str
) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        with pytest.raises(TemplateRefused, match=told):
            await engine.render(messages, PLAIN, add_generation_prompt=True)
        with pytest.raises(RequestError):
            await engine.from_messages(messages, PLAIN, Sampling(max_tokens=1))


async def test_what_the_server_refuses_itself_is_none(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        for messages, rendering in (
            ([], PLAIN),
            (HELLO, Rendering(template_args={"chat_template": "{{ messages }}"})),
            (HELLO, Rendering(tools=({"type": "function"},))),
        ):
            with pytest.raises(RequestError):
                await engine.render(messages, rendering, add_generation_prompt=True)


# The three ways agree.


@pytest.mark.parametrize("rendering", [PLAIN, TOOLED])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0, "seed": None}, {"seed": 7}])
async def test_every_way_samples_the_same_ids(
    ask: Asker, rendering: Rendering, sampling: dict[str, Any]
) -> None:
    replies = [await ask(way, rendering, max_tokens=24, **sampling) for way in WAYS]
    assert [reply.prompt_ids for reply in replies] == [tuple(ask.prompt(rendering))] * 3
    assert len({reply.completion_ids for reply in replies}) == 1
    assert len(replies[0].completion_ids) == 24
    assert len({reply.logprobs for reply in replies}) == 1


async def test_log_probabilities_are_never_above_zero(ask: Asker) -> None:
    likeliest = await ask("completions", max_tokens=100, temperature=0.0, extra={"ignore_eos": True})
    sampled = await ask("chat", max_tokens=100, extra={"ignore_eos": True})
    values = [*(likeliest.logprobs or ()), *(sampled.logprobs or ())]
    assert len(values) == 200
    assert all(value is not None and value <= 0 for value in values)


# How a turn may end.


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("marker", ["<|im_end|>", "<|endoftext|>"])
async def test_an_end_of_the_models_own_is_sampled(
    ask: Asker, special: Callable[[str], int], way: Way, marker: str
) -> None:
    reply = await ask(way, max_tokens=8, extra=forced(special(marker)))
    assert reply.completion_ids == (special(marker),)
    assert (reply.finish_reason, reply.truncated, reply.text) == ("stop", False, "")
    assert reply.message is not None
    assert reply.message["content"] == ""


@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_ends_at_its_limit(ask: Asker, way: Way) -> None:
    reply = await ask(way, max_tokens=5)
    assert (len(reply.completion_ids), reply.finish_reason, reply.truncated) == (5, "length", True)


@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_string_cuts_the_text_and_no_id(ask: Asker, family: Family, way: Way) -> None:
    (index,) = family.encode(" return")
    reply = await ask(way, max_tokens=8, stop=("tur",), extra=forced(index))
    assert reply.completion_ids == (index,)
    assert (reply.finish_reason, reply.text) == ("stop", " re")


@pytest.mark.parametrize("way", WAYS)
async def test_a_stop_id_is_sampled(ask: Asker, family: Family, way: Way) -> None:
    (index,) = family.encode(" return")
    reply = await ask(way, max_tokens=8, stop_ids=(index,), extra=forced(index))
    assert reply.completion_ids == (index,)
    assert (reply.finish_reason, reply.text) == ("stop", "")


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(("length", "asked"), [(8170, None), (8170, 900), (8191, None)])
async def test_a_turn_without_a_limit_takes_what_is_left(
    vllm_server: Server, route: Any, length: int, asked: int | None
) -> None:
    prompt = list(itertools.islice(itertools.cycle(range(100, 900)), length))
    async with VLLM(vllm_server.base_url, route=route) as engine:
        reply = await engine.from_ids(prompt, Sampling(max_tokens=asked, extra={"ignore_eos": True}))
    assert (len(reply.completion_ids), reply.finish_reason) == (8192 - length, "length")


# Messages from completions.


@pytest.mark.parametrize("way", WAYS)
async def test_half_a_character_loses_no_id(ask: Asker, family: Family, way: Way) -> None:
    first = family.encode("🙂")[0]
    reply = await ask(way, max_tokens=3, extra=forced(first))
    assert reply.completion_ids == (first,) * 3


def calling(special: Callable[[str], int], pattern: str = CALL_PATTERN) -> dict[str, Any]:
    """Return the request keys that let only a text of this pattern be sampled, its tags as tokens."""
    bias = {str(special(tag)): 100.0 for tag in ("<tool_call>", "</tool_call>")}
    return {"structured_outputs": {"regex": pattern}, "logit_bias": bias}


async def test_sampled_calls_are_parsed_as_the_server_parses_them(
    ask: Asker, special: Callable[[str], int]
) -> None:
    theirs = await ask("chat", TOOLED, max_tokens=99, extra=calling(special))
    ours = await ask("completions", TOOLED, max_tokens=99, extra=calling(special))
    assert ours.completion_ids == theirs.completion_ids
    assert special("<tool_call>") in ours.completion_ids
    assert (ours.finish_reason, theirs.finish_reason) == ("tool_calls", "tool_calls")
    assert ours.message is not None
    assert theirs.message is not None
    (our_call,), (their_call,) = ours.message["tool_calls"], theirs.message["tool_calls"]
    assert our_call["function"]["arguments"] == '{"city":  "Paris"}', "as it was sampled"
    assert their_call["function"]["arguments"] == '{"city": "Paris"}', "written anew"
    assert our_call["function"]["name"] == their_call["function"]["name"] == "get_weather"


async def test_tags_that_were_spelled_out_call_nothing(ask: Asker, special: Callable[[str], int]) -> None:
    bias = {str(special(tag)): -100.0 for tag in ("<tool_call>", "</tool_call>")}
    reply = await ask("completions", TOOLED, max_tokens=99, extra={**calling(special), "logit_bias": bias})
    assert special("<tool_call>") not in reply.completion_ids
    assert reply.message == {"role": "assistant", "content": CALL}


async def test_a_call_that_was_cut_off_is_cut(ask: Asker, special: Callable[[str], int]) -> None:
    extra = calling(special, CALL_PATTERN + "x{200}")
    async with VLLM(ask.server.base_url, route="chat") as engine:
        sampling = Sampling(max_tokens=80, temperature=1.0, seed=1)
        ending = attrs.evolve(sampling, extra=forced(special("<|im_end|>")))
        cutting = attrs.evolve(sampling, extra=extra)
        before = await engine.from_ids(ask.prompt(TOOLED), cutting, TOOLED)
        await engine.from_ids(ask.prompt(TOOLED), ending, TOOLED)
        after = await engine.from_ids(ask.prompt(TOOLED), cutting, TOOLED)
        assert before.message is not None
        assert before.message["tool_calls"]
        assert (before.finish_reason, after.finish_reason) == ("tool_calls", "length")
        honest = await ask("completions", TOOLED, max_tokens=80, extra=extra)
        assert honest.completion_ids == after.completion_ids
        assert honest.finish_reason == "length"


async def test_a_thought_that_the_prompt_began_is_read(ask: Asker, special: Callable[[str], int]) -> None:
    rendering = Rendering(template_args={"thinking": True})
    pattern = {"structured_outputs": {"regex": "hm\n</think>\n\nhi"}}
    bias = {"logit_bias": {str(special("</think>")): 100.0}}
    reply = await ask("completions", rendering, max_tokens=20, extra={**pattern, **bias})
    assert reply.message == {"role": "assistant", "content": "hi", "reasoning": "hm"}
    cut = await ask("completions", rendering, max_tokens=4)
    assert cut.message == {"role": "assistant", "content": "", "reasoning": cut.text.strip("\n")}


# Many turns.


def settings(family: Family) -> Iterator[Sampling]:
    """Yield how to sample, turn by turn: most end by themselves, every third is cut at its limit."""
    end = family.tokenizer.token_to_id("<|im_end|>")
    for number in itertools.count():
        pattern = {"structured_outputs": {"regex": f"[a-zA-Z ]{{{1 + number % 5},40}}"}}
        extra = {**pattern, "logit_bias": {str(end): 100.0}} if number % 3 else {"ignore_eos": True}
        yield Sampling(max_tokens=12, temperature=1.0, seed=number, extra=extra)


def environment(number: int) -> list[Message]:
    """Return what the world says after a turn."""
    return [{"role": "user", "content": f"Turn {number}: go on, é 🙂 {'x' * (number % 7)}"}]


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("route", ROUTES)
async def test_sampled_ids_live_through_many_turns(vllm_server: Server, family: Family, route: Any) -> None:
    turns = 24
    async with VLLM(vllm_server.base_url, route=route) as engine:

        async def render(messages: Any, *, add_generation_prompt: bool) -> Any:
            return await engine.render(messages, PLAIN, add_generation_prompt=add_generation_prompt)

        suffix = await answer(suffix_questions(), render)
        sampling = settings(family)
        prompt, trajectory = list(HELLO), Trajectory()
        reply = await engine.from_messages(prompt, PLAIN, next(sampling))
        step = Step(
            prompt=prompt,
            completion=[reply.message or {}],
            prompt_ids=reply.prompt_ids,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
            truncated=reply.truncated,
        )
        finishes, cached = [reply.finish_reason], []
        for number in range(turns):
            trajectory = trajectory.append(step)
            prompt = [*prompt, *step.completion, *environment(number)]
            found = await answer(stitch_questions(trajectory, prompt, suffix, policy=Policy()), render)
            assert isinstance(found, Stitched), found
            reply = await engine.from_ids(found.ids, next(sampling))
            assert list(reply.prompt_ids[: len(step.ids)]) == step.ids
            assert found.ids == reply.prompt_ids
            finishes.append(reply.finish_reason)
            cached.append(reply.usage.cached_tokens or 0)
            step = found.then(
                completion=[reply.message or {}],
                completion_ids=reply.completion_ids,
                logprobs=reply.logprobs,
                truncated=reply.truncated,
            )
        assert set(finishes) == {"stop", "length"}
        assert cached[-1] > 0, "the engine met the ids again in its prefix cache"
        sampled = [index for one in (*trajectory, step) for index in one.completion_ids]
        kept = [index for index, own in zip(step.ids, step.ledger.mask(), strict=True) if own]
        assert kept == sampled


# What a server refuses.


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("length", [8192, 8193, 12_000])
async def test_a_full_context_is_known_by_the_servers_words(
    vllm_server: Server, route: Any, length: int
) -> None:
    class Unsaid(VLLM):
        async def served(self) -> ServedModel:
            return ServedModel(vllm_server.model, None)

    async with Unsaid(vllm_server.base_url, route=route) as unsaid:
        with pytest.raises(OverlongError, match="answered 400"):
            await unsaid.from_ids([100] * length, Sampling(max_tokens=1))
    async with VLLM(vllm_server.base_url, route=route) as engine:
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([100] * length, Sampling(max_tokens=1))


async def test_messages_that_fill_the_context_are_overlong(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        for words in (9_000, 200_000):
            with pytest.raises(OverlongError):
                await engine.from_messages(
                    [{"role": "user", "content": "return " * words}], PLAIN, Sampling()
                )


@pytest.mark.parametrize("route", ROUTES)
async def test_an_id_that_no_vocabulary_has_is_refused(
    vllm_server: Server, family: Family, route: Any
) -> None:
    async with VLLM(vllm_server.base_url, route=route) as engine:
        with pytest.raises(RequestError, match=f"Token id {family.vocab_size} is out of vocabulary"):
            await engine.from_ids([1, family.vocab_size], Sampling(max_tokens=1))
    async with VLLM(vllm_server.base_url, route=route, vocab_size=family.vocab_size) as engine:
        with pytest.raises(InputError, match="not in the vocabulary"):
            await engine.from_ids([1, family.vocab_size], Sampling(max_tokens=1))
        assert (await engine.from_ids([1, family.vocab_size - 1], Sampling(max_tokens=1))).completion_ids


async def test_another_model_is_refused(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url, model="nobody") as engine:
        for asking in (
            engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=1)),
            engine.from_ids([1], Sampling(max_tokens=1)),
            engine.render(HELLO, PLAIN, add_generation_prompt=True),
        ):
            with pytest.raises(RequestError, match="The model `nobody` does not exist"):
                await asking


async def test_another_route_is_refused(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url + "/nowhere") as engine:
        with pytest.raises(RequestError, match="no such model or route"):
            await engine.version()


async def test_a_wrong_setting_is_refused(ask: Asker) -> None:
    with pytest.raises(RequestError, match=r"top_p must be in \(0, 1\], got 7.0"):
        await ask("completions", max_tokens=1, extra={"top_p": 7.0})


# Interruptions.


async def test_nobody_there_is_unreachable() -> None:
    asked_for("vllm")
    with pytest.raises(UnreachableError, match="nothing answers"):
        await VLLM(f"http://127.0.0.1:{free_port()}").from_ids([1], Sampling())


async def test_a_turn_that_takes_too_long_is_unreachable(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url, timeout=0.2) as engine:
        with vllm_server.paused(), pytest.raises(UnreachableError, match="no answer in time"):
            await engine.from_ids([100], Sampling(max_tokens=2))


async def test_a_cancelled_turn_leaves_the_engine_usable(vllm_server: Server) -> None:
    async with VLLM(vllm_server.base_url) as engine:
        await engine.from_ids([100], Sampling(max_tokens=1))
        with anyio.move_on_after(0.3) as scope:
            await engine.from_ids([100], Sampling(max_tokens=8000, extra={"ignore_eos": True}))
        assert scope.cancelled_caught
        assert len((await engine.from_ids([100], Sampling(max_tokens=2))).completion_ids) == 2

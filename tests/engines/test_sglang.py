"""The SGLang adapter against a real SGLang."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import anyio
import attrs
import pytest

from tests.engines.conftest import asked_for
from tests.engines.server import Server
from tests.engines.sglang import CONTEXT, VERSION, sglang
from tests.engines.talk import CALL, CALL_PATTERN, HELLO, PLAIN, TOOLED, WEATHER, marker_id
from tests.io.engines.scripted import Heard
from tito_core import InputError, Message, OddStop, Policy, TemplateRefused
from tito_core.samples import WeightVersion
from tito_io.client.conversation import Conversation
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    Delta,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnreachableError,
    Watch,
)
from tito_io.engines.sglang import ROUTES, SGLang
from tito_io.engines.sglang.engine import SEED_IGNORED
from tito_io.engines.sglang.facts import ServerFacts
from tito_io.families.family import Family
from tito_io.rollout.run import Rollout
from tito_io.rollout.script import Script, ScriptLine, default_script

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

Way = Literal["messages", "generate", "chat", "completions"]
WAYS: tuple[Way, ...] = ("messages", "generate", "chat", "completions")
VOCABULARY = 3072


@pytest.fixture(scope="session")
def family(sglang_server: Server) -> Family:
    """Load the served model's folder here."""
    return Family.load(sglang_server.family)


@pytest.fixture(scope="session")
def special(family: Family) -> Callable[[str], int]:
    """Return the id of a marker or a tag."""
    return partial(marker_id, family)


@attrs.frozen
class Asker:
    """Asks for a turn after the same conversation by each way."""

    server: Server
    prompt: tuple[int, ...]

    async def __call__(
        self, way: Way, rendering: Rendering = PLAIN, watch: Watch | None = None, **sampling: Any
    ) -> Reply:
        """Return a turn's reply."""
        wanted = Sampling(**{"temperature": 1.0, **sampling})
        async with SGLang(self.server.base_url, route="generate" if way == "messages" else way) as engine:
            if way == "messages":
                return await engine.from_messages(HELLO, rendering, wanted, watch=watch)
            return await engine.from_ids(self.prompt, wanted, rendering, watch=watch)


@pytest.fixture
def ask(sglang_server: Server, family: Family) -> Asker:
    """Return what asks."""
    return Asker(sglang_server, tuple(family.ids(HELLO, add_generation_prompt=True)))


def forced(*ids: int) -> dict[str, Any]:
    """Return the request keys that let nothing but these ids be sampled."""
    return {"logit_bias": {str(index): 100.0 for index in ids}}


async def running(engine: SGLang) -> int:
    """Return how many requests the server works on."""
    loads = (await engine.wire.get("/v1/loads"))["loads"]
    return sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads)


async def until(engine: SGLang, enough: Callable[[int], bool]) -> None:
    """Return once the server works on enough requests, or few enough."""
    while not enough(await running(engine)):  # noqa: ASYNC110  # a server far away raises no event here
        await anyio.sleep(0.02)


async def idle(engine: SGLang, seconds: float) -> bool:
    """Return whether the server has nothing to do within so many seconds."""
    with anyio.move_on_after(seconds):
        await until(engine, lambda count: count == 0)
        return True
    return False


async def test_the_server_is_what_it_says(sglang_server: Server) -> None:
    async with SGLang(sglang_server.base_url + "/v1") as engine:
        assert await engine.models() == (ServedModel(sglang_server.model, CONTEXT, owner="sglang"),)
        assert await engine.limits() == ModelLimits(
            max_model_len=CONTEXT, vocab_size=VOCABULARY, max_prompt_len=CONTEXT - 7
        )
        facts = await engine.facts()
        assert ".".join(map(str, facts.version or ())) == VERSION
        assert (facts.max_prompt, facts.seeded) == (CONTEXT - 7, False)


# Rendering.


def call(arguments: object) -> dict[str, Any]:
    """Return a call of the tool, as a message has it."""
    return {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


CALLING = {"role": "assistant", "content": "So: ", "tool_calls": [call('{"city": "Ulm"}')]}
CONVERSATIONS: dict[str, list[Message]] = {
    "user": [{"role": "user", "content": "hé 🙂\n\n  <|im_end|> <tool_call>"}],
    "assistant": [*HELLO, {"role": "assistant", "content": "Hello!"}],
    "thought": [*HELLO, {"role": "assistant", "content": "Hello!", "reasoning": "Shall I?"}],
    "call": [*HELLO, CALLING],
    "call with a mapping": [*HELLO, {**CALLING, "tool_calls": [call({"city": "Ulm", "é": None})]}],
    "result": [*HELLO, CALLING, {"role": "tool", "tool_call_id": "1", "content": "rain\n"}],
}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("rendering", [PLAIN, Rendering(template_args={"thinking": True})])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_server_renders_as_the_family_does(
    sglang_server: Server, family: Family, name: str, rendering: Rendering, add_generation_prompt: bool
) -> None:
    messages = CONVERSATIONS[name]
    async with SGLang(sglang_server.base_url) as engine:
        rendered = await engine.render(messages, rendering, add_generation_prompt=add_generation_prompt)
    local = family.ids(messages, add_generation_prompt=add_generation_prompt, **rendering.template_args)
    assert rendered == local


async def test_tools_are_rendered_with_a_further_key_as_in_its_chat(
    sglang_server: Server, family: Family
) -> None:
    async with SGLang(sglang_server.base_url) as engine:
        rendered = await engine.render(HELLO, TOOLED, add_generation_prompt=True)
        said = await engine.from_messages(HELLO, TOOLED, Sampling(max_tokens=1))
    assert tuple(rendered) == said.prompt_ids
    assert rendered != family.ids(HELLO, tools=TOOLED.tools, add_generation_prompt=True)
    deferred = ({**WEATHER, "defer_loading": None},)
    assert rendered == family.ids(HELLO, tools=deferred, add_generation_prompt=True)


async def test_what_the_template_refuses_is_a_refusal(sglang_server: Server) -> None:
    late = [*HELLO, HELLO[0]]
    async with SGLang(sglang_server.base_url) as engine:
        with pytest.raises(TemplateRefused, match="A system message comes first or not at all"):
            await engine.render(late, PLAIN, add_generation_prompt=True)
        with pytest.raises(RequestError):
            await engine.from_messages(late, PLAIN, Sampling(max_tokens=1))


@pytest.mark.parametrize(
    ("messages", "rendering"),
    [
        ([], PLAIN),
        ([{"role": "poet", "content": "O"}], PLAIN),
        (HELLO, Rendering(template_args={"chat_template": "{{ messages }}"})),
        (HELLO, Rendering(tools=({"type": "function"},))),
        ([*HELLO, {**CALLING, "tool_calls": [call("{nope")]}], PLAIN),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], PLAIN),
    ],
)
async def test_what_the_server_refuses_itself_is_none(
    sglang_server: Server, messages: list[Message], rendering: Rendering
) -> None:
    async with SGLang(sglang_server.base_url) as engine:
        with pytest.raises(RequestError):
            await engine.render(messages, rendering, add_generation_prompt=True)


# The ways agree.


async def test_every_way_samples_the_likeliest_ids(ask: Asker) -> None:
    replies = []
    for way in WAYS:
        for watch in (None, Heard()):
            reply = await ask(way, watch=watch, max_tokens=16, temperature=0.0)
            assert watch is None or (watch.ids, watch.text) == (reply.completion_ids, reply.text)
            replies.append(reply)
    assert {tuple(reply.prompt_ids) for reply in replies} == {ask.prompt}
    assert len({reply.completion_ids for reply in replies}) == 1
    assert len(replies[0].completion_ids) == 16
    for values in zip(*(reply.logprobs or () for reply in replies), strict=True):
        assert max(values) - min(values) < 1e-4
    assert {reply.text for reply in replies} == {replies[0].text}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_a_turn_ends_in_every_manner(
    ask: Asker, family: Family, special: Callable[[str], int], way: Way, streamed: bool
) -> None:
    """An id of the model's own, the limit, a string that cuts the text and no id, an id of the caller's."""
    (index,) = family.encode(" return")
    end, text_end = special("<|im_end|>"), special("<|endoftext|>")
    for told, ids, outcome in (
        ({"extra": forced(end)}, (end,), ("stop", end, "")),
        ({"extra": forced(text_end)}, (text_end,), ("stop", text_end, "")),
        ({"extra": forced(index)}, (index,) * 4, ("length", None, " return" * 4)),
        ({"extra": forced(index), "stop": ("tur",)}, (index,), ("stop", "tur", " re")),
        ({"extra": forced(index), "stop_ids": (index,)}, (index,), ("stop", index, "")),
    ):
        heard = Heard() if streamed else None
        reply = await ask(way, watch=heard, max_tokens=4, **told)
        assert reply.completion_ids == ids
        assert (reply.finish_reason, reply.stop_reason, reply.text) == outcome
        assert reply.truncated is (outcome[0] == "length")
        assert reply.message is not None
        assert reply.message["content"] == outcome[2]
        assert heard is None or heard.ids == ids


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_several_turns_after_one_prompt(ask: Asker, way: Way, streamed: bool) -> None:
    heard = Heard() if streamed else None
    reply = await ask(way, watch=heard, max_tokens=5, n=3, extra={"ignore_eos": True})
    turns = [reply, *reply.siblings]
    assert len({turn.completion_ids for turn in turns}) == 3
    assert {len(turn.completion_ids) for turn in turns} == {5}
    assert {tuple(turn.prompt_ids) for turn in turns} == {ask.prompt}
    assert reply.usage.completion_tokens == 15
    if heard:
        assert [heard.of(index).ids for index in range(3)] == [turn.completion_ids for turn in turns]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_a_sampled_call_is_parsed(
    ask: Asker, special: Callable[[str], int], way: Way, streamed: bool
) -> None:
    tags = {str(special(tag)): 100.0 for tag in ("<tool_call>", "</tool_call>")}
    extra = {"regex": CALL_PATTERN, "logit_bias": tags}
    reply = await ask(way, TOOLED, Heard() if streamed else None, max_tokens=99, extra=extra)
    assert special("<tool_call>") in reply.completion_ids
    assert reply.finish_reason == "tool_calls"
    assert reply.message is not None
    (found,) = reply.message["tool_calls"]
    assert found["function"]["name"] == "get_weather"
    written = '{"city": "Paris"}' if way in ("messages", "chat") else '{"city":  "Paris"}'
    assert found["function"]["arguments"] == written, "the server's parser writes anew, ours does not"


async def test_tags_that_were_spelled_out_call_nothing(ask: Asker, special: Callable[[str], int]) -> None:
    tags = {str(special(tag)): -100.0 for tag in ("<tool_call>", "</tool_call>")}
    extra = {"regex": CALL_PATTERN, "logit_bias": tags}
    reply = await ask("generate", TOOLED, max_tokens=99, extra=extra)
    assert special("<tool_call>") not in reply.completion_ids
    assert reply.message == {"role": "assistant", "content": CALL}


async def test_a_thought_that_the_prompt_began_is_read(
    sglang_server: Server, special: Callable[[str], int]
) -> None:
    rendering = Rendering(template_args={"thinking": True})
    extra = {"regex": "hm\n</think>\n\nhi", "logit_bias": {str(special("</think>")): 100.0}}
    async with SGLang(sglang_server.base_url) as engine:
        ids = await engine.render(HELLO, rendering, add_generation_prompt=True)
        reply = await engine.from_ids(ids, Sampling(max_tokens=20, extra=extra), rendering)
    assert reply.message == {"role": "assistant", "content": "hi", "reasoning": "hm"}


async def test_a_seed_does_nothing_here_and_the_reply_says_so(ask: Asker) -> None:
    assert (await ask("generate", max_tokens=1, seed=1)).notices == (SEED_IGNORED,)
    assert (await ask("chat", max_tokens=1, seed=1)).notices == (SEED_IGNORED,)


async def test_weights_have_a_version(ask: Asker) -> None:
    for way in WAYS:
        reply = await ask(way, max_tokens=3, extra={"ignore_eos": True})
        assert reply.weight_versions == (WeightVersion(version="default", start=0, stop=3),)


# Many turns.


async def chain(engine: SGLang, prompt: tuple[int, ...], place: int, turns: int) -> list[Reply]:
    """Take turns, every third of them streamed, each prompt everything before and a little more."""
    found: list[Reply] = []
    for turn in range(turns):
        heard = Heard() if turn % 3 == place % 3 else None
        sampling = Sampling(max_tokens=1 + (place + turn) % 7, temperature=1.0)
        reply = await engine.from_ids(prompt, sampling, watch=heard)
        assert heard is None or heard.ids == reply.completion_ids
        prompt = (*reply.prompt_ids, *reply.completion_ids, 198, 100 + place, turn)
        found.append(reply)
    return found


@pytest.mark.parametrize(
    ("route", "backend"), [*((route, "asyncio") for route in ROUTES), ("generate", "trio")]
)
def test_hundreds_of_turns_hold_together(ask: Asker, route: Any, backend: str) -> None:
    found: list[list[Reply]] = []

    async def many() -> None:
        async with SGLang(ask.server.base_url, route=route) as engine:
            await engine.limits()

            async def one(place: int) -> None:
                found.append(await chain(engine, ask.prompt, place, 10))

            async with anyio.create_task_group() as tasks:
                for place in range(6):
                    tasks.start_soon(one, place)

    anyio.run(many, backend=backend)
    assert sum(map(len, found)) == 60
    for replies in found:
        for before, after in pairwise(replies):
            kept = (*before.prompt_ids, *before.completion_ids)
            assert tuple(after.prompt_ids[: len(kept)]) == tuple(kept)


TERSE = Script(
    lines=(ScriptLine("On?"), ScriptLine("So?", "7"), ScriptLine("Ha.")),
    system="Be brief.",
    tools=default_script().tools[:1],
)
TURNS = 60


async def test_sixty_turns_by_ids_keep_every_sampled_id(sglang_server: Server) -> None:
    async with SGLang(sglang_server.base_url) as engine:
        conversation = Conversation(
            engine=engine,
            rendering=Rendering(tools=TERSE.tools),
            sampling=Sampling(max_tokens=8, temperature=1.0),
            policy=Policy(odd_stop=OddStop.KEEP),
        )
        run = Rollout(conversation, TERSE, TURNS)
        async for _ in run.run():
            pass
    summary, steps = run.summary(), list(conversation.trajectory)
    assert (summary.turns, summary.routes["TITO"], summary.refusals) == (TURNS, TURNS - 1, {})
    assert summary.whole
    assert summary.drift_ids
    for before, after in pairwise(steps):
        assert after.prompt_ids.tolist()[: len(before.ids)] == before.ids.tolist()


# What does not work, and what it leaves behind.


async def test_what_is_overlong_is_not_sent_and_what_fits_is(sglang_server: Server) -> None:
    sampling = Sampling(max_tokens=1)
    for route in ROUTES:
        async with SGLang(sglang_server.base_url, route=route) as engine:
            for length in (CONTEXT - 6, CONTEXT, CONTEXT + 100):
                with pytest.raises(OverlongError, match=f"takes {CONTEXT - 7}.* Nothing was sent"):
                    await engine.from_ids([100] * length, sampling)
    async with SGLang(sglang_server.base_url) as engine:
        reply = await engine.from_ids([100] * (CONTEXT - 7), Sampling(extra={"ignore_eos": True}))
        assert (len(reply.completion_ids), reply.finish_reason) == (5, "length")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_the_servers_own_refusal_of_an_overlong_prompt_is_known(
    sglang_server: Server, route: Any, streamed: bool
) -> None:
    """As if the server did not say how much it takes. Its scheduler's refusal looks like a streamed turn."""

    class Unsaid(SGLang):
        async def served(self) -> ServedModel:
            return attrs.evolve(await super().served(), max_model_len=2 * CONTEXT)

        async def facts(self) -> ServerFacts:
            return attrs.evolve(await super().facts(), max_prompt=None)

    async with Unsaid(sglang_server.base_url, route=route) as engine:
        for length in (CONTEXT - 3, CONTEXT + 5):
            heard = Heard()
            with pytest.raises(OverlongError, match="shorten it") as caught:
                await engine.from_ids(
                    [100] * length, Sampling(max_tokens=1), watch=heard if streamed else None
                )
            assert (heard.deltas, caught.value.partial) == ([], None)


async def test_overlong_messages_are_known(sglang_server: Server) -> None:
    words: list[Message] = [{"role": "user", "content": " import" * CONTEXT}]
    async with SGLang(sglang_server.base_url) as engine:
        with pytest.raises(OverlongError):
            await engine.from_messages(words, PLAIN, Sampling(max_tokens=5))


async def test_messages_that_leave_less_room_than_asked_for_are_sampled(
    sglang_server: Server, family: Family
) -> None:
    words: list[Message] = [{"role": "user", "content": "7" * (CONTEXT - 60)}]
    rendered = family.ids(words, add_generation_prompt=True)
    async with SGLang(sglang_server.base_url) as engine:
        asked = Sampling(max_tokens=500, extra={"ignore_eos": True})
        reply = await engine.from_messages(words, PLAIN, asked)
    assert list(reply.prompt_ids) == rendered
    assert 0 < CONTEXT - len(rendered) - len(reply.completion_ids) <= 2
    assert reply.finish_reason == "length"


async def test_an_id_that_nobody_has_is_not_sent_and_the_server_lives(sglang_server: Server) -> None:
    for route in ROUTES:
        async with SGLang(sglang_server.base_url, route=route) as engine:
            for wrong in (VOCABULARY, 2**31, -1):
                with pytest.raises(InputError):
                    await engine.from_ids([100, wrong], Sampling(max_tokens=1))
            last = await engine.from_ids([VOCABULARY - 1, 0], Sampling(max_tokens=1))
            assert len(last.completion_ids) == 1


async def test_a_name_that_the_server_would_answer_to_is_refused(sglang_server: Server) -> None:
    async with SGLang(sglang_server.base_url, model="nope") as engine:
        with pytest.raises(InputError, match=f"the server has {sglang_server.model}"):
            await engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=1))
    async with SGLang(sglang_server.base_url, model=sglang_server.model) as engine:
        assert len((await engine.from_ids([100], Sampling(max_tokens=1))).completion_ids) == 1


async def test_an_extra_that_the_server_does_not_know_is_refused_by_it(ask: Asker) -> None:
    with pytest.raises(RequestError):
        await ask("generate", max_tokens=1, extra={"nope": 1})


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("way", "n"), [*((way, 1) for way in WAYS), ("generate", 2)])
async def test_a_cancelled_call_is_aborted(ask: Asker, way: Way, streamed: bool, n: int) -> None:
    """Several turns have names of the server's own, so that only the closed connection tells of them."""
    async with SGLang(ask.server.base_url) as watching:
        async with anyio.create_task_group() as tasks:

            async def long_turn() -> None:
                extra = {"ignore_eos": True}
                await ask(way, watch=Heard() if streamed else None, max_tokens=6000, n=n, extra=extra)

            tasks.start_soon(long_turn)
            with anyio.fail_after(20):
                await until(watching, lambda count: count >= n)
            tasks.cancel_scope.cancel()
        assert await idle(watching, 3 if n == 1 else 20)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("route", ROUTES)
async def test_an_abort_from_elsewhere_keeps_what_was_sampled(ask: Asker, route: Any, streamed: bool) -> None:
    async with SGLang(ask.server.base_url) as other:

        async def aborting() -> None:
            await until(other, lambda count: count > 0)
            await anyio.sleep(0.3)
            await other.wire.exchange("POST", "/abort_request", b'{"abort_all": true}')

        heard = Heard()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(aborting)
            with pytest.raises(AbortedError) as caught:
                await ask(
                    route, watch=heard if streamed else None, max_tokens=6000, extra={"ignore_eos": True}
                )
    partial = caught.value.partial
    assert partial is not None
    assert (partial.prompt_ids, partial.finish_reason) == (ask.prompt, "abort")
    assert 0 < len(partial.completion_ids) == len(partial.logprobs or ()) < 6000
    assert not streamed or heard.ids == partial.completion_ids


def test_a_server_with_other_flags(tmp_path: Path, say: Callable[[str], None]) -> None:
    """A server of its own: a key, deltas in its streams, a parser of thoughts; killed in a stream."""
    asked_for("sglang")
    flags = ("--api-key=sesame", "--incremental-streaming-output", "--reasoning-parser=qwen3")
    with sglang(say, tmp_path / "sglang.log", *flags) as server:
        anyio.run(_locked_out, server)
        anyio.run(_incremental, server)
        anyio.run(_thinking, server)
        anyio.run(_killed, server, backend="trio")


async def _locked_out(server: Server) -> None:
    for key in (None, "wrong"):
        async with SGLang(server.base_url, api_key=key) as engine:
            with pytest.raises(AuthenticationError, match="api_key"):
                await engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=1))


async def _incremental(server: Server) -> None:
    async with SGLang(server.base_url, api_key="sesame") as engine:
        likeliest = Sampling(max_tokens=12, temperature=0.0)
        whole, heard = await engine.from_ids([100], likeliest), Heard()
        streamed = await engine.from_ids([100], likeliest, watch=heard)
        assert streamed.completion_ids == whole.completion_ids == heard.ids
        assert (streamed.text, heard.text) == (whole.text, whole.text)
        assert streamed.logprobs == pytest.approx(whole.logprobs, abs=1e-4)
        aborted = Heard()

        async def aborting(delta: Delta) -> None:
            await aborted(delta)
            if len(aborted.ids) >= 10:  # several ids may come at once
                await engine.wire.exchange("POST", "/abort_request", b'{"abort_all": true}')

        with pytest.raises(AbortedError) as caught:
            await engine.from_ids(
                [100], Sampling(max_tokens=6000, extra={"ignore_eos": True}), watch=aborting
            )
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == aborted.ids
    assert caught.value.partial.weight_versions[0].stop == len(aborted.ids)


async def _thinking(server: Server) -> None:
    async with SGLang(server.base_url, api_key="sesame", route="chat") as engine:
        for watch in (None, Heard()):
            said = await engine.from_messages(HELLO, PLAIN, Sampling(max_tokens=4), watch=watch)
            assert said.message is not None
            assert said.message["reasoning_content"]
            assert (said.text, len(said.completion_ids)) == ("", 4)


async def _killed(server: Server) -> None:
    heard = Heard()

    async def killing(delta: Delta) -> None:
        await heard(delta)
        if len(heard.ids) >= 20:
            server.kill()

    async with SGLang(server.base_url, api_key="sesame") as engine:
        with pytest.raises(UnreachableError) as caught:
            await engine.from_ids([100], Sampling(max_tokens=6000, extra={"ignore_eos": True}), watch=killing)
        with pytest.raises(UnreachableError, match="nothing answers"):
            await engine.models()
    partial = caught.value.partial
    assert partial is not None
    assert partial.completion_ids == heard.ids
    assert 20 <= len(partial.completion_ids) == len(partial.logprobs or ())
    assert (partial.finish_reason, partial.prompt_ids) == ("abort", (100,))

"""The token client: many conversations, prompts as ids where that is proven, nothing sampled twice."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.embedded.embedded_client import WEATHER
from tests.io.engines.vllm.vllm_server import chat_answer, completion_answer, mocked, refused
from tests.io.serve.gateway import Scripted, toy
from tito_core import (
    InputError,
    Policy,
    Reason,
    Step,
    Trajectory,
    Truncated,
)
from tito_io.client.conversation import Conversation
from tito_io.client.token_client import TokenClient
from tito_io.client.turn import Route
from tito_io.embedded import TIDY, app
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    Delta,
    EmptyReplyError,
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    ServerError,
    TimedOutError,
    UnreachableError,
)
from tito_io.engines.reconnect import Reconnecting
from tito_io.engines.registry import embedded
from tito_io.engines.vllm import VLLM
from tito_io.engines.wrapper import EngineWrapper
from tito_io.serve.gateway import GatewayOptions

pytestmark = pytest.mark.anyio
HELLO = [{"role": "user", "content": "hello"}]
MORE = {"role": "user", "content": "more"}
COMPLETIONS, CHAT, TOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize"


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ({"told": {"completion_ids": (500, 501, 77)}}, Reason.ODD_STOP),
        ({"renders": False}, Reason.TEMPLATE_REFUSED),
    ],
)
async def test_what_cannot_be_proven_is_refused_and_goes_by_messages(
    engine: dict[str, Any], reason: Reason
) -> None:
    client = TokenClient(saying(**engine))
    first, second = await two_turns(client)
    assert second.turn.refusal.reason is reason
    assert client.counts.refusals == {reason: 1}
    assert second.step.prompt == [*HELLO, first.message, MORE]
    other = await client.turn([first.step], [MORE])  # which continues nothing
    assert other.turn.refusal is not None
    assert client.counts.refusals == {reason: 1, Reason.NO_PREFIX: 1}


def saying(**options: Any) -> Scripted:
    """Return an engine whose turns say different things."""
    return Scripted(each="said {}".format, **options)


async def two_turns(client: TokenClient, steps: Any = None, **options: Any) -> Any:
    """Take a first turn and one after it; return both."""
    trajectory = Trajectory() if steps is None else steps
    first = await client.turn(trajectory, HELLO, **options)
    grown = [*trajectory, first.step]
    second = await client.turn(
        grown if isinstance(steps, list) else Trajectory(grown), [*HELLO, first.message, MORE], **options
    )
    return first, second


@pytest.mark.parametrize("steps", [None, []], ids=["trajectory", "list"])
async def test_the_first_turn_goes_by_messages_and_later_ones_by_ids(steps: Any) -> None:
    client = TokenClient(engine := saying())
    first, second = await two_turns(client, steps)
    assert [how for how, *_ in engine.asked] == ["messages", "ids"]
    assert (first.turn.route, second.turn.route) == (Route.MITO, Route.TITO)
    kept = [*first.step.ids, *toy([MORE], add_generation_prompt=True)]
    assert engine.asked[1][1] == kept == second.step.prompt_ids.tolist()
    assert second.step.completion_ids.tolist() == [502, 503, 2]
    assert second.step.logprobs == (-0.5,) * 3
    assert second.message == {"role": "assistant", "content": "said 4"}
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: 1}
    assert (client.counts.refusals, client.counts.errors) == ({}, {})


async def test_leaving_async_with_closes_the_engine_also_after_an_error() -> None:
    async with TokenClient(engine := saying()) as client:
        await client.turn([], HELLO)
        assert engine.name == "scripted"
    assert engine.name == "closed"
    with pytest.raises(ServerError):
        async with TokenClient(engine := saying(raises=[ServerError("no")])) as client:
            await client.turn([], HELLO)
    assert engine.name == "closed"


async def test_the_client_keeps_nothing_and_a_step_may_be_continued_twice() -> None:
    client = TokenClient(saying())
    first = await client.turn([], HELLO)
    prompts = [[*HELLO, first.message, {"role": "user", "content": text}] for text in "ab"]
    branches = [await client.turn([first.step], prompt) for prompt in prompts]
    assert [one.turn.route for one in branches] == [Route.TITO, Route.TITO]
    whole = [first.step, *(one.step for one in branches)]
    deeper = await client.turn(whole, [*prompts[0], branches[0].message, MORE])
    assert deeper.step.prompt_ids.starts_with(branches[0].step.ids)
    alone = await client.turn([], prompts[0])
    assert alone.turn.route is Route.MITO


async def test_the_template_s_close_is_asked_for_once_for_each_rendering() -> None:
    client = TokenClient(engine := saying())
    asked: list[int] = []
    for tools in (None, [WEATHER], None, [WEATHER]):
        engine.rendered = 0
        await two_turns(client, tools=tools)
        asked.append(engine.rendered)
    assert asked[0] == asked[1] > asked[2] == asked[3]


@pytest.mark.whole
async def test_conversations_at_once_share_a_client_and_do_not_meet() -> None:
    client = TokenClient(embedded(seed=5), Policy())
    done: dict[str, Trajectory] = {}

    async def talk(text: str) -> None:
        steps, prompt = Trajectory(), [{"role": "user", "content": text}]
        for _ in range(4):
            taken = await client.turn(steps, prompt, sampling={"max_tokens": 24, "temperature": 1.0})
            steps = steps.append(taken.step)
            prompt = [*prompt, taken.message, MORE]  # type: ignore[list-item]  # a message, too
        done[text] = steps

    async with anyio.create_task_group() as group:
        for number in range(8):
            group.start_soon(talk, f"conversation {number}")
    assert sum(client.counts.routes.values()) == 32
    alone = TokenClient(embedded(seed=5))
    for text, steps in done.items():
        again, prompt = Trajectory(), [{"role": "user", "content": text}]
        for step in steps:
            taken = await alone.turn(again, prompt, sampling={"max_tokens": 24, "temperature": 1.0})
            assert taken.step == step
            again = again.append(taken.step)
            prompt = [*prompt, taken.message, MORE]  # type: ignore[list-item]  # a message, too


# Refusals go by messages, and are counted.


@pytest.mark.parametrize("place", ["prompt", "history"])
async def test_media_anywhere_go_by_messages(place: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    seen = [{"role": "user", "content": [{"type": "text", "text": "see"}, image]}]
    client = TokenClient(engine := saying())
    begun = HELLO if place == "prompt" else seen
    first = await client.turn([], begun)
    new = seen if place == "prompt" else [MORE]
    second = await client.turn([first.step], [*begun, first.message, *new])
    assert [how for how, *_ in engine.asked] == ["messages", "messages"]
    assert second.turn.refusal is not None
    assert client.counts.refusals == {Reason.MULTIMODAL: 1}
    assert engine.asked[1][1][-1] == new[-1]  # sent as it was


async def test_other_tools_than_before_go_by_messages() -> None:
    client = TokenClient(saying())
    first = await client.turn([], HELLO)
    await client.turn([first.step], [*HELLO, first.message, MORE], tools=[WEATHER])
    template = {"chat_template_kwargs": {"enable_thinking": False}}
    await client.turn([first.step], [*HELLO, first.message, MORE], sampling=template)
    assert client.counts.refusals == {Reason.RENDERED_DIFFERENTLY: 2}


async def test_a_cut_turn_is_closed_or_refused_as_the_policy_says() -> None:
    for policy, routes in ((Policy(), {Route.TITO: 1}), (Policy(truncated=Truncated.REFUSE), {})):
        engine = saying(finish="length")
        client = TokenClient(engine, policy)
        first, second = await two_turns(client)
        assert first.step.truncated
        assert client.counts.routes == {Route.MITO: 2 - len(routes), **routes}
        if routes:
            assert second.turn.stitched.inserted_close == (2,)
        else:
            assert client.counts.refusals == {Reason.TRUNCATED: 1}


# Sampling arguments, tools and template arguments reach where they belong.


async def test_arguments_reach_the_engine_and_the_bridge() -> None:
    client = TokenClient(engine := saying())
    sampling = {
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "stop": "END",
        "seed": 3,
        "top_p": None,
        "logprobs": True,
        "extra_body": {"top_k": 5, "chat_template_kwargs": {"enable_thinking": False}},
    }
    _, second = await two_turns(client, tools=[WEATHER], sampling=sampling)
    wanted = Sampling(max_tokens=9, temperature=0.5, stop=("END",), seed=3, extra={"top_k": 5})
    rendering = Rendering(tools=(WEATHER,), template_args={"enable_thinking": False})
    assert [how for _, _, how in engine.asked] == [wanted] * 2
    assert engine.renderings == [rendering] * 2
    assert second.turn.route is Route.TITO
    assert '"enable_thinking"' in (second.step.key or "")


async def test_arguments_reach_a_vllm_under_its_names() -> None:
    seen: list[int] = []

    def tokenized(_: httpx2.Request, body: Any) -> httpx2.Response:
        if "messages" not in body:
            return httpx2.Response(200, json={"tokens": [90], "count": 1, "max_model_len": 50})
        assert body["chat_template_kwargs"] == {"x": 1}
        seen.append(1)
        ids = toy(body["messages"], add_generation_prompt=body["add_generation_prompt"])
        return httpx2.Response(200, json={"tokens": ids, "count": len(ids), "max_model_len": 50})

    def completed(_: httpx2.Request, body: Any) -> httpx2.Response:
        return httpx2.Response(200, json=completion_answer((8, 2), prompt=body["prompt"]))

    ids = toy(HELLO, add_generation_prompt=True)
    answers = {TOKENIZE: tokenized, COMPLETIONS: completed, CHAT: chat_answer((7, 2), prompt=ids)}
    engine, mock = mocked(answers, output_format="hermes")
    client = TokenClient(engine)
    sampling = {"max_tokens": 4, "top_p": 0.9, "chat_template_kwargs": {"x": 1}, "extra_body": {"top_k": 5}}
    first, second = await two_turns(client, sampling=sampling)
    (chat,), (completion,) = mock.bodies(CHAT), mock.bodies(COMPLETIONS)
    said = {"max_tokens": 4, "top_p": 0.9, "top_k": 5, "return_token_ids": True}
    assert said.items() <= chat.items()
    assert said.items() <= completion.items()
    assert chat["chat_template_kwargs"] == {"x": 1}
    assert completion["prompt"] == [*ids, 7, 2, *toy([MORE], add_generation_prompt=True)]
    assert (first.turn.route, second.turn.route) == (Route.MITO, Route.TITO)
    assert seen


@attrs.define
class Keeping(Scripted):
    """Keeps the ids of a conversation by itself, as far as it remembers them."""

    keeps_ids: bool = True
    remembers: int | None = None
    """How many ids; None for all of them."""
    known: list[int] = attrs.field(factory=list)

    async def counted_reply(self, prompt: list[int], sampling: Sampling, watch: Any) -> Reply:
        reply = await super().counted_reply([*self.known[: self.remembers], *prompt], sampling, watch)
        self.known = [*reply.prompt_ids, *reply.completion_ids]
        return reply


@pytest.mark.parametrize(
    ("remembers", "route"), [(None, Route.KEPT), (0, Route.MITO), (5, Route.MITO), (-1, Route.MITO)]
)
async def test_an_engine_kept_the_ids_only_where_the_prompt_begins_with_all_of_them(
    remembers: int | None, route: Route
) -> None:
    """It may have restarted or moved the conversation; only its echo of the prompt says that it did not."""
    client = TokenClient(Keeping(remembers=remembers, each="said {}".format))
    first, second = await two_turns(client)
    assert (first.turn.route, second.turn.route) == (Route.MITO, route)
    assert second.step.prompt_ids.starts_with(first.step.ids) is (route is Route.KEPT)
    assert client.counts.routes == Counter([Route.MITO, route])


async def test_several_turns_after_one_prompt_are_a_step_each() -> None:
    client = TokenClient(saying())
    first, second = await two_turns(client, sampling={"n": 3})
    for taken in (first, second):
        assert len({step.completion_ids.tolist()[0] for step in taken.steps}) == 3
        assert {tuple(step.prompt_ids) for step in taken.steps} == {tuple(taken.step.prompt_ids)}
        assert taken.steps[0] == taken.turn.step
        assert [step.ledger.mask()[-3:] for step in taken.steps] == [[1, 1, 1]] * 3
    follow = [*HELLO, *first.steps[2].completion, MORE]
    last = await client.turn(first.steps, follow)
    assert last.step.prompt_ids.starts_with(first.steps[2].ids)


async def test_whoever_watches_is_told_on_both_ways() -> None:
    told: list[tuple[int, ...]] = []

    async def watch(delta: Delta) -> None:
        told.append(delta.ids)

    await two_turns(TokenClient(saying()), watch=watch)
    assert told == [(500,), (501, 2), (502,), (503, 2)]


async def test_a_renderer_of_one_s_own_is_asked_in_the_engine_s_place() -> None:
    engine, seen = saying(renders=False), Counter[int]()

    def renderer(rendering: Rendering) -> Any:
        async def render(messages: Any, *, add_generation_prompt: bool) -> list[int]:
            seen[len(rendering.tools)] += 1
            return toy(messages, add_generation_prompt=add_generation_prompt)

        return render

    client = TokenClient(engine, renderer=renderer)
    _, second = await two_turns(client, tools=[WEATHER])
    assert second.turn.route is Route.TITO
    assert seen[1] > 0
    assert engine.rendered == 0
    await client.aclose()
    assert engine.name == "closed"


async def test_what_is_wrong_with_the_arguments_is_told_before_anything_is_sent() -> None:
    client = TokenClient(engine := saying())
    with pytest.raises(InputError, match="did you mean 'max_tokens'"):
        await client.turn([], HELLO, sampling={"maxtokens": 3})
    with pytest.raises(InputError, match=r"^sampling\.max_tokens is 0; give at least 1$"):
        await client.turn([], HELLO, sampling={"max_tokens": 0})
    with pytest.raises(InputError, match="give a Step"):
        await client.turn([1], HELLO)  # type: ignore[list-item]  # the mistake
    with pytest.raises(InputError, match="prompt is empty: give at least one message"):
        await client.turn([], [])
    with pytest.raises(InputError, match="prompt is empty: give at least one message"):
        await Conversation(engine).turn([])
    assert engine.asked == []


@pytest.mark.parametrize("wrong", [-1, 2.0, 2.5, True, "3", None])
def test_checks_come_after_a_whole_number_of_turns(wrong: Any) -> None:
    engine = embedded()
    for build in (
        lambda: TokenClient(engine, check_every=wrong),
        lambda: Conversation(engine, check_every=wrong),
        lambda: GatewayOptions(check_every=wrong),
    ):
        with pytest.raises(
            InputError, match=f"check_every is {wrong!r}: give a whole number of turns, 0 for"
        ):
            build()
    assert TokenClient(engine, check_every=0).check_every == 0


async def test_a_sampling_argument_of_the_engine_s_own_reaches_it() -> None:
    client = TokenClient(engine := saying(), sampling_names=frozenset({"power"}))
    await client.turn([], HELLO, sampling={"power": 2, "max_tokens": 5})
    assert engine.asked[0][2] == Sampling(max_tokens=5, extra={"power": 2})


# Errors have a name each, and what was sampled is never asked for again.


@pytest.mark.parametrize("room", [19, 18, 5])
async def test_ids_that_are_known_not_to_fit_are_not_sent(room: int) -> None:
    client = TokenClient(engine := saying())
    first = await client.turn([], HELLO)
    prompt = [*HELLO, first.message, MORE]
    engine.room = len(first.step.ids) + len(toy([MORE], add_generation_prompt=True)) - (19 - room)
    with pytest.raises(OverlongError, match="Nothing was sent"):
        await client.turn([first.step], prompt)
    assert len(engine.asked) == 1
    engine.room = len(first.step.ids) + len(toy([MORE], add_generation_prompt=True)) + 1
    assert (await client.turn([first.step], prompt)).turn.route is Route.TITO
    assert client.counts.errors == {"OverlongError": 1}


async def test_a_turn_that_the_engine_gave_up_is_an_error_that_holds_it() -> None:
    client = TokenClient(saying(finish="abort"))
    with pytest.raises(AbortedError, match="after 3 ids") as caught:
        await client.turn([], HELLO)
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (500, 501, 2)
    assert client.counts.routes == {}


@pytest.mark.parametrize("error", [ServerError("x"), UnreachableError("x"), InvalidReplyError("x")])
async def test_an_engine_s_error_is_raised_as_it_is_and_nothing_is_asked_again(error: EngineError) -> None:
    client = TokenClient(engine := saying())
    first = await client.turn([], HELLO)
    engine.raises = [error]
    with pytest.raises(type(error)) as caught:
        await client.turn([first.step], [*HELLO, first.message, MORE])
    assert caught.value is error
    assert [how for how, *_ in engine.asked] == ["messages", "ids"]  # not by messages after that
    assert client.counts.errors == {type(error).__name__: 1}
    again = await client.turn([first.step], [*HELLO, first.message, MORE])
    assert again.turn.route is Route.TITO


EMPTY = {**chat_answer(), "choices": []}
WORDS = (
    "This model's maximum context length is 50 tokens. However, your prompt contains 99 input tokens, which "
    "exceeds this limit even without any output tokens."
)


def failing(error: type[httpx2.TransportError]) -> Any:
    def raises(_: httpx2.Request, __: Any) -> httpx2.Response:
        raise error("x")

    return raises


ANSWERS: dict[str, tuple[Any, type[EngineError]]] = {
    "overlong": (refused(WORDS), OverlongError),
    "no choice": (EMPTY, EmptyReplyError),
    "counts that do not agree": ({**chat_answer(), "prompt_token_ids": [1]}, InvalidReplyError),
    "no credentials": (httpx2.Response(401, json={"error": "Unauthorized"}), AuthenticationError),
    "a refused connection": (failing(httpx2.ConnectError), UnreachableError),
    "a broken connection": (failing(httpx2.ReadError), UnreachableError),
    "no answer in time": (failing(httpx2.ReadTimeout), TimedOutError),
    "a failure": (httpx2.Response(500, json={}), ServerError),
    "given up": (chat_answer(finish_reason="abort"), AbortedError),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_goes_wrong_has_a_name_and_is_asked_once(name: str) -> None:
    answer, error = ANSWERS[name]
    engine, mock = mocked({CHAT: answer}, output_format="hermes")
    client = TokenClient(engine)
    with pytest.raises(error) as caught:
        await client.turn([], HELLO)
    assert type(caught.value) is error
    assert len(mock.bodies(CHAT)) == 1
    assert client.counts.errors == {error.__name__: 1}


@attrs.define
class Restarting(httpx2.AsyncBaseTransport):
    """An engine's application whose address refuses every other connection."""

    inner: httpx2.AsyncBaseTransport = attrs.field(
        factory=lambda: httpx2.ASGITransport(app(fault_rates=TIDY))
    )
    knocks: int = 0
    sampled: int = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.knocks += 1
        if self.knocks % 2:
            raise httpx2.ConnectError("refused")
        self.sampled += request.url.path.endswith("completions")
        return await self.inner.handle_async_request(request)


async def test_connections_that_were_never_made_cost_no_turn() -> None:
    server = Restarting()
    link = Reconnecting(inner=server, pause=0.001)
    client = TokenClient(VLLM("http://engine", transport=link))
    await two_turns(client, sampling={"max_tokens": 16})
    assert server.sampled == 2  # each turn once
    assert link.refused == server.knocks // 2 > 0
    assert client.counts.errors == {}


# On the embedded engine, which babbles as engines do.


@pytest.mark.parametrize("seed", range(4))
async def test_every_prompt_begins_with_all_that_was_sampled_before(seed: int) -> None:
    client = TokenClient(embedded(seed=seed))
    steps, prompt = Trajectory(), [{"role": "user", "content": "Where is the bridge?"}]
    for _ in range(8):
        taken = await client.turn(steps, prompt, tools=[WEATHER], sampling={"max_tokens": 40, "seed": seed})
        steps = steps.append(taken.step)
        calls = taken.message.get("tool_calls") or ()
        results = [{"role": "tool", "tool_call_id": call["id"], "content": "sunny"} for call in calls]
        prompt = [*prompt, taken.message, *(results or [MORE])]  # type: ignore[list-item]  # messages, too
    routes = client.counts.routes
    assert routes[Route.TITO] + routes[Route.MITO] == 8
    assert routes[Route.MITO] == 1 + sum(client.counts.refusals.values())
    stitched = [(a, b) for a, b in pairwise(steps) if b.prompt_ids.starts_with(a.ids)]
    assert len(stitched) >= routes[Route.TITO] > 0


async def test_it_takes_the_turns_that_a_conversation_takes() -> None:
    client, conversation = TokenClient(embedded(seed=9)), Conversation(embedded(seed=9))
    steps, prompt = Trajectory(), [{"role": "user", "content": "Where is the bridge?"}]
    for _ in range(6):
        taken, turn = await client.turn(steps, prompt), await conversation.turn(prompt)
        assert (taken.step, taken.turn.route) == (turn.step, turn.route)
        steps = steps.append(taken.step)
        prompt = [*prompt, taken.message, MORE]  # type: ignore[list-item]  # a message, too
    assert list(steps) == list(conversation.trajectory)


async def test_stored_steps_are_continued_where_they_say_what_they_were_rendered_with() -> None:
    client = TokenClient(embedded(seed=1))
    first = await client.turn([], HELLO)
    fields = ("prompt", "completion", "prompt_ids", "completion_ids", "logprobs", "key")
    stored = Step(**{name: getattr(first.step, name) for name in fields})
    prompt = [*HELLO, first.message, MORE]
    assert (await client.turn([stored], prompt)).turn.route is Route.TITO
    unknown = attrs.evolve(stored, key=None)
    taken = await client.turn([unknown], prompt)
    assert taken.turn.refusal is not None
    assert taken.turn.refusal.reason is Reason.RENDERED_DIFFERENTLY


async def test_who_asked_may_go_on_writing_while_the_engine_samples() -> None:
    prompt: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]

    async def heard(_: Any) -> None:
        prompt[0]["content"] = "what it says now"
        prompt.append({"role": "user", "content": "and one more"})

    conversation = Conversation(embedded(seed=9), sampling=Sampling(max_tokens=8))
    engine = conversation.engine

    class Interrupted(EngineWrapper):
        async def sample(self, request: SampleRequest) -> Reply:
            await heard(None)
            return await super().sample(request)

    conversation.engine = Interrupted(engine)
    turn = await conversation.turn(prompt)
    assert len(prompt) == 2
    assert list(turn.step.prompt) == [{"role": "user", "content": "hi"}]


async def test_a_callback_that_cannot_be_awaited_is_found_before_anything_is_sent() -> None:
    engine, mock = mocked({CHAT: chat_answer(content="hello")})
    for on_abort in ("raise", "resume"):
        with pytest.raises(InputError, match=r"watch is .*: pass a coroutine function"):
            await TokenClient(engine, on_abort=on_abort).turn([], HELLO, watch=print)  # type: ignore[arg-type]
    assert mock.bodies(CHAT) == []


# Constrained turns.


@pytest.mark.parametrize(
    ("sampling", "told"),
    [
        ({"response_format": {"type": "json_object"}}, "its content is not the JSON that was demanded"),
        ({"tool_choice": "required"}, "it calls no tool, and a call was demanded"),
    ],
)
async def test_a_turn_that_breaks_its_constraint_is_an_error_that_holds_it(
    sampling: dict[str, Any], told: str
) -> None:
    """Servers ignore fields that they do not know."""
    engine, _ = mocked({CHAT: chat_answer(content="hello")})
    client = TokenClient(engine)
    with pytest.raises(InvalidReplyError, match=told) as caught:
        await client.turn([], HELLO, tools=[WEATHER], sampling={"max_tokens": 9, **sampling})
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (7, 8)
    assert client.counts.errors == {"InvalidReplyError": 1}


@pytest.mark.parametrize(
    "ending", [{"finish_reason": "length"}, {"finish_reason": "stop", "stop_reason": "END"}]
)
async def test_a_turn_that_was_cut_need_not_keep_to_its_constraint(ending: dict[str, Any]) -> None:
    engine, _ = mocked({CHAT: chat_answer(content='{"a": ', **ending)})
    sampling = {"max_tokens": 9, "stop": ["END"], "response_format": {"type": "json_object"}}
    made = await TokenClient(engine).turn([], HELLO, sampling=sampling)
    assert made.message["content"] == '{"a": '


@attrs.define
class Saying(Scripted):
    """Samples these contents one after the other, without any constraint."""

    contents: list[str] = attrs.field(factory=list)
    finishes: list[str] = attrs.field(factory=list)

    def one_turn(self, prompt: list[int], n: int) -> Reply:
        said = {"role": "assistant", "content": self.contents.pop(0)}
        return attrs.evolve(super().one_turn(prompt, n), message=said, finish_reason=self.finishes.pop(0))


@pytest.mark.parametrize("wrong", range(3))
@pytest.mark.parametrize("by_ids", [False, True])
async def test_each_of_several_turns_keeps_to_the_constraint(wrong: int, *, by_ids: bool) -> None:
    contents, finishes = ["{}"] * 3, ["stop"] * 3
    contents[wrong] = "no JSON"
    sampling = {"n": 3, "response_format": {"type": "json_object"}}
    for cut in (False, True):
        finishes[wrong] = "length" if cut else "stop"
        client = TokenClient(Saying(contents=["So.", *contents], finishes=["stop", *finishes]))
        first = await client.turn([], HELLO)
        prompt = [*HELLO, first.message, MORE] if by_ids else HELLO
        if cut:
            assert len((await client.turn([first.step], prompt, sampling=sampling)).steps) == 3
            continue
        with pytest.raises(InvalidReplyError, match="did not keep to the constraint") as caught:
            await client.turn([first.step], prompt, sampling=sampling)
        assert caught.value.partial is not None
        assert len(caught.value.partial.siblings) == 2
        assert client.engine.asked[-1][0] == ("ids" if by_ids else "messages")  # type: ignore[attr-defined]  # as made


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"policy": "keep"}, "policy is 'keep': give a Policy, such as"),
        ({"engine": "http://127.0.0.1:8000"}, "engine is 'http://127.0.0.1:8000': give an engine, such as"),
        ({"engine": None}, "engine is None: give an engine"),
        ({"engine": VLLM}, "engine is <class .*: give an engine"),
    ],
)
def test_a_wrong_argument_of_a_client_is_named_before_a_turn(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        TokenClient(**{"engine": embedded(), **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"sampling": [1]}, r"sampling is \[1\]: give arguments by name"),
        ({"sampling": "n"}, "sampling is 'n': give arguments by name"),
        ({"tools": {"look": {}}}, "tools is {'look': {}}: give a list of tools"),
        ({"tools": ["look"]}, r"tools\[0\] is 'look': give an object"),
        ({"n": 0}, "^n is 0: give the number of turns to sample, at least 1"),
        ({"n": "4"}, "^n is '4': give the number"),
        ({"n": True}, "^n is True: give the number"),
    ],
)
async def test_a_wrong_argument_of_turns_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        await TokenClient(embedded()).turns([], HELLO, **{"n": 2, **given})


@pytest.mark.anyio
async def test_a_sampling_argument_in_the_wrong_place_is_named() -> None:
    client: Any = TokenClient(embedded())
    for call in (client.turn([], [], max_tokens=5), client.turns([], [], 2, max_tokens=5)):
        with pytest.raises(InputError, match=r"no argument max_tokens: .*`sampling`, such as sampling="):
            await call

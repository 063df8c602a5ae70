"""Laws of agent SDKs: runs go by ids, and what a caller asks for reaches the engine or is refused by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import attrs
import pytest

from tests.frameworks.families import EVERY_FAMILY, assert_as_without_sdk, client, engine
from tests.frameworks.laws.adapter import adapters
from tests.frameworks.laws.sdk import CALLING, HELLO, INSTRUCTIONS, PENALTIES, QUESTION, TEXTS, Sdk
from tests.frameworks.scripted import (
    assert_aborts,
    assert_by_ids,
    assert_drifted,
    sampled,
    scripted,
    trained,
    went,
)
from tests.model_folders import needs_families
from tito_core import OddStop, Policy, TemplateRefused
from tito_io.client import TokenClient
from tito_io.embedded import vocabulary
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Sampling
from tito_io.engines.registry import embedded
from tito_io.integrations.next_prompts import RefusedError
from tito_io.thinking import with_effort

SDKS = adapters("sdk", "SDK")
WAYS = ("whole", "streamed")
MORE = "And in Rome?"

Run = Callable[..., Any]


@pytest.fixture(params=SDKS)
def sdk(request: pytest.FixtureRequest) -> Sdk:
    found: Sdk = request.param()
    return found


@pytest.fixture(params=WAYS)
def run(request: pytest.FixtureRequest, sdk: Sdk) -> Run:
    found: Run = getattr(sdk, request.param)
    return found


def test_an_agent_with_two_tools_runs_to_its_end_by_ids(sdk: Sdk, run: Run) -> None:
    engine = scripted(*TEXTS)
    model = sdk.model(TokenClient(engine), on_refusal="raise")
    assert asyncio.run(run(model)).text.strip() == "It is sunny in Rome, however."
    assert [how for how, *_ in engine.asked] == ["messages", *["ids"] * 5]
    assert_by_ids(model.calls)
    assert_drifted(model.calls)


def test_tools_and_their_results_reach_the_template(sdk: Sdk) -> None:
    engine = scripted(*TEXTS)
    model = sdk.model(TokenClient(engine))
    asyncio.run(sdk.whole(model))
    _, messages, rendering, _ = engine.asked[0]
    assert messages == [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": QUESTION},
    ]
    assert rendering is not None
    assert [one["function"]["name"] for one in rendering.tools] == ["weather", "hour"]
    schema = rendering.tools[0]["function"]["parameters"]
    assert schema["properties"]["city"]["description"] == "Where."
    last = model.calls.calls[1].step.prompt
    assert [(one["role"], one["content"]) for one in last[3:]] == [
        ("tool", "It is sunny in Köln for 1 days."),
        ("tool", "noon in Köln"),
    ]
    assert [one["tool_call_id"] for one in last[3:]] == [one["id"] for one in last[2]["tool_calls"]]


def test_streaming_gives_the_same_turns(sdk: Sdk) -> None:
    models = [sdk.model(TokenClient(scripted(*TEXTS))) for _ in WAYS]
    whole, streamed = (asyncio.run(getattr(sdk, way)(model)) for way, model in zip(WAYS, models, strict=True))
    whole_ids, streamed_ids = ([one.ids for one in model.calls.calls] for model in models)
    assert whole_ids == streamed_ids
    # The first turn is a message of the server's, which writes white space otherwise in streams.
    assert whole.turns[1:] == streamed.turns[1:]
    assert (len(whole.turns), whole.text) == (len(TEXTS), streamed.text)


def test_text_is_streamed_as_it_comes(sdk: Sdk) -> None:
    text = "It is sunny in Rome, however, and it stays so for days."
    model = sdk.model(TokenClient(scripted(HELLO, text)), decode=vocabulary().decode)

    async def pieces() -> list[str]:
        history = (await sdk.whole(model)).history
        return [piece async for piece in sdk.pieces(model, MORE, history)]

    found = asyncio.run(pieces())
    assert "".join(found) == text
    assert len(found) > 5
    assert_by_ids(model.calls)


def test_settings_reach_the_engine(sdk: Sdk, run: Run) -> None:
    engine = scripted(CALLING, HELLO)
    asyncio.run(run(sdk.model(TokenClient(engine)), **sdk.settings))
    extra = {"top_p": 0.9, "top_k": 5, **PENALTIES, **sdk.asked}
    expected = Sampling(max_tokens=150, temperature=0.5, seed=7, stop=("END", "FIN"), extra=extra)
    assert engine.samplings() == [expected, expected]
    assert [rendering.template_args for *_, rendering, _ in engine.asked if rendering] == [
        with_effort({"reasoning_effort": "low"})
    ] * 2


def test_a_limit_to_one_call_reaches_the_engine(sdk: Sdk, run: Run) -> None:
    engine = scripted(CALLING, HELLO)
    asyncio.run(run(sdk.model(TokenClient(engine)), parallel_tool_calls=False))
    assert [sampling.constraint for *_, sampling in engine.asked] == [Constraint(one_call=True)] * 2


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "name", "settings"),
    [pytest.param(one.values[0], *bad, id=bad[0]) for one in SDKS for bad in one.values[0].bad],
)
def test_settings_that_cannot_be_honoured_are_refused_by_name(
    kind: type[Sdk], name: str, settings: Any, way: str
) -> None:
    engine, sdk = scripted("Hello."), kind()
    with pytest.raises(sdk.refuses, match=name):
        asyncio.run(getattr(sdk, way)(sdk.model(TokenClient(engine)), **settings))
    assert engine.asked == []


def test_usage_is_the_engine_s(sdk: Sdk, run: Run) -> None:
    engine = scripted(*TEXTS)
    prompt, completion, cached = asyncio.run(run(sdk.model(TokenClient(engine)))).usage
    counted = [reply.usage for reply in engine.replies]
    assert prompt == sum(one.prompt_tokens for one in counted)
    assert completion == sum(one.completion_tokens for one in counted)
    assert cached == sum(one.cached_tokens or 0 for one in counted) > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("kind", "error", "expected"),
    [pytest.param(one.values[0], *pair) for one in SDKS for pair in one.values[0].errors],
)
def test_an_engine_s_error_is_one_that_the_sdk_knows(
    kind: type[Sdk], error: Exception, expected: type[Exception], way: str
) -> None:
    sdk = kind()
    model = sdk.model(TokenClient(attrs.evolve(scripted("Hello."), error=error)))
    with pytest.raises(expected, match=str(error)) as raised:
        asyncio.run(getattr(sdk, way)(model))
    assert error in (raised.value, raised.value.__cause__)
    assert model.calls.calls == []
    assert model.calls.client.counts.errors == {type(error).__name__: 1}


def test_a_cancelled_run_aborts_the_turn(sdk: Sdk, run: Run) -> None:
    engine = attrs.evolve(scripted(), hangs=True)
    model = sdk.model(TokenClient(engine))
    assert_aborts(engine, run(model))
    assert model.calls.calls == []


def test_a_stream_that_is_left_aborts_the_turn(sdk: Sdk) -> None:
    engine = scripted(HELLO, "It is sunny in Rome, however.")
    model = sdk.model(TokenClient(engine), decode=vocabulary().decode)

    async def leave() -> None:
        history = (await sdk.whole(model)).history
        engine.stalls = True
        pieces: Any = sdk.pieces(model, MORE, history)
        async with aclosing(pieces):
            async for _ in pieces:
                break
        await engine.cancelled.wait()

    asyncio.run(asyncio.wait_for(leave(), 20))
    assert len(model.calls.calls) == 1


def test_a_branch_gives_two_rows_and_trains_the_common_turns_once(sdk: Sdk) -> None:
    model = sdk.model(TokenClient(scripted(*TEXTS, CALLING, "In Rome.", "In Lima.")), on_refusal="raise")

    async def branch() -> None:
        history = (await sdk.whole(model)).history
        await sdk.whole(model, "Where?", history)
        await sdk.streamed(model, "And where then?", history)

    asyncio.run(branch())
    rows = model.calls.rows(reward=1.0).rows
    assert went(model.calls) == {"MITO": 1, "TITO": 8}
    first, second = trained(model.calls)
    assert first == [index for ids in sampled(model.calls)[:8] for index in ids]
    assert second == sampled(model.calls)[8]
    assert [row.reward for row in rows] == [1.0, 1.0]


@pytest.mark.parametrize("on_refusal", ["rerender", "raise"])
def test_an_edited_history_is_counted_and_may_raise(sdk: Sdk, on_refusal: str) -> None:
    model = sdk.model(TokenClient(scripted(HELLO, HELLO)), on_refusal=on_refusal)

    async def edit() -> None:
        history = (await sdk.whole(model)).history
        await sdk.whole(model, MORE, sdk.edited(history, "Bonjour."))

    with (
        pytest.raises(RefusedError, match="NO_PREFIX") if on_refusal == "raise" else contextlib.nullcontext()
    ):
        asyncio.run(edit())
    assert dict(model.calls.refused) == {"NO_PREFIX": 1}
    if on_refusal == "rerender":
        assert trained(model.calls) == sampled(model.calls)
        assert "Bonjour." in str(model.calls.calls[1].step.prompt)


def test_a_turn_goes_back_as_it_was_sampled_whatever_it_says(sdk: Sdk, run: Run) -> None:
    odd_call = '{"name": "hour", "arguments": {"city": "x", "exact": 1e400, "city": "y"}}'
    texts = (f"<tool_call>\n{odd_call}\n</tool_call>", "So <think>it was</think> spelled. ")
    model = sdk.model(TokenClient(scripted(HELLO, *texts, "And so on.")), on_refusal="raise")

    async def talk() -> list[str]:
        said, history = [], ()
        for place in range(3):
            answer = await run(model, f"Question {place}?", history)
            said.append(answer.text)
            history = answer.history
        return said

    assert asyncio.run(talk()) == ["\n\nHello.", "So <think>it was</think> spelled. ", "And so on."]
    assert '"exact": 1e400, "city": "y"' in str(model.calls.calls[-1].step.prompt)
    assert_by_ids(model.calls)


def test_a_cut_turn_is_kept(sdk: Sdk, run: Run) -> None:
    model = sdk.model(TokenClient(scripted(HELLO, "It is sunny in Rome, however.", "So it is.")))

    async def talk() -> None:
        history = (await run(model)).history
        history = (await run(model, MORE, history, max_tokens=4)).history
        await run(model, "Go on.", history)

    with contextlib.nullcontext() if sdk.cut is None else pytest.raises(sdk.cut):
        asyncio.run(talk())
    reasons = [one.finish_reason for one in model.calls.calls]
    assert reasons == ["stop", "length", "stop"][: 3 if sdk.cut is None else 2]
    assert len(model.calls.calls[1].step.completion_ids) == 4
    assert_by_ids(model.calls)


@pytest.mark.parametrize("seed", range(8))
def test_turns_with_faults_go_by_ids(sdk: Sdk, seed: int) -> None:
    model = sdk.model(TokenClient(embedded(seed=seed), Policy(odd_stop=OddStop.KEEP)), on_refusal="raise")

    async def talk() -> None:
        history: Any = ()
        for place in range(6):
            question = f"Question {place}: how is the weather?"
            history = (await getattr(sdk, WAYS[place % 2])(model, question, history, max_tokens=400)).history

    with contextlib.suppress(sdk.unfinished):
        asyncio.run(talk())
    assert_by_ids(model.calls)


def test_an_unknown_choice_is_refused(sdk: Sdk) -> None:
    with pytest.raises(sdk.unknown, match=r"on_refusal[\s\S]*'rerender' or 'raise'"):
        sdk.model(TokenClient(scripted()), on_refusal="end")


@needs_families
@EVERY_FAMILY
def test_prompts_are_those_without_the_sdk(sdk: Sdk, name: str) -> None:
    sampler = engine(name)
    model = sdk.model(client(sampler))

    async def talk() -> None:
        history = (await sdk.whole(model, "How is the weather?")).history
        await sdk.streamed(model, "Sure?", history)

    with contextlib.suppress(TemplateRefused):  # a template without tools
        asyncio.run(talk())
    assert_as_without_sdk(name, model.calls, sampler)

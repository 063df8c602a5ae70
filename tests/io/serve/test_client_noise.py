"""Client noise is recognized by name, counted, and makes no branch; what is no noise makes one."""

from __future__ import annotations

import copy
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.io.serve.gateway import HELLO, Scripted, chat, client, opened, scripted_gateway, user
from tito_core import Forgiveness, InputError
from tito_io.serve.client_noise import DEFAULT, NoiseFilter, NoiseRule, parse_rules
from tito_io.serve.gateway import Gateway, GatewayOptions

BILLING = "x-anthropic-billing-header: cc_version=2; cch={};"


def billed(nonce: int, text: str = "You fix bugs.") -> dict[str, Any]:
    return {"role": "system", "content": f"{BILLING.format(nonce)}\n{text}"}


def marked(text: str, role: str = "user") -> dict[str, Any]:
    part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    return {"role": role, "content": [part]}


async def routes(gateway: Gateway, prompts: list[list[Any]], **more: Any) -> list[str]:
    """Send prompts in which each `None` stands for what the model said last; return the turns' routes."""
    async with client(gateway) as http:
        name = await opened(http)
        said: list[Any] = []
        for prompt in prompts:
            answers = iter(said)
            messages = [next(answers) if one is None else one for one in prompt]
            said.append((await chat(http, name, messages, **more))["choices"][0]["message"])
        async with gateway.sessions.using(name) as session:
            return [commit.origin.route for commit in session.commits.values()]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("rule", "prompts"),
    [
        (NoiseRule.BILLING_HEADER, [[billed(1), *HELLO], [billed(2), *HELLO, None, user()]]),
        (NoiseRule.CACHE_CONTROL, [[marked("hi")], [user("hi"), None, marked("more")]]),
        (NoiseRule.CACHE_CONTROL, [[user("hi")], [marked("hi"), None, user()]]),
    ],
)
async def test_noise_makes_no_branch_where_its_rule_holds_and_one_where_not(
    rule: NoiseRule, prompts: list[list[Any]]
) -> None:
    without = tuple(one for one in DEFAULT if one is not rule)
    gateway = scripted_gateway(Scripted())
    assert await routes(gateway, prompts) == ["MITO", "TITO"]
    name = rule.name.lower().replace("_", "-")
    assert f'tito_forgiven_total{{name="{name}"}}'.encode() in gateway.metrics.text()
    strict = scripted_gateway(Scripted(), choices=GatewayOptions(forgive=without))
    assert await routes(strict, prompts) == ["MITO", "MITO"]


@pytest.mark.anyio
async def test_a_dropped_thought_is_forgiven_by_default_and_told() -> None:
    async def turns(gateway: Gateway) -> list[Any]:
        async with client(gateway) as http:
            name = await opened(http)
            said = (await chat(http, name, HELLO))["choices"][0]["message"]
            echoed = {"role": "assistant", "content": said["content"]}
            await chat(http, name, [*HELLO, echoed, user()])
            async with gateway.sessions.using(name) as session:
                return [commit.origin for commit in session.commits.values()]

    class Thinks(Scripted):
        def _turn(self, prompt: list[int], n: int) -> Any:
            reply = super()._turn(prompt, n)
            message = {"role": "assistant", "content": "ok", "reasoning": "hm"}
            return attrs.evolve(reply, message=message)

    told = await turns(scripted_gateway(Thinks()))
    assert told[1].route == "TITO"
    assert "DROPPED_REASONING" in told[1].forgiven
    strict = await turns(scripted_gateway(Thinks(), choices=GatewayOptions(forgive=())))
    assert strict[1].route == "MITO"


@pytest.mark.anyio
async def test_what_is_left_out_of_system_texts_is_the_operator_s_choice() -> None:
    dated: list[list[Any]] = [
        [{"role": "system", "content": f"Now: {day}\nBe kind."}] for day in ("Monday", "Friday")
    ]
    prompts = [[*dated[0], *HELLO], [*dated[1], *HELLO, None, user()]]
    assert await routes(scripted_gateway(Scripted()), prompts) == ["MITO", "MITO"]
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(strip_system=(r"^Now: .*\n",)))
    assert await routes(gateway, prompts) == ["MITO", "TITO"]
    assert b'tito_forgiven_total{name="strip-system"} 2.0' in gateway.metrics.text()


def test_a_system_text_that_is_nothing_but_noise_is_no_message() -> None:
    found = NoiseFilter().clean([{"role": "system", "content": BILLING.format(1)}, user()], [])
    assert found.messages == [user()]
    assert dict(found.removed) == {"billing-header": 1}


def test_a_block_of_noise_among_others_is_left_out() -> None:
    blocks = [{"type": "text", "text": BILLING.format(1)}, {"type": "text", "text": "Be kind."}]
    (message,) = NoiseFilter().clean([{"role": "system", "content": blocks}], []).messages
    assert message == {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}


def test_noise_in_what_users_say_stays() -> None:
    message = user(BILLING.format(1))
    assert NoiseFilter().clean([message], []).messages == [message]


def test_marks_on_tools_and_calls_are_left_out_and_arguments_are_not_looked_into() -> None:
    call = {"id": "a", "function": {"name": "f", "arguments": {"cache_control": 1}}, "cache_control": {}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    tool = {"type": "function", "function": {"name": "f", "cache_control": {}}, "cache_control": {}}
    found = NoiseFilter().clean([message], [tool])
    assert found.messages[0]["tool_calls"] == [
        {"id": "a", "function": {"name": "f", "arguments": {"cache_control": 1}}}
    ]
    assert found.tools == [{"type": "function", "function": {"name": "f"}}]
    assert dict(found.removed) == {"cache-control": 3}


def test_media_and_odd_parts_stay_as_they_are() -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    message = {"role": "user", "content": parts}
    assert NoiseFilter().clean([message], []).messages == [message]


def test_a_message_without_a_content_gets_none() -> None:
    message = {"role": "assistant", "tool_calls": [{"id": "a", "cache_control": {}}]}
    assert NoiseFilter().clean([message], []).messages == [{"role": "assistant", "tool_calls": [{"id": "a"}]}]


def test_parts_of_a_system_text_may_be_texts_alone() -> None:
    message = {"role": "system", "content": ["Be kind.", {"type": "text", "text": "Be brief."}]}
    assert NoiseFilter().clean([message], []).messages == [message]


def test_without_rules_nothing_changes() -> None:
    messages = [billed(1), marked("x"), {"role": "developer", "content": "y"}]
    assert NoiseFilter(frozenset()).clean(messages, []).messages == messages


TEXTS = st.text(st.sampled_from("ab \n:x-"), max_size=12)
PARTS = st.lists(
    st.builds(
        lambda text, mark: {"type": "text", "text": text, **({"cache_control": {}} if mark else {})},
        TEXTS | st.just(BILLING.format(3)),
        st.booleans(),
    ),
    max_size=3,
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "developer", "user", "assistant", "tool"]),
        TEXTS | PARTS | st.none() | st.builds(BILLING.format, st.integers(0, 3)),
    ),
    max_size=5,
)


@given(MESSAGES)
def test_what_has_entered_enters_again_unchanged(messages: list[Any]) -> None:
    """A history that was kept, restated with no noise, is the same history."""
    once = NoiseFilter().clean(messages, []).messages
    assert NoiseFilter().clean(once, []).messages == once


@given(MESSAGES)
def test_callers_keep_their_messages(messages: list[Any]) -> None:
    before = copy.deepcopy(messages)
    NoiseFilter().clean(messages, [])
    assert messages == before


@given(MESSAGES)
@example([{"role": "system", "content": [{"type": "text", "text": ""}]}])
def test_nothing_is_taken_off_without_being_counted(messages: list[Any]) -> None:
    found = NoiseFilter().clean(messages, [])
    if not found.removed:
        assert found.messages == messages


def test_names_are_said_as_they_are_written() -> None:
    assert parse_rules(["default"]) == DEFAULT
    assert parse_rules(["none"]) == ()
    assert parse_rules(["renamed-tool-ids", "billing-header"]) == (
        Forgiveness.RENAMED_TOOL_IDS,
        NoiseRule.BILLING_HEADER,
    )
    with pytest.raises(InputError, match="give one of default, none, cache-control"):
        parse_rules(["everything"])
    with pytest.raises(InputError):
        parse_rules(["object"])  # what the kernel always forgives is no choice
    with pytest.raises(InputError, match="regular expression"):
        NoiseFilter(strip_system=("(",))


@pytest.mark.anyio
async def test_renamed_tool_ids_are_forgiven_unless_only_others_are_named() -> None:
    function = {"name": "f", "arguments": "{}"}

    class Calls(Scripted):
        def _turn(self, prompt: list[int], n: int) -> Any:
            calls = [{"id": "call-1", "type": "function", "function": function}]
            message = {"role": "assistant", "content": "", "tool_calls": calls}
            return attrs.evolve(super()._turn(prompt, n), message=message, finish_reason="tool_calls")

    async def second(choices: GatewayOptions) -> str:
        gateway = scripted_gateway(Calls(), choices=choices)
        async with client(gateway) as http:
            name = await opened(http)
            await chat(http, name, HELLO)
            calls = [{"id": "mine", "type": "function", "function": function}]
            echoed = {"role": "assistant", "content": None, "tool_calls": calls}
            result = {"role": "tool", "tool_call_id": "mine", "content": "x"}
            await chat(http, name, [*HELLO, echoed, result])
            async with gateway.sessions.using(name) as session:
                assert session.newest is not None
                return str(session.newest.origin.refusal)

    assert await second(GatewayOptions(forgive=parse_rules(["cache-control"]))) == "NO_PREFIX"
    assert await second(GatewayOptions(forgive=parse_rules(["renamed-tool-ids"]))) != "NO_PREFIX"
    assert await second(GatewayOptions()) != "NO_PREFIX"


@pytest.mark.parametrize(
    ("rule", "message", "clean"),
    [
        (NoiseRule.CACHE_CONTROL, user("a") | {"cache_control": {}}, user("a")),
        (NoiseRule.BILLING_HEADER, billed(1), {"role": "system", "content": "You fix bugs."}),
        (NoiseRule.DEVELOPER, {"role": "developer", "content": "a"}, {"role": "system", "content": "a"}),
    ],
)
def test_a_rule_alone_removes_its_noise_and_without_it_that_stays(
    rule: NoiseRule, message: dict[str, Any], clean: dict[str, Any]
) -> None:
    alone, others = (NoiseFilter(rules) for rules in (frozenset((rule,)), frozenset(NoiseRule) - {rule}))
    assert alone.clean([message], []).messages == [clean]
    assert dict(alone.clean([message], []).removed) == {rule.name.lower().replace("_", "-"): 1}
    assert others.clean([message], []).messages == [message]
    assert not others.clean([message], []).removed


@pytest.mark.parametrize(
    "message",
    [
        user("a") | {"cache_control": {}},
        billed(1),
        {"role": "developer", "content": "a"},
    ],
)
def test_noise_is_counted_as_often_as_it_is_found(message: dict[str, Any]) -> None:
    once, thrice = (NoiseFilter().clean([message] * times, []).removed for times in (1, 3))
    assert list(once.values()) == [1]
    assert thrice == dict.fromkeys(once, 3)

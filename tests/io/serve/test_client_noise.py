"""Client noise is recognized by name, counted, and makes no branch; what is no noise makes one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.io.serve.gateway import HELLO, Scripted, scripted_gateway, talking, user
from tito_core import Forgiveness, InputError
from tito_io.serve.client_noise import DEFAULT, NoiseFilter, NoiseRule, parse_rules
from tito_io.serve.gateway import Gateway, GatewayOptions

pytestmark = pytest.mark.anyio
TEXT = {"type": "text", "text": "see"}
BILLING = "x-anthropic-billing-header: cc_version=2; cch={};"


def billed(nonce: int, text: str = "You fix bugs.") -> dict[str, Any]:
    return {"role": "system", "content": f"{BILLING.format(nonce)}\n{text}"}


def marked(text: str, role: str = "user") -> dict[str, Any]:
    part = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    return {"role": role, "content": [part]}


CALLED = {"role": "assistant", "tool_calls": [{"id": "a", "cache_control": {}}]}


WITH_ARGUMENTS = {"id": "a", "function": {"name": "f", "arguments": {"cache_control": 1}}}


SYSTEM = {"role": "system", "content": [{"type": "text", "text": "Be kind."}]}


@pytest.mark.parametrize(
    ("messages", "clean", "removed"),
    [
        ([billed(1, ""), user()], [user()], {"billing-header": 1}),
        (
            [{**SYSTEM, "content": [{"type": "text", "text": BILLING.format(1)}, *SYSTEM["content"]]}],
            [SYSTEM],
            {"billing-header": 1},
        ),
        ([marked("see")] * 2, [user([TEXT])] * 2, {"cache-control": 2}),
        ([CALLED], [{"role": "assistant", "tool_calls": [{"id": "a"}]}], {"cache-control": 1}),
        (
            [{**CALLED, "tool_calls": [{**WITH_ARGUMENTS, "cache_control": {}}]}],
            [{**CALLED, "tool_calls": [WITH_ARGUMENTS]}],
            {"cache-control": 1},
        ),
        # What stays: noise in what users say, media, and parts that are texts alone.
        *(
            ([one], [one], {})
            for one in (
                user(BILLING.format(1)),
                user([TEXT, {"type": "image_url", "image_url": {"url": "x"}}]),
                {"role": "system", "content": ["Be kind.", TEXT]},
            )
        ),
    ],
)
def test_noise_is_removed_and_counted_as_often_as_it_is_found(
    messages: list[Any], clean: list[Any], removed: dict[str, int]
) -> None:
    found = NoiseFilter().clean(messages, [])
    assert (list(found.messages), dict(found.removed)) == (clean, removed)


def test_marks_on_tools_are_left_out() -> None:
    tool = {"type": "function", "function": {"name": "f", "cache_control": {}}, "cache_control": {}}
    found = NoiseFilter().clean([], [tool])
    assert found.tools == [{"type": "function", "function": {"name": "f"}}]
    assert dict(found.removed) == {"cache-control": 2}


async def origins(engine: Scripted, choices: GatewayOptions, *said: Any) -> list[Any]:
    """Take a turn, and one after these messages; return where the turns came from."""
    async with talking(engine, choices=choices) as talk:
        await talk.chat(HELLO)
        await talk.chat([*HELLO, *said])
        return [commit.origin for commit in await talk.commits()]


async def routes(gateway: Gateway, prompts: list[list[Any]], **more: Any) -> list[str]:
    """Send prompts in which each `None` stands for what the model said last; return the turns' routes."""
    async with talking(gateway) as talk:
        said: list[Any] = []
        for prompt in prompts:
            answers = iter(said)
            messages = [next(answers) if one is None else one for one in prompt]
            said.append(await talk.said(messages, **more))
        return [commit.origin.route for commit in await talk.commits()]


@pytest.mark.parametrize(
    ("rule", "prompts", "without_it"),
    [
        (NoiseRule.BILLING_HEADER, [[billed(1), *HELLO], [billed(2), *HELLO, None, user()]], "MITO"),
        # Other keys of a text part are ignored where the template does not read them.
        (NoiseRule.CACHE_CONTROL, [[marked("hi")], [user("hi"), None, marked("more")]], "TITO"),
        (NoiseRule.CACHE_CONTROL, [[user("hi")], [marked("hi"), None, user()]], "TITO"),
    ],
)
async def test_noise_makes_no_branch_where_its_rule_holds(
    rule: NoiseRule, prompts: list[list[Any]], without_it: str
) -> None:
    without = tuple(one for one in DEFAULT if one is not rule)
    gateway = scripted_gateway(Scripted())
    assert await routes(gateway, prompts) == ["MITO", "TITO"]
    name = rule.name.lower().replace("_", "-")
    assert f'tito_forgiven_total{{name="{name}"}}'.encode() in gateway.metrics.text()
    strict = scripted_gateway(Scripted(), choices=GatewayOptions(forgive=without))
    assert await routes(strict, prompts) == ["MITO", without_it]


async def test_a_dropped_thought_is_forgiven_by_default_and_told() -> None:
    engine = Scripted(told={"message": {"role": "assistant", "content": "ok", "reasoning": "hm"}})
    said = ({"role": "assistant", "content": "ok"}, user())
    (_, told), (_, strict) = [
        await origins(engine, choices, *said) for choices in (GatewayOptions(), GatewayOptions(forgive=()))
    ]
    assert (told.route, "DROPPED_REASONING" in told.forgiven, strict.route) == ("TITO", True, "MITO")


async def test_what_is_left_out_of_system_texts_is_the_operator_s_choice() -> None:
    dated: list[list[Any]] = [
        [{"role": "system", "content": f"Now: {day}\nBe kind."}] for day in ("Monday", "Friday")
    ]
    prompts = [[*dated[0], *HELLO], [*dated[1], *HELLO, None, user()]]
    assert await routes(scripted_gateway(Scripted()), prompts) == ["MITO", "MITO"]
    gateway = scripted_gateway(Scripted(), choices=GatewayOptions(strip_system=(r"^Now: .*\n",)))
    assert await routes(gateway, prompts) == ["MITO", "TITO"]
    assert b'tito_forgiven_total{name="strip-system"} 2.0' in gateway.metrics.text()


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
    with pytest.raises(InputError, match="--forgive none contradicts --forgive 'developer'"):
        parse_rules(["none", "developer"])
    with pytest.raises(InputError):
        parse_rules(["object"])  # what the kernel always forgives is no choice
    with pytest.raises(InputError, match="regular expression"):
        NoiseFilter(strip_system=("(",))


@pytest.mark.parametrize(
    ("rules", "forgiven"), [(["cache-control"], False), (["renamed-tool-ids"], True), (["default"], True)]
)
async def test_renamed_tool_ids_are_forgiven_unless_only_others_are_named(
    rules: list[str], forgiven: bool
) -> None:
    def calling(name: str) -> dict[str, Any]:
        call = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        return {"role": "assistant", "content": "", "tool_calls": [call]}

    engine = Scripted(told={"message": calling("call-1"), "finish_reason": "tool_calls"})
    said = (calling("mine"), {"role": "tool", "tool_call_id": "mine", "content": "x"})
    _, second = await origins(engine, GatewayOptions(forgive=parse_rules(rules)), *said)
    assert (second.refusal != "NO_PREFIX") is forgiven


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

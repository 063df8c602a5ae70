"""Hashes of message prefixes, and the search that they shorten."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import InputError, Located, Messages, Policy, Step, Trajectory, locate
from tito_core.match import NOTHING, PromptMatcher, chain_hash
from tito_core.normalization.receipts import OPTIONAL, Forgiveness


def prefix_hashes(messages: Sequence[dict[str, Any]]) -> list[int]:
    return PromptMatcher(messages, NOTHING).hashes


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calling(name: str = "f", identity: str = "c1", arguments: Any = "{}") -> dict[str, Any]:
    return assistant(None, tool_calls=[{"id": identity, "function": {"name": name, "arguments": arguments}}])


UNLIKE = {
    "role": (example.user("a"), assistant("a")),
    "text": (assistant("a"), assistant("b")),
    "a user's white space": (example.user("a"), example.user("a ")),
    "a user's reasoning": ({**example.user(), "reasoning": "t"}, example.user()),
    "the name of a call": (calling("f"), calling("g")),
    "the arguments of a call": (calling(arguments="{}"), calling(arguments='{"x": 1}')),
    "a name": ({**example.user(), "name": "x"}, {**example.user(), "name": "y"}),
}


@pytest.mark.parametrize(("ours", "theirs"), UNLIKE.values(), ids=UNLIKE.keys())
def test_a_hash_changes_with_differences_that_no_policy_forgives(ours: Any, theirs: Any) -> None:
    assert prefix_hashes([ours])[1:] != prefix_hashes([theirs])[1:]


def test_a_hash_stands_for_every_prefix_the_empty_one_first() -> None:
    messages = [example.user("a"), assistant("b"), example.user("a")]
    hashes = prefix_hashes(messages)
    assert len(set(hashes)) == 4
    chain = Messages.of(messages[:1]).then(messages[1:2])
    assert chain_hash(Messages.of([])) == hashes[0]
    assert [chain_hash(link) for link in chain.links()] == [hashes[2], hashes[1]]
    assert chain_hash(chain.then(messages[2:])) == hashes[3]


def test_a_hash_is_remembered_where_it_is_shared() -> None:
    root = Messages.of([example.user("a")])
    left, right = root.then([assistant("b")]), root.then([assistant("c")])
    found = chain_hash(left)
    assert root.memo is not None
    assert (left.memo, right.memo) == (found, None)
    object.__setattr__(root, "memo", root.memo + 1)  # who looks it up does not make it anew
    assert chain_hash(right) != prefix_hashes([example.user("a"), assistant("c")])[2]
    assert chain_hash(left) == found


def wanted(*messages: Any, forgive: Any = NOTHING) -> PromptMatcher:
    return PromptMatcher(messages, frozenset(forgive))


@pytest.mark.parametrize("option", sorted(OPTIONAL, key=str))
def test_a_forgiven_match_is_found_after_a_near_miss(option: Forgiveness) -> None:
    """Once a step has failed late, the others are looked up by hash."""
    ours, theirs = {
        Forgiveness.OUTER_WHITESPACE: (assistant("a"), assistant("a\n")),
        Forgiveness.DROPPED_CONTENT: (calling(identity="c1") | {"content": "a"}, calling(identity="c1")),
        Forgiveness.DROPPED_REASONING: (assistant("a", reasoning="t"), assistant("a")),
        Forgiveness.RENAMED_TOOL_IDS: (calling(identity="c1"), calling(identity="x")),
        Forgiveness.ROUNDED_INTEGERS: (
            calling(arguments='{"a": 9007199254740993}'),
            calling(arguments='{"a": 9007199254740992}'),
        ),
        Forgiveness.ADDED_NULLS: (calling(), calling(arguments='{"a": null}')),
    }[option]
    search = wanted(example.user("a"), theirs, example.user("b"), forgive=[option])
    assert search.fits(Messages.of([example.user("other"), ours])) is None
    assert search.near_miss
    assert option in (search.fits(Messages.of([example.user("a"), ours])) or ())


def test_a_near_miss_is_rejected_by_its_hash_alone() -> None:
    search = wanted(example.user("a"), assistant("b"), example.user("c"))
    near = Messages.of([example.user("other"), assistant("b")])
    assert search.fits(near) is None
    assert near.memo is None  # nothing had failed before
    again = Messages.of([example.user("others"), assistant("b")])
    assert search.fits(again) is None
    assert again.memo is not None
    assert search.fits(Messages.of([example.user("a"), assistant("x")])) is None
    assert search.fits(Messages.of([example.user("a"), assistant("b")])) == NOTHING


def test_a_last_message_that_differs_ends_the_comparison() -> None:
    search = wanted(example.user("a"), assistant("b"))
    assert search.fits(Messages.of([example.user("a"), assistant("x")])) is None
    assert not search.near_miss
    assert list(search.copies) == [1]  # the first was not looked at
    assert search.fits(Messages.of([])) is None


def test_a_prompt_that_holds_a_step_itself_is_not_compared() -> None:
    stored = Messages.of([example.user("a"), assistant("b")])
    search = PromptMatcher(stored.then([example.user("c")]), NOTHING)
    assert search.fits(stored) == NOTHING
    assert "flat" not in vars(search)
    assert search.fits(Messages.of([example.user("a"), assistant("b")])) == NOTHING
    assert "flat" in vars(search)


def test_receipts_of_all_parts_are_joined() -> None:
    stored = Messages.of([example.user("a")]).then([assistant("b"), example.user("c")]).then([assistant("d")])
    echoed = [
        {**example.user("a"), "name": None},
        assistant("b", x=1),
        example.user("c"),
        assistant([{"type": "text", "text": "d"}]),
    ]
    assert wanted(*echoed).fits(stored) == frozenset(
        {Forgiveness.ABSENT, Forgiveness.OTHER_KEYS, Forgiveness.TEXT_PART}
    )


def test_a_renaming_holds_for_the_whole_conversation() -> None:
    """A part that is equal as it stands still says which ids are in use."""
    result = {"role": "tool", "tool_call_id": "c1", "content": "7"}
    stored = Messages.of([calling(identity="c1")]).then([result]).then([calling(identity="c2")])
    renamed = frozenset({Forgiveness.RENAMED_TOOL_IDS})
    assert (
        wanted(calling(identity="c1"), result, calling(identity="x"), forgive=renamed).fits(stored) == renamed
    )
    assert (
        wanted(calling(identity="c1"), result, calling(identity="c1"), forgive=renamed).fits(stored) is None
    )


def test_ids_of_two_calls_that_come_back_as_one_id_match_up_to_the_first_call_only() -> None:
    """The messages up to the second call are equal, and they are what says that `a` is in use."""
    start = [example.user("q"), calling(identity="a")]
    result = {"role": "tool", "tool_call_id": "a", "content": "7"}
    first = example.step(start[:1], prompt_ids=[1])
    first = attrs.evolve(first, completion=start[1:])
    second = attrs.evolve(first, prompt=first.messages.then([result]), completion=[calling(identity="b")])
    for steps in ([first, second], Trajectory([first, second])):
        located = locate(
            steps,
            [*start, result, calling(identity="a"), result],
            policy=Policy(forgive=[Forgiveness.RENAMED_TOOL_IDS]),
        )
        assert isinstance(located, Located)
        assert located.match.step == first


def test_an_invalid_message_of_the_prompt_is_named_by_its_index() -> None:
    with pytest.raises(InputError, match=r"^prompt\[1\] has no role"):
        wanted(example.user("a"), {"content": "b"}).fits(Messages.of([example.user("a"), assistant("b")]))


def test_what_a_completion_holds_before_its_turn_is_history() -> None:
    """A step may have sampled several messages: the last one is the turn."""
    start, turn = [example.user("a")], calling(identity="c1")
    result = {"role": "tool", "tool_call_id": "c1", "content": "7"}
    before = [calling(identity="c1"), result, example.user("again /no_think")]
    several, single = (
        Step(
            prompt=[*start, *prompt],
            completion=[*completion, turn],
            prompt_ids=[1],
            completion_ids=[900, example.CLOSE],
        )
        for prompt, completion in (([], before), (before, []))
    )
    for step in (several, single):
        found = locate([step], [*step.messages, result])
        assert isinstance(found, Located)
        assert found.match.step is step
        assert found.environment == (result,)
        assert found.turn.reused == ("c1",)
        assert found.turn.switched == {"user"}
        assert found.turn.history == (before[-1],)
        assert found.turn.message == turn

"""The strategies draw what they say, in all kinds, and say what to install."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import InputError
from tito_core.testing import TOYS, toy_named
from tito_core.testing.readings import unwrapped
from tito_core.testing.strategies import (
    Rollout,
    conversations,
    echoes,
    edited_histories,
    json_messages,
    messages,
    renamed_call_ids,
    rollouts,
    sample_options,
    stored_calls,
    tokenizations,
)

CHATML = toy_named("chatml")
WITHOUT = """
import sys
sys.modules["hypothesis"] = None
from tito_core.testing import TOYS, assert_token_exact
chatml = TOYS[0]
hello = [{"role": "user", "content": "Hi"}]
assert_token_exact(chatml(hello, add_generation_prompt=True), hello, [], chatml, chatml.decode)
try:
    import tito_core.testing.strategies
except ModuleNotFoundError as error:
    print(error, error.name)
"""


def test_a_missing_hypothesis_is_one_clear_line_and_the_rest_works() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], check=True, capture_output=True, text=True)
    assert done.stdout == (
        "hypothesis is missing: tito_core.testing.strategies needs it;"
        " install it with `pip install 'tito-kernel[testing]'` or `pip install hypothesis` hypothesis\n"
    )


def test_the_kernel_imports_no_tools_for_tests() -> None:
    code = (
        "import sys, tito_core.samples, tito_core.drift, tito_core.data;"
        "print('tito_core.testing' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"


@given(st.data())
@tries(1 / 2)
def test_an_echo_says_the_same(data: st.DataObject) -> None:
    history = data.draw(conversations(CHATML))
    assert all(map(oracle.same_message, history, data.draw(echoes(history))))


@given(st.data())
@tries(1 / 4)
def test_results_keep_their_calls_when_ids_are_renamed(data: st.DataObject) -> None:
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}} for name in "ab"]
    history: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "content": "1", "tool_call_id": "b"},
        {"role": "tool", "content": "2", "tool_call_id": "a"},
    ]
    turn, *results = data.draw(renamed_call_ids(history))
    first, second = (call["id"] for call in turn["tool_calls"])
    assert [result["tool_call_id"] for result in results] == [second, first]
    assert len({"a", "b", first, second}) == 4
    assert calls[0]["id"] == "a"


def test_most_edits_change_one_message() -> None:
    counted: Counter[int] = Counter()
    history = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]

    @given(edited_histories(history))
    @tries(1)
    def count(edited: list[Any]) -> None:
        counted[sum(not oracle.same_message(a, b) for a, b in zip(history, edited, strict=True))] += 1

    count()
    assert set(counted) <= {0, 1}
    assert counted[1] > counted[0]
    assert history == [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]


@given(st.text(alphabet="ab \n", max_size=8), st.data())
@tries(1 / 2)
def test_a_tokenization_keeps_the_text(text: str, data: st.DataObject) -> None:
    assert CHATML.decode(data.draw(tokenizations(text, CHATML.encode))) == text


def test_a_tokenization_may_be_one_that_the_tokenizer_does_not_write() -> None:
    seen = set()

    @given(tokenizations("ab", CHATML.encode))
    @tries(1 / 2)
    def collect(ids: list[int]) -> None:
        seen.add(tuple(ids))

    collect()
    assert seen == {tuple(CHATML.encode("ab")), (*CHATML.encode("a"), *CHATML.encode("b"))}


@given(messages(), messages("tool"), json_messages())
@tries(1 / 3)
def test_messages_have_roles(drawn: Any, of_role: Any, wild: Any) -> None:
    assert {"role", "content"} <= unwrapped(drawn).keys()
    assert of_role["role"] == "tool"
    assert isinstance(wild["role"], str)


def kinds_of_turns(examples: int) -> Counter[str]:
    """Draw rollouts, and return how many of their turns are of each kind; a turn's parts fit together."""
    counted: Counter[str] = Counter()

    @given(rollouts(branches=True))
    @settings(max_examples=examples, derandomize=True, database=None, deadline=None)
    def count(rollout: Rollout) -> None:
        toy = rollout.template
        for place, turn in enumerate(rollout.turns):
            parent = None if turn.parent is None else rollout.turns[turn.parent]
            before = [*parent.messages, parent.message] if parent else []
            assert turn.messages == [*before, *turn.new_messages]
            answers = [message for message in turn.messages if message["role"] == "assistant"]
            assert len(turn.sampled_before) == len(answers)
            assert len(turn.ids) == len(turn.logprobs)
            assert not set(turn.ids[:-1]) & set(toy.stop_ids)
            text = toy.decode(turn.ids)
            counted["turns"] += 1
            counted["cut"] += bool(turn.sampled.truncated)
            counted["calls"] += bool(turn.message.get("tool_calls"))
            counted["reasoning"] += bool(turn.message.get("reasoning_content"))
            counted["odd ids"] += toy.encode(text) != turn.ids
            counted["branches"] += turn.parent is not None and turn.parent != place - 1
        assert rollout.messages[-1] == rollout.turns[-1].message
        assert len(rollout.sampled) == sum(one["role"] == "assistant" for one in rollout.messages)

    count()
    return counted


def test_rollouts_have_turns_of_every_kind() -> None:
    """Branches are rare among the first that are drawn."""
    assert any(min(kinds_of_turns(examples).values()) for examples in (100, 1000))


def test_rollouts_reject_templates_that_lose_messages() -> None:
    unfit = [toy for toy in TOYS if toy.name in {"empty", "clock"}]
    with pytest.raises(ValueError, match=r"not so: \['clock', 'empty'\]"):
        rollouts(unfit)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ("chatml", r"templates is 'chatml': give a list of toys, such as \[toy_named\('chatml'\)\]"),
        (CHATML, r"templates is <toy chatml>: give a list of toys, such as \[toy_named\('chatml'\)\]"),
        (["thinking"], r"templates\[0\] is 'thinking': give a toy, such as \[toy_named\('thinking'\)\]"),
        (7, "templates is 7: give a list of toys"),
        ([], "templates: rollouts need toys"),
    ],
)
def test_rollouts_are_drawn_from_toys(given: Any, error: str) -> None:
    with pytest.raises(InputError, match=f"^{error}"):
        rollouts(given)


@given(stored_calls(), sample_options())
@tries(1 / 10)
def test_stored_calls_and_options_are_drawn(calls: Any, options: Any) -> None:
    assert calls
    assert options.rows

"""Bodies that are wrong somewhere are refused by name: nothing that a client sends is our own failure."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import InputError
from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Anthropic, Chat, Dialect, Google, Responses, UntranslatableError

from .dialect_turns import HELLO

ANTHROPIC = Anthropic()
LINES = (Path(__file__).parent / "bodies.jsonl").read_bytes().splitlines()
DIALECTS: dict[str, Dialect] = {one.name: one for one in (Chat(), ANTHROPIC, Responses(), Google())}
BODIES = tuple((DIALECTS[one["dialect"]], one["body"]) for one in map(orjson.loads, LINES))
"""A request to each dialect that has most of what the dialect reads."""
EACH = pytest.mark.parametrize(("dialect", "body"), BODIES, ids=lambda one: getattr(one, "name", ""))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from((0.5, "", "a", "text", "none")),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("type", "role", "a")), inner)
    ),
    max_leaves=4,
)


def places(value: Any) -> list[tuple[Any, ...]]:
    """Return the paths to everything in a body."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, one in pairs for path in ((key,), *((key, *rest) for rest in places(one)))]


@given(number=st.integers(0, 10_000), value=VALUES)
@EACH
def test_a_value_that_does_not_belong_there_is_refused_or_understood(
    dialect: Dialect, body: dict[str, Any], number: int, value: Any
) -> None:
    changed = copy.deepcopy(body)
    paths = places(changed)
    *path, last = paths[number % len(paths)]
    inner: Any = changed
    for key in path:
        inner = inner[key]
    inner[last] = value
    try:
        asked = dialect.parse(changed)
        parse_sampling(asked.sampling)
    except InputError:
        return
    assert all(isinstance(message["role"], str) for message in asked.messages)


@EACH
def test_the_bodies_themselves_are_fine(dialect: Dialect, body: dict[str, Any]) -> None:
    asked = dialect.parse(body)
    assert parse_sampling(asked.sampling).sampling.max_tokens == 9
    assert [message["role"] for message in asked.messages][-1] in ("tool", "user")


def test_what_nests_too_deep_is_refused() -> None:
    depth = 1000
    deep = orjson.loads('{"a":' * depth + "1" + "}" * depth)
    block = {"type": "tool_use", "id": "a", "name": "look", "input": deep}
    body = {"messages": [HELLO, {"role": "assistant", "content": [block]}, HELLO], "max_tokens": 9}
    with pytest.raises(UntranslatableError, match=r"messages\[1\].content\[0\].input: nests too deep"):
        ANTHROPIC.parse(body)

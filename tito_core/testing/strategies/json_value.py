"""Draw any JSON value, also in place of a message."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def json_values() -> SearchStrategy[Any]:
    """Draw any small JSON value."""
    leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=3)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    )


def json_messages() -> SearchStrategy[dict[str, Any]]:
    """Draw messages whose every value but the role may be any JSON at all."""
    calls_of_sorts = st.lists(
        json_values()
        | st.fixed_dictionaries(
            {"function": st.fixed_dictionaries({"name": json_values(), "arguments": json_values()})}
        ),
        max_size=2,
    )
    return st.fixed_dictionaries(
        {"role": st.sampled_from(("user", "assistant", "tool", "system", "critic"))},
        optional={
            "content": json_values() | st.lists(json_values(), max_size=2),
            "tool_calls": json_values() | calls_of_sorts,
            "tool_call_id": json_values(),
            "reasoning": json_values(),
            "reasoning_content": json_values(),
            "name": json_values(),
            "audio": json_values(),
        },
    )

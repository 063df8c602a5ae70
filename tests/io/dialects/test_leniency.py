"""Bounds of what a dialect accepts without effect: misspelled, many and long names of fields."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.dialects import Anthropic, Chat, Dialect, Responses, UntranslatableError
from tito_io.dialects.chat.request import NAMES
from tito_io.dialects.fields import ENGINE_ARGUMENTS, MOST_NAMES

from .dialect_turns import HELLO

CHAT, ANTHROPIC, RESPONSES = Chat(), Anthropic(), Responses()


def body(dialect: Dialect, **fields: Any) -> dict[str, Any]:
    """Return a whole request with these fields."""
    if dialect.name == "responses":
        return {"input": "hi", **fields}
    return {"messages": [HELLO], "max_tokens": 9, **fields}


def test_named_fields_are_accepted_even_where_they_would_be_refused() -> None:
    dialect = Responses(ignoring=frozenset(("prompt", "temprature")), strict=True)
    asked = dialect.parse({"input": "hi", "prompt": {"id": "p"}, "temprature": 1})
    assert asked.ignored == ("prompt", "temprature")
    assert asked.sampling == {}


@pytest.mark.parametrize("name", sorted(name for name in ENGINE_ARGUMENTS if len(name) > 4))
def test_a_sampling_argument_with_a_letter_wrong_is_refused(name: str) -> None:
    for at in range(len(name) - 1):
        without, twice = name[:at] + name[at + 1 :], name[: at + 1] + name[at:]
        swapped = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
        for wrong in {without, twice, swapped} - ENGINE_ARGUMENTS:
            with pytest.raises(UntranslatableError, match=f"^{wrong}: .*(did you mean|leave it out)"):
                CHAT.parse(body(CHAT, **{wrong: 1}))


def test_a_request_can_list_only_so_many_names() -> None:
    many = {f"odd_{place}": 1 for place in range(10 * MOST_NAMES)}
    asked = RESPONSES.parse({"input": [{**HELLO, **many}]})
    assert len(asked.ignored) == MOST_NAMES


@pytest.mark.parametrize("dialect", [CHAT, ANTHROPIC, RESPONSES], ids=lambda one: one.name)
def test_a_body_can_have_only_so_many_unknown_fields(dialect: Dialect) -> None:
    """Each is compared with all sampling arguments, which must not take minutes."""
    many = {f"odd_{place}": 1 for place in range(MOST_NAMES)}
    assert len(dialect.parse(body(dialect, **many)).ignored) == MOST_NAMES
    with pytest.raises(UntranslatableError, match="body: has 65 fields that are not known"):
        dialect.parse(body(dialect, **many, more=1))


def test_long_names_are_not_compared_and_kept() -> None:
    assert NAMES.unhonoured("temperature" * 9) is None
    assert NAMES.unhonoured("temperature_") is not None

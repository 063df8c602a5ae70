"""A key tells renderings apart."""

from __future__ import annotations

import pytest

from tito_core import InputError, render_key


def test_tools_and_arguments_that_are_not_json_are_named() -> None:
    with pytest.raises(InputError, match=r"^tools"):
        render_key([{"f": object()}])


def test_a_key_tells_renderings_apart() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    assert render_key(tools) == render_key([dict(tools[0])])
    assert render_key(tools) != render_key()
    assert render_key(template_args={"a": 1, "b": 2}) == render_key(template_args={"b": 2, "a": 1})
    assert render_key(template_args={"a": 1}) != render_key(template_args={"a": True})
    assert render_key([{"a": 1, "b": 2}]) != render_key([{"b": 2, "a": 1}])  # templates print the order
    assert render_key(tools, {"x": None}) == '[[{"type":"function","function":{"name":"f"}}],{"x":null}]'
    with pytest.raises(InputError):
        render_key([{"f": object()}])

"""A key tells renderings apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tito_core import InputError, render_key

HUGE = 10**6000


@pytest.mark.parametrize(
    ("tools", "args", "words"),
    [
        ([{"most": HUGE}], None, "^tools or template_args hold a number of thousands of digits: give text$"),
        (None, {"most": HUGE}, "^tools or template_args hold a number of thousands of digits: give text$"),
        (HUGE, None, "^tools is a number of thousands of digits: give a list of tools, or None$"),
        ([], HUGE, "^template_args is a number of thousands of digits: give an object, or None$"),
        ([], {HUGE: 1}, "has the key a number of thousands of digits: keys are strings"),
        ([np.array(5)], None, "holds a ndarray: convert it"),
    ],
    ids=map(str, range(6)),  # pytest would write the numbers
)
def test_numbers_that_python_does_not_write_are_named(tools: Any, args: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        render_key(tools, args)


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

"""What the tests say to real engines, and what they make them say."""

from __future__ import annotations

from tito_core import Message
from tito_io.engines.protocol import Rendering
from tito_io.families.family import Family

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
PLAIN, TOOLED = Rendering(), Rendering(tools=(WEATHER,))
HELLO: list[Message] = [
    {"role": "system", "content": "You are a test."},
    {"role": "user", "content": "Say hello."},
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":  "Paris"}}\n</tool_call>'
CALL_PATTERN = CALL.replace("{", r"\{").replace("}", r"\}")


def marker_id(family: Family, text: str) -> int:
    """Return the id of a marker or a tag."""
    index: int | None = family.tokenizer.token_to_id(text)
    assert index is not None
    return index

"""Rendering for conversations: short messages at once, long ones in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest

from tito_core import Message, Rendered
from tito_io.client import InThread, rendered_by
from tito_io.client.driver import SHORT, exceeds, length
from tito_io.embedded.vocabulary import family
from tito_io.engines.protocol import Rendering
from tito_io.families.family import Bound

pytestmark = pytest.mark.anyio


@attrs.define
class Threads:
    """Stands for a model folder, and notes in which thread it renders."""

    used: list[int] = attrs.field(factory=list)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        del messages, add_generation_prompt
        self.used.append(threading.get_ident())
        return [1]

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        del since, ids
        return Rendered("a", self(messages, add_generation_prompt=add_generation_prompt))


@pytest.mark.parametrize(("size", "here"), [(SHORT - 4, True), (SHORT - 3, False)])
async def test_only_long_messages_are_rendered_in_a_thread(size: int, *, here: bool) -> None:
    threads = Threads()
    render = InThread(cast("Bound", threads))
    messages = [{"role": "user", "content": "a" * size}]
    assert await render(messages, add_generation_prompt=True) == [1]
    found = await render.rendered(messages, "a", add_generation_prompt=True, ids=True)
    assert found == Rendered("a", [1])
    assert [one == threading.get_ident() for one in threads.used] == [here] * 2


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ([], 0),
        ([{"role": "user", "content": None}], 4),
        ([{"role": "tool", "content": [{"type": "text", "text": "four"}]}], 12),
        ([{"tool_calls": ({"function": {"name": "f", "arguments": {"n": 3, "s": "ab"}}},)}], 3),
    ],
)
def test_the_length_of_messages_is_that_of_their_texts(value: Any, size: int) -> None:
    assert length(value) == size


def test_messages_that_are_long_are_not_looked_through() -> None:
    messages = iter([{"content": "a" * 5}, {"content": "a" * 5}, {"content": "b"}])
    assert exceeds(cast("Sequence[Message]", messages), 9)
    assert [*messages] == [{"content": "b"}]


async def test_a_family_renders_with_the_tools_and_arguments_of_a_request() -> None:
    tools = ({"type": "function", "function": {"name": "look_up", "parameters": {}}},)
    rendering = Rendering(tools=tools, template_args={"enable_thinking": False})
    hello = [{"role": "user", "content": "Hello."}]
    known, render = family(), rendered_by(family())
    asked: list[tuple[Rendering, dict[str, Any]]] = [
        (Rendering(), {}),
        (rendering, {"tools": [*tools], "enable_thinking": False}),
    ]
    for one, args in asked:
        ids = await render(one)(hello, add_generation_prompt=True)
        assert ids == known.tokenize_fn(**args)(hello, add_generation_prompt=True)
    assert len(await render(rendering)(hello, add_generation_prompt=True)) > len(
        await render(Rendering())(hello, add_generation_prompt=True)
    )


async def test_a_family_renders_arguments_as_engines_do() -> None:
    def messages(arguments: Any) -> list[dict[str, Any]]:
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [
            {"role": "user", "content": "Hi."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]

    render = rendered_by(family(), "vllm")(Rendering())
    written = messages('{"x": "Zephyr"}')
    ids = await render(written, add_generation_prompt=True)
    assert ids == family().ids(messages({"x": "Zephyr"}), add_generation_prompt=True)
    since = (await render.rendered(written, "Zephyr", add_generation_prompt=True, ids=True)).ids
    assert len(since) < len(ids)
    assert ids[-len(since) + 1 :] == since[1:]

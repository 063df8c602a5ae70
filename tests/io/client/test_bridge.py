"""The awaited bridge: the same questions as the kernel's, and an outage is no refusal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from tests.core import example
from tito_core import Bridge, Extension, InputError, Message, Policy, TokenizeError
from tito_core.policy import OddStop
from tito_io.client import AsyncBridge

pytestmark = pytest.mark.anyio
IDS = [example.OPEN, 5, 900, example.CLOSE]
NEW = [example.user("more")]


class OutageError(Exception):
    """The engine cannot be reached."""


async def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize("spans", [True, False])
async def test_both_bridges_give_the_same_answer(spans: bool) -> None:
    known = {"turn": example.assistant(), "history": [example.user()]}
    bridges = (
        make(stop_ids=[example.CLOSE], spans=spans)
        for make in (partial(AsyncBridge, tokenize), partial(Bridge, example.tokenize))
    )
    awaited, plain = bridges
    assert isinstance(awaited, AsyncBridge)
    assert isinstance(plain, Bridge)
    for arguments in ({}, known):
        found = await awaited.extend(IDS, NEW, **arguments)  # type: ignore[arg-type]  # the same names for both
        assert isinstance(found, Extension)
        assert found == plain.extend(IDS, NEW, **arguments)  # type: ignore[arg-type]  # see above


async def test_an_outage_passes_through() -> None:
    async def fails(*_: object, **__: object) -> Sequence[int]:
        raise OutageError

    with pytest.raises(OutageError):
        await AsyncBridge(fails, [example.CLOSE]).extend(IDS, NEW)


async def test_a_policy_and_a_suffix_are_the_bridges() -> None:
    bridge = AsyncBridge(tokenize, [901], policy=Policy(odd_stop=OddStop.KEEP), suffix=[example.CLOSE])
    found = await bridge.extend([*IDS[:-1], 901], NEW)
    assert isinstance(found, Extension)
    assert (found.kept_stop, found.inserted_close) == (901, (example.CLOSE,))


def test_what_is_malformed_is_named_at_once() -> None:
    with pytest.raises(InputError, match=r"^stop_ids\[0\] is -1"):
        AsyncBridge(tokenize, [-1])


async def test_a_function_that_is_not_async_is_named() -> None:
    wrong: Any = example.tokenize
    with pytest.raises(TokenizeError, match=r"^tokenize_fn is not async: use tito_core.Bridge"):
        await AsyncBridge(wrong, [example.CLOSE]).extend(IDS, NEW)

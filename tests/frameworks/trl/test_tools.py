"""Tools are called as the trainer's own loop calls them, and results come in the order of calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tito_core import InputError
from tito_io.integrations.trl import Tools

from .training import multiply


async def wait(seconds: float) -> str:
    """Wait.

    Args:
        seconds: How long.
    """
    await asyncio.sleep(seconds)
    if not seconds:
        raise TimeoutError("too short")
    return f"waited {seconds}"


def call(name: str, arguments: Any, identifier: str = "000000000") -> dict[str, Any]:
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}


def contents(tools: Tools, *calls: dict[str, Any]) -> list[str]:
    return [result["content"] for result in tools.results(calls)]


def test_a_result_names_its_call() -> None:
    assert Tools([multiply]).results([call("multiply", {"a": 3, "b": 4}, "abc")]) == [
        {"role": "tool", "name": "multiply", "tool_call_id": "abc", "content": "12"}
    ]


def test_arguments_may_be_json() -> None:
    assert contents(Tools([multiply]), call("multiply", '{"a": 3, "b": 4}')) == ["12"]


def test_calls_may_be_flat() -> None:
    flat = {"id": "abc", "name": "multiply", "arguments": {"a": 3, "b": 4}}
    assert contents(Tools([multiply]), flat) == ["12"]


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("divide", {}, "Tool divide not found."),
        ("multiply", {"a": 3}, "missing 1 required positional argument: 'b'"),
        ("multiply", "{", "Expecting property name"),
        ("multiply", "[1]", "must be a mapping"),
        ("wait", {"seconds": 0}, "too short"),
    ],
)
def test_an_error_is_a_result(name: str, arguments: Any, told: str) -> None:
    (content,) = contents(Tools([multiply, wait]), call(name, arguments))
    assert content.startswith("{'error': ")
    assert told in content


def test_async_tools_run_at_the_same_time_and_keep_their_order() -> None:
    tools = Tools([wait, multiply])
    slow, quick = call("wait", {"seconds": 0.02}), call("wait", {"seconds": 0.01})
    assert contents(tools, slow, call("multiply", {"a": 2, "b": 2}), quick) == [
        "waited 0.02",
        "4",
        "waited 0.01",
    ]


def test_async_tools_of_all_turns_run_in_one_event_loop() -> None:
    async def place() -> str:
        """Say which event loop runs it."""
        return str(id(asyncio.get_running_loop()))

    tools = Tools([place])
    assert contents(tools, call("place", {})) == contents(tools, call("place", {}))


def test_async_tools_wait_for_each_other() -> None:
    met: list[str] = []
    both = asyncio.Event()

    async def meet(name: str) -> str:
        """Meet another one.

        Args:
            name: Who comes.
        """
        met.append(name)
        if len(met) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)
        return name

    assert contents(Tools([meet]), call("meet", {"name": "x"}), call("meet", {"name": "y"})) == ["x", "y"]


def test_schemas_are_those_of_transformers() -> None:
    (schema,) = Tools([multiply]).schemas
    assert schema["function"]["name"] == "multiply"
    assert set(schema["function"]["parameters"]["properties"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (multiply, "tools is a function: give a list of functions"),
        ([multiply, wait, multiply], "tools: there are several with the name multiply: rename them"),
    ],
)
def test_tools_that_cannot_be_called_are_named(given: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        Tools(given)


def test_calls_and_failures_are_counted() -> None:
    def report() -> dict[str, str]:
        """Return what looks like an error, and is the result."""
        return {"error": "none"}

    tools = Tools([multiply, wait, report])
    calls = [
        *(call("multiply", {"a": 1, "b": 2}), call("multiply", {"a": 1}), call("divide", {})),
        *(call("wait", {"seconds": 0}), call("wait", {"seconds": 0.01}), call("report", {})),
    ]
    tools.results(calls)
    assert tools.counts == {"calls": 6, "failures": 3}

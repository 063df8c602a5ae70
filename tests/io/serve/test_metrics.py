"""What is counted adds up, whatever turns come in whatever order, whatever an engine says of its cache."""

from __future__ import annotations

import re
import time
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    Talk,
    chat,
    client,
    embedded_gateway,
    limited,
    opened,
    scripted_gateway,
    talking,
    user,
)
from tito_io.engines.protocol import Reply, Sampling, Usage, Watch
from tito_io.serve import metrics
from tito_io.serve.metrics import Metrics
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
KINDS = ("begin", "go on", "again", "resume", "elsewhere", "by messages")


@attrs.define
class Caching(Scripted):
    """An engine that finds a share of each prompt in its cache, and may not say how much."""

    finds: float | None = None
    """None where it does not say."""
    found: list[tuple[int, int]] = attrs.field(factory=list)
    """The ids of each prompt that it told of, and how many of them were cached."""

    async def counted_reply(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        reply = await super().counted_reply(prompt, sampling, watch)
        if self.finds is None:
            return reply
        cached = round(len(prompt) * self.finds)
        self.found.append((len(prompt), cached))
        return attrs.evolve(reply, usage=attrs.evolve(reply.usage, cached_tokens=cached))


async def counted(turns: list[tuple[str, float | None]]) -> tuple[Caching, list[dict[str, float]]]:
    """Take turns; return the engine and the counters after each."""
    engine, counters = Caching(finish="length"), list[dict[str, float]]()
    async with client(scripted_gateway(engine)) as http:
        name, prompt, said = await opened(http), list[Any](HELLO), dict[str, Any]()
        for kind, engine.finds in turns:
            more: dict[str, Any] = {}
            if not said or kind == "begin":
                prompt = [user(f"{len(counters)}")]
            elif kind == "go on":
                prompt = [*prompt, said, user()]
            elif kind == "resume":
                prompt, more = [*prompt, said], {"continue_final_message": True}
            elif kind == "elsewhere":
                name = await opened(http)
            elif kind == "by messages":
                prompt = [*prompt, {"role": "assistant", "content": "never said"}, user()]
            answer = await http.post(
                f"/sessions/{name}/v1/chat/completions", json={"messages": prompt, **more}
            )
            if kind == "resume" and said:
                prompt, said = prompt[:-1], {}
            if answer.status_code == 200:
                said = {"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]}
            lines = (await http.get("/metrics")).text.splitlines()
            counters.append({name: float(n) for name, n in (x.rsplit(" ", 1) for x in lines if x[0] != "#")})
    return engine, counters


@pytest.mark.whole
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KINDS), st.none() | st.floats(0, 1)), min_size=1, max_size=8))
def test_no_more_is_found_in_a_cache_than_was_expected_there(turns: list[tuple[str, float | None]]) -> None:
    engine, counters = anyio.run(counted, turns)
    for before, after in zip([{}, *counters], counters, strict=False):
        assert after["tito_cached_ids_total"] <= after["tito_expected_ids_total"]
        assert all(after[name] >= count for name, count in before.items() if name.endswith("_total"))
    assert counters[-1]["tito_expected_ids_total"] <= sum(prompt for prompt, _ in engine.found)
    assert counters[-1]["tito_cached_ids_total"] <= sum(cached for _, cached in engine.found)


def test_what_an_earlier_turn_had_is_expected_and_the_rest_of_a_prompt_is_not() -> None:
    """The first prompt has nothing to expect, the second the first's ids, the third all that it has."""
    turns: list[tuple[str, float | None]] = [("begin", 1.0), ("go on", 1.0), ("resume", 0.5)]
    engine, counters = anyio.run(counted, turns)
    (first, _), (second, _), (third, half) = engine.found
    assert [one["tito_expected_ids_total"] for one in counters] == [0, first + 2, first + 2 + third]
    assert [one["tito_cached_ids_total"] for one in counters] == [0, first + 2, first + 2 + half]
    reused, new = (counters[-1][f'tito_prompt_ids_total{{source="{name}"}}'] for name in ("reused", "new"))
    assert (reused, reused + new) == (first + 2 + third, first + second + third)


async def counted_kinds(choices: list[dict[str, Any]]) -> dict[str, float]:
    """Return the counts of constrained turns after a turn with each of these fields."""
    tools = [{"type": "function", "function": {"name": name}} for name in ("look", "wait")]
    async with client(embedded_gateway()) as http:
        for fields in choices:
            path = f"/sessions/{await opened(http)}/v1/chat/completions"
            body = {"messages": HELLO, "tools": tools, "max_tokens": 900, **fields}
            assert (await http.post(path, json=body)).status_code == 200
        lines = (await http.get("/metrics")).text.splitlines()
    found = (line.rsplit(" ", 1) for line in lines if line.startswith("tito_constrained_turns_total{"))
    return {name.split('"')[1]: float(count) for name, count in found}


def test_constrained_turns_are_counted_by_what_constrains_them() -> None:
    look = {"type": "function", "function": {"name": "look"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [look]}}
    choices: list[dict[str, Any]] = [
        {},
        {"tool_choice": "auto", "parallel_tool_calls": True, "response_format": {"type": "text"}},
        {"tool_choice": "required"},
        {"tool_choice": look, "parallel_tool_calls": False},
        {"tool_choice": allowed},
        {"response_format": {"type": "json_object"}},
        {"tools": None, "parallel_tool_calls": False},
    ]
    found = anyio.run(counted_kinds, choices)
    assert found == {"call": 2.0, "allowed": 2.0, "one-call": 1.0, "json": 1.0}


def test_the_module_lists_every_metric() -> None:
    """Name, labels and meaning, so that documentation can be made of it."""
    listed = re.findall(r"(?m)^    (\w+?)(?:\{(.+)\})?: (.+)$", metrics.__doc__ or "")
    found = []
    for attribute, metric in vars(Metrics()).items():
        if attribute not in ("registry", "_workers"):
            (family,) = metric.describe()
            name = family.name + "_total" * (family.type == "counter")
            assert name.removesuffix("_total") == f"tito_{attribute}"
            found.append((name, ",".join(metric._labelnames), f"{family.documentation}."))
    assert listed == found


def test_dashboards_find_these_buckets() -> None:
    bounds = re.findall(r'tito_turn_seconds_bucket\{le="(.+?)"\}', Metrics().text().decode())
    seconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0]
    assert bounds == [*map(str, seconds), "+Inf"]


async def test_a_turn_takes_as_long_as_it_is_sampled() -> None:
    begun = time.perf_counter()
    async with talking() as talk:
        await talk.chat(HELLO)
    most = time.perf_counter() - begun
    (seconds,) = re.findall(r"(?m)^tito_turn_seconds_sum (.+)$", talk.metrics)
    assert 0 < float(seconds) < most


async def test_the_wait_of_first_and_of_later_turns_is_counted() -> None:
    async with talking() as talk:
        await chat(talk.http, await opened(talk.http), HELLO)
        for _ in range(3):
            await talk.chat(HELLO)
        found = await gauges(talk)
    counts = {turn: found[f'turn_wait_seconds_count{{turn="{turn}"}}'] for turn in ("first", "later")}
    assert counts == {"first": 2, "later": 2}
    waits = [found[f'turn_wait_seconds_sum{{turn="{turn}"}}'] for turn in counts]
    assert 0 < sum(waits) < found["turn_seconds_sum"]


async def test_turns_are_counted_while_they_wait_and_run_and_so_is_how_long() -> None:
    async with talking(Scripted(held=anyio.Event()), choices=limited(calls=1)) as talk:

        async def busy() -> tuple[float, float]:
            found = await gauges(talk)
            return found["turns_running"], found["turns_waiting"]

        assert await busy() == (0, 0)
        async with anyio.create_task_group() as group:
            for name in (talk.name, await opened(talk.http), await opened(talk.http)):
                group.start_soon(chat, talk.http, name, HELLO)
            with anyio.fail_after(20):
                while await busy() != (3, 2):  # noqa: ASYNC110  # it has no event for this
                    await anyio.sleep(0.005)
            begun = time.perf_counter()
            await anyio.sleep(0.01)
            least = time.perf_counter() - begun
            talk.engine.go_on()
        assert await busy() == (0, 0)
        assert (await gauges(talk))['turn_wait_seconds_sum{turn="first"}'] >= least


async def gauges(talk: Talk) -> dict[str, float]:
    """Return what a gateway has now, by the names of its metrics."""
    lines = (await talk.http.get("/metrics")).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("tito_"): float(count) for name, count in pairs if not name.endswith("_total")}


async def test_sessions_are_counted_as_they_come_and_go() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    gateway = scripted_gateway(Scripted(), store, limited(sessions=3, idle_seconds=60))
    async with client(gateway) as http:
        talk = Talk(gateway, http, "")

        async def counts() -> tuple[float, float]:
            found = await gauges(talk)
            return found["sessions"], found["sessions_loaded"]

        assert await counts() == (0, 0)
        names = [await opened(http) for _ in range(3)]
        assert await counts() == (3, 0)
        assert (await http.post("/sessions")).status_code == 429
        for name in names[:2]:
            assert (await http.get(f"/sessions/{name}")).status_code == 200
        await talk.maintained()
        assert await counts() == (3, 2)
        assert (await http.delete(f"/sessions/{names[0]}")).status_code == 204
        assert await counts() == (2, 1)
        for _ in range(2):
            assert (await http.delete(f"/sessions/{names[0]}")).status_code == 404
            assert await counts() == (2, 1)
        await opened(http)
        assert (await http.post("/sessions")).status_code == 429
        now[0] = 61.0
        assert (await http.get(f"/sessions/{names[1]}")).status_code == 200
        await talk.maintained()
        assert await counts() == (1, 1)  # the others were not used for a minute
        await opened(http)
        assert await counts() == (2, 1)


async def test_only_so_many_workers_have_series_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "MOST_WORKERS", 2)
    async with talking() as talk:
        prompt = list(HELLO)
        for worker in "aabcab":
            usage = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=4)
            talk.engine.told = {"worker": worker, "usage": usage}
            prompt = [*prompt, await talk.said(prompt), user()]
    found = re.findall(r'(?m)^tito_worker_cached_ids_total\{worker="(.+)"\} (.+)$', talk.metrics)
    assert dict(found) == {"a": "8.0", "b": "8.0", "other": "4.0"}
    expected = re.findall(r'(?m)^tito_worker_expected_ids_total\{worker="b"\} (.+)$', talk.metrics)
    assert float(expected[0]) > 8

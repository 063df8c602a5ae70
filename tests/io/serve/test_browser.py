"""The session page in a real browser: laid out and legible, each id marked by who wrote it, no requests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from tests.io.pages.browser import Page, check_layout, needs_browser, page
from tests.io.serve.gateway import HELLO, chat, embedded_gateway, served, talking, user
from tito_core.ledger import Origin
from tito_io.serve.app import app
from tito_io.serve.view import LEGEND

pytestmark = [needs_browser, pytest.mark.xdist_group("browser")]  # the longest page is written once
EVIL = "</div></pre><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
START = [{"role": "system", "content": "You are a careful agent."}, user("Find the line that is wrong.")]
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
LARGEST = 1_000_000
"""Bytes that a page of 400 turns may have."""
RUNS = """[...document.querySelectorAll('.run')].map(one => ({
  kind: one.className.split(' ')[1], who: one.querySelector('.who').firstChild.data.trim(),
  ids: [...one.querySelectorAll('.tokens > *')].map(token => Number(token.title)),
  ground: getComputedStyle(one.querySelector('.tokens')).backgroundColor,
  edge: getComputedStyle(one.querySelector('.who')).borderLeftStyle,
  drift: one.querySelectorAll('u').length, text: one.querySelector('.tokens').textContent}))"""
OPEN = "document.querySelectorAll('details').forEach(one => { one.open = true })"


async def converse(http: httpx2.AsyncClient, name: str, messages: list[Any], turns: int, **more: Any) -> Any:
    """Take turns; return the messages, which end with what the next turn answers."""
    for turn in range(turns):
        answer = await chat(http, name, messages, **{"tools": TOOLS, "max_tokens": 60, **more})
        message = answer["choices"][0]["message"]
        calls = message.get("tool_calls") or []
        results = [{"role": "tool", "tool_call_id": call["id"], "content": f"exit {turn}"} for call in calls]
        messages = [*messages, message, *(results or [user(f"Look at file {turn} next.")])]
    return messages


async def straight(http: httpx2.AsyncClient, name: str, turns: int) -> None:
    await converse(http, name, START, turns)


async def branched(http: httpx2.AsyncClient, name: str, turns: int) -> None:
    """Fork a conversation twice, repeat a turn, and refuse a stitch by leaving the tools out."""
    trunk = await converse(http, name, START, turns)
    await converse(http, name, [*trunk[:-1], {**trunk[-1], "content": "Stop. " + EVIL}], turns)
    await converse(http, name, trunk, 1)
    await converse(http, name, trunk, 1)
    await converse(http, name, await converse(http, name, trunk, turns), 2, tools=[])


SESSIONS = {"3 turns": (straight, 3), "400 turns": (straight, 400), "three branches": (branched, 3)}


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with page(tmp_path_factory.mktemp("browser")) as lent:
        yield lent


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the page of each session to a file."""
    folder = tmp_path_factory.mktemp("pages")

    async def write(name: str) -> Path:
        take, turns = SESSIONS[name]
        async with talking(embedded_gateway()) as talk:
            await take(talk.http, talk.name, turns)
            answer = await talk.get("/view")
        path = folder / f"{turns}-{take.__name__}.html"
        path.write_bytes(answer.content)
        return path

    return {name: anyio.run(write, name) for name in SESSIONS}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400])
@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_page_fits_its_window_and_is_legible(
    name: str, width: int, *, dark: bool, window: Page, pages: dict[str, Path]
) -> None:
    assert pages[name].stat().st_size < LARGEST
    window.look(width, dark=dark)
    window.go(pages[name].as_uri())
    check_layout(window, width, dark=dark)
    if name != "400 turns":
        window.value(OPEN)
        check_layout(window, width, dark=dark)
    assert window.problems == []
    assert window.requests == [pages[name].as_uri()]
    assert window.value("document.title").startswith("Session ")


def test_only_branches_are_indented(window: Page, pages: dict[str, Path]) -> None:
    lefts = "[...document.querySelectorAll('.turn')].map(one => [one.id, one.getBoundingClientRect().left])"
    window.look(1400)
    window.go(pages["400 turns"].as_uri())
    places = window.value(lefts)
    assert [name for name, _ in places] == [f"t{number}" for number in range(1, 401)]
    assert len({left for _, left in places}) == 1
    window.go(pages["three branches"].as_uri())
    places = dict(window.value(lefts))
    assert len(places) == 13
    assert sorted(name for name, left in places.items() if left > places["t1"]) == [
        "t4",
        "t5",
        "t6",
        "t7",
        "t8",
    ]
    headings = window.value("[...document.querySelectorAll('.branch > summary')].map(one => one.innerText)")
    assert headings == [
        "Branch from turn 3: 3 turns, 4 to 6",
        "Branch from turn 3: turn 7",
        "Branch from turn 3: turn 8",
    ]
    notes = window.value("[...document.querySelectorAll('.note')].map(one => one.innerText)")
    assert "retry of turn 7: the same prompt" in notes
    assert "went by messages: the matched step was rendered with other tools or template arguments" in notes
    assert "cut short: no stop token was sampled" in notes


def look(url: str, folder: Path) -> dict[str, Any]:
    """Look at a page, and then at that of its first turn."""
    with page(folder) as shown:
        shown.go(url)
        links = shown.value("[...document.querySelectorAll('.number a')].map(one => one.href)")
        seen: dict[str, Any] = {"runs": shown.value(RUNS), "links": links}
        seen["title"] = shown.value("document.title")
        problems = [*shown.problems]
        shown.go(links[0])
        seen["first"] = shown.value(RUNS)
        # A missing icon is no problem of the page: browsers ask every server for one.
        seen["problems"] = [text for text in (*problems, *shown.problems) if "favicon" not in text]
    return seen


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_id_is_marked_by_who_wrote_it(tmp_path: Path) -> None:
    async with talking(embedded_gateway()) as talk, served(app(talk.gateway)) as url:
        name, messages = talk.name, [*HELLO[:-1], user(EVIL)]
        await talk.turns(8, messages)
        seen = await anyio.to_thread.run_sync(look, f"{url}/sessions/{name}/view", tmp_path)
        first, *_, last = await talk.commits()
    assert seen["problems"] == []
    assert seen["title"] == f"Session {name}"
    assert len(seen["links"]) == 8
    for runs, step in ((seen["runs"], last.step), (seen["first"], first.step)):
        assert [index for run in runs for index in run["ids"]] == step.ids.tolist()
        kinds = [run["kind"] for run in runs for _ in run["ids"]]
        assert kinds == [origin.name for origin in step.ledger]
        assert all(run["who"] == LEGEND[Origin[run["kind"]]][0] for run in runs)
    assert EVIL in "".join(run["text"] for run in seen["runs"])
    assert sum(run["drift"] for run in seen["runs"]) > 0
    looks = {(run["kind"], run["ground"], run["edge"]) for run in seen["runs"]}
    assert (
        len({ground for _, ground, _ in looks}) == len({edge for _, _, edge in looks}) + 1 == len(looks) == 5
    )

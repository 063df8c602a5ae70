"""The page of a session in a real browser: laid out, coloured by who wrote what, and silent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from tests.io.serve.gateway import HELLO, chat, client, embedded_gateway, opened, served, user
from tests.io.serve.gateway_browser import Page, browser, page
from tito_io.serve import view
from tito_io.serve.app import app

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.skipif(browser() is None, reason="there is no browser: TITO_BROWSER names one"),
]
EVIL = "</pre><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
TOKENS = """[...document.querySelectorAll('pre span')].map(one => {
  const seen = getComputedStyle(one), box = one.getBoundingClientRect();
  return {kind: one.className, colour: seen.backgroundColor, line: seen.textDecorationLine,
          wide: box.width > 0 || one.textContent.trim() === '', text: one.textContent};
})"""
LINKS = "[...document.querySelectorAll('td a')].map(one => one.href)"


def colour(code: str) -> str:
    """Return a colour as browsers tell it."""
    return "rgb({}, {}, {})".format(*(int(code[place : place + 2], 16) for place in (1, 3, 5)))


def looked(url: str, folder: Path) -> dict[str, Any]:
    """Look at a page, then at that of its first turn."""
    with page(folder) as seen:
        seen.go(url)
        found: dict[str, Any] = {"tokens": seen.value(TOKENS), "links": seen.value(LINKS)}
        found["text"] = seen.value("document.querySelector('pre').textContent")
        found["title"] = seen.value("document.title")
        seen.go(found["links"][0])
        found["first"] = seen.value(TOKENS)
        found["complaints"] = complaints(seen)
    return found


def complaints(seen: Page) -> list[str]:
    """Return what the console says; that there is no icon is nothing about the page."""
    return [one for one in seen.complaints if "favicon" not in one]


async def test_a_session_s_page_is_laid_out_with_every_token_in_its_colour(tmp_path: Path) -> None:
    gateway = embedded_gateway()
    async with client(gateway) as http, served(app(gateway)) as url:
        name, messages = await opened(http), [*HELLO[:-1], user(EVIL)]
        for _ in range(8):
            said = (await chat(http, name, messages))["choices"][0]["message"]
            messages = [*messages, said, user()]
        found = await anyio.to_thread.run_sync(looked, f"{url}/sessions/{name}/view", tmp_path)
        async with gateway.sessions.using(name) as session:
            first, *_, last = session.commits.values()
    assert found["complaints"] == []
    assert found["title"] == f"Session {name}"
    assert EVIL in found["text"]
    for tokens, step in ((found["tokens"], last.step), (found["first"], first.step)):
        kinds = [one["kind"].split()[0] for one in tokens]
        assert kinds == [origin.name for origin in step.ledger]
        assert all(one["wide"] for one in tokens)
        codes = {origin.name: colour(code) for origin, code in view.COLOURS.items()}
        assert [one["colour"] for one in tokens] == [codes[kind] for kind in kinds]
    drifted = [one for one in found["tokens"] if "drift" in one["kind"].split()]
    assert drifted
    assert {one["line"] for one in drifted} == {"underline"}
    assert len(found["links"]) == 8

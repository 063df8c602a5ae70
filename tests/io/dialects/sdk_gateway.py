"""A session of a gateway over a real socket, for the SDKs that agents use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import attrs
import httpx2
import openai
from anyio.from_thread import start_blocking_portal

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import served
from tito_core import Step
from tito_io.serve.app import app
from tito_io.serve.commit import Commit
from tito_io.serve.gateway import Gateway

FUNCTION: Any = WEATHER["function"]
ASK = "What is the weather in Quito?"
ASKED: list[Any] = [{"role": "user", "content": ASK}]


@attrs.define
class SdkSession:
    """Clients of a session, and once it is over what the gateway kept of it."""

    url: str
    steps: list[Step] = attrs.field(factory=list)
    routes: Counter[str] = attrs.field(factory=Counter)

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="k", max_retries=0)

    def claude(self) -> anthropic.Anthropic:
        return anthropic.Anthropic(base_url=self.url, api_key="k", max_retries=0)


def answered(api: Any, *, stream: bool, **asked: Any) -> Any:
    """Return what an API of a client answers in one piece, or what its stream adds up to."""
    if not stream:
        return api.create(**asked)
    with api.stream(**asked) as events:
        names = ("get_final_completion", "get_final_response", "get_final_message")
        return next(getattr(events, name) for name in names if hasattr(events, name))()


@contextmanager
def session(gateway: Gateway) -> Iterator[SdkSession]:
    """Serve a gateway until the block ends."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(served(app(gateway))) as url:
        name = httpx2.post(f"{url}/sessions", json={}).json()["session_id"]
        opened = SdkSession(f"{url}/sessions/{name}")
        yield opened

        async def kept() -> list[Commit]:
            async with gateway.sessions.using(name) as found:
                return list(found.commits.values())

        for commit in portal.call(kept):
            opened.steps.append(commit.step)
            opened.routes[commit.origin.route] += 1

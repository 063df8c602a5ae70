"""Run conversations with a real model, several at once; each is stored in a file of its own when complete."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from benchmarks.drift.agent import RESULTS, TOOLS
from tito_core import Message, TitoError, Trajectory
from tito_io.client import TokenClient
from tito_io.engines.family_render import renders_as
from tito_io.engines.llamacpp.requests import COMPLETION
from tito_io.engines.protocol import UnreachableError
from tito_io.samples.forms.tito import CallFile

from .design import Plan
from .folder import ModelFolder
from .scripts import UserScript


@attrs.define
class WithoutLogprobs(httpx2.AsyncBaseTransport):
    """A transport to llama.cpp that asks for no log-probabilities, which drift does not need.

    For each id the server sorts the whole vocabulary for them. That takes as long as the small model itself.

    Attributes:
        inner: The transport that sends the requests.
    """

    inner: httpx2.AsyncBaseTransport = attrs.field(factory=httpx2.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. One that samples goes without `n_probs`; the answer says what was asked for."""
        if request.url.path != COMPLETION:
            return await self.inner.handle_async_request(request)
        body = orjson.loads(await request.aread())
        kept = {name: value for name, value in request.headers.items() if name != "content-length"}
        changed = {"headers": kept, "json": body | {"n_probs": 0}, "extensions": request.extensions}
        response = await self.inner.handle_async_request(
            httpx2.Request(request.method, request.url, **changed)
        )
        answer = orjson.loads(await response.aread())
        answer.get("generation_settings", {})["n_probs"] = body.get("n_probs")  # the adapter compares them
        return httpx2.Response(response.status_code, json=answer, request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


@attrs.define
class ConversationSampler:
    """Runs the conversations that a folder lacks.

    Attributes:
        client: Client of the engine.
        folder: Where conversations are stored.
        on_turn: Called with the sampled ids of each turn.
        on_end: Called after each conversation.
        failed: Conversations that an error ended, and the error. They are not stored, and tried again later.
    """

    client: TokenClient
    folder: ModelFolder
    on_turn: Callable[[int], None] = lambda _: None
    on_end: Callable[[], None] = lambda: None
    failed: list[str] = attrs.field(factory=list)

    async def run(self, plans: Sequence[Plan], together: int) -> None:
        """Run conversations in their order, `together` at a time; raises `UnreachableError`."""
        waiting = iter(plans)

        async def work() -> None:
            for plan in waiting:
                await self._one(plan)
                self.on_end()

        async with anyio.create_task_group() as group:
            for _ in range(together):
                group.start_soon(work)

    async def _one(self, plan: Plan) -> None:
        """Run one conversation. Its file gets its name when the last turn is in it."""
        path = plan.path(self.folder.path)
        unfinished = path.with_suffix(".part")
        try:
            with CallFile(unfinished, plan.name, renders_as(self.client.engine)) as file:
                await self._turns(plan, file)
        except UnreachableError:
            raise
        except TitoError as error:
            self.failed.append(f"{plan.name}: {type(error).__name__}: {error!s:.300}")
            unfinished.unlink(missing_ok=True)
            return
        unfinished.rename(path)

    async def _turns(self, plan: Plan, file: CallFile) -> None:
        settings = self.folder.settings
        script = UserScript.drawn(plan.language, plan.number, settings.turns, settings.seed)
        script = script.with_tools() if plan.tools else script
        rng = random.Random(f"{settings.seed}/{plan.name}")  # noqa: S311  # reproducible choices, not secrets
        prompt: list[Message] = [{"role": "system", "content": script.system}]
        steps = Trajectory()
        for user in script.users:
            prompt.append({"role": "user", "content": user})
            taken = await self.client.turn(
                steps, prompt, tools=TOOLS[:2] if plan.tools else None, sampling=_arguments(plan, rng)
            )
            steps = steps.append(taken.step)
            file.add(taken.turn)
            self.on_turn(len(taken.step.completion_ids))
            prompt += [taken.message, *_results(taken.message, rng)]


def _arguments(plan: Plan, rng: random.Random) -> dict[str, Any]:
    """Return the sampling arguments of a turn."""
    return {"max_tokens": plan.limit, "temperature": plan.temperature, "seed": rng.randrange(2**31)}


def _results(message: Message, rng: random.Random) -> list[Message]:
    """Return a result for each tool call."""
    return [
        {
            "role": "tool",
            "tool_call_id": call["id"],
            "name": call["function"]["name"],
            "content": rng.choice(RESULTS),
        }
        for call in message.get("tool_calls") or ()
    ]

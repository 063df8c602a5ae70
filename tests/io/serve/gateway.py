"""A gateway for tests: in front of the embedded engine or a scripted one, over ASGI or a real socket."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs
import httpx2
import uvicorn
from starlette.types import ASGIApp

from tito_core import Message, TemplateRefused
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.embedded import MODEL, family
from tito_io.embedded import app as embedded_app
from tito_io.engines.protocol import (
    Delta,
    Engine,
    ModelLimits,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    Usage,
    Watch,
)
from tito_io.engines.vllm import VLLM
from tito_io.serve.app import app
from tito_io.serve.commit import Commit
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session
from tito_io.serve.store import Store
from tito_io.serve.stores import MemoryStore

CHAT = "/v1/chat/completions"
HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Where is the bridge today?"}]


def user(text: Any = "more") -> dict[str, Any]:
    return {"role": "user", "content": text}


class Remembering(VLLM):
    """An adapter that remembers every reply as it came: what samples are compared with."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.replies: list[Reply] = []

    async def sample(self, request: SampleRequest) -> Reply:
        return self._kept(await super().sample(request))

    def _kept(self, reply: Reply) -> Reply:
        self.replies.append(reply)
        return reply


def embedded_gateway(
    store: Store | None = None, choices: GatewayOptions | None = None, *, guarded: bool = True, **options: Any
) -> Gateway:
    """Return a gateway in front of the embedded engine."""
    engine = Remembering("http://embedded", transport=httpx2.ASGITransport(embedded_app(**options)))
    here = family() if guarded else None
    return build_gateway(engine, store or MemoryStore(), model=MODEL, family=here, options=choices)


def toy(messages: Sequence[Any], *, add_generation_prompt: bool = True) -> list[int]:
    """Render messages: 1 opens a turn, 2 closes it, and letters are their numbers plus 10."""
    ids = [i for m in messages for i in (1, len(m["role"]), *_letters(m), 2)]
    return ids + [1, 9] * add_generation_prompt


def _letters(message: Mapping[str, Any]) -> list[int]:
    content = message.get("content")
    return [10 + byte for byte in str(content or "").encode()] if isinstance(content, str) else []


@attrs.define
class Scripted(Engine):
    """An engine in which everything is known: ids count up from 500, a turn is three of them, 2 the last."""

    name: str = "scripted"
    keeps_ids: bool = False
    room: int | None = None
    finish: str = "stop"
    stop_reason: int | str | None = None
    text: str = "ok"
    renders: bool = True
    raises: list[Exception] = attrs.field(factory=list)
    """What the next turns fail with."""
    held: anyio.Event | None = None
    """What sampling waits for."""
    steps: anyio.Event | None = None
    """What a stream waits for after its first delta."""
    sampled: int = 0
    running: int = 0
    most: int = 0
    """The most turns that were sampled at once."""
    asked: list[tuple[str, list[Any], Sampling]] = attrs.field(factory=list)
    renderings: list[Rendering | None] = attrs.field(factory=list)
    """What the turns were to be rendered with."""
    rendered: int = 0
    """How many prompts it rendered."""
    cancelled: int = 0
    each: Callable[[int], str] | None = None
    told: Mapping[str, Any] = attrs.field(factory=dict)
    """What else its replies say: fields of `Reply`."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        self.rendered += 1
        if not self.renders:
            raise TemplateRefused("no")
        await anyio.lowlevel.checkpoint()
        return self.ids(messages, rendering, add_generation_prompt=add_generation_prompt)

    def ids(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of a prompt."""
        tools = [3, len(rendering.tools)] if rendering.tools else []
        opening = [] if rendering.opening is None else _letters(rendering.opening)
        ids = toy(messages, add_generation_prompt=add_generation_prompt)
        return [*tools, *ids, *(opening * add_generation_prompt)]

    async def sample(self, request: SampleRequest) -> Reply:
        sampling, ids = request.sampling, request.ids
        self.renderings.append(request.rendering)
        if request.messages is not None:
            self.asked.append(("messages", list(request.messages), sampling))
            ids = self.ids(request.messages, request.rendered_with, add_generation_prompt=True)
        else:
            ModelLimits(max_model_len=self.room).room(len(ids or ()), sampling.max_tokens)
            self.asked.append(("ids", list(ids or ()), sampling))
        return await self.counted_reply(list(ids or ()), sampling, request.watch)

    async def limits(self) -> ModelLimits:
        return ModelLimits(max_model_len=self.room)

    async def aclose(self) -> None:
        self.name = "closed"

    async def runs(self, turns: int = 1) -> None:
        """Return once so many turns are sampled."""
        with anyio.fail_after(20):
            while self.running < turns:  # noqa: ASYNC110  # an engine tells nobody
                await anyio.sleep(0.001)

    def go_on(self) -> None:
        """Let turns that are held go on."""
        assert self.held is not None
        self.held.set()

    async def counted_reply(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await self.sampled_turns(prompt, sampling, watch)
        except BaseException as error:
            self.cancelled += not isinstance(error, Exception)
            raise
        finally:
            self.running -= 1

    async def sampled_turns(self, prompt: list[int], sampling: Sampling, watch: Watch | None) -> Reply:
        await anyio.sleep(0.001)
        if self.held is not None:
            await self.held.wait()
        if self.raises:
            raise self.raises.pop(0)
        replies = [self.one_turn(prompt, sampling.n) for _ in range(sampling.n)]
        if watch is not None:
            first = replies[0]
            await watch(Delta(ids=first.completion_ids[:1], text=first.text[:1]))
            if self.steps is not None:
                await self.steps.wait()
            await watch(Delta(ids=first.completion_ids[1:], text=first.text[1:]))
        return attrs.evolve(replies[0], siblings=tuple(replies[1:]))

    def one_turn(self, prompt: list[int], n: int) -> Reply:
        start = 500 + self.sampled
        ids = (start, start + 1) if self.finish == "length" else (start, start + 1, 2)
        self.sampled += 2
        text = self.text if self.each is None else self.each(self.sampled)
        reply = Reply(
            prompt_ids=tuple(prompt),
            completion_ids=ids,
            logprobs=(-0.5,) * len(ids),
            message={"role": "assistant", "content": text},
            text=text,
            finish_reason=self.finish,
            stop_reason=self.stop_reason,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids) * n),
            raw={},
        )
        return attrs.evolve(reply, **self.told)


class Naming(Scripted):
    """An engine whose template writes the names of assistants."""

    def ids(self, messages: Sequence[Any], rendering: Any, *, add_generation_prompt: bool) -> list[int]:
        named = [m.get("name") for m in messages if m["role"] == "assistant"]
        plain = super().ids(messages, rendering, add_generation_prompt=add_generation_prompt)
        return [*str(named).encode(), *plain] if add_generation_prompt else [*plain, *str(named).encode()]


def named(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as LangChain's agents send it back."""
    return {**message, "name": "model"}


class Reporting(Scripted):
    """A scripted engine that reports all that an engine can, and calls a tool in its second turn."""

    def one_turn(self, prompt: list[int], n: int) -> Reply:
        reply = super().one_turn(prompt, n)
        rows = len(prompt) + 2
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        calls = {"tool_calls": [call]} if self.sampled > 2 else {}
        return attrs.evolve(
            reply,
            message={**(reply.message or {}), **calls},
            finish_reason="tool_calls" if calls else "stop",
            stop_reason=2,
            usage=attrs.evolve(reply.usage, cached_tokens=4 if calls else None),
            request_id=f"request {self.sampled}",
            worker="worker 1",
            weight_versions=(WeightVersion(version=f"step {self.sampled}", start=0, stop=3),),
            routed_experts=RoutedExperts(data=bytes(range(rows)), dtype="uint8", shape=(rows, 1, 1)),
        )


Hook = Callable[..., Awaitable[Any]]
CALLS = [
    name for name in vars(Store) if not name.startswith("_") and name not in ("aclose", "shared", "clock")
]


class Watched(MemoryStore):
    """A store in memory that counts its calls, and awaits something before or after some of them."""

    def __init__(
        self, *, before: Mapping[str, Hook] | None = None, after: Mapping[str, Hook] | None = None
    ) -> None:
        super().__init__()
        self.calls = Counter[str]()
        self.before, self.after = dict(before or {}), dict(after or {})
        for name in CALLS:
            setattr(self, name, self._watched(name, getattr(self, name)))

    def _watched(self, name: str, call: Hook) -> Hook:
        async def watched(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            if name in self.before:
                await self.before[name](*args)
            found = await call(*args, **options)
            if name in self.after:
                await self.after[name](*args)
            return found

        return watched


def failing(error: Exception) -> Hook:
    """Return a call that fails."""

    async def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def scripted_gateway(
    engine: Scripted, store: Store | None = None, choices: GatewayOptions | None = None, **options: Any
) -> Gateway:
    """Return a gateway in front of a scripted engine."""
    return build_gateway(engine, store or MemoryStore(), model="scripted", options=choices, **options)


@asynccontextmanager
async def client(gateway: Gateway, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of a gateway, without a socket."""
    transport = httpx2.ASGITransport(app(gateway), raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway", **options) as opened:
        yield opened


@attrs.frozen
class Talk:
    """A session of a gateway, and a client that talks in it."""

    gateway: Gateway
    http: httpx2.AsyncClient
    name: str

    @property
    def engine(self) -> Any:
        """The engine behind the gateway."""
        return self.gateway.turns.engine

    @property
    def metrics(self) -> str:
        """What the gateway has counted."""
        return self.gateway.metrics.text().decode()

    async def chat(self, messages: Sequence[Any], **more: Any) -> Any:
        """Send a chat that is answered; return the answer."""
        return await chat(self.http, self.name, messages, **more)

    async def said(self, messages: Sequence[Any], **more: Any) -> Any:
        """Send a chat that is answered; return the answer's message."""
        return (await self.chat(messages, **more))["choices"][0]["message"]

    async def turns(self, count: int, messages: Sequence[Any] = HELLO, **more: Any) -> list[Any]:
        """Take so many turns, each after the one before; return the next prompt."""
        prompt = list(messages)
        for _ in range(count):
            prompt = [*prompt, await self.said(prompt, **more), user()]
        return prompt

    async def post(self, body: Any, path: str = CHAT, **more: Any) -> httpx2.Response:
        """Send JSON, or bytes as they are, to a route of the session, whatever the answer."""
        sent: Any = {"content" if isinstance(body, bytes) else "json": body}
        return await self.http.post(f"/sessions/{self.name}{path}", **sent, **more)

    async def get(self, path: str = "", **more: Any) -> httpx2.Response:
        """Get a route of the session."""
        return await self.http.get(f"/sessions/{self.name}{path}", **more)

    async def nodes(self) -> list[dict[str, Any]]:
        """Return the turns that the session shows."""
        found: list[dict[str, Any]] = (await self.get()).json()["metadata"]["tree"]["nodes"]
        return found

    async def session(self) -> Session:
        """Return the session as the gateway holds it."""
        async with self.gateway.sessions.using(self.name) as session:
            return session

    def unload(self) -> None:
        """Let all sessions go, so that they are read from the store."""
        self.gateway.sessions.loaded.clear()

    async def maintained(self) -> None:
        """Let the gateway renew leases and look for idle sessions once."""
        with anyio.move_on_after(0.05):
            await self.gateway.sessions.maintain()

    @property
    def loaded(self) -> int:
        """How many sessions are in memory."""
        return int(self.metrics.partition("\ntito_sessions_loaded ")[2].partition(".")[0])

    async def commits(self) -> list[Commit]:
        """Return the session's turns."""
        return list((await self.session()).commits.values())


@asynccontextmanager
async def talking(
    gateway: Gateway | Scripted | None = None, *, socket: bool = False, **options: Any
) -> AsyncIterator[Talk]:
    """Open a session of a gateway, or of one in front of a scripted engine, with these options."""
    if not isinstance(gateway, Gateway):
        gateway = scripted_gateway(gateway or Scripted(), **options)
    async with (socket_client if socket else client)(gateway) as http:
        yield Talk(gateway, http, await opened(http))


@asynccontextmanager
async def socket_client(gateway: Gateway) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of a gateway over a real socket."""
    async with served(app(gateway)) as url, httpx2.AsyncClient(base_url=url) as http:
        yield http


def limited(**limits: Any) -> GatewayOptions:
    """Return a gateway's options with these limits."""
    return GatewayOptions(limits=GatewayLimits(**limits))


async def opened(http: httpx2.AsyncClient, **body: Any) -> str:
    """Open a session; return its id."""
    answer = await http.post("/sessions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["session_id"])


async def chat(http: httpx2.AsyncClient, name: str, messages: Sequence[Any], **more: Any) -> Any:
    """Send a chat that is answered; return the answer."""
    answer = await http.post(
        f"/sessions/{name}/v1/chat/completions", json={"messages": list(messages), **more}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


@asynccontextmanager
async def served(application: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """Serve over a real socket of this machine; 0 is any that is free."""
    config = uvicorn.Config(
        application, host="127.0.0.1", port=port, log_level="critical", lifespan="on", ws="none"
    )
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(server.serve)
        while not server.started:  # noqa: ASYNC110  # uvicorn tells nobody
            await anyio.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            server.should_exit = True

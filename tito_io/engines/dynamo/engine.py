"""NVIDIA Dynamo, over HTTP.

Ids go in by one of two routes. On `chat` they stand in `nvext.token_data` beside a placeholder, and the
server's own parsers make the message, whatever the family's manner; where tools are offered there, the worker
holds what follows a call's opening to a grammar, so what is sampled is not the model's free choice. On
`completions` nothing stands between the model and its ids, and the message is made from them with a model
folder, in the Hermes manner.

Dynamo renders messages and tells the ids, and has no route that renders alone: `render` needs a model folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self, get_args

import anyio
import attrs
import httpx2

from tito_core import Ids, InputError, Message, TokenizeFn
from tito_io.engines.local_tokenizer import LocalVocabulary
from tito_io.engines.prompt_echo import Proven
from tito_io.engines.protocol import (
    EngineAnswer,
    ModelLimits,
    Rendering,
    Reply,
    Sampling,
    UnsupportedError,
    Watch,
)
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_parser import Hermes
from tito_io.engines.wire import Wire
from tito_io.families.family import Family

from . import requests
from .calls import DynamoRequest
from .message import Reader, flagged
from .requests import DynamoOptions
from .routes import MODELS, Route
from .served import DynamoModels, chosen


class Dynamo:
    """A Dynamo frontend."""

    name: str = "dynamo"
    keeps_ids: bool = False

    def __init__(  # noqa: PLR0913  # each says one thing about the server, most of them seldom
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        route: Route = "chat",
        family: Family | None = None,
        tokenize_fn: TokenizeFn | None = None,
        logprobs: bool = True,
        routed_experts: bool = False,
        vocab_size: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make ready; nothing is sent before something is asked.

        `family` is the model's folder: messages are rendered with it, and messages made from ids.
        `tokenize_fn` renders instead, with the tools and arguments that it is bound to. Without `logprobs`
        none are asked for; the mocker has none. `vocab_size` lets ids be checked, those of a family are
        before they are sent. The rest is as for other engines.
        """
        if route not in get_args(Route):
            raise InputError(f"route is {route!r}: ids go in by 'chat' or by 'completions'")
        self.model = model
        self.route = route
        self.family = family
        self.vocab_size = vocab_size
        self._tokenize_fn = tokenize_fn
        self._asked = DynamoOptions(logprobs=logprobs, routed_experts=routed_experts)
        self._wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self._reader = _reader(family) if family else None
        self._served: DynamoModels | None = None
        self._proven = Proven[Route]()
        """The routes on which the frontend has repeated a prompt rightly, and need do so no more."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages, rendered in this process.

        Raises `TemplateRefused` where the chat template rejects them, and `UnsupportedError` where there is
        nothing to render with.
        """
        tokenize = partial(self._renderer(rendering), messages, add_generation_prompt=add_generation_prompt)
        return list(await anyio.to_thread.run_sync(tokenize))

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages that the frontend renders.

        Dynamo refuses a prompt that leaves no room for all of `Sampling.max_tokens`: an `OverlongError`.
        """
        served = await self.served()
        asked = self._asked
        body = requests.chat(served.name, messages, rendering, sampling, asked)
        call = DynamoRequest(self._wire, self._check, "chat", body, asked, None)
        return await self._turn(call, rendering, watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after exactly these ids, which the answer must repeat.

        Frontend and worker repeat them each; once the frontend has, the worker's word and the count suffice.
        Raises `OverlongError` without sending them where they are known to fill the model's context.
        """
        sent = self._sendable(ids)
        served = await self.served()
        limit = served.room(len(sent), sampling)
        asked = attrs.evolve(self._asked, echo=self.route not in self._proven.ways)
        if self.route == "chat":
            body = requests.chat_after_ids(served.name, sent, rendering, sampling, limit, asked)
        else:
            body = requests.completion(served.name, sent, sampling, limit, asked)
        call = DynamoRequest(self._wire, self._check, self.route, body, asked, sent)
        return await self._turn(call, rendering, watch)

    async def limits(self) -> ModelLimits:
        """Return how much the model takes."""
        size = self.vocab_size or (self.family.vocab_size if self.family else None)
        return ModelLimits(max_model_len=(await self.served()).context, vocab_size=size)

    async def models(self) -> tuple[DynamoModels, ...]:
        """Return the models that the frontend has workers for."""
        answer = await self._wire.get(MODELS)
        check = Check(self._wire.where("GET", MODELS), EngineAnswer(200, answer))
        return tuple(DynamoModels.of(check, card) for card in check.get(answer, "data", list))

    async def served(self) -> DynamoModels:
        """Return the model in use; asked for once."""
        if self._served is None:
            self._served = chosen(await self.models(), self.model)
        return self._served

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _renderer(self, rendering: Rendering) -> TokenizeFn:
        if self._tokenize_fn is not None:
            return self._tokenize_fn
        if self.family is None:
            raise UnsupportedError(
                "Dynamo renders no messages for others: pass the model's folder as `family`, or a "
                "`tokenize_fn`. Nothing was sent"
            )
        return self.family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args)

    async def _turn(self, call: DynamoRequest, rendering: Rendering | None, watch: Watch | None) -> Reply:
        if self._reader is not None:
            await self._reader.speech.ready()  # first, so that no sampled turn is lost to it
        reply = await self._proven.held_to(call.route, call.reply(watch), call.repeated)
        if self._reader is None:
            return flagged(reply)
        return await self._reader.settle(reply, tools=rendering is None or bool(rendering.tools))

    def _sendable(self, ids: Sequence[int]) -> Ids:
        """Return ids as such, or raise `InputError` for what is none."""
        size = self.vocab_size or (self.family.vocab_size if self.family else None)
        return self._wire.sendable(ids, size)

    def _check(self, path: str, answer: object) -> Check:
        return Check(self._wire.where("POST", path), EngineAnswer(200, answer), self.vocab_size)


def _reader(family: Family) -> Reader:
    vocabulary = LocalVocabulary(family)
    return Reader(vocabulary, Hermes(vocabulary))

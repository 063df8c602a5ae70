"""The NVIDIA Dynamo adapter.

Ids go in by one of two routes:

- `chat`: ids stand in `nvext.token_data` beside a placeholder message. The server's own parsers make the
  message, in any output format. Where there are tools, the worker constrains what follows the opening of a
  call to a grammar, so that those ids are not the model's free choice.
- `completions`: nothing constrains the ids. The message is parsed here with a model folder, in the Hermes
  format.

Dynamo renders messages and returns the ids, but has no route that renders alone: `render` needs a model
folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, get_args

import anyio.to_thread
import attrs

from tito_core import Ids, InputError, Message, TokenizeFn, answer
from tito_core.questions import ask
from tito_io.engines.family_render import family_as, family_ids
from tito_io.engines.http_engine import Connection, HttpEngine, TurnAfterIds
from tito_io.engines.protocol import Rendering, Reply, SampleRequest, UnsupportedError, Watch
from tito_io.engines.replies.output_parser import OutputParser
from tito_io.families.family import Family

from . import requests
from .calls import DynamoRequest
from .message import MessageReader, flagged
from .requests import CHAT, COMPLETIONS, DynamoOptions, Route


class Dynamo(HttpEngine):
    """A Dynamo frontend.

    Nothing is sent before a method is called.

    Args:
        base_url: The frontend's address, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        route: How ids go in: `chat` (default) or `completions`.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        tokenize_fn: Renders messages in place of `family`, with the tools and arguments that it is bound to.
        logprobs: Whether to request log-probabilities (default); the mocker worker has none.
        routed_experts: Whether to request which experts each position was routed to.
        model: The model's name; may be left out where the frontend has one model.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; the family's where it is left out.
        transport: Replaces the network.

    Attributes:
        name: `dynamo`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        route: How ids go in.
        family: The model's folder; None where none was passed.
        vocab_size: As it was passed.
        turns_per_request: 1: the ids of one turn come back.

    Raises:
        InputError: `base_url` or `route` is invalid.
    """

    name: str = "dynamo"
    renders_as: str = "dynamo"
    turns_per_request: int = 1
    length_key = "context_window"
    needs_max_tokens = False

    def __init__(  # each states one thing about the server, and most are seldom passed
        self,
        base_url: str,
        *,
        route: Route = "chat",
        family: Family | None = None,
        tokenize_fn: TokenizeFn | None = None,
        logprobs: bool = True,
        routed_experts: bool = False,
        **connection: Unpack[Connection],
    ) -> None:
        if route not in get_args(Route):
            raise InputError(f"route is {route!r}: pass 'chat' or 'completions'")
        super().__init__(base_url, **connection)
        self.route: Route = route
        self.family = family
        self._rendered = None if family is None else family_as(family, self)
        self._tokenize_fn = tokenize_fn
        self._options = DynamoOptions(logprobs=logprobs, routed_experts=routed_experts)
        self._reader = MessageReader.of(family, self.render) if family else None

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages, rendered in this process.

        Raises:
            TemplateRefused: The chat template rejects them.
            UnsupportedError: There is neither a `family` nor a `tokenize_fn`; or it is the latter, and a
                message begins the answer.
        """
        speaking = add_generation_prompt
        if self._tokenize_fn is not None and rendering.opening is not None:
            raise UnsupportedError("a `tokenize_fn` renders no beginning of an answer: pass `family`")
        if self._tokenize_fn is not None:
            asking = ask(messages, add_generation_prompt=speaking)
            return list(await anyio.to_thread.run_sync(answer, asking, self._tokenize_fn))
        if self._rendered is not None:
            return await family_ids(self._rendered, messages, rendering, add_generation_prompt=speaking)
        raise UnsupportedError(
            "Dynamo has no route that renders messages: pass the model's folder as `family`. Nothing was "
            "sent",
            parameter="family",
            hint="or pass a `tokenize_fn`",
        )

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        """Sample a turn after messages that the frontend renders.

        Dynamo rejects a prompt that leaves no room for all of `Sampling.max_tokens`: an `OverlongError`.
        """
        model, sampling, rendering = await self.served(), request.sampling, request.rendered_with
        body = requests.chat(model.name, request.messages or (), rendering, sampling, self._options)
        sent = self._request("chat", body, self._options, None, sampling.conversation)
        return await self._turn(sent, request.watch, rendering)

    async def output_parser(self) -> OutputParser:
        """Return what makes text and messages of ids; raises `UnsupportedError` without a `family`."""
        if self._reader is None:
            raise UnsupportedError(
                "Dynamo has no tokenizer route: pass the model's folder as `family`", parameter="family"
            )
        return self._reader.parser

    async def _vocabulary_size(self) -> int | None:
        return self.vocab_size or (self.family.vocab_size if self.family else None)

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by the engine's route.

        Frontend and worker repeat the ids each; once the frontend has, the worker's and the count suffice.
        """
        options = attrs.evolve(self._options, echo=self.route not in self._echoing)
        body = (requests.chat_after_ids if self.route == "chat" else requests.completion)(turn, options)
        request = self._request(self.route, body, options, turn.ids, turn.sampling.conversation)
        return await self._turn(request, turn.watch, turn.rendering)

    def _request(
        self,
        route: Route,
        body: Mapping[str, Any],
        options: DynamoOptions,
        sent: Ids | None,
        conversation: str | None,
    ) -> DynamoRequest:
        return DynamoRequest(
            wire=self.wire,
            path=CHAT if route == "chat" else COMPLETIONS,
            body=body,
            vocab_size=self.vocab_size,
            route=route,
            options=options,
            sent=sent,
            conversation=conversation,
        )

    async def _turn(self, request: DynamoRequest, watch: Watch | None, rendering: Rendering | None) -> Reply:
        if self._reader is not None:
            ready = await self._reader.parser.ready(watch, rendering, request.sent or ())
            if request.route == "completions":
                watch = ready
        reply = await self._send(request, watch, request.route)
        return flagged(reply) if self._reader is None else await self._reader.checked(reply, rendering)

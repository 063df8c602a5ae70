"""Base class of the adapters for engines with an HTTP API. The guide to writing one: docs/howto/engine.md.

An adapter is a package `tito_io/engines/NAME/` that imports no other adapter:

- `requests.py` writes request bodies, with `openai_fields`, and lists the keys that `Sampling.extra` may not
  hold.
- `replies.py` reads a decoded answer into a `Reply`, each field through a `Check`. `replies.output_parser`
  makes a message of ids where the server makes none; its `LocalTokenizer` lets it use a model
  folder.
- `calls.py` has a subclass of `TurnRequest` (`turn_request.py`): `read`, and for streams `partial`; also
  `open_stream` where ids do not stand in `token_ids` of each choice.
- `engine.py` has a subclass of `HttpEngine`. It sets `name` and writes `render`
  (`served_tokenizer.ServedTokenizer.render` does it for servers with `/tokenize`), `_sample_messages` and
  `_sample`, which send a `TurnRequest` with `_send`. It may override `_select`, `_sendable`,
  `_vocabulary_size`, `limits`, `length_key` and `needs_max_tokens`; for images, `_check_media` and
  `_sample_with_media`; for sampling masks, `check_masks`.

For a server that answers ids and no text by one route, `ids_server.py` leaves a table and a reader to write.
It is registered by a row in `names.py`, and one in `tests/io/engines/routes.py`, which holds it to the laws
of all engines.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Sequence
from http import HTTPStatus
from typing import ClassVar, TypedDict

import attrs
import httpx2

from tito_core import Ids, InputError

from .media import check_places, unsupported
from .one_asks import one_asks
from .protocol import (
    Engine,
    EngineAnswer,
    EngineError,
    InvalidReplyError,
    ModelLimits,
    PromptMedium,
    Rendering,
    Reply,
    RequestError,
    SampleRequest,
    Sampling,
    ServerError,
    Watch,
)
from .refused import check_served
from .replies.invariants import Check
from .sampling_masks import no_masks
from .turn_request import TurnRequest
from .wire import Wire

LOG = logging.getLogger("tito.engines")
MODELS = "/v1/models"
"""OpenAI's route that lists the models of a server."""
LIST_FAILURES = (InvalidReplyError, RequestError, ServerError)
"""Failures of a list of models with which turns may still be sampled."""


def log_list_failure(error: EngineError) -> None:
    """Log that a list of models fails."""
    LOG.warning("the list of models fails, so that the context length is unknown: %.300s", error)


class Connection(TypedDict, total=False):
    """The keyword arguments of `HttpEngine`, for the constructors of subclasses (`**connection`)."""

    model: str | None
    api_key: str | None
    timeout: float | None
    vocab_size: int | None
    transport: httpx2.AsyncBaseTransport | None


@attrs.frozen
class ServedModel:
    """A model that a server lists.

    Attributes:
        name: Its name, as requests give it.
        max_model_len: The most ids of prompt and completion together; None where the server does not say.
        parent: The model that this one is a LoRA adapter of; None for a model of its own.
        owner: What the server calls its owner, which is mostly the server's own name.
    """

    name: str
    max_model_len: int | None = None
    parent: str | None = None
    owner: str | None = None

    @classmethod
    def of(cls, check: Check, card: object, length_key: str = "max_model_len") -> ServedModel:
        """Read one entry of a server's list; `length_key` is the server's name for the context length."""
        name, fields = check.get(card, "id", str), check.typed(card, dict, "card")
        length, parent = fields.get(length_key), fields.get("parent")
        # Dynamo's frontend writes 0 where a worker did not report its context length.
        known = type(length) is int and length > 0
        owner = fields.get("owned_by")
        return cls(
            name,
            length if known else None,
            parent if isinstance(parent, str) else None,
            owner if isinstance(owner, str) else None,
        )


UNNAMED = "default"
"""The model's name in requests to a server that needs none and lists none."""
ABSENT = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
"""Statuses of a server that has no such route, and will have none later."""


def shortest_context(models: Sequence[ServedModel]) -> int | None:
    """Return the smallest known context length; None where no model has one."""
    return min((one.max_model_len for one in models if one.max_model_len is not None), default=None)


def sole_model(models: Sequence[ServedModel], name: str | None = None) -> ServedModel:
    """Return the only model that is not a LoRA adapter.

    Raises:
        InputError: There is no such model, or there are several; or `name` was passed, and is not listed.
    """
    bases = [one for one in models if one.parent is None]
    if len(bases) == 1 and name is None:
        return bases[0]
    names = ", ".join(one.name for one in models) or "none yet"
    raise InputError(f"model: the server has {names}; pass one of them" + (f", not {name!r}" if name else ""))


@attrs.frozen
class TurnAfterIds:
    """A turn to sample after ids that were checked.

    Attributes:
        model: The model in use.
        ids: The prompt.
        sampling: The caller's sampling parameters.
        rendering: What the ids were rendered with; None where the caller does not know.
        max_tokens: The most ids to ask for: what fits, at most `sampling.max_tokens`; None where unknown.
        watch: The stream callback; None for an answer in one piece.
    """

    model: ServedModel
    ids: Ids
    sampling: Sampling
    rendering: Rendering | None
    max_tokens: int | None
    watch: Watch | None


class HttpEngine(Engine):
    """Base class of the adapters of HTTP engines; nothing is sent before a method is called.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        model: The model's name; may be left out where the server has one model.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; ids are then checked before they are sent.
        transport: Replaces the network: `httpx2.ASGITransport(app)` is answered by `app` in this process,
            `reconnect.Reconnecting()` repeats connections that were never made.

    Attributes:
        name: The engine's name.
        keeps_ids: False: prompts go by ids.
        takes_media: True: `_check_media` says which.
        model: The model's name as it was passed.
        wire: The connections to the server.
        vocab_size: How many ids there are; None where it is unknown.
        length_key: The key of a listed model under which the server states the context length.
        needs_max_tokens: Whether a request must state `max_tokens`, so that it or the context is needed.
        listed: What reads an entry of the list of models.
        checks_name: Whether the list must show that `model` is the one that samples: requests need not name
            it.
    """

    name: str
    keeps_ids: bool = False
    takes_media: bool = True
    length_key: ClassVar[str] = "max_model_len"
    needs_max_tokens: ClassVar[bool] = True
    checks_name: ClassVar[bool] = False
    listed: ClassVar[type[ServedModel]] = ServedModel

    def __init__(
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        vocab_size: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.model = model
        self.vocab_size = vocab_size
        self.wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self._served: ServedModel | None = None
        self._unlisted = False
        """Whether the list of models has failed, which is logged once."""
        self._echoing: set[Hashable] = set()
        """The routes that have repeated a prompt correctly, so that they need not repeat the next one."""

    async def models(self) -> tuple[ServedModel, ...]:
        """Return the models that the server lists."""
        answer = await self.wire.get(MODELS)
        check = self._check(MODELS, answer, "GET")
        return tuple(self.listed.of(check, card, self.length_key) for card in check.get(answer, "data", list))

    @one_asks
    async def served(self) -> ServedModel:
        """Return the model in use; the server is asked once.

        If its list of models fails, the context length is unknown, and a list that may come later is asked
        for again. The failure is raised where only the list says which model samples.

        Raises:
            InputError: No `model` was passed and the server does not have exactly one.
            UnsupportedError: The server is Ollama or LM Studio, which keep no ids.
        """
        if self._served is not None:
            return self._served
        try:
            models = await self.models()
        except LIST_FAILURES as error:
            return self._without_list(error)
        await check_served(self.wire, (one.owner for one in models))
        self._served = self._select(models)
        return self._served

    def _without_list(self, error: EngineError) -> ServedModel:
        """Return the model that requests mean without a list; raises `error` where only the list says it."""
        name = (None if self.model else UNNAMED) if self.checks_name else self.model
        if name is None:
            raise error
        if not self._unlisted:
            log_list_failure(error)
            self._unlisted = True
        model = ServedModel(name)
        if error.answer is not None and error.answer.status in ABSENT:
            self._served = model
        return model

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts; the server is asked once."""
        length = (await self.served()).max_model_len
        return ModelLimits(max_model_len=length, vocab_size=await self._vocabulary_size())

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn.

        The answer must repeat the ids, as the engine expanded them where there are media; once a route has
        repeated some without media, the engine's count of them is enough.

        Raises:
            InputError: An id is outside the vocabulary, or nothing says how many ids to sample.
            OverlongError: The ids leave no room in the model's context.
            UnsupportedError: The server takes no ids, or none of these media, by this route, or sends no
                sampling masks.

        In all three cases nothing was sampled.
        """
        if request.sampling.sampling_masks:
            await self.check_masks(request.sampling)
        if request.ids is None:
            return await self._sample_messages(request)
        if not request.media:
            return await self._sample(await self._checked_turn(request, request.ids))
        check_places(Ids.of(request.ids), request.media)
        await self._check_media(request.media)
        return await self._sample_with_media(await self._checked_turn(request, request.ids), request.media)

    async def _checked_turn(self, request: SampleRequest, ids: Sequence[int]) -> TurnAfterIds:
        """Return a turn after ids that fit the model."""
        sent, limits = await self._sendable(ids), await self.limits()
        model, room = await self.served(), limits.room(len(sent), request.sampling.max_tokens)
        if room is None and self.needs_max_tokens:
            raise InputError(
                f"Sampling.max_tokens is None, and the server does not state the context length of "
                f"{model.name}: pass a number"
            )
        return TurnAfterIds(model, sent, request.sampling, request.rendering, room, request.watch)

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does so too."""
        await self.wire.aclose()

    # What a subclass writes, or may change.

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        """Send messages by the engine's route; return the reply."""
        raise NotImplementedError

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Send checked ids by the engine's route; return the reply."""
        raise NotImplementedError

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where this server sends no sampling masks by this route."""
        del sampling
        raise no_masks(f"{self.name} sends none: leave them out, or sample with vLLM or SGLang")

    async def _check_media(self, media: Sequence[PromptMedium]) -> None:
        """Raise `MediaUnsupportedError` for media that this engine does not take beside ids."""
        del media
        raise unsupported(self.name)

    async def _sample_with_media(self, turn: TurnAfterIds, media: Sequence[PromptMedium]) -> Reply:
        """Send checked ids and media by the engine's route; return the reply."""
        raise NotImplementedError

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the model named `self.model`, or the only one.

        A name that is not listed is used as it is, with an unknown context length.
        """
        if self.model is None:
            return sole_model(models)
        return next((one for one in models if one.name == self.model), ServedModel(self.model))

    async def _vocabulary_size(self) -> int | None:
        """Return how many ids there are; None where it is unknown."""
        return self.vocab_size

    async def _sendable(self, ids: Sequence[int]) -> Ids:
        """Return a prompt's ids; raises `InputError` for those that are not the model's."""
        return self.wire.sendable(ids, await self._vocabulary_size())

    # What a subclass calls.

    async def _send(self, request: TurnRequest, watch: Watch | None, route: Hashable) -> Reply:
        """Return the reply to a request, and record whether `route` repeated the prompt.

        A route that has repeated one prompt correctly is trusted with the next: the ids are most of a long
        request's answer. A reply that does not hold together ends that trust.
        """
        try:
            reply = await request.reply(watch)
        except InvalidReplyError:
            self._echoing.discard(route)
            raise
        if request.echoed(reply):
            self._echoing.add(route)
        return reply

    def _check(self, path: str, answer: object, method: str = "POST") -> Check:
        return Check(self.wire.where(method, path), EngineAnswer(200, answer), self.vocab_size)

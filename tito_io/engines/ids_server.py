"""Base class of the adapters for servers that answer the ids of a turn and no text, by one route.

Messages are rendered, and read from the sampled ids, with a model folder. An adapter has a table of the keys
that its route takes (`Keys`), a function that writes a body with it, and a subclass of `IdsRequest` that
reads an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Unpack

import attrs

from tito_io.families.family import Family

from .family_engine import FamilyEngine
from .grammar import check_unconstrained
from .http_engine import Connection, TurnAfterIds
from .openai_fields import check_sampling
from .protocol import Delta, EmptyReplyError, Reply, Sampling, UnsupportedError, Usage
from .replies.chunks import chunk_logprobs
from .replies.invariants import Check
from .replies.output_parser import OutputFormat
from .replies.output_text import until_stop
from .replies.stop_tokens import check_stop_token, may_stop
from .replies.text_stream import Decode, TextStream
from .turn_request import ChunkStream, Question, ReplyPart, TurnRequest, TurnStream, partial_reply

DEFAULTS = Sampling()


@attrs.frozen(kw_only=True)
class Keys:
    """The keys of a route beside the prompt, and what it cannot do.

    Attributes:
        known: Keys of `Sampling.extra` that it reads, and that leave ids and log-probabilities whole.
        owned: Keys that `Sampling.extra` may not hold: the adapter sets them, or the answer would not match
            the ids.
        unknown: What the server does with any other key.
        lacks: Fields of `Sampling` that cannot be honoured, and why.
        lacks_streamed: Further ones of a turn that is streamed.
    """

    known: Collection[str]
    owned: Collection[str]
    unknown: str
    lacks: Mapping[str, str] = attrs.field(factory=dict)
    lacks_streamed: Mapping[str, str] = attrs.field(factory=dict)

    def check(self, title: str, sampling: Sampling, *, streamed: bool) -> None:
        """Raise an error for parameters that the route refuses, ignores or does otherwise than asked.

        Raises:
            InputError: A parameter is invalid, or an extra is owned.
            UnsupportedError: The route does not do it; nothing was sent.
        """
        check_sampling(sampling, sampling.max_tokens, self.owned)
        lacks = {**self.lacks, **(self.lacks_streamed if streamed else {})}
        wrong = [(f"Sampling.{name}", why) for name, why in lacks.items() if _is_given(sampling, name)]
        extra = sorted(sampling.extra.keys() - set(self.known))
        wrong += [(f"Sampling.extra: {extra[0]!r:.60}", f"{self.unknown}; leave it out")] if extra else []
        for name, why in wrong:
            raise UnsupportedError(
                f"{name} does not work with {title}: {why}. Nothing was sent", parameter="sampling"
            )


def _is_given(sampling: Sampling, name: str) -> bool:
    return bool(getattr(sampling, name) != getattr(DEFAULTS, name))


class TextlessChunks(ChunkStream):
    """A stream whose chunks have ids and no text; the text is decoded here."""

    def __init__(self, decode: Decode) -> None:
        super().__init__()
        self._text = TextStream(decode)

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add a chunk; return what it brings."""
        found = []
        for delta, choice in zip(super().take(check, event), event.get("choices") or (), strict=True):
            finish = choice.get("finish_reason")
            if finish is None:
                text = self._text.add(delta.ids)
            else:
                text = self._text.end_by_id(delta.ids, stopped=finish == "stop")
            found.append(attrs.evolve(delta, text=text))
        return found


@attrs.frozen(kw_only=True)
class IdsRequest(TurnRequest):
    """One request for a turn; a subclass reads the answer. Streams are read as OpenAI's chunks without text.

    Attributes:
        question: What was requested.
        decode: Returns the text of ids.
        stops: The ids that may end a turn.
        logprobs: Whether log-probabilities were requested.
    """

    question: Question
    decode: Decode
    stops: frozenset[int]
    logprobs: bool

    @property
    def sent(self) -> Sequence[int]:
        """The prompt's ids. No answer repeats them, only their number."""
        return self.question.sent or ()

    def open_stream(self) -> TurnStream:
        """Return what puts a streamed answer together."""
        return TextlessChunks(self.decode)

    def partial(self, check: Check, body: Any) -> Reply | None:
        """Return what was received of a turn when its stream broke; None where no id was received."""
        parts = [(choice.get("token_ids") or (), chunk_logprobs(choice)) for choice in body["choices"]]
        return self.received(check, parts, body)

    def check_end(self, check: Check, ids: tuple[int, ...], finish: str) -> None:
        """Demand that a turn has ids, and ends as they say."""
        if not ids and finish != "abort":
            raise EmptyReplyError(f"{self.where}: a turn has no ids at all", check.answer, where=self.where)
        if not self.body.get("ignore_eos"):  # with it, a server calls no end a stop
            check_stop_token(check, ids, finish, self.stops)

    def turn(
        self,
        ids: tuple[int, ...],
        finish: str,
        logprobs: tuple[float | None, ...] | None,
        usage: Usage,
        body: Mapping[str, Any],
    ) -> Reply:
        """Return a turn of an answer, without a message."""
        reply = Reply(
            prompt_ids=self.sent,
            completion_ids=ids,
            logprobs=logprobs,
            message=None,
            text="",
            finish_reason=finish,
            usage=usage,
            stop_reason=ids[-1] if finish == "stop" else None,
            raw=body,
        )
        return attrs.evolve(reply, text=until_stop(reply, self.decode))

    def received(
        self, check: Check, parts: Sequence[tuple[Sequence[int], Sequence[object]]], body: Mapping[str, Any]
    ) -> Reply | None:
        """Return what was received of turns, ids and log-probabilities of each; None without an id."""
        named = [ReplyPart(ids, values, self.decode(ids)) for ids, values in parts]
        return partial_reply(check, self.sent, named, body)


class IdsServer(FamilyEngine):
    """Base class of these adapters.

    Args:
        base_url: The server's address; a trailing `/v1` is dropped.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        logprobs: Whether to request log-probabilities. Default True.
        output_format: How the model writes reasoning and tool calls; None (default) detects it.
        connection: The keyword arguments of `HttpEngine`.

    Attributes:
        route: The route by which ids go in and come out.
        keys: The keys that it takes, and what it cannot do.
        request: How an answer is read.
        no_grammar: Why a turn cannot be constrained.
    """

    needs_max_tokens = False
    route: ClassVar[str]
    keys: ClassVar[Keys]
    request: ClassVar[type[IdsRequest]]
    no_grammar: ClassVar[str]

    def __init__(
        self,
        base_url: str,
        *,
        family: Family,
        logprobs: bool = True,
        output_format: OutputFormat | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(base_url, family=family, output_format=output_format, **connection)
        self._logprobs = logprobs

    def _body(self, turn: TurnAfterIds) -> dict[str, Any]:
        """Return the body that requests a turn after ids; a subclass writes it."""
        raise NotImplementedError

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by the route; the message is parsed here."""
        check_unconstrained(turn.sampling, self.title, self.no_grammar)
        self.keys.check(self.title, turn.sampling, streamed=turn.watch is not None)
        body, parser = self._body(turn), await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        request = self.request(
            wire=self.wire,
            path=self.route,
            body=body,
            vocab_size=await self._vocabulary_size(),
            question=Question(turn.sampling, turn.ids),
            conversation=turn.sampling.conversation,
            decode=self.family.decode,
            stops=may_stop(self.family, turn.sampling.stop_ids),
            logprobs=self._logprobs,
        )
        return await self._with_messages(await self._send(request, watch, self.route), turn.rendering)

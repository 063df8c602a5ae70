"""Model calls of an agent SDK, answered in this process by a `TokenClient` and kept for training rows."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from operator import methodcaller
from typing import Any, Literal, get_args
from uuid import uuid4

import attrs

from tito_core import InputError, Message, Reason, Trajectory
from tito_core.checks import require, short_repr
from tito_core.samples import Forest, RowSet, SampleOptions, StoredCall, make_rows
from tito_io.client.token_client import CompletedTurn, TokenClient
from tito_io.dialects.protocol import (
    AnswerStream,
    Dialect,
    ParsedRequest,
    ReplyStamp,
    StreamReading,
    TurnAnswer,
)
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import Delta, Reply, SampleRequest, Watch
from tito_io.engines.replies.hermes import THINKS
from tito_io.engines.routing import new_request_id
from tito_io.engines.wrapper import EngineWrapper
from tito_io.integrations.arguments import check_on_refusal
from tito_io.integrations.next_prompts import RefusedError

OnRefusal = Literal["rerender", "raise"]
"""What follows a refusal: a fresh render of the messages, or a `RefusedError`."""

DEFAULTS = SampleOptions()

_LOG = logging.getLogger("tito.integrations")


Decode = Callable[[Sequence[int]], str]
"""Returns the text of ids, special tokens included, such as `Family.decode`."""

TAIL = 8
"""How many ids of a prompt's end show whether it opens the reasoning."""


@attrs.define
class _CallEngine(EngineWrapper):
    """The engine of one call, which notes how text that is streamed has to be read."""

    decode: Decode | None = None
    reading: StreamReading = attrs.field(default=StreamReading(hidden_reasoning=True), init=False)

    async def sample(self, request: SampleRequest) -> Reply:
        before = self.reading
        if request.ids is not None:
            self._note_ids(request.ids)
        try:
            return await super().sample(request)
        except MediaUnsupportedError:
            self.reading = before  # the prompt goes by messages
            raise

    def _note_ids(self, ids: Sequence[int]) -> None:
        tail = None if self.decode is None else self.decode(list(ids[-TAIL:]))
        opened = tail is not None and tail.rstrip().endswith(THINKS)
        self.reading = StreamReading(thinking=opened, buffered=tail is None)


@attrs.define
class _StreamedEvents:
    """The events of one streamed answer, which begins when it is known how its text has to be read."""

    make: Callable[[], AnswerStream]
    stream: AnswerStream | None = None

    def after(self, write: Callable[[AnswerStream], bytes]) -> list[dict[str, Any]]:
        head = b""
        if self.stream is None:
            self.stream = self.make()
            head = self.stream.start()
        return list(_events(head + write(self.stream)))


@attrs.define(eq=False)
class ModelCalls:
    """Answers requests of a client API in this process, and keeps each sampled turn.

    Use one object for one rollout, with its branches and sub-agents. Many objects may share a `TokenClient`.
    A call that fails or is cancelled keeps nothing.

    Attributes:
        client: Samples the turns. Its `counts` say how many prompts went by ids.
        on_refusal: What follows where a prompt with assistant messages cannot be continued by ids: a fresh
            render of its messages (`"rerender"`), or a `RefusedError` in place of the answer (`"raise"`),
            which was sampled already and is dropped.
        decode: Returns the text of ids. With it, streams have text as it comes. Without it, a turn comes
            whole: ids alone do not say whether the prompt opens the reasoning.
        calls: The calls so far, in the order of their answers.
        refused: How many prompts could not be continued, by the name of the reason.

    Raises:
        InputError: `on_refusal` is unknown, `client` is no `TokenClient`, or `decode` cannot be called.

    >>> from tito_io.dialects import Chat
    >>> from tito_io.engines.registry import embedded
    >>> calls = ModelCalls(TokenClient(embedded(seed=1)))
    >>> body = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 16}
    >>> answer = asyncio.run(calls.answer(Chat(), body))
    >>> answer["usage"]["completion_tokens"], len(calls.calls[0].step.completion_ids)
    (16, 16)
    >>> sum(calls.rows(reward=1.0).rows[0].loss_mask)
    16
    """

    client: TokenClient
    on_refusal: OnRefusal = attrs.field(default="rerender", kw_only=True)
    decode: Decode | None = attrs.field(default=None, kw_only=True)
    calls: list[StoredCall] = attrs.field(factory=list, init=False)
    refused: Counter[str] = attrs.field(factory=Counter, init=False)
    _conversation: str = attrs.field(factory=new_request_id, init=False, repr=False)
    """The rollout's name, by which routers keep it on one engine."""
    _named: dict[str, StoredCall] = attrs.field(factory=dict, init=False, repr=False)
    _steps: Trajectory = attrs.field(factory=Trajectory, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_on_refusal(self.on_refusal, get_args(OnRefusal))
        require(self.client, TokenClient, "client", "a TokenClient, such as TokenClient(engine)")
        if self.decode is not None and not callable(self.decode):
            raise InputError(f"decode is {short_repr(self.decode)}: give a function, such as Family.decode")

    async def answer(self, dialect: Dialect, body: object) -> dict[str, Any]:
        """Return the body of the answer to a request.

        Raises:
            InputError: The request cannot be translated, or an argument cannot be honoured.
            EngineError: As the engine raises it.
            RefusedError: The prompt cannot be continued by ids, and `on_refusal` is `"raise"`.
        """
        request = _parsed(dialect, body)
        stamp = self._stamp()
        turn = await self._sampled(request, self.client)
        answered = dialect.answer_body(request, _answer(turn, stamp))
        self._keep(turn, stamp)
        return answered

    async def events(self, dialect: Dialect, body: object) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the events of a streamed answer, which add up to `answer`; the errors are the same.

        An iterator that is closed early cancels the turn at the engine.
        """
        request, engine = _parsed(dialect, body), _CallEngine(self.client.engine, self.decode)
        stamp = self._stamp()
        deltas: asyncio.Queue[Delta | None] = asyncio.Queue()
        turning = asyncio.create_task(
            self._sampled(request, attrs.evolve(self.client, engine=engine), deltas.put)
        )
        turning.add_done_callback(lambda _: deltas.put_nowait(None))

        def begin() -> AnswerStream:
            stream = dialect.stream(request, stamp)
            stream.reading = engine.reading
            return stream

        streamed = _StreamedEvents(begin)
        try:
            while (delta := await deltas.get()) is not None:
                for event in streamed.after(methodcaller("delta", delta)):
                    yield event
            turn = await turning
            rest = streamed.after(methodcaller("finish", _answer(turn, stamp)))
            self._keep(turn, stamp)
            for event in rest:
                yield event
        finally:
            turning.cancel()
            await asyncio.gather(turning, return_exceptions=True)

    def message(self, name: str | None) -> Message | None:
        """Return the message of a call as it was sampled; None where no call has this name.

        The name of a call is the id of its answer.
        """
        call = self._named.get(name or "")
        return None if call is None else call.step.completion[0]

    def rows(self, options: SampleOptions = DEFAULTS, *, reward: float | None = None) -> RowSet:
        """Return training rows of the calls so far; each sampled id trains once.

        Args:
            options: What becomes a row, and what trains.
            reward: The reward of the rollout; None leaves the rewards of `calls` as they are.
        """
        calls = self.calls if reward is None else [attrs.evolve(call, reward=reward) for call in self.calls]
        return make_rows(Forest.of(calls), options)

    async def _sampled(
        self, request: ParsedRequest, client: TokenClient, watch: Watch | None = None
    ) -> CompletedTurn:
        turn = await client.turn(
            self._steps,
            request.messages,
            tools=request.tools,
            sampling=request.sampling,
            watch=watch,
            conversation=self._conversation,
        )
        refusal, answered = turn.turn.refusal, any(one["role"] == "assistant" for one in request.messages)
        # Without an assistant message it is a new conversation, such as that of a sub-agent.
        if refusal is not None and (answered or refusal.reason is not Reason.NO_PREFIX):
            self.refused[refusal.reason.name] += 1
            _LOG.warning("%s: %s (%s)", refusal.reason.name, refusal.detail, self.on_refusal)
            if self.on_refusal == "raise":
                raise RefusedError(refusal)
        return turn

    def _keep(self, turn: CompletedTurn, stamp: ReplyStamp) -> None:
        reply = turn.turn.reply
        call = StoredCall(
            name=stamp.id,
            step=turn.step,
            order=len(self.calls),
            finish_reason=reply.finish_reason,
            weight_versions=reply.weight_versions,
            routed_experts=reply.routed_experts,
        )
        self._steps = self._steps.append(call.step)
        self._named[call.name] = call
        self.calls.append(call)

    def _stamp(self) -> ReplyStamp:
        return ReplyStamp(id=uuid4().hex, created=int(time.time()), model=self.client.engine.name)


def _parsed(dialect: Dialect, body: object) -> ParsedRequest:
    """Return a request; raises `InputError` for what only a server can do, or what no SDK can take."""
    request = dialect.parse(body)
    if request.previous_response_id is not None:
        raise InputError("previous_response_id: no response is stored here; send the whole conversation")
    if request.continue_final_message:
        raise InputError(f"{request.continue_final_message}: a turn cannot be continued here; leave it out")
    if request.sampling.get("n", 1) != 1:
        raise InputError(f"n is {request.sampling['n']!r:.60}: one turn is sampled a call; leave it out")
    return request


def _answer(turn: CompletedTurn, stamp: ReplyStamp) -> TurnAnswer:
    return TurnAnswer.of(turn.turn.reply, id=stamp.id, created=stamp.created, model=stamp.model)


def _events(raw: bytes) -> Iterator[dict[str, Any]]:
    r"""Yield the data of server-sent events.

    >>> list(_events(b'event: a\ndata: {"type":"a"}\n\ndata: {"b":1}\n\ndata: [DONE]\n\n'))
    [{'type': 'a'}, {'b': 1}]
    """
    for event in raw.split(b"\n\n"):
        data = event.partition(b"data: ")[2]
        if data and data != b"[DONE]":
            yield json.loads(data)

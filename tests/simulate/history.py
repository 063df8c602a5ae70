"""What happened in a simulation, as its observers saw it: clients, network, engine and stores.

The checker reads nothing else. Nothing here knows how the gateway works.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson


@attrs.frozen
class Event:
    """A line of the timeline.

    Attributes:
        time: Seconds since the beginning.
        actor: Who did it, or whom it happened to.
        text: What happened.
    """

    time: float
    actor: str
    text: str

    def __str__(self) -> str:
        return f"{self.time:11.6f}  {self.actor:<10}  {self.text}"


@attrs.frozen(kw_only=True)
class Answer:
    """An HTTP answer, as far as it was seen.

    Attributes:
        status: Its status.
        complete: Whether all of it was seen, without an error in a stream.
        name: The id of the response, "" where there is none.
        prompt: The ids of the prompt, where they were shown.
        sampled: The sampled ids of each choice, where they were shown.
        message: The first choice's message.
        kind: The kind of error.
    """

    status: int
    complete: bool
    name: str = ""
    prompt: tuple[int, ...] = ()
    sampled: tuple[tuple[int, ...], ...] = ()
    message: Mapping[str, Any] | None = None
    kind: str = ""
    data: bytes = attrs.field(default=b"", repr=False)

    @property
    def taken(self) -> bool:
        """Whether it is a whole turn."""
        return self.complete and self.status == 200 and bool(self.name)


@attrs.define(kw_only=True, eq=False)
class Attempt:
    """A request for a turn as one client sent it once.

    Attributes:
        number: Its number.
        session: The session's id.
        asked: The name of what is asked for, which all copies and retries of a request share.
        body: The body.
        key: The idempotency key.
        sent: When the client began to send it.
        answer: What the client received.
        written: All that the gateway wrote for it while the connection was open.
        began: When the gateway began to work on it; None for never.
        finished: When the gateway's work on it was over, also by death; None for never.
    """

    number: int
    session: str
    asked: str
    body: bytes
    key: str | None = None
    sent: float = 0.0
    answer: Answer | None = None
    written: bytearray = attrs.field(factory=bytearray, repr=False)
    began: float | None = None
    finished: float | None = None


@attrs.frozen(kw_only=True)
class Sampling:
    """One reply that the engine sampled, whatever became of it.

    Attributes:
        number: Its number.
        prompt: The ids of the prompt.
        ids: The sampled ids.
        logprobs: Their log-probabilities.
        text: The text of the prompt.
    """

    number: int
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str


@attrs.frozen(kw_only=True)
class StoredTurn:
    """A turn as the store has it at the end.

    Attributes:
        name: The name of the turn.
        response: The id of its response.
        asked: The name of what was asked for.
        key: Whether the request had an idempotency key.
        received: Whether a client is known to have it.
        prompt: The ids of the prompt.
        ids: The sampled ids.
        logprobs: Their log-probabilities.
    """

    name: str
    response: str
    asked: str
    key: bool
    received: bool
    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]


@attrs.frozen(kw_only=True)
class TrainingRow:
    """A training row: all ids, which of them are trained, and their log-probabilities."""

    tokens: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None


@attrs.define(kw_only=True, eq=False)
class SessionHistory:
    """A session as its clients know it, and as it was found at the end.

    Attributes:
        name: Its id.
        label: The word that all of its prompts have, and no other session's.
        deleted: When a client learned that it was deleted; None for never.
        deleting: When a client first asked to delete it; None for never.
        status: The status with which the gateway answered for its rows at the end.
        turns: Its stored turns at the end.
        rows: Its training rows at the end.
        calls: Prompt ids and sampled ids of its turns in `/calls` at the end; None where that was not read.
        left: What the store still has of it at the end.
    """

    name: str
    label: str
    deleted: float | None = None
    deleting: float | None = None
    status: int = 0
    turns: list[StoredTurn] = attrs.field(factory=list)
    rows: list[TrainingRow] = attrs.field(factory=list)
    calls: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    left: list[str] = attrs.field(factory=list)


@attrs.define(eq=False)
class History:
    """All that was observed.

    Attributes:
        clock: Returns the time in seconds.
        start: When the simulation began.
        events: The timeline.
        sessions: Sessions by id.
        attempts: Requests for turns, in the order in which they were sent.
        samplings: Replies of the engine, in the order in which they were sampled.
        stored: When the store has acknowledged turns, by response id.
        reads: Times, statuses and session ids of requests that read a session.
        odd: What must never happen, as it was seen.
    """

    clock: Callable[[], float]
    start: float
    events: list[Event] = attrs.field(factory=list)
    sessions: dict[str, SessionHistory] = attrs.field(factory=dict)
    attempts: list[Attempt] = attrs.field(factory=list)
    samplings: list[Sampling] = attrs.field(factory=list)
    stored: dict[str, float] = attrs.field(factory=dict)
    reads: list[tuple[float, int, str]] = attrs.field(factory=list)
    odd: list[str] = attrs.field(factory=list)

    def note(self, actor: str, text: str) -> None:
        """Add a line to the timeline."""
        self.events.append(Event(self.clock() - self.start, actor, text))

    def attempt(self, session: str, asked: str, body: bytes, key: str | None) -> Attempt:
        """Add a request for a turn."""
        number = len(self.attempts) + 1
        made = Attempt(number=number, session=session, asked=asked, body=body, key=key, sent=self.clock())
        self.attempts.append(made)
        return made

    def text(self) -> str:
        """Return the timeline."""
        return "".join(f"{one}\n" for one in self.events)


def read_answer(status: int, kind: str, data: bytes, *, ended: bool) -> Answer:
    """Return what a body of a chat says, whole or streamed; half a body is an answer that is not complete.

    >>> read_answer(200, "application/json", b'{"id": "a", "choices": [{"message": {}}]}', ended=True).taken
    True
    >>> read_answer(200, "application/json", b'{"id": "a', ended=False).taken
    False
    """
    if kind.startswith("text/event-stream"):
        return _streamed(status, data, ended=ended)
    body = orjson.loads(data) if ended and kind.startswith("application/json") else None
    if not isinstance(body, dict):
        return Answer(status=status, complete=ended, data=data)
    error = body.get("error")
    if error is not None:
        named = error.get("code") or error.get("type") if isinstance(error, dict) else error
        return Answer(status=status, complete=ended, kind=str(named), data=data)
    choices = body.get("choices") or []
    return Answer(
        status=status,
        complete=ended,
        name=str(body.get("id", "")) if choices else "",
        prompt=tuple(body.get("prompt_token_ids") or ()),
        sampled=tuple(tuple(one.get("token_ids") or ()) for one in choices),
        message=choices[0]["message"] if choices else None,
        data=data,
    )


def _streamed(status: int, data: bytes, *, ended: bool) -> Answer:
    """Return what a stream of a chat says; one without its end mark is not complete."""
    name, prompt, kind = "", tuple[int, ...](), ""
    sampled: dict[int, list[int]] = {}
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    whole, _, _ = data.rpartition(b"\n\n")
    for line in whole.split(b"\n\n"):
        if not line.startswith(b"data: {"):
            continue
        event = orjson.loads(line.removeprefix(b"data: "))
        if "error" in event:
            kind = str(event["error"].get("code") or event["error"].get("type"))
            continue
        name, prompt = event["id"], tuple(event.get("prompt_token_ids") or prompt)
        for choice in event["choices"]:
            sampled.setdefault(choice["index"], []).extend(choice.get("token_ids") or [])
            if choice["index"] == 0:
                _add(message, choice["delta"])
    done = ended and whole.endswith(b"data: [DONE]") and not kind
    ids = tuple(tuple(sampled[place]) for place in sorted(sampled))
    found = {name: value for name, value in message.items() if value or name == "content"}
    return Answer(
        status=status,
        complete=done,
        name=name,
        prompt=prompt,
        sampled=ids,
        message=found,
        kind=kind,
        data=data,
    )


def _add(message: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta of a stream to a message."""
    for name in ("content", "reasoning"):
        if delta.get(name):
            message[name] = message.get(name, "") + delta[name]
    for call in delta.get("tool_calls") or []:
        calls = message.setdefault("tool_calls", [])
        while len(calls) <= call["index"]:
            calls.append({"type": "function", "function": {"name": "", "arguments": ""}})
        own, function = calls[call["index"]], call.get("function") or {}
        own.update({"id": call["id"]} if call.get("id") else {})
        for name in ("name", "arguments"):
            own["function"][name] += function.get(name) or ""

"""An engine that takes no time, at the other end of a transport in this process.

It answers the completions route in the form of a vLLM 0.32, repeats the prompt's ids where it is asked to,
and is told how many they are, so that the clock is not the server's.
"""

from __future__ import annotations

from typing import Any

import attrs
import httpx2
import orjson

MODEL = "m"
CONTEXT = 4_000_000
SAMPLED = 50
"""Ids that every turn samples, the stop among them."""
JSON = {"content-type": "application/json"}
ASIDES: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}]},
    "/tokenize": {"count": 3, "max_model_len": CONTEXT, "tokens": [1, 2, 3]},
    "/version": {"version": "0.32.0"},
}
"""What else a client may ask before its first turn. No tag of a tool call is a single id here."""
COUNT = b'"prompt_tokens":0'
OPEN, CLOSE = b'"prompt":[', b"]"


def _answer(sampled: list[int], *, ids: bool, named: bool) -> bytes:
    """Return an answer without the prompt's ids and count."""
    names = [f"token_id:{index}" if named else "well " for index in sampled]
    choice = {
        "index": 0,
        "text": "well " * (len(sampled) - 1),
        "logprobs": {
            "text_offset": list(range(len(names))),
            "token_logprobs": [-0.5] * len(names),
            "tokens": names,
            "top_logprobs": [{name: -0.5} for name in names],
        },
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": sampled if ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": [] if ids else None,
    }
    counted = {"prompt_tokens": 0, "total_tokens": 0, "completion_tokens": len(sampled)}
    top = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": MODEL}
    return orjson.dumps({**top, "choices": [choice], "usage": counted})


@attrs.define
class Server(httpx2.AsyncBaseTransport, httpx2.BaseTransport):
    """Answers; `count` ids are in the next prompt, and `grows` more in each one after it."""

    stop: int
    """The id that ends a turn."""
    count: int = 0
    grows: int = 0
    keeps: bool = False
    """Whether it keeps what it was sent last: a second body in memory is not in the time of a turn."""
    sent: bytes = b""
    answered: bytes = b""
    answers: dict[tuple[bool, bool], bytes] = attrs.field(init=False)

    @answers.default
    def _prepared(self) -> dict[tuple[bool, bool], bytes]:
        flags = [(ids, named) for ids in (False, True) for named in (False, True)]
        return {(ids, named): _answer(self.sampled, ids=ids, named=named) for ids, named in flags}

    @property
    def sampled(self) -> list[int]:
        """What every turn samples."""
        return [*range(1_000, 1_000 + SAMPLED - 1), self.stop]

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Return the answer to a request."""
        aside = ASIDES.get(request.url.path)
        if aside is not None:
            return httpx2.Response(200, content=orjson.dumps(aside), headers=JSON)
        sent = request.content
        self.sent = sent if self.keeps else b""
        tail = sent[:400] + sent[-400:]  # the keys beside the ids stand before and after them
        ids, named = b'"return_token_ids":true' in tail, b'"return_tokens_as_token_ids":true' in tail
        found = self.answers[ids, named].replace(COUNT, b'"prompt_tokens":%d' % self.count)
        if ids:
            begin = sent.index(OPEN) + len(OPEN)
            echoed = sent[begin : sent.index(CLOSE, begin)]
            found = found.replace(b'"prompt_token_ids":[]', b'"prompt_token_ids":[%s]' % echoed)
        self.count += self.grows
        self.answered = found
        return httpx2.Response(200, content=found, headers=JSON)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a client of the one kind."""
        return self.answer(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a client of the other."""
        return self.answer(request)

    def seen(self) -> list[int]:
        """Return the ids of the last prompt."""
        ids: list[int] = orjson.loads(self.sent)["prompt"]
        return ids

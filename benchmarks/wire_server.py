"""An engine that answers at once, behind an httpx2 transport in this process.

It answers the completions route as vLLM 0.32 does, and repeats the prompt ids on request. The benchmark sets
the count of prompt ids, so that the server does not have to parse the body.
"""

from __future__ import annotations

from typing import Any

import attrs
import httpx2
import orjson

MODEL = "m"
CONTEXT = 4_000_000
SAMPLED = 50
"""Ids that every turn samples, including the stop token."""
JSON = {"content-type": "application/json"}
ASIDES: dict[str, Any] = {
    "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}]},
    "/tokenize": {"count": 3, "max_model_len": CONTEXT, "tokens": [1, 2, 3]},
    "/version": {"version": "0.32.0"},
}
"""Answers to a client's other requests. In this vocabulary no tag of a tool call is a single id."""
COUNT = b'"prompt_tokens":0'
OPEN, CLOSE = b'"prompt":[', b"]"


def _answer(sampled: list[int], *, ids: bool, named: bool) -> bytes:
    """Return a reply without the prompt ids and their count."""
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
    """A transport that answers completions requests.

    Attributes:
        stop: The stop token.
        count: Ids of the next prompt.
        grows: How many ids each prompt has more than the one before.
        keeps: Whether to keep the last body in `sent`. Off while timing: it is a second copy in memory.
        sent: Body of the last request, if kept.
        answered: Body of the last reply.
        answers: Prepared replies, by the request's flags.
    """

    stop: int
    count: int = 0
    grows: int = 0
    keeps: bool = False
    sent: bytes = b""
    answered: bytes = b""
    answers: dict[tuple[bool, bool], bytes] = attrs.field(init=False)

    @answers.default
    def _prepared(self) -> dict[tuple[bool, bool], bytes]:
        flags = [(ids, named) for ids in (False, True) for named in (False, True)]
        return {(ids, named): _answer(self.sampled, ids=ids, named=named) for ids, named in flags}

    @property
    def sampled(self) -> list[int]:
        """Sampled ids of every turn."""
        return [*range(1_000, 1_000 + SAMPLED - 1), self.stop]

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """Return the reply to a request."""
        aside = ASIDES.get(request.url.path)
        if aside is not None:
            return httpx2.Response(200, content=orjson.dumps(aside), headers=JSON)
        sent = request.content
        self.sent = sent if self.keeps else b""
        tail = sent[:400] + sent[-400:]  # the flags stand before or after the long list of ids
        ids, named = b'"return_token_ids":true' in tail, b'"return_tokens_as_token_ids":true' in tail
        body = self.answers[ids, named].replace(COUNT, b'"prompt_tokens":%d' % self.count)
        if ids:
            begin = sent.index(OPEN) + len(OPEN)
            echoed = sent[begin : sent.index(CLOSE, begin)]
            body = body.replace(b'"prompt_token_ids":[]', b'"prompt_token_ids":[%s]' % echoed)
        self.count += self.grows
        self.answered = body
        return httpx2.Response(200, content=body, headers=JSON)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a synchronous client."""
        return self.answer(request)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer an asynchronous client."""
        return self.answer(request)

    def prompt_ids(self) -> list[int]:
        """Return the ids of the last prompt."""
        ids: list[int] = orjson.loads(self.sent)["prompt"]
        return ids

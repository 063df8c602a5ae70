"""An engine that answers at once, in a process of its own: `... upstream FOLDER IDS SECONDS`.

It answers the routes of a vLLM 0.32 server that the gateway uses, and the chat route of an ordinary client.
Every turn has the same text, and its own ids: the first four count the turns. A stream has an event for each
id, so many seconds apart; 0 sends all of them at once.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import attrs
import orjson

from benchmarks.gateway.processes import serve_here
from tito_io.families.family import Family

MODEL = "m"
CONTEXT = 4_000_000
WORD = "word "
MODELS = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "max_model_len": CONTEXT}],
}
FIRST = 100
"""The ids that count the turns begin here, each a digit of the count."""
BASE = 50
JSON, EVENTS = b"application/json", b"text/event-stream"
TOP = {"id": "cmpl-1", "created": 1, "model": MODEL}


@attrs.frozen
class Engine:
    """An engine whose turns are known.

    Attributes:
        family: The model folder, for prompts that come as messages.
        sampled: How many ids a turn has.
        turns: Counts the turns.
    """

    family: Family
    sampled: int
    turns: Iterator[int] = attrs.field(factory=count)

    def ids(self) -> list[int]:
        """Return the ids of the next turn; the last one ends it."""
        turn = next(self.turns)
        digits = [FIRST + turn // BASE**place % BASE for place in range(4)]
        return [*digits, *range(FIRST, FIRST + self.sampled - 5), self.family.stop_ids[0]]

    def answer(self, path: str, body: bytes) -> tuple[bytes, list[bytes]]:
        """Return the content type and the parts of the answer to a request."""
        if path == "/v1/models":
            return JSON, [orjson.dumps(MODELS)]
        if path == "/version":
            return JSON, [b'{"version":"0.32.0"}']
        if path == "/tokenize":
            ids = self._tokenized(orjson.loads(body))
            answer = {"count": len(ids), "max_model_len": CONTEXT, "tokens": ids}
            return JSON, [orjson.dumps(answer)]
        if path == "/detokenize":
            return JSON, [orjson.dumps({"prompt": self.family.decode(orjson.loads(body)["tokens"])})]
        return self._completion(body) if path == "/v1/completions" else self._chat(body)

    def _tokenized(self, body: Any) -> list[int]:
        if "messages" not in body:
            return self.family.encode(body["prompt"])
        speaking = body.get("add_generation_prompt", True)
        return self.family.ids(body["messages"], tools=body.get("tools"), add_generation_prompt=speaking)

    def _completion(self, body: bytes) -> tuple[bytes, list[bytes]]:
        begin = body.index(b'"prompt":[') + 10
        end = body.index(b"]", begin)
        options = body[:begin] + body[end:]
        echo = body[begin:end] if b'"return_token_ids":true' in options else None
        usage, ids = _usage(body.count(b",", begin, end) + 1, self.sampled), self.ids()
        if b'"stream":true' in options:
            choices = [self._choice([index], None if echo is None else b"") for index in ids]
            choices[0] |= self._prompt(echo)
            return EVENTS, _stream([*({**TOP, "choices": [one]} for one in choices), _end(usage)])
        choice = {**self._choice(ids, echo), **self._prompt(echo)}
        return JSON, [orjson.dumps({**TOP, "choices": [choice], "usage": usage})]

    def _prompt(self, echo: bytes | None) -> dict[str, Any]:
        return {} if echo is None else {"prompt_token_ids": orjson.Fragment(b"[%b]" % echo)}

    def _choice(self, ids: list[int], echo: bytes | None) -> dict[str, Any]:
        names = [f"token_id:{index}" for index in ids]
        ended = ids[-1] == self.family.stop_ids[0]
        return {
            "index": 0,
            "text": WORD * (len(ids) - ended),
            "logprobs": {
                "text_offset": [0] * len(ids),
                "token_logprobs": [-0.5] * len(ids),
                "tokens": names,
                "top_logprobs": [{name: -0.5} for name in names],
            },
            "finish_reason": "stop" if ended else None,
            "stop_reason": None,
            **({} if echo is None else {"token_ids": ids}),
        }

    def _chat(self, body: bytes) -> tuple[bytes, list[bytes]]:
        """Answer an ordinary client with texts alone, and the gateway's first turns with ids."""
        if b'"return_token_ids":true' in body[-2_000:]:
            return self._chat_with_ids(orjson.loads(body))
        usage = _usage(1, self.sampled)
        if b'"stream":true' in body[-2_000:]:
            words = [{"content": WORD}] * (self.sampled - 1)
            ends = [None] * (len(words) - 1) + ["stop"]
            chunks = [
                {**TOP, "choices": [{"index": 0, "delta": delta, "finish_reason": end}]}
                for delta, end in zip(words, ends, strict=True)
            ]
            return EVENTS, _stream([*chunks, _end(usage)])
        message = {"role": "assistant", "content": WORD * (self.sampled - 1)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSON, [orjson.dumps({**TOP, "choices": [choice], "usage": usage})]

    def _chat_with_ids(self, body: Any) -> tuple[bytes, list[bytes]]:
        prompt, ids = (
            self.family.ids(body["messages"], tools=body.get("tools"), add_generation_prompt=True),
            self.ids(),
        )
        entry: dict[str, Any] = {"logprob": -0.5, "bytes": None, "top_logprobs": []}
        message = {"role": "assistant", "content": WORD * (self.sampled - 1)}
        choice = {
            "index": 0,
            "delta" if body.get("stream") else "message": message,
            "finish_reason": "stop",
            "stop_reason": None,
            "token_ids": ids,
            "logprobs": {"content": [{"token": f"token_id:{index}", **entry} for index in ids]},
        }
        whole = {**TOP, "prompt_token_ids": prompt, "choices": [choice]}
        usage = _usage(len(prompt), self.sampled)
        if body.get("stream"):
            return EVENTS, _stream([whole, _end(usage)])
        return JSON, [orjson.dumps({**whole, "usage": usage})]


def _usage(prompt: int, sampled: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _end(usage: dict[str, int]) -> dict[str, Any]:
    """Return the last chunk of a stream."""
    return {**TOP, "choices": [], "usage": usage}


def _stream(chunks: list[dict[str, Any]]) -> list[bytes]:
    return [*(b"data: %b\n\n" % orjson.dumps(chunk) for chunk in chunks), b"data: [DONE]\n\n"]


def application(engine: Engine, pause: float) -> Any:
    """Return the engine as an ASGI application; `pause` is in seconds."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        parts, more = [], True
        while more:
            message = await receive()
            parts.append(message.get("body", b""))
            more = message.get("more_body", False)
        kind, answer = engine.answer(scope["path"], b"".join(parts))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        for part in answer if pause else ():
            await send({"type": "http.response.body", "body": part, "more_body": True})
            await asyncio.sleep(pause)
        await send({"type": "http.response.body", "body": b"" if pause else b"".join(answer)})

    return app


if __name__ == "__main__":
    folder, ids, seconds = sys.argv[1:]
    serve_here(application(Engine(Family.load(Path(folder)), int(ids)), float(seconds)))

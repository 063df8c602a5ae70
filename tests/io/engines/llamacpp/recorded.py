"""Exchanges recorded from real llama.cpp servers with a tiny model.

`recorded.jsonl` holds one exchange a line, as it was sent and answered, on a CPU: llama.cpp 0.5.0-dev
(commit 0c1e570), and where the name begins with `old` build 10434. Of prompts of 2,046 ids and more only the
number of ids is kept. The environment variable TITO_EXCHANGES names a folder with more of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import httpx2
import orjson

from tests.io.engines.recorded_vocabulary import family
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.llamacpp.requests import COMPLETION, NEUTRAL
from tito_io.engines.protocol import Delta, Reply, Sampling

Exchange = Mapping[str, Any]

EXCHANGES: Mapping[str, Exchange] = {
    one["name"]: one
    for one in map(orjson.loads, Path(__file__).with_suffix(".jsonl").read_bytes().splitlines())
}
PASSED = ("cache_prompt", "grammar", "logit_bias", "n_probs")
"""Keys of recorded requests that are keys of `Sampling.extra`, beside samplers."""
TEXT_END, END = 4087, 4089
"""The two ids that end a turn."""
PROMPT: tuple[int, ...] = tuple(EXCHANGES["cmpl.emoji"]["request"]["prompt"])


def sampling_of(request: Exchange, response: Any, **more: Any) -> Sampling:
    """Return the sampling parameters of a recorded request, the server's own defaults among them."""
    first = response[0] if isinstance(response, list) else response
    used = first.get("generation_settings") or {}
    extra = {name: used[name] for name in NEUTRAL.keys() - {"temperature"} if name in used}
    extra |= {name: request[name] for name in PASSED if name in request}
    fields = {
        "max_tokens": max(request.get("n_predict", 1), 1),
        "temperature": used.get("temperature"),
        "seed": request.get("seed"),
        "stop": tuple(request.get("stop") or ()),
        "n": request.get("n", 1),
        "extra": extra,
    }
    return Sampling(**{**fields, **more})


@attrs.define
class Replayed:
    """A server that answers `/completion` with recorded answers, one after the other.

    Attributes:
        answers: What it answers: recorded exchanges, bodies, or responses.
        requests: The requests to `/completion`.
        paths: The paths of all requests.
    """

    answers: list[Any]
    requests: list[dict[str, Any]] = attrs.field(factory=list)
    paths: list[str] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        self.paths.append(request.url.path)
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json=EXCHANGES["models"]["response"])
        assert request.url.path == COMPLETION
        self.requests.append(orjson.loads(request.content))
        answer = self.answers.pop(0)
        if isinstance(answer, httpx2.Response):
            return answer
        if not isinstance(answer, Mapping) or "status" not in answer:
            return httpx2.Response(200, json=answer)
        return httpx2.Response(answer["status"], json=answer["response"])

    def engine(self, **options: Any) -> LlamaCpp:
        """Return an engine at this server."""
        return LlamaCpp("http://mock", family=family(), transport=httpx2.MockTransport(self), **options)


async def replayed(
    one: Exchange | str,
    *others: Any,
    seen: list[Delta] | None = None,
    options: Mapping[str, Any] | None = None,
    **sampling: Any,
) -> tuple[Reply, Replayed]:
    """Ask for what an exchange asked, and be answered what it was; `others` answer what is asked then."""

    async def watch(delta: Delta) -> None:
        assert seen is not None
        seen.append(delta)

    one = EXCHANGES[one] if isinstance(one, str) else one
    server = Replayed([one, *others])
    async with server.engine(**(options or {})) as engine:
        wanted = sampling_of(one["request"], one["response"], **sampling)
        reply = await engine.from_ids(one["request"]["prompt"], wanted, watch=None if seen is None else watch)
    return reply, server

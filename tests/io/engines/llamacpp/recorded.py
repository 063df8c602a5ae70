"""Exchanges recorded from real llama.cpp servers with a tiny model, and that model's vocabulary.

`recorded.jsonl` holds one exchange a line, as it was sent and answered, on a CPU: llama.cpp 0.5.0-dev
(commit 0c1e570), and where the name begins with `old` build 10434. Of prompts of 2,046 ids and more only the
number of ids is kept. The environment variable TITO_EXCHANGES names a folder with more of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import httpx2
import orjson

from tests.engines.tiny_model import MARKERS, TAGS, TEMPLATE
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.llamacpp.requests import COMPLETION, NEUTRAL
from tito_io.engines.protocol import Delta, Reply, Sampling
from tito_io.families.family import Family

Exchange = Mapping[str, Any]

EXCHANGES: Mapping[str, Exchange] = {
    one["name"]: one
    for one in map(orjson.loads, Path(__file__).with_suffix(".jsonl").read_bytes().splitlines())
}
PASSED = ("cache_prompt", "grammar", "logit_bias", "n_probs")
"""Keys of recorded requests that are keys of `Sampling.extra`, beside samplers."""
SIZE, TEXT_END, END = 4096, 4087, 4089
"""How many ids the recorded model has, and the two that end a turn."""
PROMPT: tuple[int, ...] = tuple(EXCHANGES["cmpl.emoji"]["request"]["prompt"])
BYTES = (*range(33, 127), *range(161, 173), *range(174, 256), *range(33), *range(127, 161), 173)
"""The bytes in the order of GPT-2's alphabet; in this vocabulary the first 256 ids."""
BYTEWISE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
LETTERS = {byte: chr(byte) if place < 188 else chr(256 + place - 188) for place, byte in enumerate(BYTES)}
"""The letter that stands for each byte."""


@cache
def family() -> Family:
    """Return the recorded model's vocabulary, as far as the exchanges show it, with a chat template."""
    names = {index: LETTERS[byte] for index, byte in enumerate(BYTES)}
    for entry in _entries(list(EXCHANGES.values())):
        text = "".join(LETTERS[byte] for byte in entry["bytes"])
        if entry["id"] not in names and text and text not in names.values():
            names[entry["id"]] = text
    added = dict(enumerate((*MARKERS, *TAGS), TEXT_END))
    vocabulary = {names.get(index, f"[PAD{index}]"): index for index in range(SIZE) if index not in added}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": index, "content": text, "special": text in MARKERS, "normalized": False}
            | {"single_word": False, "lstrip": False, "rstrip": False}
            for index, text in added.items()
        ],
        "pre_tokenizer": BYTEWISE,
        "decoder": BYTEWISE,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        return Family.load(folder)


def _entries(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what names an id and its bytes. Behind an id inside a character stand the bytes of both."""
    if isinstance(value, Mapping) and {"id", "bytes", "logprob"} <= value.keys():
        yield from _entries(value.get("top_logprobs") or [])
        yield value
    elif isinstance(value, Mapping | list):
        inner = value.values() if isinstance(value, Mapping) else value
        yield from chain.from_iterable(map(_entries, inner))


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

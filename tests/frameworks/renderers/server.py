"""vLLM's generate route over HTTP, with the embedded engine's sampler or a script behind it.

It refuses what a vLLM 0.32 server refuses of such a request, and anything that a client should not send.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.agents.loopback import listening
from tests.frameworks.sampler import Engine

Samples = Callable[[list[int], int], tuple[list[int], str]]
"""Returns the ids after a prompt and why they end, given a limit."""
PARAMETERS = {"logprobs", "max_tokens", "skip_special_tokens", "stop_token_ids"}


@attrs.define
class Generating:
    """The route, and what went over it.

    Attributes:
        samples: Where the ids come from.
        stops: The stop ids that a client must send.
        limit: The prompt and its reply together have at most so many ids.
        placeholder: The id that is expanded for each image; None if the model takes none.
        named: Whether log-probabilities name their ids as the client of renderers 0.1.12 reads them;
            vLLM 0.32 and 0.33 do not.
        prompts: The prompts in order, as they were sent.
        expanded: The prompts with the ids of images.
        replies: The ids that were sampled after each.
        urls: The images that were sent with each.
    """

    samples: Samples
    stops: list[int]
    limit: int = 32_768
    placeholder: int | None = None
    named: bool = True
    prompts: list[list[int]] = attrs.field(factory=list)
    expanded: list[list[int]] = attrs.field(factory=list)
    replies: list[list[int]] = attrs.field(factory=list)
    urls: list[list[str]] = attrs.field(factory=list)

    async def models(self, _request: Request) -> JSONResponse:
        card = {"id": "model", "object": "model", "max_model_len": self.limit}
        return JSONResponse({"object": "list", "data": [card]})

    async def generate(self, request: Request) -> JSONResponse:
        body = await request.json()
        wrong = self._wrong(body) or self._wrong_images(body.get("content_parts", ()), body["token_ids"])
        if wrong:
            return JSONResponse({"error": {"message": wrong, "type": "BadRequestError"}}, status_code=400)
        ids, reason = self.samples(body["token_ids"], body["sampling_params"]["max_tokens"])
        self.prompts.append(body["token_ids"])
        self.replies.append(ids)
        content = [{**self._name(one), "logprob": -0.5} for one in ids]
        choice = {"index": 0, "token_ids": ids, "finish_reason": reason, "logprobs": {"content": content}}
        seen = self._expand(body)
        return JSONResponse({"request_id": f"generate-{len(self.prompts)}", "choices": [choice], **seen})

    def _name(self, one: int) -> dict[str, Any]:
        return {"token": f"token_id:{one}", "bytes": None} if self.named else {"token_id": one, "rank": 1}

    def _expand(self, body: dict[str, Any]) -> dict[str, Any]:
        """Expand images as vLLM does, and return what it says of them (`mm_placeholders`)."""
        urls = [part["url"] for part in body.get("content_parts", ())]
        ids: list[int] = []
        ranges: list[dict[str, int]] = []
        for one in body["token_ids"]:
            if urls and one == self.placeholder:
                length = 3 + len(urls[len(ranges)]) % 5
                ranges.append({"offset": len(ids), "length": length})
                ids += [one] * length
            else:
                ids.append(one)
        self.expanded.append(ids)
        self.urls.append(urls)
        return {"prompt_token_ids": ids, "mm_placeholders": {"image": ranges}} if urls else {}

    def _wrong_images(self, parts: Sequence[dict[str, Any]], ids: list[int]) -> str | None:
        """Return what a server would reject of images."""
        if self.placeholder in ids and ids.count(self.placeholder) != len(parts):
            return f"{ids.count(self.placeholder)} placeholders for {len(parts)} images"
        if any(part.keys() != {"type", "url"} or part["type"] != "image_url" for part in parts):
            return "unexpected content_parts"
        return None

    def _wrong(self, body: dict[str, Any]) -> str | None:
        """Return what a server would reject."""
        named = {"content_parts", "return_token_ids"} if body.get("content_parts") else set()
        if body.keys() != {"model", "token_ids", "sampling_params"} | named or body["model"] != "model":
            return f"unexpected body {sorted(body)}"
        ids, parameters = body["token_ids"], body["sampling_params"]
        if not ids or not all(type(one) is int and one >= 0 for one in ids):
            return "token_ids are not ids"
        if (
            parameters.keys() - {"routed_experts_prompt_start"} != PARAMETERS
            or type(parameters.get("max_tokens")) is not int
        ):
            return f"unexpected sampling_params {sorted(parameters)}"
        if parameters["stop_token_ids"] != self.stops or parameters["logprobs"] != 1:
            return f"unexpected stop ids {parameters['stop_token_ids']}"
        if parameters["skip_special_tokens"] is not False:
            return "special tokens would be lost"
        return None if len(ids) + parameters["max_tokens"] <= self.limit else "the prompt is too long"


def embedded(seed: int) -> Samples:
    """Return the embedded engine's sampler, with all of its faults."""
    engine = Engine(seed, most=400)

    def samples(prompt: list[int], most: int) -> tuple[list[int], str]:
        reply = engine.sample(prompt, most)
        return reply.ids, reply.finish_reason

    return samples


def scripted(turns: Sequence[Sequence[int]], stops: Sequence[int]) -> Samples:
    """Return a sampler of given turns, one after the other."""
    left = iter(turns)

    def samples(_prompt: list[int], most: int) -> tuple[list[int], str]:
        ids = list(next(left))[:most]
        return ids, "stop" if ids[-1] in stops else "length"

    return samples


@contextmanager
def serving(engine: Generating) -> Iterator[str]:
    """Serve on a loopback port and yield the base URL."""
    routes = [
        Route("/inference/v1/generate", engine.generate, methods=["POST"]),
        Route("/v1/models", engine.models, methods=["GET"]),
    ]
    with listening(Starlette(routes=routes)) as url:
        yield f"{url}/v1"

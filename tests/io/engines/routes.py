"""A row for every route by which an engine takes ids: its adapter, and a server that samples what it is told.

A new engine is one row here, and `test_laws.py` demands of it what it demands of the others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson

from tests.io.engines.dynamo import dynamo_server
from tests.io.engines.lmdeploy import lmdeploy_server
from tests.io.engines.scripted import MODEL, PROMPT, YES, Heard, Script
from tests.io.engines.sglang import sglang_server
from tests.io.engines.tensorrt_llm import tensorrt_llm_server
from tests.io.engines.vllm import vllm_server
from tito_io.engines import dynamo, vllm
from tito_io.engines.http_engine import HttpEngine
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.lmdeploy import LMDeploy
from tito_io.engines.protocol import Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.tensorrt_llm import TensorRTLLM
from tito_io.engines.vllm import VLLM

IDS = PROMPT[-23:]
"""The prompt: no other number in an answer is its length, and no other list has its ids."""
CONTEXT = 50
"""The most ids of prompt and completion."""
DONE = "[DONE]"
"""Stands for the end mark among the events of a stream."""
Handler = Callable[[httpx2.Request], httpx2.Response]
Change = Callable[[list[Any]], list[Any] | httpx2.Response]


@attrs.frozen(kw_only=True)
class Route:
    """A route of an engine.

    Attributes:
        adapter: The adapter's class.
        path: Where turns are sampled.
        server: Returns a server of so much context that samples these turns.
        options: Arguments of the adapter.
        lacks: What it refuses before anything is sent: fields of `Sampling`; `streamed n`; `abort` where no
            turn is; `stream` where turns come whole.
        unread: Names of values in an answer that say again what others say, and are not compared.
        parses: Whether the message is made of the ids here.
        masks: Whether it sends sampling masks.
        echoes: Whether a request asks for the prompt's ids, which come back until they were right once; None
            where none, or each, does.
    """

    adapter: type[HttpEngine]
    path: str
    server: Callable[[Sequence[Script], int], Handler]
    options: Mapping[str, Any] = attrs.field(factory=dict)
    lacks: Collection[str] = ()
    unread: Collection[str] = ()
    parses: bool = True
    masks: bool = False
    echoes: Callable[[Mapping[str, Any]], bool] | None = None


@attrs.define
class Served:
    """A server of a route behind a transport: what it answers may be changed, what it is asked is kept.

    Attributes:
        route: The route.
        turns: What it samples: for each request, the turns of that one; the last for all further ones.
        change: Changes the values of an answer, events or the one body, with the end mark of a stream.
        context: The most ids of prompt and completion.
        prompts: The prompts of the requests for turns.
        echoes: Of each, whether it asked for the prompt's ids.
    """

    route: Route
    turns: list[Sequence[Script]] = attrs.field(factory=lambda: [[YES]])
    change: Change | None = None
    context: int = CONTEXT
    prompts: list[list[int]] = attrs.field(factory=list)
    echoes: list[bool] = attrs.field(factory=list)

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        body = orjson.loads(request.content) if request.content else {}
        prompt = sent_ids(body)
        if request.url.path != self.route.path or prompt is None or "logit_bias" in body:
            return self.route.server(self.turns[0], self.context)(request)
        self.prompts.append(prompt)
        self.echoes.append(self.route.echoes is not None and self.route.echoes(body))
        turns = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        response = self.route.server(turns, self.context)(request)
        if self.change is None:
            return response
        await response.aread()
        found = self.change(values(response))
        return found if isinstance(found, httpx2.Response) else written(found, streamed=_streams(response))

    def engine(self, **options: Any) -> HttpEngine:
        """Return an engine that asks it."""
        given = {"vocab_size": MODEL.vocab_size, "transport": httpx2.MockTransport(self)}
        return self.route.adapter("http://mock", **{**given, **self.route.options, **options})


def _streams(response: httpx2.Response) -> bool:
    return response.headers["content-type"].startswith("text/event-stream")


def values(response: httpx2.Response) -> list[Any]:
    """Return the JSON values of an answer: the events of a stream with its end mark, or the one body."""
    if not _streams(response):
        return [response.json()]
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    return [line if line == DONE else orjson.loads(line) for line in lines]


def written(found: Sequence[Any], *, streamed: bool) -> httpx2.Response:
    """Return an answer of these values."""
    return events(found) if streamed else httpx2.Response(200, json=found[0])


def parts(found: Sequence[Any]) -> list[bytes]:
    """Return events as they are sent."""
    texts = [one.encode() if one == DONE else orjson.dumps(one) for one in found]
    return [b"data: " + text + b"\n\n" for text in texts]


def events(found: Sequence[Any]) -> httpx2.Response:
    """Return a stream of these values."""
    content = b"".join(parts(found))
    return httpx2.Response(200, content=content, headers={"content-type": "text/event-stream"})


def sent_ids(value: Any) -> list[int] | None:
    """Return the prompt's ids in a request: the one list of more than ten numbers."""
    if isinstance(value, list) and len(value) > 10 and set(map(type, value)) == {int}:
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for one in inner if (found := sent_ids(one)) is not None), None)


def _prompt(body: Mapping[str, Any]) -> list[int]:
    found = sent_ids(body)
    assert found is not None
    return found


async def right_answer(route: Route, turn: Script = YES, *, streamed: bool) -> list[Any]:
    """Return the values of a right answer."""
    kept: list[Any] = []

    def keep(found: list[Any]) -> list[Any]:
        kept.extend(copy.deepcopy(found))
        return found

    async with Served(route, [[turn]], keep).engine() as engine:
        await engine.from_ids(IDS, Sampling(), watch=Heard() if streamed else None)
    return kept


# vLLM.

Made = Callable[..., dict[str, Any]]


def vllm_route(route: str, path: str, made: Made, shown: str, **more: Any) -> Route:
    """Return a route of vLLM, whose answers `made` makes; `shown` is its name for the text."""

    def server(scripts: Sequence[Script], context: int) -> Handler:
        def answered(request: httpx2.Request, body: Any) -> httpx2.Response:
            keys = body.get("sampling_params", body)
            turns = [one.within(keys["max_tokens"]) for one in scripts[: keys.get("n", 1)]]
            texts = body.get("output_mode") != "tokens"
            masks = path == vllm.GENERATE  # of a server that was started with them
            answers = [
                made(
                    turn.ids,
                    prompt=sent_ids(body) or body["token_ids"],
                    logprobs=turn.logprobs,
                    finish_reason=turn.finish,
                    stop_reason=turn.stop,
                    **({"kept": turn.kept} if masks else {}),
                    **({shown: turn.text} if texts else {}),
                )
                for turn in turns
            ]
            response = vllm_server.serving(vllm_server.several(*answers))(request, body)
            told = [_as_asked(one, body, path) for one in values(response)]
            return written(told, streamed=_streams(response))

        mock = vllm_server.Mock({path: answered, **_own_tokenizer("prompt")})
        mock.answers["/v1/models"] = {"data": [{**vllm_server.CARD, "max_model_len": context}]}
        return mock

    # The names of tokens are compared only where they are ids.
    unread = ("total_tokens", "text_offset", "top_logprobs", "tokens", "token")
    return Route(
        adapter=VLLM,
        path=path,
        server=server,
        options={"route": route},
        unread=unread,
        echoes=lambda body: bool(body.get("return_token_ids")),
        **more,
    )


def _as_asked(value: Any, body: Mapping[str, Any], path: str) -> Any:
    """Return a body or an event with the ids that were asked for; some in names of tokens."""
    lists = bool(body.get("return_token_ids"))
    for holder in () if value == DONE else (value, *value["choices"]):
        ids, logprobs = holder.get("token_ids"), holder.get("logprobs") or {}
        names = [f"token_id:{index}" for index in ids or ()] if body.get("return_tokens_as_token_ids") else []
        if names and "tokens" in logprobs:
            logprobs["tokens"] = names
        for entry, name in zip(logprobs.get("content") or (), names, strict=False):
            entry["token"] = name
        for name in () if lists else ("prompt_token_ids", *(("token_ids",) * (path != vllm.GENERATE))):
            holder.pop(name, None)
    return value


def _own_tokenizer(text_key: str) -> dict[str, Any]:
    """Return the tokenizer's routes, which tokenize as `MODEL` does."""

    def tokenize(*given: Any) -> dict[str, Any]:
        body = given[-1]
        if "prompt" in body:
            return {"tokens": MODEL.encode(body["prompt"])}
        asked = {name: body[name] for name in ("add_generation_prompt", "tools") if name in body}
        return {"tokens": MODEL.ids(body["messages"], **asked)}

    def detokenize(*given: Any) -> dict[str, Any]:
        return {text_key: MODEL.decode(given[-1]["tokens"])}

    return {"/tokenize": tokenize, "markers": tokenize, "/detokenize": detokenize}


# SGLang.


def _sglang_echoes(body: Mapping[str, Any]) -> bool:
    return any(body.get(name) for name in ("return_prompt_token_ids", "return_input_ids_in_sglext"))


def _sglang_generated(body: Any, turns: Sequence[Script]) -> Any:
    def item(turn: Script, place: int, upto: int) -> dict[str, Any]:
        end = {"type": turn.finish, "matched": turn.stop}
        some = Script(ids=turn.ids[:upto], finish="")
        masked = bool(body.get("return_sampling_mask"))
        assert not masked or body["sampling_params"]["top_k"] > 0, "else it is aborted (scheduler.py:3174)"
        made = sglang_server.generated(
            some.ids,
            finish=end,
            prompt=_prompt(body) if body["return_prompt_token_ids"] else None,
            prompt_tokens=len(_prompt(body)),
            text=turn.text if upto == len(turn.ids) else some.text,
            **_sglang_values(some, masked=masked),
        )
        if upto < len(turn.ids):
            made["meta_info"] |= {"finish_reason": None, "weight_versions": None}
        return {**made, "index": place} if body.get("stream") else made

    if body.get("stream"):
        steps = [(turn, place, n) for place, turn in enumerate(turns) for n in range(1, len(turn.ids) + 1)]
        return events([*(item(*step) for step in steps), DONE])
    items = [item(turn, place, len(turn.ids)) for place, turn in enumerate(turns)]
    return items if len(items) > 1 else items[0]


def _sglang_values(turn: Script, *, masked: bool) -> dict[str, Any]:
    """Return what `meta_info` has of ids; beside masks, their values are not over the whole vocabulary."""
    pairs = zip(turn.logprobs, turn.ids, strict=True)
    if not masked:
        return {"output_token_logprobs": [list(pair) for pair in pairs]}
    return {
        "output_token_logprobs": [[value - 1, index] for value, index in pairs],
        "output_token_sampling_mask": turn.kept,
        "output_token_sampling_logprobs": list(turn.logprobs),
        "output_token_sampling_mask_length": len(turn.ids),
    }


def _sglang_choices(body: Any, turns: Sequence[Script], *, chat: bool) -> Any:
    def choice(turn: Script, place: int) -> dict[str, Any]:
        said: dict[str, Any] = {"finish_reason": turn.finish, "matched_stop": turn.stop, "index": place}
        if chat:
            entries = [{"token": "x", "logprob": value} for value in turn.logprobs]
            said |= {"message": {"role": "assistant", "content": turn.text}, "logprobs": {"content": entries}}
        else:
            logprobs = {"token_logprobs": list(turn.logprobs), "tokens": ["x"] * len(turn.ids)}
            said |= {"text": turn.text, "logprobs": logprobs}
        make = sglang_server.chatted if chat else sglang_server.completed
        (made,) = make(turn.ids, **said)["choices"]
        masked = bool(body.get("return_sampling_mask"))
        assert not masked or (body["return_meta_info"] and not body.get("stream")), (
            "serving_chat.py:1118, 1321"
        )
        if body.get("return_meta_info"):
            made["meta_info"] = _sglang_values(turn, masked=masked)
        held = "response_token_ids" if chat and not (_sglang_echoes(body) or body.get("stream")) else ""
        made = {name: value for name, value in made.items() if name not in ("prompt_token_ids", held)}
        return {**made, "prompt_token_ids": _prompt(body)} if _sglang_echoes(body) or not chat else made

    choices = [choice(turn, place) for place, turn in enumerate(turns)]
    sampled = sum(len(turn.ids) for turn in turns)
    usage = {"prompt_tokens": len(_prompt(body)), "completion_tokens": sampled}
    answer = {"id": "r", "model": "m", "choices": choices, "usage": usage}
    if not body.get("stream"):
        return answer
    return events([*_sglang_pieces(answer, turns, chat=chat), {"choices": [], "usage": usage}, DONE])


def _sglang_pieces(answer: dict[str, Any], turns: Sequence[Script], *, chat: bool) -> Iterator[Any]:
    """Yield a choice in one chunk; a chat's ids come in one event at its end."""
    for choice in answer["choices"]:
        held = ("message", "prompt_token_ids", "response_token_ids") if chat else ()
        piece = {name: value for name, value in choice.items() if name not in held}
        yield {"choices": [{**piece, "delta": choice["message"]} if chat else piece]}
    if chat:
        prompt = answer["choices"][0].get("prompt_token_ids")
        extra = {"output_ids": [list(one.ids) for one in turns]}
        yield {"choices": [], "sglext": {**extra, "input_ids": prompt} if prompt else extra}


def sglang_route(
    route: str, path: str, answers: Callable[[Any, Sequence[Script]], Any], **more: Any
) -> Route:
    """Return a route of SGLang."""

    def server(scripts: Sequence[Script], context: int) -> Handler:
        def answered(body: Any) -> Any:
            keys = body.get("sampling_params", body)
            most = keys.get("max_new_tokens", keys.get("max_tokens"))
            return answers(body, [one.within(most) for one in scripts[: keys.get("n", 1)]])

        card = {**sglang_server.CARD, "max_model_len": context}
        info = {**sglang_server.INFO, "max_req_input_len": context}
        own = {**_own_tokenizer("text"), "/v1/models": {"data": [card]}, "/server_info": info}
        return sglang_server.Mock({path: answered, **own})

    return Route(
        adapter=SGLang, path=path, server=server, options={"route": route}, unread=("tokens", "token"), **more
    )


# Dynamo.


def dynamo_route(route: str, path: str, **more: Any) -> Route:
    """Return a route of a Dynamo frontend."""

    def server(scripts: Sequence[Script], context: int) -> Handler:
        def answered(path: str, body: Mapping[str, Any]) -> httpx2.Response:
            turn = scripts[0].within(body.get("max_tokens") or body["max_completion_tokens"])
            made = dynamo_server.Turn(
                ids=turn.ids,
                logprobs=turn.logprobs,
                engine={"completion_logprobs": list(turn.logprobs)},
                text=turn.text,
                finish_reason="stop" if turn.finish == "abort" else turn.finish,
                detailed="cancelled" if turn.finish == "abort" else turn.finish,
                stop_reason=turn.stop,
            )
            return made(path, body)

        return dynamo_server.Mock(answered, {**dynamo_server.CARD, "context_window": context})

    options = {"route": route, "family": MODEL}
    unread = ("total_tokens", "tokens", "token", "text_offset", "kv_cache_hit", "finished")
    lacks = ("n", "streamed n")
    return Route(
        adapter=dynamo.Dynamo,
        path=path,
        server=server,
        options=options,
        unread=unread,
        lacks=lacks,
        echoes=lambda body: "prompt_token_ids" in body["nvext"]["extra_fields"],
        **more,
    )


# llama.cpp.


def _llamacpp(scripts: Sequence[Script], context: int) -> Handler:
    ends = {"stop": "eos", "length": "limit"}

    def item(body: Any, turn: Script, place: int) -> dict[str, Any]:
        pairs = [
            {"id": index, "logprob": value} for index, value in zip(turn.ids, turn.logprobs, strict=True)
        ]
        word = {"stop_type": "word", "stopping_word": turn.stop} if isinstance(turn.stop, str) else {}
        return {
            "index": place,
            "content": turn.text,
            "tokens": list(turn.ids),
            "stop_type": ends[turn.finish],
            "tokens_evaluated": len(body["prompt"]),
            "tokens_predicted": len(turn.ids),
            "timings": {"cache_n": 1},
            "generation_settings": {"top_k": 0},
            "completion_probabilities": [
                {**pair, "top_logprobs": [{**pair, "token": "x"}]} for pair in pairs
            ],
            **word,
        }

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            meta = {"n_ctx": context, "n_vocab": MODEL.vocab_size}
            card = {"id": "m", "owned_by": "llamacpp", "meta": meta}
            return httpx2.Response(200, json={"data": [card]})
        body = orjson.loads(request.content)
        if "logit_bias" in body:  # whether an id ends a turn
            return httpx2.Response(200, json={"tokens": body["prompt"], "stop_type": "eos"})
        turns = [one.within(body["n_predict"]) for one in scripts[: body.get("n", 1)]]
        items = [item(body, turn, place) for place, turn in enumerate(turns)]
        return httpx2.Response(200, json=items if len(items) > 1 else items[0])

    return handle


# Engines that answer ids and no text.


def _lmdeploy(scripts: Sequence[Script], context: int) -> Handler:
    return lmdeploy_server.Server(script=scripts[0], context=context)


def _tensorrt_llm(scripts: Sequence[Script], context: int) -> Handler:
    words = {"abort": "cancelled"}
    turns = [attrs.evolve(one, finish=words.get(one.finish, one.finish)) for one in scripts]
    return tensorrt_llm_server.Server(scripts=turns, context=context)


ROUTES: Mapping[str, Route] = {
    "vllm completions": vllm_route("completions", vllm.COMPLETIONS, vllm_server.completion_answer, "text"),
    "vllm generate": vllm_route("generate", vllm.GENERATE, vllm_server.generate_answer, "text", masks=True),
    "vllm chat": vllm_route("chat", vllm.CHAT, vllm_server.chat_answer, "content", parses=False),
    "vllm tokens": vllm_route("tokens", vllm.TOKENS, vllm_server.chat_answer, "content", parses=False),
    "sglang generate": sglang_route(
        "generate", "/generate", _sglang_generated, echoes=_sglang_echoes, masks=True
    ),
    "sglang completions": sglang_route(
        "completions", "/v1/completions", lambda *given: _sglang_choices(*given, chat=False)
    ),
    "sglang chat": sglang_route(
        "chat",
        "/v1/chat/completions",
        lambda *given: _sglang_choices(*given, chat=True),
        parses=False,
        echoes=_sglang_echoes,
        masks=True,
    ),
    "dynamo chat": dynamo_route("chat", dynamo.CHAT, parses=False),
    "dynamo completions": dynamo_route("completions", dynamo.COMPLETIONS),
    "llamacpp": Route(
        adapter=LlamaCpp,
        path="/completion",
        server=_llamacpp,
        options={"family": MODEL},
        lacks=("abort", "stream"),
        unread=("top_logprobs",),
    ),
    "lmdeploy": Route(
        adapter=LMDeploy,
        path="/generate",
        server=_lmdeploy,
        options={"family": MODEL},
        lacks=("n", "streamed n", "stop", "seed"),
    ),
    "tensorrt-llm": Route(
        adapter=TensorRTLLM,
        path="/v1/completions",
        server=_tensorrt_llm,
        options={"family": MODEL},
        lacks=("streamed n", "stop"),
        unread=("total_tokens", "text_offset", "top_logprobs", "tokens"),
    ),
}
"""By engine, as the registry calls it, and route."""

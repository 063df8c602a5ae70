"""The SGLang adapter.

Ids go in by one of three routes:

- `generate` is the engine's own and reports most about each id. The message is parsed here, in the output
  format that the model's vocabulary shows (see `replies/output_parser.py`).
- `completions` is the OpenAI route for texts; the message is parsed here too.
- `chat`: the server's own parsers make the message, so it suits models with another output format.

Two things differ from what one may expect. SGLang renders tools with a further key, `defer_loading`, which
other renderers do not write: `render` does as the server's chat does, and a model folder's rendering of the
same tools is another prompt. And a seed changes nothing unless the server was started with
`--enable-deterministic-inference`; `Reply.notices` says so.

SGLang's router (`sglang-router` 0.3) has no `/tokenize`, and drops the keys of a chat that carry ids. Behind
it a model folder renders and parses, and all prompts go by ids to `generate`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack

import attrs

from tito_core import Ids, InputError, Message
from tito_core.media.ranges import Placeholders
from tito_io.engines.errors import Complaint
from tito_io.engines.family_render import family_as, family_ids
from tito_io.engines.grammar import GrammarMaker, constrained, no_grammar, sglang_keys, with_reasoning
from tito_io.engines.http_engine import (
    Connection,
    HttpEngine,
    ServedModel,
    TurnAfterIds,
    shortest_context,
    sole_model,
)
from tito_io.engines.media import checked_reply, rendered, unsupported, with_blanks
from tito_io.engines.one_asks import one_asks
from tito_io.engines.openai_fields import tokenize_body
from tito_io.engines.protocol import (
    ArgumentError,
    EngineError,
    ModelLimits,
    OverlongError,
    PromptMedium,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    UnsupportedError,
    Watch,
    watch_whole,
)
from tito_io.engines.replies.experts import Routing
from tito_io.engines.replies.output_parser import (
    LocalTokenizer,
    OutputFormat,
    OutputParser,
    check_format,
    choose_parser,
    with_messages,
)
from tito_io.engines.replies.sglang_meta import MASKED
from tito_io.engines.sampling_masks import no_masks
from tito_io.engines.served_tokenizer import ServedTokenizer

from . import requests
from .calls import SglangRequest
from .facts import ServerFacts, has_tokenizer, probed_vocabulary_size, server_facts
from .replies import SglangQuestion, prompt_logprobs
from .requests import ECHO, NO_ECHO, PATHS, ROUTES, STREAM_KEYS, Route

if TYPE_CHECKING:  # without a model folder no tokenizer library is loaded
    from tito_io.families.family import Family

CHAT_STREAMS_IDS = (0, 5, 20)
"""The first version whose chats can be streamed with their ids."""
SEED_IGNORED = "seed-ignored"
"""The notice that the server samples without seeds: `--enable-deterministic-inference` is off."""
WHOLE = "came-whole"
"""The notice that a turn was not streamed: SGLang streams no chat with sampling masks."""
MEDIA_SENT = "media-sent"
"""The notice that bytes of images went along."""
MEDIA_UNBOUND = (
    "tool_choice, parallel_tool_calls and response_format cannot be honoured after images, audio or files: "
    "SGLang constrains turns after ids here, and media go by messages. Nothing was sent"
)
MEDIA_UNRENDERED = (
    "images, audio and files cannot go by messages: the server has no /tokenize, like SGLang's router, so "
    "that messages are rendered with the model's folder and go by ids. Nothing was sent"
)
BY_GENERATE = (
    "the server has no /tokenize, like SGLang's router, which drops or rejects the ids of other routes: pass "
    "route='generate'. Nothing was sent"
)
TOO_MUCH_REQUESTED = re.compile(r"(\d+) tokens from the input messages and \d+ tokens for the completion")


class SGLang(HttpEngine):
    """An SGLang server.

    Nothing is sent before a method is called.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:30000`; a trailing `/v1` is dropped.
        route: How ids go in: `generate` (default), `chat` or `completions`.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        routing: The shape of routed experts, which SGLang does not send.
        family: The model's folder, for a server without `/tokenize`, such as SGLang's router: messages are
            then rendered with it and go by ids, and are parsed from ids. Elsewhere its stop ids alone are
            used, for turns that were aborted as they ended.
        model: The model's name; may be left out where the server has one model. SGLang answers whatever name
            it is given, so the name is compared with the server's list.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; the server is asked where it is left out.
        transport: Replaces the network: `httpx2.ASGITransport(app)` is answered by `app` in this process.

    Attributes:
        name: `sglang`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        route: How ids go in.
        routing: The shape of routed experts.
        family: The model's folder; None where none was passed.
        vocab_size: How many ids there are; None where it is unknown.
        seeds_by_position: True: a seed belongs to positions of the sequence, not to the order of draws
            (`multinomial_with_seed` in `sglang/srt/layers/sampler.py`).
        answers_stray_placeholders: False: messages with images in which a text spells a placeholder are never
            answered, as seen with 0.5.23.

    Raises:
        InputError: `base_url`, `route` or `output_format` is invalid.
    """

    name: str = "sglang"
    renders_as: str = "sglang"
    seeds_by_position: bool = True
    answers_stray_placeholders: bool = False
    checks_name = True

    def __init__(
        self,
        base_url: str,
        *,
        route: Route = "generate",
        output_format: OutputFormat | None = None,
        routing: Routing | None = None,
        family: Family | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        if route not in ROUTES:
            raise InputError(f"route is {route!r}: pass one of {', '.join(ROUTES)}")
        check_format(output_format)
        super().__init__(base_url, **connection)
        self.route: Route = route
        self.routing = routing
        self.family = family
        self._as_served = None if family is None else family_as(family, self)
        self._tokenizes: bool | None = None
        self._output_format = output_format
        self._tokenizer = ServedTokenizer(
            wire=self.wire,
            encode_keys={},
            decode_keys={"skip_special_tokens": False},  # or the server leaves special tokens out
            text_key="text",
        )
        self._parser: OutputParser | None = None
        self._facts: ServerFacts | None = None
        self._grammars = GrammarMaker(self.render)

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""
        folder = await self._folder()
        if folder is not None:
            return await family_ids(folder, messages, rendering, add_generation_prompt=add_generation_prompt)
        name = requests.request_name(await self.served())
        body = tokenize_body(
            name, messages, rendering, requests.REASONING, generation_prompt=add_generation_prompt
        )
        return await self._tokenizer.render(body, requests.OWN_ERRORS)

    async def render_placeholders(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        media: Placeholders,
        *,
        add_generation_prompt: bool,
    ) -> list[int]:
        """Return the ids of messages, with the placeholder of each image: `/tokenize` expands none."""
        del media
        return await self.render(
            with_blanks(messages), rendering, add_generation_prompt=add_generation_prompt
        )

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        """Sample a turn after messages that the server renders.

        Streamed, the turn's ids come in one delta, after its text. Raises `UnsupportedError` before sending
        where the server's version streams no ids by this route.

        A constrained turn goes by ids, which the server renders first: its chat leaves tools out of the
        prompt where one is named in `tool_choice`. So does every turn that a folder renders.
        """
        messages, rendering, sampling = request.messages or (), request.rendered_with, request.sampling
        if sampling.constraint is not None:
            return await self._sample_rendered(request, MEDIA_UNBOUND)
        if await self._folder() is not None:
            return await self._sample_rendered(request, MEDIA_UNRENDERED)
        model = await self.served()
        await self._check_chat_streams(request.watch)
        question = SglangQuestion(sampling, routing=self.routing)
        body = requests.chat(model, messages, rendering, sampling)
        try:
            return await self._reply("chat", body, question, request.watch)
        except OverlongError as error:
            # SGLang states the prompt's length only when it rejects more max_tokens than fit. Nothing ran
            # then, so what fits is requested instead.
            room = _stated_room(error, model)
            if room is None:
                raise
            body = requests.chat(model, messages, rendering, attrs.evolve(sampling, max_tokens=room))
            return await self._reply("chat", body, question, request.watch)

    async def _sample_rendered(self, request: SampleRequest, refusal: str) -> Reply:
        """Sample a turn after messages, which are rendered first and go by ids; media raise `refusal`."""
        error = UnsupportedError(refusal, parameter="sampling")
        return await self.sample(await rendered(self, request, error))

    @one_asks
    async def _folder(self) -> Family | None:
        """Return the model's folder, with SGLang's prompts, where the server has no tokenizer."""
        if self._as_served is None:
            return None
        if self._tokenizes is None:
            self._tokenizes = await has_tokenizer(self.wire)
        return None if self._tokenizes else self._as_served

    @one_asks
    async def facts(self) -> ServerFacts:
        """Return what the server states about itself; it is asked once."""
        if self._facts is None:
            self._facts = await server_facts(self.wire)
        return self._facts

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts; the server is asked once."""
        return attrs.evolve(await super().limits(), max_prompt_len=(await self.facts()).max_prompt)

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the model in use; a name that is not listed is rejected.

        `base:adapter` is the server's own way to name a LoRA adapter; it rejects one that it does not have.

        >>> SGLang("http://h", model="m:lora")._select([ServedModel("m", 10)])
        ServedModel(name='lora', max_model_len=10, parent='m', owner=None)
        """
        bases = [one for one in models if one.parent is None]
        known = {name: one for one in models for name in (one.name, requests.request_name(one))}
        if self.model in known:
            model = known[self.model]
            if model.max_model_len is not None:
                return model
            return attrs.evolve(model, max_model_len=shortest_context(bases))
        base, colon, adapter = (self.model or "").partition(":")
        if colon and adapter and base in {one.name for one in bases}:
            return ServedModel(adapter, shortest_context(bases), base)
        return sole_model(models, self.model)

    @one_asks
    async def _vocabulary_size(self) -> int | None:
        if self.vocab_size is None:
            folder = await self._folder()
            known = None if folder is None else folder.vocab_size
            self.vocab_size = known or await probed_vocabulary_size(self.wire)
        return self.vocab_size

    async def _sendable(self, ids: Sequence[int]) -> Ids:
        """Return a prompt's ids; an id outside the vocabulary would end the server, so its size is needed."""
        if await self._vocabulary_size() is None:
            raise ArgumentError(
                "vocab_size: the server does not say how many ids its model has, and an id beyond them may "
                "end it; give the number in the model's config.json",
                parameter="vocab_size",
                hint="pass SGLang(vocab_size=...)",
            )
        return await super()._sendable(ids)

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by the engine's route; a constrained one by `/generate`, which takes grammars."""
        route: Route = self.route if turn.sampling.constraint is None else "generate"
        if route != "generate" and await self._folder() is not None:
            raise UnsupportedError(BY_GENERATE, parameter="route")
        quiet = (route, turn.watch is not None) in self._echoing
        question = SglangQuestion(turn.sampling, turn.ids, echo=not quiet, routing=self.routing)
        if route == "chat":
            await self._check_chat_streams(turn.watch)
            return await self._reply("chat", requests.chat_after_ids(turn), question, turn.watch)
        parser = await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        turn = await self._bound(turn, parser)
        if route == "generate":
            body = requests.generation(turn, echo=question.echo)
        else:
            body = requests.completion(turn)
        reply = await self._reply(route, body, question, watch)
        # `/generate` gives no id of the answer from which the ids of calls could be made.
        return await with_messages(parser, reply, f"call-{uuid.uuid4().hex[:16]}", rendering=turn.rendering)

    @one_asks
    async def output_parser(self) -> OutputParser:
        """Return what makes text and messages of ids; its tokenizer is the server's, or the folder's."""
        if self._parser is None:
            folder = await self._folder()
            tokenizer = self._tokenizer if folder is None else LocalTokenizer(folder)
            self._parser = await choose_parser(tokenizer, self._output_format, self.render)
        return self._parser

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` for the route that sends no sampling masks."""
        del sampling
        if self.route == "completions":
            raise no_masks(
                "SGLang sends them by its routes generate and chat, and this is 'completions': pass "
                "route='generate'"
            )

    async def _check_media(self, media: Sequence[PromptMedium]) -> None:
        """Raise `MediaUnsupportedError` for media that this server does not take beside ids.

        It does not say where images stand: they must be found again in what it repeats.
        """
        places = [one.place for one in media]
        if self.route != "generate":
            raise unsupported(
                "SGLang", f"takes images beside ids by route='generate', and this is {self.route!r}"
            )
        if {one.modality for one in places} != {"image"}:
            other = next(one.modality for one in places if one.modality != "image")
            raise unsupported("SGLang", f"takes images beside ids, and a medium is {other!r:.20}")
        if any(len(one.collapsed) > 1 for one in places) or any(
            before.stop == one.offset for before, one in pairwise(places)
        ):
            raise unsupported("SGLang", "does not say where images end that stand side by side")
        for number, one in enumerate(media):
            if one.url is None:
                raise InputError(f"media[{number}]: SGLang keeps no images: give `url`. Nothing was sent")

    async def _sample_with_media(self, turn: TurnAfterIds, media: Sequence[PromptMedium]) -> Reply:
        """Sample a turn by `/generate`; the bytes of all images go with every turn."""
        parser = await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        turn = await self._bound(turn, parser)
        try:
            reply = await self._shown(turn, media, watch)
        except OverlongError as error:
            # How long the images are is not known before. Nothing ran: what fits is requested instead.
            room = _stated_room(error, turn.model)
            if room is None:
                raise
            reply = await self._shown(attrs.evolve(turn, max_tokens=room), media, watch)
        reply = checked_reply(self._check(PATHS["generate"], reply.raw), reply, turn.ids, media, None)
        reply = attrs.evolve(reply, notices=(*reply.notices, MEDIA_SENT))
        return await with_messages(parser, reply, f"call-{uuid.uuid4().hex[:16]}", rendering=turn.rendering)

    async def _shown(self, turn: TurnAfterIds, media: Sequence[PromptMedium], watch: Watch | None) -> Reply:
        """Return the reply to ids and images."""
        body = {**requests.generation(turn, echo=True), "image_data": [one.url for one in media]}
        return await self._reply("generate", body, SglangQuestion(turn.sampling, routing=self.routing), watch)

    async def _bound(self, turn: TurnAfterIds, parser: OutputParser) -> TurnAfterIds:
        """Return a turn with a grammar in place of its constraint; it binds from the first id on."""
        if turn.sampling.constraint is None:
            return turn
        answer = await self._grammars.answer_format(turn.sampling.constraint, turn.rendering, parser)
        if answer is None:
            raise no_grammar()
        keys = sglang_keys(with_reasoning(answer, turn.ids, await parser.tags()))
        return attrs.evolve(turn, sampling=constrained(turn.sampling, keys))

    async def _reply(
        self, route: Route, body: Mapping[str, Any], question: SglangQuestion, watch: Watch | None
    ) -> Reply:
        """Return the reply to a request by a route; a chat with sampling masks comes in one piece.

        They stand in its `meta_info`, which no stream has (`entrypoints/openai/serving_chat.py`, 0.5.23).
        """
        if route == "chat" and question.sampling.sampling_masks and watch is not None:
            return await self._whole(route, body, question, watch)
        ignored = question.sampling.seed is not None and (await self.facts()).seeded is False
        streamed, rid = watch is not None, requests.request_id(question.sampling.conversation)
        echo = ECHO.get(route, NO_ECHO)[streamed] if question.echo else {}
        whole = requests.WHOLE if route == "chat" else {}
        masks = MASKED if question.sampling.sampling_masks else {}
        request = SglangRequest(
            wire=self.wire,
            path=PATHS[route],
            body={**body, **(STREAM_KEYS[route] if streamed else whole), **echo, **masks, "rid": rid},
            vocab_size=self.vocab_size,
            conversation=question.sampling.conversation,
            route=route,
            question=question,
            streamed=streamed,
            rid=rid,
            request_id=rid,
        )
        reply = await self._send(request, watch, (route, streamed))
        return attrs.evolve(reply, notices=(SEED_IGNORED,)) if ignored else reply

    async def _whole(
        self, route: Route, body: Mapping[str, Any], question: SglangQuestion, watch: Watch
    ) -> Reply:
        """Return a reply that is not streamed, and pass on in one piece what was sampled."""
        try:
            reply = await self._reply(route, body, question, None)
        except EngineError as error:
            if error.partial is not None:
                await watch_whole(watch, error.partial)
            raise
        await watch_whole(watch, reply)
        return attrs.evolve(reply, notices=(*reply.notices, WHOLE))

    async def score(self, ids: Ids, start: int) -> tuple[float | None, ...]:
        """Return the log-probability of each id from `start` on (see `tito_io.engines.scores`).

        At temperature 1, whatever a turn was sampled with.
        """
        sent, model = await self._sendable(ids), await self.served()
        (await self.limits()).room(len(sent), 1)
        path = PATHS["generate"]
        answer = await self.wire.post(path, requests.scoring(model, sent, start))
        return prompt_logprobs(self._check(path, answer), answer, sent, start)

    async def _check_chat_streams(self, watch: Watch | None) -> None:
        """Raise `UnsupportedError` where a chat would be streamed without its ids."""
        facts = await self.facts()
        if watch is None or facts.at_least(*CHAT_STREAMS_IDS):
            return
        version = ".".join(map(str, facts.version)) if facts.version else "of an unknown version"
        raise UnsupportedError(
            f"{self.wire.where('POST', requests.CHAT)}: SGLang {version} streams no ids of a chat, which "
            "takes 0.5.20 or later; ask without `watch`, or send ids by another route. Nothing was sent",
            parameter="watch",
        )


def _stated_room(error: OverlongError, model: ServedModel) -> int | None:
    """Return how many ids fit after a prompt that was rejected with too many; None where none fit.

    >>> from tito_io.engines.protocol import EngineAnswer
    >>> text = {"message": "... 28 tokens from the input messages and 2047 tokens for the completion ..."}
    >>> _stated_room(OverlongError("no", EngineAnswer(400, text)), ServedModel("m", 2048))
    2020
    """
    match = TOO_MUCH_REQUESTED.search(Complaint.of(error.answer.body if error.answer else None).message)
    if match is None or model.max_model_len is None:
        return None
    room = model.max_model_len - int(match[1])
    return room if room > 0 else None

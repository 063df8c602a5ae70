"""The vLLM adapter.

Ids go in by one of five routes:

- `completions` is meant for ids. The message is parsed here, in the output format that the model's
  vocabulary shows (see `replies/output_parser.py`).
- `generate` reports more about each id: which weights sampled it, which experts it went through. Servers
  open it on demand.
- `derender` is the same route with a message of the server's own parsers, from 0.33 on. It is not streamed.
- `chat` uses a key that was made for splitting prefill from decoding. The server's own parsers make the
  message, so it suits models with another output format.
- `tokens` is a route like `chat` that prime-rl adds to vLLM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Unpack

import attrs

from tito_core import Ids, InputError, Message, TemplateRefused
from tito_core.media.ranges import Placeholders
from tito_io.engines.grammar import (
    Format,
    GrammarMaker,
    constrained,
    opening_tag,
    reasoning_open,
    vllm_keys,
    with_reasoning,
)
from tito_io.engines.http_engine import Connection, HttpEngine, ServedModel, TurnAfterIds, shortest_context
from tito_io.engines.media import rendered, unsupported, with_blanks
from tito_io.engines.one_asks import one_asks
from tito_io.engines.openai_fields import tokenize_body
from tito_io.engines.protocol import (
    EngineError,
    InvalidReplyError,
    PromptMedium,
    Rendering,
    Reply,
    RequestError,
    SampleRequest,
    Sampling,
    UnsupportedError,
    Watch,
    watch_whole,
    watch_with,
)
from tito_io.engines.replies.hermes import THINK, Tags
from tito_io.engines.replies.output_parser import (
    Harmony,
    OutputFormat,
    OutputParser,
    check_format,
)
from tito_io.engines.sampling_masks import no_masks
from tito_io.engines.scores import TopScores
from tito_io.engines.served_tokenizer import TOKENIZE, ServedTokenizer
from tito_io.engines.turn_request import Question

from . import requests
from .calls import VllmRequest
from .media import Uploads, collapsed, content_parts, may_be_missing
from .parsers import TurnParser
from .replies import STARTED, ChatEndings, most_likely, prompt_logprobs
from .routes import (
    CLOSED,
    COMPLETIONS,
    ENDPOINTS,
    GENERATE,
    MASKED,
    RENDER,
    ROUTES,
    TOKENS,
    Notice,
    Route,
    Version,
    absent,
    check_constrains,
    check_derenders,
    check_takes_media,
    closed,
)

VERSION = "/version"
BY_MESSAGES = "images, audio and files that go by messages have none: send images beside ids, or no media"


class VLLM(HttpEngine):
    """A vLLM server.

    Nothing is sent before a method is called.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        route: How ids go in: `completions` (default), `generate`, `derender`, `chat`, `tokens`, or `auto`,
            which is `generate` where the server has that open, else `completions`. `generate` and `derender`
            need a server that was started with `--enable-scale-out`. `derender` needs vLLM 0.33, and for tool
            calls and reasoning its `--tool-call-parser` and `--reasoning-parser`: the server makes the
            message, and no turn is streamed. Images beside ids need `generate`, `derender` or `auto`, vLLM
            0.32, and `TokenClient(media=...)`; by other routes such conversations go by messages.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        max_model_len: The most ids of prompt and completion together; the server is asked where it is left
            out. With it and `model`, the server's list of models is not needed.
        model: The model's name; may be left out where the server has one model.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; ids are then checked before they are sent.
        transport: Replaces the network: `httpx2.ASGITransport(app)` is answered by `app` in this process.

    Attributes:
        name: `vllm`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        route: How ids go in.
        vocab_size: How many ids there are; None where it is unknown.
        max_model_len: The most ids of prompt and completion, as it was passed.
        notices: What was done differently from the request, with counts; `Reply.notices` says so per turn.

    Raises:
        InputError: `base_url`, `route` or `output_format` is invalid.
    """

    name: str = "vllm"
    renders_as: str = "vllm"

    def __init__(
        self,
        base_url: str,
        *,
        route: Route = "completions",
        output_format: OutputFormat | None = None,
        max_model_len: int | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        if route not in ROUTES:
            raise InputError(f"route is {route!r}: pass one of {', '.join(ROUTES)}")
        check_format(output_format)
        super().__init__(base_url, **connection)
        self.route = route
        self.max_model_len = max_model_len
        self.notices: Counter[Notice] = Counter()
        self._output_format = output_format
        self._parser: TurnParser | None = None
        self._endings = ChatEndings()
        self._version: Version | None = None
        self._generate_closed = False
        self._grammars = GrammarMaker(self.render)
        self._frees_reasoning: bool | None = None
        self._uploads = Uploads()
        self._masks = False

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages.

        Raises:
            TemplateRefused: The chat template rejects them.
            UnsupportedError: It is a harmony model. The route that renders uses another template for those
                than the one that the server samples with.
        """
        parser = await self._turn_parser()
        if isinstance(await parser.chosen(), Harmony):
            raise UnsupportedError(
                f"{self.wire.where('POST', TOKENIZE)} renders harmony conversations wrongly; render them "
                "here, with the model's folder as `family`. Nothing was sent",
                parameter="family",
                hint="pass the `tokenize_fn` of a `tito_io.families.Family`",
            )
        name = str(parser.tokenizer.encode_keys["model"])
        body = tokenize_body(
            name, messages, rendering, requests.REASONING, generation_prompt=add_generation_prompt
        )
        return await parser.tokenizer.render(body, requests.OWN_ERRORS)

    async def render_placeholders(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        media: Placeholders,
        *,
        add_generation_prompt: bool,
    ) -> list[int]:
        """Return the ids of messages, with the placeholder of each image in place of the server's expansion.

        Raises `TemplateRefused` for whatever the server answers 400 to, such as too many images.
        """
        keys = {"mm_payload": "none", "max_tokens": 1}
        body = tokenize_body(
            (await self.served()).name,
            with_blanks(messages),
            rendering,
            requests.REASONING,
            generation_prompt=add_generation_prompt,
        )
        try:
            answer = await self.wire.post(RENDER, {**body, **keys})
        except RequestError as error:
            if not may_be_missing(error):
                raise
            raise TemplateRefused("the server renders no such messages with images") from error
        return collapsed(self._check(RENDER, answer), answer, media)

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        """Sample a turn after messages that the server renders."""
        if request.sampling.sampling_masks:  # which come by ids alone
            return await self.sample(await rendered(self, request, no_masks(BY_MESSAGES)))
        model, parser = await self.served(), await self._turn_parser()
        sampling, rendering = request.sampling, request.rendered_with
        stopping = await self._chat_bound(await parser.with_stops(sampling), rendering)
        body = requests.chat(model.name, request.messages or (), rendering, stopping)
        reply = await self._reply("chat", body, Question(stopping), request.watch)
        room = None if model.max_model_len is None else model.max_model_len - len(reply.prompt_ids)
        limits = [size for size in (room, sampling.max_tokens) if size is not None]
        reply = self._endings.corrected(reply, min(limits, default=None))
        return await parser.reparsed(reply, stopping, rendering=rendering)

    async def served(self) -> ServedModel:
        """Return the model in use; the server is asked once, unless its name and context were passed."""
        if self._served is None and self.model is not None and self.max_model_len is not None:
            self._served = ServedModel(self.model, self.max_model_len)
        return await super().served()

    async def version(self) -> str:
        """Return the server's version, such as `0.32.0`."""
        answer = await self.wire.get(VERSION)
        return self._check(VERSION, answer, "GET").get(answer, "version", str)

    async def logprobs_mode(self) -> Literal["raw", "processed"]:
        """Return which log-probabilities the server reports; samples a turn of one id to find out.

        `raw` ones are the model's own, before temperature and other sampling parameters; `processed` ones
        are those after them, as trainers need them at a temperature other than 1
        (`--logprobs-mode processed_logprobs`). Only processed ones are 0 for the only id allowed.
        """
        sampling = Sampling(max_tokens=1, temperature=1.0, extra={"allowed_token_ids": [0]})
        reply = await self._one_id(await self.served(), Ids.of([0]), sampling)
        return "processed" if reply.logprobs == (0.0,) else "raw"

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the model in use.

        A name that is not listed may be right: vLLM loads LoRA adapters when they are first requested. An
        adapter has no more context than the models there.

        >>> VLLM("http://h", model="lora")._select([ServedModel("m", 10), ServedModel("lora", None, "m")])
        ServedModel(name='lora', max_model_len=10, parent=None, owner=None)
        """
        model = super()._select(models)
        if self.max_model_len is not None:
            return attrs.evolve(model, max_model_len=self.max_model_len)
        if model.max_model_len is None and self.model is not None:
            return ServedModel(self.model, shortest_context(models))
        return model

    # The routes by which ids go in.

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by the engine's route.

        A generate route that is closed samples nothing: the ids then go by completions, and `Reply.notices`
        and `notices` say so.
        """
        parser = await self._turn_parser()
        turn = attrs.evolve(turn, sampling=await parser.with_stops(turn.sampling))
        if self.route in ("chat", "tokens"):
            return await self._chat(turn, parser, self.route)
        if turn.sampling.constraint is not None and await self._format(turn.sampling, turn.rendering) is None:
            if turn.sampling.sampling_masks:
                raise no_masks("vLLM constrains this model's tool calls by its chat route, which sends none")
            # Only the server's own parser knows how to force such calls, and it runs on the chat route alone.
            # It may split the text otherwise.
            turn = attrs.evolve(turn, watch=watch_with(turn.watch, text=""))
            return self._noticed(await self._chat(turn, parser, "chat"), Notice.CONSTRAINED_BY_CHAT)
        if self.route == "derender":
            return await self._derender(turn, parser)
        watch = await (await parser.chosen()).ready(turn.watch, turn.rendering, turn.ids)
        turn = attrs.evolve(turn, watch=watch)
        generates = self.route == "generate" or (
            self.route == "auto" and (await self._known_version()).at_least(0, 11)
        )
        reply = await self._generate(turn, parser) if generates and not self._generate_closed else None
        return reply or await self._complete(turn, parser)

    # Images beside ids.

    async def _check_media(self, media: Sequence[PromptMedium]) -> None:
        """Raise `MediaUnsupportedError` for media that this server does not take beside ids."""
        other = next((one.place.modality for one in media if one.place.modality != "image"), None)
        if other is not None:
            raise unsupported("vLLM", f"takes images beside ids, and a medium is {other!r:.20}")
        check_takes_media(self.route, await self._known_version())
        if self._generate_closed:
            raise unsupported("vLLM", CLOSED)

    async def _sample_with_media(self, turn: TurnAfterIds, media: Sequence[PromptMedium]) -> Reply:
        """Sample a turn by the generate route; bytes that the server has are left out."""
        parser = await self._turn_parser()
        turn = attrs.evolve(turn, sampling=await parser.with_stops(turn.sampling))
        if turn.sampling.constraint is not None and await self._format(turn.sampling, turn.rendering) is None:
            raise unsupported("vLLM", "constrains this model's tool calls by its chat route alone")
        watch = await (await parser.chosen()).ready(turn.watch, turn.rendering, turn.ids)
        turn = attrs.evolve(turn, watch=watch)
        turn = await self._bound(turn, parser, ends_reasoning=True)
        reply = await self._shown(turn, media)
        if self.route == "derender":
            reply = reply if turn.watch is None else await self._whole(reply, turn.watch)
            return await self._with_servers_message(reply, turn, parser)
        return await self._parsed(reply, turn, parser, text=reply.raw.get("output_mode") == "text")

    async def _shown(self, turn: TurnAfterIds, media: Sequence[PromptMedium]) -> Reply:
        """Return the reply to ids and images; if the server lacks one without bytes, all go once more."""
        identities = [one.place.identity for one in media]
        left_out = self._uploads.known(identities)
        try:
            reply = await self._send_media(turn, media, left_out)
        except EngineError as error:
            self._uploads.forget(left_out)
            if closed(error):
                self._generate_closed = True
                raise unsupported("vLLM", CLOSED) from error
            if not left_out or not may_be_missing(error) or any(one.url is None for one in media):
                raise
            reply = self._noticed(await self._send_media(turn, media, ()), Notice.MEDIA_RESENT)
            self._uploads.miss(left_out)
            left_out = frozenset()
        self._uploads.accept(identities)
        without = sum(one in left_out for one in identities)
        reply = self._noticed(reply, Notice.MEDIA_LEFT_OUT, without)
        return self._noticed(reply, Notice.MEDIA_SENT, len(media) - without)

    async def _send_media(
        self, turn: TurnAfterIds, media: Sequence[PromptMedium], left_out: Collection[str]
    ) -> Reply:
        """Return the reply to ids and images, in which those `left_out` have no bytes."""
        derenders = self.route == "derender"
        path, shape = ENDPOINTS["derender" if derenders else "generate"]
        text = turn.watch is not None or bool(turn.sampling.stop)
        body = requests.derendering(turn) if derenders else requests.generation(turn, text=text, echo=True)
        request = VllmRequest(
            wire=self.wire,
            path=path,
            body={**body, "content_parts": content_parts(media, left_out)},
            vocab_size=self.vocab_size,
            shape=shape,
            question=Question(turn.sampling),
            conversation=turn.sampling.conversation,
            media=tuple(media),
        )
        return await self._send(request, None if derenders else turn.watch, "generate")

    # Sampling masks.

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where this server sends none by this route."""
        del sampling
        if self.route not in MASKED:
            raise no_masks(
                f"vLLM sends them by its routes {', '.join(MASKED)}, and this is {self.route!r}: pass "
                "route='generate', or make the embedded engine with sampling_masks=True"
            )
        if self._generate_closed or not await self._sends_masks():
            raise no_masks(f"the server sends none: {STARTED}")

    @one_asks
    async def _sends_masks(self) -> bool:
        """Return whether the server sends sampling masks, which no route states: one id is sampled."""
        if not self._masks:  # a server may be started anew
            sampling = Sampling(max_tokens=1, temperature=1.0, logprobs=False, extra={"top_k": 1})
            turn = TurnAfterIds(await self.served(), Ids.of([0]), sampling, None, 1, None)
            try:
                answer = await self.wire.post(GENERATE, requests.generation(turn, text=False, echo=False))
            except EngineError as error:
                if not closed(error):
                    raise
                self._generate_closed = True
                return False
            self._masks = self._check(GENERATE, answer).choice(answer).get("sampling_mask") is not None
        return self._masks

    # Constrained turns.

    async def _format(self, sampling: Sampling, rendering: Rendering | None) -> Format | None:
        """Return the grammar of a constrained turn's answer; None where the server has to make it.

        Raises:
            UnsupportedError: The server is older than `structured_outputs`, and would ignore it.
        """
        version = await self._known_version()
        check_constrains(version)
        assert sampling.constraint is not None  # noqa: S101  # asked for constrained turns alone
        parser = await (await self._turn_parser()).chosen()
        return await self._grammars.answer_format(sampling.constraint, rendering, parser)

    async def _chat_bound(self, sampling: Sampling, rendering: Rendering | None) -> Sampling:
        """Return parameters of a chat with a constraint's keys; the server leaves its own reasoning free."""
        if sampling.constraint is None:
            return sampling
        answer = await self._format(sampling, rendering)
        if answer is not None:
            return constrained(sampling, vllm_keys(answer))
        return constrained(sampling, requests.native_constraint(sampling.constraint))

    async def _bound(
        self, turn: TurnAfterIds, parser: TurnParser, *, ends_reasoning: bool = False
    ) -> TurnAfterIds:
        """Return a turn after ids with a grammar in place of its constraint.

        The grammar has the reasoning in it where the server does not leave that free. With `ends_reasoning`
        the route takes a flag by which it does not.
        """
        if turn.sampling.constraint is None:
            return turn
        answer = await self._format(turn.sampling, turn.rendering)
        tags = await (await parser.chosen()).tags()
        assert answer is not None  # noqa: S101  # `_sample` sends other turns by the chat route
        free = (
            not ends_reasoning
            and reasoning_open(turn.ids, tags)
            and await self._reasoning_is_free(turn, tags)
        )
        keys = vllm_keys(answer if free else with_reasoning(answer, turn.ids, tags))
        flag = {"reasoning_ended": True} if ends_reasoning else {}
        return attrs.evolve(turn, sampling=constrained(turn.sampling, {**keys, **flag}))

    async def _reasoning_is_free(self, turn: TurnAfterIds, tags: Tags) -> bool:
        """Return whether the server constrains nothing before the reasoning is closed; it is asked once.

        It does so with `--reasoning-parser`, which it does not report. After a prompt that leaves reasoning
        open, one id is sampled, and only the opening tag is allowed, which no model writes there.
        """
        if self._frees_reasoning is None:
            opening = tags.ids[THINK]
            sampling = Sampling(max_tokens=1, extra=vllm_keys(opening_tag(tags)))
            reply = await self._one_id(turn.model, turn.ids, sampling)
            self._frees_reasoning = reply.completion_ids != (opening,)
        return self._frees_reasoning

    async def _one_id(self, model: ServedModel, prompt: Ids, sampling: Sampling) -> Reply:
        """Return a turn of one id, which shows what the server does."""
        body = requests.completion(model.name, prompt, sampling, 1, echo=True)
        return await self._reply("completions", body, Question(sampling, prompt), None)

    async def _generate(self, turn: TurnAfterIds, parser: TurnParser) -> Reply | None:
        """Return a turn of the generate route; None where that is closed."""
        turn = await self._bound(turn, parser, ends_reasoning=True)
        text = turn.watch is not None or bool(turn.sampling.stop)
        question = await self._question("generate", turn)
        body = requests.generation(turn, text=text, echo=question.echo)
        try:
            reply = await self._reply("generate", body, question, turn.watch)
        except EngineError as error:
            if not closed(error):
                raise
            self._generate_closed = True
            if turn.sampling.sampling_masks:
                raise no_masks(f"the generate route is closed; {STARTED}", error.answer) from error
            return None
        return await self._parsed(reply, turn, parser, text=reply.raw.get("output_mode") == "text")

    async def _parsed(self, reply: Reply, turn: TurnAfterIds, parser: TurnParser, *, text: bool) -> Reply:
        """Return a reply with the message that its ids spell; `text` is False where the server sent none."""
        self._endings.learn(reply)
        return await parser.parsed(reply, turn.sampling, rendering=turn.rendering, text=text)

    async def _derender(self, turn: TurnAfterIds, parser: TurnParser) -> Reply:
        """Return a turn of the generate route with the message that the server makes of it."""
        check_derenders(await self._known_version())
        turn = await self._bound(turn, parser, ends_reasoning=True)
        question = Question(turn.sampling, turn.ids, echo=True)
        try:
            reply = await self._reply("derender", requests.derendering(turn), question, turn.watch)
        except EngineError as error:
            if not closed(error):
                raise
            raise UnsupportedError(
                f"{self.wire.where('POST', GENERATE)}: the route is closed; start the server with "
                "--enable-scale-out, or pass route='completions'. Nothing was sampled",
                error.answer,
                parameter="route",
            ) from error
        return await self._with_servers_message(reply, turn, parser)

    async def _with_servers_message(self, reply: Reply, turn: TurnAfterIds, parser: TurnParser) -> Reply:
        """Return a reply with the right finish reason; of a harmony model, with the message of its ids."""
        reply = self._endings.corrected(reply, turn.max_tokens)
        return await parser.reparsed(reply, turn.sampling, rendering=turn.rendering)

    async def _complete(self, turn: TurnAfterIds, parser: TurnParser) -> Reply:
        """Return a turn of the completions route."""
        turn = await self._bound(turn, parser)
        question = await self._question("completions", turn)
        body = requests.completion(
            turn.model.name, turn.ids, turn.sampling, turn.max_tokens, echo=question.echo
        )
        reply = await self._reply("completions", body, question, turn.watch)
        if self.route == "generate":
            reply = self._noticed(reply, Notice.FELL_BACK)
        return await self._parsed(reply, turn, parser, text=True)

    async def _chat(self, turn: TurnAfterIds, parser: TurnParser, route: Route) -> Reply:
        """Return a turn of a route where the server's parsers run."""
        turn = attrs.evolve(turn, sampling=await self._chat_bound(turn.sampling, turn.rendering))
        question = await self._question(route, turn)
        if route == "tokens":
            body = requests.chat_of_tokens(turn, echo=question.echo)
        else:
            body = requests.chat_after_ids(turn, echo=question.echo)
            version = await self._known_version()
            if not version.at_least(0, 27):
                raise UnsupportedError(
                    f"route is 'chat', and vLLM {version.text} takes no ids by chat, which came with 0.27: "
                    "pass 'completions', and constrain no tool calls. Nothing was sent",
                    parameter="route",
                )
        try:
            reply = await self._reply(route, body, question, turn.watch)
        except RequestError as error:
            if route != "tokens" or not absent(error):
                raise
            raise UnsupportedError(
                f"{self.wire.where('POST', TOKENS)}: the server has no such route, which "
                "prime-rl adds to vLLM; pass route='completions' or 'chat'. Nothing was sampled",
                error.answer,
                parameter="route",
            ) from error
        return await self._with_servers_message(reply, turn, parser)

    async def _reply(
        self, route: str, body: Mapping[str, Any], question: Question, watch: Watch | None
    ) -> Reply:
        """Return the reply to a request; with `watch`, streamed where the version loses no id by that."""
        path, shape = ENDPOINTS[route]
        request = VllmRequest(
            wire=self.wire,
            path=path,
            body=body,
            vocab_size=self.vocab_size,
            shape=shape,
            question=question,
            conversation=question.sampling.conversation,
        )
        if watch is None or route == "completions" or (await self._known_version()).streams(route):
            return await self._send(request, watch, route)
        return await self._whole(await self._send(request, None, route), watch)

    async def _whole(self, reply: Reply, watch: Watch) -> Reply:
        """Pass a reply that was not streamed on in one piece."""
        await watch_whole(watch, reply)
        return self._noticed(reply, Notice.WHOLE)

    async def _question(self, route: str, turn: TurnAfterIds) -> Question:
        """Return what a turn's answer is compared with."""
        named = route == "generate" or turn.sampling.logprobs  # which name the ids where no list does
        quiet = (
            route in self._echoing
            and named
            and (turn.watch is None or route == "generate" or (await self._known_version()).logprobs_name_ids)
        )
        return Question(turn.sampling, turn.ids, echo=not quiet)

    async def score(self, ids: Ids, start: int) -> tuple[float | None, ...]:
        """Return the log-probability of each id from `start` on (see `tito_io.engines.scores`).

        The model's own, whatever `--logprobs-mode` is. The prefix cache is not read: vLLM computes all ids.
        """
        sent, model = await self._sendable(ids), await self.served()
        (await self.limits()).room(len(sent), 1)
        answer = await self.wire.post(COMPLETIONS, requests.scoring(model.name, sent))
        return prompt_logprobs(self._check(COMPLETIONS, answer), answer, sent, start)

    async def top_scores(self, ids: Ids, start: int, top: int) -> TopScores:
        """Return the score of each id from `start` on, and of the `top` most likely ones in its place.

        A server allows 20 (`--max-logprobs`).
        """
        sent, model = await self._sendable(ids), await self.served()
        (await self.limits()).room(len(sent), 1)
        answer = await self.wire.post(COMPLETIONS, requests.scoring(model.name, sent, top))
        check = self._check(COMPLETIONS, answer)
        return TopScores(
            start=start,
            logprobs=prompt_logprobs(check, answer, sent, start),
            top=tuple(map(tuple, most_likely(check, answer, start, top))),
        )

    # What is known of the server.

    @one_asks
    async def _known_version(self) -> Version:
        """Return the server's version; it is asked once. Proxies may hide it."""
        if self._version is None:
            try:
                self._version = Version.of(await self.version())
            except (RequestError, InvalidReplyError):
                self._version = Version.of(None)
        return self._version

    async def output_parser(self) -> OutputParser:
        """Return what makes text and messages of ids; its tokenizer is the server's."""
        return await (await self._turn_parser()).chosen()

    @one_asks
    async def _turn_parser(self) -> TurnParser:
        if self._parser is None:
            keys = {"model": self.model or (await self.served()).name}
            tokenizer = ServedTokenizer(
                wire=self.wire,
                encode_keys=keys,
                decode_keys=keys,
                text_key="prompt",
                vocab_size=self.vocab_size,
            )
            self._parser = TurnParser(tokenizer, self._output_format, self.render)
        return self._parser

    def _noticed(self, reply: Reply, notice: Notice, count: int = 1) -> Reply:
        if not count:
            return reply
        self.notices[notice] += count
        return attrs.evolve(reply, notices=(*reply.notices, notice))

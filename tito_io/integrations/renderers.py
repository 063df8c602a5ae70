"""A renderer for PrimeIntellect's `renderers` that extends prompts by ids, for any chat template.

`verifiers`, prime-rl and others use it by its import path. Relies on renderers 0.1.12: `base.py` with the
protocols `Renderer` and `MultimodalRenderer`, `custom.py`, which loads renderers, `default.py`, whose
`DefaultRenderer` has the parsers, and `client.py`, whose `generate` reads `supports_tools` and
`supports_process_multimodal`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from functools import cached_property, partial
from itertools import takewhile, zip_longest
from typing import Any, Literal

from tito_core import Extension, InputError, Message, Refusal
from tito_core.media.expansion import collapse
from tito_core.media.ranges import MediaRange, places
from tito_core.message import copied, is_multimodal
from tito_core.normalization.clean import clean
from tito_core.normalization.media import asked, media_of
from tito_core.refusal import Reason
from tito_io.families.images import CollapsedPrompt
from tito_io.integrations.arguments import check_variables
from tito_io.integrations.attribution import attributed
from tito_io.integrations.by_ids import ByIds
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.images import Shown
from tito_io.integrations.next_prompts import NextPrompts, RefusedError
from tito_io.integrations.processors import items, opened, processor_of, repeated
from tito_io.integrations.retention import Retention, retention

RENDERED = ("messages", "tools", "add_generation_prompt")
BRIDGED = ("previous_prompt_ids", "previous_completion_ids", "new_messages", "tools")
PROTOCOL = "renderers.base:Renderer"
SEAMS: Seams = {
    f"{PROTOCOL}.render": RENDERED,
    f"{PROTOCOL}.render_ids": RENDERED,
    f"{PROTOCOL}.parse_response": ("token_ids", "tools", "prompt_ids"),
    f"{PROTOCOL}.get_stop_token_ids": (),
    f"{PROTOCOL}.bridge_to_next_turn": BRIDGED,
    "renderers.base:MultimodalRenderer.bridge_to_next_turn": (*BRIDGED, "previous_multi_modal_data"),
}
required("renderers", SEAMS)

from pydantic import ConfigDict, Field
from renderers import create_renderer
from renderers.base import (
    MultiModalData,
    ParsedResponse,
    ParsedToolCall,
    PlaceholderRange,
    RenderedTokens,
    ToolCallParseStatus,
    ToolSpec,
    extract_message_tool_names,
    reject_assistant_in_extension,
    should_rerender_for_thinking_retention,
)
from renderers.configs import BaseRendererConfig, DefaultRendererConfig, config_from_name
from renderers.default import DefaultRenderer

OPENED = {"role": "user", "content": "Hello."}
"""A message after which the generation prompt is asked for."""
PARSED = 64
"""How many parsed completions are remembered; each is needed once, for the next turn."""
IMAGE = "image"
ARRAYS = {"return_tensors": "np"}
"""What the renderers written by hand ask processors for."""
MARKS = ("mm_token_type_ids", "token_type_ids")
"""How processors name what they say of each id: 1 for those of images."""
SAID = {"type": "text", "text": "What is it?"}
SMALL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAIklEQVR42u3BAQ0AAADCoPdPbQ8HFAAAAAAA"
    "AAAAAAAA8G4wQAAB7OHIlwAAAABJRU5ErkJggg=="
)
"""A black image of 64 by 64 pixels, to see what a processor makes of one."""


class StitchedConfig(BaseRendererConfig):
    """Options of `StitchedRenderer`; every other field is a variable of the chat template.

    Attributes:
        parser: The renderer whose `parse_response` reads completions: its name, such as "qwen3", or "auto".
        tool_parser: Without `parser`: a tool parser of `renderers.parsers`.
        reasoning_parser: Without `parser`: a reasoning parser of `renderers.parsers`.
        stop_ids: The ids that end a turn. None: those of the model folder's generation config, else the EOS.
        template: A template's text, or its name where the tokenizer has several. None: the tokenizer's own.
        on_refusal: What follows a refusal: "rerender" lets the caller render all messages, "raise" raises.
        remembered: Of how many prompts the messages are remembered; with them, less is asked and refused.
        thinking_retention: When to render all messages instead. None: when the chat template drops reasoning.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    _internal_fields = frozenset(
        ("parser", "tool_parser", "reasoning_parser", "stop_ids", "template", "on_refusal", "remembered")
    )
    _allow_opaque_template_kwargs = True

    name: Literal["stitched"] = "stitched"
    parser: str | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    stop_ids: tuple[int, ...] | None = None
    template: str | None = None
    on_refusal: Literal["rerender", "raise"] = "rerender"
    remembered: int = Field(default=4096, ge=0)


class StitchedRenderer(DefaultRenderer):
    """Renders with the chat template, and extends ids by what the template writes for new messages.

    Args:
        tokenizer: A tokenizer of `transformers`.
        config: The options.
        processor: A processor of `transformers` for images. None: the one in the tokenizer's folder or
            repository, if the chat template has images.

    Attributes:
        config: The options.
        prompts: Builds the next prompts; `prompts.built` and `prompts.refused` count them.
        effective_thinking_retention: The policy of `thinking_retention` that applies.

    Raises:
        InputError: The tokenizer has no chat template, or the template has no variable of such a name.
        ValueError: There is no such parser.
    """

    config_class = StitchedConfig

    def __init__(
        self, tokenizer: Any, config: StitchedConfig | None = None, *, processor: Any = None
    ) -> None:
        config = config or StitchedConfig()
        parsers = {"tool_parser": config.tool_parser, "reasoning_parser": config.reasoning_parser}
        super().__init__(tokenizer, DefaultRendererConfig(**parsers))
        self.config = config
        self.processor: Any = processor or processor_of(tokenizer, config.template)
        self.prompts = NextPrompts.of(
            self.processor or tokenizer,
            stop_ids=config.stop_ids,
            template=config.template,
            template_args=config.model_extra,
            on_refusal=config.on_refusal,
            spans=True,
        )
        options = ", ".join(sorted(StitchedConfig.model_fields.keys() - {"name"}))
        check_variables(self.prompts.family, self.prompts.template_args, options)
        added = getattr(tokenizer, "added_tokens_decoder", {})
        self._special_tokens = [str(token) for token in added.values() if token.special]
        self._histories: ByIds[tuple[Message, ...]] = ByIds(config.remembered)
        self._parsed: ByIds[tuple[tuple[int, str], ParsedResponse]] = ByIds(PARSED)
        self._reader = None if config.parser is None else _reader(tokenizer, config.parser, config)
        self.effective_thinking_retention: Retention = config.thinking_retention or retention(
            self.prompts.family, self.prompts.template_args
        )

    @property
    def supports_tools(self) -> bool:
        """Whether tool calls in completions are read."""
        return self._reader is not None or super().supports_tools

    @property
    def is_multimodal(self) -> bool:
        """Whether images are taken: there is a processor, and the template writes a placeholder for one."""
        return bool(self._placeholder)

    @property
    def mm_token_type_id_map(self) -> dict[int, int]:
        """The ids of which images consist, each with 1, which renderers has for images."""
        return dict.fromkeys(self._image_ids, 1)

    @property
    def supports_process_multimodal(self) -> bool:
        """Whether prompts with placeholders can be made, for engines that expand them.

        `renderers` has one id for a placeholder and for what it becomes. Gemma 3 has two.
        """
        return self.is_multimodal and self._image_ids == self._placeholder

    @cached_property
    def _placeholder(self) -> tuple[int, ...]:
        """The ids that the template writes for an image; none if it takes none."""
        return tuple(self.prompts.placeholders().get(IMAGE, ()))

    @cached_property
    def _image_ids(self) -> tuple[int, ...]:
        """The ids that the processor marks as an image's; the placeholder if it marks none."""
        if not self.is_multimodal:
            return ()
        shown = Shown.of([{"role": "user", "content": [{"type": IMAGE, IMAGE: SMALL}, SAID]}])
        images = [opened(image) for image in shown.images]
        found = self.prompts.family.first_prompt(
            shown.messages, images, processor_args=ARRAYS, **self.prompts.template_args
        )
        if isinstance(found, Refusal):
            return self._placeholder
        rows = [found.positions[name] for name in MARKS if name in found.positions]
        pairs = zip(found.ids, rows[0], strict=True) if rows else ()
        return tuple(dict.fromkeys(index for index, mark in pairs if mark == 1)) or self._placeholder

    def get_stop_token_ids(self) -> list[int]:
        """Return the ids that end a turn."""
        return list(self.prompts.family.stop_ids)

    def render_ids(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] | None = None,
        add_generation_prompt: bool = False,
    ) -> list[int]:
        """Return the ids of `messages`, with those of images; raises what `render` raises."""
        if is_multimodal(messages):
            rendered = self.render(messages, tools=tools, add_generation_prompt=add_generation_prompt)
            return list(rendered.token_ids)
        tools = _nested_tools(tools)
        tokenize = self.prompts.family.tokenize_fn(tools=tools, **self.prompts.template_args)
        readable = self._readable(messages, tools)
        ids = tokenize(readable, add_generation_prompt=add_generation_prompt)
        if add_generation_prompt:
            self._histories.keep(ids, tuple(readable))
        return ids

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] | None = None,
        add_generation_prompt: bool = False,
        process_multimodal: bool = True,
    ) -> RenderedTokens:
        """Return the ids of `messages` and whose each id is.

        Without `process_multimodal` each image is its placeholder, for an engine that expands it.

        Raises:
            InputError: There are media, and the renderer takes none; or an image is an address.
            RefusedError: It is not certain where the images stand.
            TemplateRefused: The template rejects the messages.
        """
        if is_multimodal(messages) and not self.is_multimodal:
            raise InputError("messages: there are images or other media: use the model's own renderer")
        shown, tools = Shown.of(messages), _nested_tools(tools)
        readable = self._readable(shown.messages, tools)
        found = attributed(
            self.prompts.family,
            [asked(one) for one in readable],
            tools=tools,
            add_generation_prompt=add_generation_prompt,
            **self.prompts.template_args,
        )
        rendered = _rendered(found.ids, found.owners, found.content, messages, sampled=found.sampled)
        if is_multimodal(readable):
            images = shown.images if process_multimodal else None
            options = {"tools": tools, "add_generation_prompt": add_generation_prompt}
            self._place(rendered, readable, images, {**options, **self.prompts.template_args})
        if add_generation_prompt:
            self._histories.keep(rendered.token_ids, tuple(readable))
        return rendered

    def _place(
        self,
        rendered: RenderedTokens,
        messages: Sequence[Message],
        images: Sequence[Any] | None,
        options: dict[str, Any],
    ) -> None:
        """Find the images of a whole prompt, and expand them unless they are None."""
        family = self.prompts.family
        found: Any
        if images is None:
            self._require_one_id()
            found = family.collapsed_prompt(messages, **options)
        else:
            images = [opened(image) for image in images]
            found = family.first_prompt(messages, images, processor_args=ARRAYS, **options)
        if isinstance(found, Refusal):
            self.prompts.refused[found.reason.name] += 1  # nothing can follow it
            raise RefusedError(found)
        if isinstance(found, CollapsedPrompt):
            _leave_out(rendered, found.media)
            return
        _, before = collapse(found.ids, found.media)
        pairs = zip(before, found.media, strict=True)
        grown = [(one.offset, one.length, other.length) for one, other in pairs]
        rendered.token_ids = list(found.ids)
        for name in ("message_indices", "sampled_mask", "is_content"):
            values = getattr(rendered, name)
            setattr(rendered, name, repeated(values, grown) if values else values)
        _leave_out(rendered, found.media)
        rendered.multi_modal_data = _data(found.media, self._items(found.inputs, images or ()))

    def _require_one_id(self) -> None:
        if not self.supports_process_multimodal:
            raise InputError(
                "process_multimodal is False: renderers has one id for placeholders and images, and this"
                " model has two; leave it out"
            )

    def _items(self, inputs: Any, images: Sequence[Any]) -> list[dict[str, Any]]:
        """Return what the processor makes of each image; once more for each if that is not clear."""
        found = items(inputs, len(images))
        if found is not None:
            return found
        return [dict(self.processor.image_processor(images=[image], **ARRAYS)) for image in images]

    def parse_response(
        self,
        token_ids: list[int],
        *,
        tools: Sequence[ToolSpec] | None = None,
        prompt_ids: list[int] | None = None,
    ) -> ParsedResponse:
        """Return the message that the parser reads in sampled ids.

        What was read after a prompt is remembered for the bridge, which needs it, too.
        """
        if prompt_ids is None:
            return self._parse(token_ids, tools, None)
        ids, reading = [*prompt_ids, *token_ids], (len(token_ids), repr(_nested_tools(tools)))
        known = self._parsed.find(ids)
        if known is None or known[0] != reading:
            known = reading, self._parse(token_ids, tools, prompt_ids)
            self._parsed.keep(ids, known)
        return deepcopy(known[1])

    def _parse(
        self, token_ids: list[int], tools: Sequence[ToolSpec] | None, prompt_ids: list[int] | None
    ) -> ParsedResponse:
        parse = super().parse_response if self._reader is None else self._reader.parse_response
        parsed: ParsedResponse = parse(token_ids, tools=tools, prompt_ids=prompt_ids)
        if self._is_read(parsed):
            return parsed
        # gpt-oss's parser reads a turn only with its opener, which the template's generation prompt has.
        whole: ParsedResponse = parse([*self._opener, *token_ids], tools=tools, prompt_ids=None)
        return _without(whole, len(self._opener)) if self._is_read(whole) else parsed

    @cached_property
    def _opener(self) -> list[int]:
        """What the generation prompt writes; nothing if it is not known."""
        ids = partial(self.prompts.family.ids, [OPENED], **self.prompts.template_args)
        without, opened = ids(), ids(add_generation_prompt=True)
        return opened[len(without) :] if opened[: len(without)] == without else []

    def _is_read(self, parsed: ParsedResponse) -> bool:
        """Return whether no special token is left in the content, and all calls are whole."""
        left = any(token in (parsed.content or "") for token in self._special_tokens)
        return not left and all(call.status == ToolCallParseStatus.OK for call in parsed.tool_calls)

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] | None = None,
        previous_multi_modal_data: MultiModalData | None = None,
        process_multimodal: bool = True,
    ) -> RenderedTokens | None:
        """Return the ids so far and what the template writes for `new_messages`.

        The result is None where the caller has to render all messages: after a refusal, at the border that
        `thinking_retention` sets, without ids or new messages, and if an assistant's message is new.

        Without `process_multimodal` the ids have placeholders for images, earlier ones and new ones. With
        it they have the ids of images, and `previous_multi_modal_data` says where earlier ones stand.

        Raises:
            InputError: An image is an address.
            RefusedError: There is a refusal, and `on_refusal` is "raise".
        """
        if not previous_prompt_ids or not new_messages or reject_assistant_in_extension(new_messages):
            return None
        if should_rerender_for_thinking_retention(self.effective_thinking_retention, new_messages):
            self.prompts.built["rendered"] += 1
            return None
        shown, tools = Shown.of(new_messages), _nested_tools(tools)
        turn, whole = self._read(previous_prompt_ids, previous_completion_ids, shown.messages, tools)
        history = self._histories.find(previous_prompt_ids)
        ids = [*previous_prompt_ids, *previous_completion_ids]
        known: dict[str, Any] = {
            "turn": turn if whole else None,
            "history": history,
            "sampled": len(previous_completion_ids),
        }
        prior = self._prior(
            previous_prompt_ids,
            previous_multi_modal_data,
            history,
            process_multimodal=process_multimodal,
        )
        if isinstance(prior, Refusal):
            self.prompts.refuse(prior)
            return None
        shows = self.is_multimodal and is_multimodal([*shown.messages, *(history or ())])
        if prior or shows:
            images = [opened(image) for image in shown.images] if process_multimodal else None
            bridged = self._with_images(
                ids, shown.messages, images, previous_multi_modal_data, tools=tools, media=prior, **known
            )
        else:
            found = self.prompts.extend(ids, shown.messages, tools=tools, **known)
            bridged = None if isinstance(found, Refusal) else _extended(found, new_messages)
        if bridged is not None and history is not None:
            new = self._readable(shown.messages, tools)
            self._histories.keep(bridged.token_ids, (*history, turn, *new))
        return bridged

    def _with_images(
        self,
        ids: list[int],
        new_messages: Sequence[Message],
        images: Sequence[Any] | None,
        previous: MultiModalData | None,
        **known: Any,
    ) -> RenderedTokens | None:
        """Return the next prompt of a conversation with images; None after a refusal."""
        if images is None:
            self._require_one_id()
        found = self.prompts.extend_with_images(ids, new_messages, images, processor_args=ARRAYS, **known)
        if isinstance(found, Refusal):
            return None
        bridged = _extended(found.prompt, new_messages)
        _leave_out(bridged, found.prompt.media)
        if images is not None:
            earlier = [] if previous is None else list(previous.mm_items.get(IMAGE, ()))
            new = self._items(found.inputs, images) if images else []
            bridged.multi_modal_data = _data(found.prompt.media, [*earlier, *new])
        return bridged

    def _prior(
        self,
        prompt_ids: list[int],
        data: MultiModalData | None,
        history: Sequence[Message] | None,
        *,
        process_multimodal: bool,
    ) -> list[MediaRange] | Refusal:
        """Return where earlier images stand in a prompt."""
        if not self._placeholder:
            return []
        if process_multimodal:
            if data is None and any(index in prompt_ids for index in self._image_ids):
                return Refusal(
                    Reason.MULTIMODAL, "there are images in the prompt, and previous_multi_modal_data is None"
                )
            return _ranges(data, self._placeholder)
        names = [one.identity or "" for one in media_of(history or ())]
        size = len(self._placeholder)
        found = list(places(self._placeholder, prompt_ids))
        names += [""] * (len(found) - len(names)) if history is None else []
        return [
            MediaRange(modality=IMAGE, identity=name, offset=offset, length=size, collapsed=self._placeholder)
            for name, offset in zip(names, found, strict=False)
        ]

    def _read(
        self,
        prompt_ids: list[int],
        completion_ids: list[int],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec] | None,
    ) -> tuple[dict[str, Any], bool]:
        """Return the turn that the parser reads, and whether it is whole and its calls have the results."""
        parsed = self.parse_response(completion_ids, tools=tools, prompt_ids=prompt_ids)
        results = [one for one in new_messages if one["role"] == "tool"]
        calls = [call for call in parsed.tool_calls if call.status == ToolCallParseStatus.OK]
        whole = len(calls) == len(parsed.tool_calls) and parsed.reasoning_complete is not False
        calls = _with_answered(calls, results) if whole else calls
        answered = _answered(calls, results)
        ids = [result.get("tool_call_id") for result in results] if answered else []
        turn = _turn(parsed, calls, ids or [call.id or f"call{place}" for place, call in enumerate(calls)])
        return self._readable([turn], tools)[0], whole and (answered or not results)

    def _readable(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec] | None
    ) -> list[dict[str, Any]]:
        """Return copies with sole texts as strings, and arguments in the form that the template takes."""
        copies = [
            copy if is_multimodal([copy]) else clean([copy])[0] for copy in copied(messages, "messages")
        ]
        for place, one in enumerate(copies):
            if one.get("content") is None:  # beside calls, where some templates want a text
                one["content"] = ""
            if one.get("tool_calls"):
                one["tool_calls"] = _nested_calls(one["tool_calls"], copies[place + 1 :])
        functions = [call.get("function") or call for one in copies for call in one.get("tool_calls") or ()]
        if functions:
            profile = self.prompts.family.profile(tools=tools or None, **self.prompts.template_args).profile
            form = partial(_arguments, as_text=profile.facts.arguments == "text")
            for function in functions:
                function["arguments"] = form(function.get("arguments"))
        return copies


def _nested_tools(tools: Sequence[ToolSpec] | None) -> list[Any] | None:
    """Return tools as chat templates take them; a `ToolSpec` of renderers has no `function` around it."""
    nested = [one if "function" in one or "name" not in one else _function(one) for one in tools or ()]
    return nested or None


def _nested_calls(calls: Sequence[dict[str, Any]], after: Sequence[Message]) -> list[dict[str, Any]]:
    """Return calls as chat templates take them, given the messages after them.

    A `ParsedToolCall`, which torchtitan puts into messages, has a name and no `function`. Most have no id:
    then it is that of the result. One whose name is None could not be read, and is left out.
    """
    results = takewhile(lambda message: message["role"] == "tool", after)
    ids = [message.get("tool_call_id") for message in results]
    found = []
    for place, (call, given) in enumerate(zip_longest(calls, ids[: len(calls)])):
        if "function" in call or "name" not in call:
            found.append(call)
        elif call["name"] is not None:
            function = {"name": call["name"], "arguments": call.get("arguments") or {}}
            found.append(_function(function, id=call.get("id") or given or f"call{place}"))
    return found


def _function(function: Any, **more: Any) -> dict[str, Any]:
    return {**more, "type": "function", "function": dict(function)}


def _without(parsed: ParsedResponse, count: int) -> ParsedResponse:
    """Return what was read after `count` ids that were not sampled."""
    for call in parsed.tool_calls:
        if call.token_span is not None:
            call.token_span = (max(0, call.token_span[0] - count), call.token_span[1] - count)
    return parsed


def _arguments(given: Any, *, as_text: bool) -> Any:
    """Return the arguments of a call as text or as an object; what is no JSON stays the text that it is."""
    if isinstance(given, str) and not as_text:
        with suppress(ValueError):
            return json.loads(given)
    return json.dumps(given, ensure_ascii=False) if as_text and not isinstance(given, str) else given


def _reader(tokenizer: Any, name: str, config: StitchedConfig) -> Any:
    """Return the renderer that reads completions, with those variables of the template that it knows."""
    chosen = config_from_name(name)
    known = frozenset() if chosen is None else chosen.template_field_names()
    args = {key: value for key, value in (config.model_extra or {}).items() if key in known}
    return create_renderer(tokenizer, chosen, chat_template_kwargs=args)


def _turn(
    parsed: ParsedResponse, calls: Sequence[ParsedToolCall], ids: Sequence[str | None]
) -> dict[str, Any]:
    """Return the message in a completion, its calls with these ids."""
    content = parsed.content if parsed.content.strip() else ""  # not the line breaks before a call
    turn: dict[str, Any] = {"role": "assistant", "content": content}
    if parsed.reasoning_content:
        turn["reasoning_content"] = parsed.reasoning_content
    if calls:
        turn["tool_calls"] = [
            _function({"name": call.name, "arguments": call.arguments or {}}, id=one)
            for one, call in zip(ids, calls, strict=True)
        ]
    return turn


def _with_answered(calls: list[ParsedToolCall], results: Sequence[Message]) -> list[ParsedToolCall]:
    """Return the calls, and one for each further result, without its arguments.

    gpt-oss's parser reads the first call of a turn only. A result says that there was a call; its name, which
    templates take from the call for what follows the turn, must be known.
    """
    names = [one.get("name") for one in results[len(calls) :]] if calls else []
    return [*calls, *(ParsedToolCall(raw="", name=name) for name in names)] if all(names) else calls


def _answered(calls: Sequence[ParsedToolCall], results: Sequence[Message]) -> bool:
    """Return whether the results are those of the calls, in their order."""
    if len(calls) != len(results):
        return False
    return all(
        result.get("name") in (None, call.name) and call.id in (None, result.get("tool_call_id"))
        for call, result in zip(calls, results, strict=True)
    )


def _extended(found: Extension, new_messages: Sequence[Message]) -> RenderedTokens:
    """Return the ids of an extension, and which of them are those of the new messages."""
    ids = found.ids.tolist()
    owners, content = [-1] * len(ids), [False] * len(ids)
    spans = found.spans if isinstance(found.spans, tuple) else ()
    for place, span in enumerate(one.moved(len(ids) - len(found.added)) for one in spans):
        owners[span.start : span.stop] = [place] * (span.stop - span.start)
        content[span.content_start : span.content_stop] = [True] * (span.content_stop - span.content_start)
    return _rendered(ids, owners, content if spans else [], new_messages, sampled=[False] * len(ids))


def _leave_out(rendered: RenderedTokens, media: Sequence[MediaRange]) -> None:
    """Mark the ids of images as no content, so that no loss mask has them."""
    for one in media if rendered.is_content else ():
        rendered.is_content[one.offset : one.stop] = [False] * one.length


def _data(media: Sequence[MediaRange], found: list[dict[str, Any]]) -> MultiModalData:
    """Return the images of a prompt as renderers keeps them."""
    return MultiModalData(
        mm_hashes={IMAGE: [one.identity for one in media]},
        mm_placeholders={IMAGE: [PlaceholderRange(one.offset, one.length) for one in media]},
        mm_items={IMAGE: found},
    )


def _ranges(data: MultiModalData | None, placeholder: tuple[int, ...]) -> list[MediaRange] | Refusal:
    """Return where the images stand that renderers keeps."""
    if data is None:
        return []
    others = sorted(name for name, found in data.mm_placeholders.items() if found and name != IMAGE)
    if others:
        return Refusal(Reason.MULTIMODAL, f"previous_multi_modal_data has {others[0]} beside images")
    stand, names = data.mm_placeholders.get(IMAGE, ()), data.mm_hashes.get(IMAGE, ())
    if len(stand) != len(names):
        return Refusal(Reason.MULTIMODAL, f"{len(stand)} placeholders in the prompt have {len(names)} hashes")
    return [
        MediaRange(modality=IMAGE, identity=name, offset=one.offset, length=one.length, collapsed=placeholder)
        for name, one in zip(names, stand, strict=True)
    ]


def _rendered(
    ids: list[int],
    owners: list[int],
    content: list[bool],
    messages: Sequence[Message],
    *,
    sampled: list[bool],
) -> RenderedTokens:
    return RenderedTokens(
        token_ids=ids,
        message_indices=owners,
        sampled_mask=sampled,
        is_content=content,
        message_roles=[message.get("role") or "" for message in messages],
        message_tool_names=extract_message_tool_names(list(messages)),
    )

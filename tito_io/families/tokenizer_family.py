"""Families of tokenizers in memory, with the methods of `Family`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from attrs import evolve, field, frozen

from tito_core import InputError, Reason, Refusal, Rendered
from tito_core.ids import checked
from tito_core.media.ranges import Placeholders
from tito_core.normalization.media import asked, media_of
from tito_core.seams.placeholders import unplaced

from .chat_tokenizer import ChatTokenizer
from .clock_use import Moment
from .folder import generation_stops
from .images import CollapsedPrompt, ExpandedPrompt, ImageCall, P, WithImages, wordy
from .preprocessing.engines import UNCHANGED
from .preprocessing.message_rules import MessageRules
from .preprocessing.preparation import Preparation
from .rendering import FamilyRendering, Messages, RenderArgs, RenderingFamily, text_from
from .stop_ids import configured_stop_ids, eos_ids
from .template_values import plain_messages
from .template_words import words_in

_RESERVED = frozenset(
    {
        "add_generation_prompt",
        "chat_template",
        "conversation",
        "continue_final_message",
        "max_length",
        "padding",
        "processor_kwargs",
    }
    | {"return_assistant_tokens_mask", "return_dict", "return_tensors", "sanitize_control_tokens", "tokenize"}
    | {"tokenizer_kwargs", "truncation"}
)
"""Arguments of `apply_chat_template` that are not a template's variables and would change its answer."""


@frozen(eq=False)
class TokenizerBound:
    """A tokenizer's template with tools and arguments fixed: a `tito_core.TokenizeFn`.

    Attributes:
        tokenizer: What renders and encodes.
        args: Tools, documents and template arguments.
        rules: What happens to messages before the template sees them.
        clock: Returns the time that the template's `strftime_now` prints.
        opening: The beginning of an answer, which stands open where else a generation prompt does; None for
            none.
    """

    tokenizer: ChatTokenizer
    args: RenderArgs
    rules: MessageRules = UNCHANGED
    clock: Callable[[], datetime] = field(default=datetime.now, repr=False)
    opening: Mapping[str, Any] | None = None

    def __call__(self, messages: Messages, **ending: Any) -> list[int]:
        """Return the ids of `messages`; raises `TemplateRefused` where the template rejects them."""
        messages, ending = self._begun(messages, ending)
        return self.tokenizer.ids(self._prepared(messages, **ending), self._given(), **ending)

    def rendered(
        self, messages: Messages, since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text of `messages`, and its ids from `since` on if they are asked for.

        Nothing before it is encoded; if it does not occur exactly once, the ids are those of the whole. There
        are ids and no text if the object is not known to encode the text that it renders.
        """
        if not self.tokenizer.text_first:
            return Rendered(None, self(messages, add_generation_prompt=add_generation_prompt))
        whole = self.text(messages, add_generation_prompt=add_generation_prompt)
        return Rendered(whole, self.tokenizer.encode(text_from(whole, since)) if ids else ())

    def text(self, messages: Messages, *, add_generation_prompt: bool = False, **ending: Any) -> str:
        """Return the text of `messages`."""
        messages, ending = self._begun(messages, {**ending, "add_generation_prompt": add_generation_prompt})
        return self.tokenizer.text(self._prepared(messages, **ending), self._given(), **ending)

    def _begun(self, messages: Messages, ending: dict[str, Any]) -> tuple[Messages, dict[str, Any]]:
        """Return messages and their ending with the opening in place of a generation prompt."""
        if self.opening is None or not ending.get("add_generation_prompt"):
            return messages, ending
        return [*messages, self.opening], {"add_generation_prompt": False, "continue_final_message": True}

    def _prepared(self, messages: Messages, *, add_generation_prompt: bool, **_: Any) -> Messages:
        if self.rules is UNCHANGED:  # the object sees to that itself, as its version does
            return messages
        return self._preparation.messages(plain_messages(messages), speaking=add_generation_prompt)

    @cached_property
    def _preparation(self) -> Preparation:
        return Preparation.of(self.rules, next(iter(self.tokenizer.sources), ""))

    @cached_property
    def _args(self) -> RenderArgs:
        return evolve(self.args, tools=self._preparation.tools(self.args.tools))

    def _given(self) -> RenderArgs:
        """Return the arguments of a render, with the variables that the engine adds."""
        added = self.rules.given(self.clock())
        args = {**added, **self._args.template_args}
        return evolve(self._args, template_args=args) if added else self._args

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the templates look for in messages, as far as their sources are known."""
        return words_in(self.tokenizer.sources)

    def moment(self) -> Moment:
        """Return the time, as far as the templates print it."""
        read = [one for source in self.tokenizer.sources for one in self.rules.clock_reads(source)]
        return Moment.at(self.clock(), [*self.tokenizer.sources, *read], randomized=True)

    def origin(self) -> Mapping[str, Any] | None:
        """Return what decides the ids beside arguments and time; None if that is not known."""
        known = self.tokenizer.origin()
        return None if known is None else {**known, "rules": self.rules.engine}


@frozen(eq=False, kw_only=True)
class TokenizerFamily(RenderingFamily[TokenizerBound]):
    """A tokenizer or processor in memory: what turns messages into the ids that a model was trained on.

    `Family.of` makes one.

    Attributes:
        tokenizer: What renders and encodes.
        stop_ids: The ids that end a turn.
        clock: Returns the time that the template's `strftime_now` prints.
        rules: What happens to messages before the template sees them; see `rendered_as`.
    """

    tokenizer: ChatTokenizer = field(repr=False)
    stop_ids: tuple[int, ...]
    clock: Callable[[], datetime] = field(default=datetime.now, repr=False)
    rules: MessageRules = UNCHANGED
    _kept: dict[str, FamilyRendering[TokenizerBound]] = field(factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        *,
        template: str | None = None,
        stop_ids: Sequence[int] | None = None,
        generation_config: Any = None,
        refusals: tuple[type[Exception], ...] = (),
    ) -> TokenizerFamily:
        """Return a family that renders and tokenizes with a tokenizer or processor in memory.

        It asks the object itself, so that what was changed in it counts. Of a processor, the tokenizer in it
        encodes the text that the processor's template writes; as in engines, no special token is added.
        An error that the template's own code raises is a `TemplateRefused`; other errors pass through.

            family = Family.of(AutoTokenizer.from_pretrained("Qwen/Qwen3-8B"))
            step_ids = family.tokenize_fn(tools=tools)(messages, add_generation_prompt=True)

        Args:
            tokenizer: A tokenizer or processor of `transformers`, or any object with its method
                `apply_chat_template`. Do not change it afterwards, except for its chat template.
            template: A template's name where the object has several, or a template's text; None: the one
                that the object would use.
            stop_ids: The ids that end a turn. None: those of `generation_config`; without one, those of
                `generation_config.json` if the object's `name_or_path` is a local folder with that file;
                else the `eos_token_id`. Nothing is downloaded.
            generation_config: A model's generation config, or what its JSON file holds.
            refusals: Exceptions by which an `apply_chat_template` that uses no Jinja template rejects
                messages.

        Raises:
            InputError: The object has no `apply_chat_template`, or a stop id is invalid.
            FolderError: Its folder's `generation_config.json` is malformed.
        """
        known = ChatTokenizer.of(tokenizer, template, refusals)
        if stop_ids is not None and generation_config is not None:
            raise InputError("stop_ids and generation_config: give one of them, they name the same ids")
        if stop_ids is not None:
            return cls(tokenizer=known, stop_ids=checked(stop_ids, "stop_ids"))
        if generation_config is not None:
            return cls(tokenizer=known, stop_ids=configured_stop_ids(generation_config))
        return cls(tokenizer=known, stop_ids=_own_stop_ids(known.encodes))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, with the added ones."""
        return len(self.tokenizer.encodes)

    def placeholders(self, **rendering: Any) -> dict[str, list[int]]:
        """Return the ids that the template writes for an image, as `try_stitch` and `Bridge` take them.

        They are those of a token that the processor or its tokenizer names, such as `image_token`, and that
        the template writes exactly once for each image. Without one the result is empty: then conversations
        with images are refused.

        Args:
            rendering: The arguments of `rendering`.
        """
        run = self.rendering(**rendering).placeholder(self.tokenizer.image_tokens)
        return {} if run is None else {"image": list(run)}

    def expand(
        self, found: P, images: Sequence[Any], *, processor_args: Mapping[str, Any] | None = None
    ) -> WithImages[P] | Refusal:
        """Return a prompt with the ids of its new images in place of placeholders.

        The processor is called with the new ids' text and the new images alone, and a second time beside
        older images if there are some. It is a refusal if ids outside of the images change, or if older
        images make a difference. What the processor raises passes through.

        Args:
            found: The prompt, of `try_stitch` or of a bridge.
            images: The images of the new messages, in their order, as the processor takes them.
            processor_args: Further arguments of the processor's call, such as `{"return_tensors": "pt"}`.

        Raises:
            InputError: There are more or fewer images than placeholders, or the family has no processor.
        """
        return ImageCall(self.tokenizer, processor_args or {}).expand(found, images)

    def first_prompt(
        self,
        messages: Messages,
        images: Sequence[Any],
        *,
        processor_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> ExpandedPrompt | Refusal:
        """Return the ids of a conversation that continues no step, with the ids of its images.

        They are those of the processor's call for the whole conversation.

        Args:
            messages: The conversation; an image is known by its `uuid`, or by its bytes in a data URL.
            images: All its images, in their order, as the processor takes them.
            processor_args: Further arguments of the processor's call, such as `{"return_tensors": "pt"}`.
            options: The arguments of `collapsed_prompt`.

        Raises:
            InputError: There are more or fewer images than in the messages, or the family has no processor.
            TemplateRefused: The template rejects the messages.
        """
        call = ImageCall(self.tokenizer, processor_args or {})
        found = self.collapsed_prompt(messages, **options)
        return found if isinstance(found, Refusal) else call.first(found, images)

    def collapsed_prompt(
        self, messages: Messages, *, add_generation_prompt: bool = True, **rendering: Any
    ) -> CollapsedPrompt | Refusal:
        """Return the ids of a conversation that continues no step, with a placeholder for each image.

        No image is needed.

        Args:
            messages: The conversation; an image is known by its `uuid`, or by its bytes in a data URL.
            add_generation_prompt: Whether the ids end with the beginning of an assistant's turn.
            rendering: The arguments of `rendering`.

        Raises:
            TemplateRefused: The template rejects the messages.
        """
        named = self.placeholders(**rendering)
        placeholders = Placeholders(tuple((name, tuple(ids)) for name, ids in named.items()))
        bound = self.tokenize_fn(**rendering)
        plain = [dict(message) for message in messages]
        media = media_of(plain)
        unfit = unplaced(media, placeholders)
        if unfit is not None:
            return unfit
        words = bound.text([wordy(one) for one in plain], add_generation_prompt=add_generation_prompt)
        if placeholders.find(self.encode(words)):
            return Refusal(Reason.PLACEHOLDERS, "a placeholder stands for no image of the messages")
        text = bound.text([asked(one) for one in plain], add_generation_prompt=add_generation_prompt)
        return CollapsedPrompt.of(text, tuple(self.encode(text)), media, placeholders)

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. A special token in it is one id; no token is added around it."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with special tokens."""
        return self.tokenizer.decode(ids)

    def _with_rules(self, rules: MessageRules) -> Self:
        return evolve(self, rules=rules)

    def _bind(self, args: RenderArgs) -> TokenizerBound:
        wrong = sorted(_RESERVED & args.template_args.keys())
        if wrong:
            raise InputError(
                f"{wrong[0]}: is an argument of apply_chat_template and not a variable of the template;"
                " leave it out, and name a template in Family.of"
            )
        return TokenizerBound(self.tokenizer, args, self.rules, self.clock)


def _own_stop_ids(tokenizer: Any) -> tuple[int, ...]:
    """Return the stop ids of the folder that a tokenizer came from, else its end-of-sequence token."""
    name = getattr(tokenizer, "name_or_path", None)
    found = generation_stops(Path(name) / "generation_config.json") if isinstance(name, str) and name else ()
    return found or eos_ids(getattr(tokenizer, "eos_token_id", None), "tokenizer.eos_token_id")

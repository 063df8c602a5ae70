"""Load a model folder, and turn chat messages into the text and ids that transformers makes of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from attrs import astuple, evolve, field, frozen
from tokenizers import AddedToken, Tokenizer

from tito_core import InputError, Rendered

from .clock_use import Moment
from .fast.fast_tokenizer import CHECK_EVERY, FastTokenizer
from .fast.library import code_digest, installed_version, library
from .fast.probes import probed_texts
from .folder import Folder, FolderError, Source
from .gguf.model import GgufModel
from .limits import TemplateLimits
from .preprocessing.engines import UNCHANGED
from .preprocessing.message_rules import MessageRules
from .preprocessing.preparation import Preparation
from .rendering import FamilyRendering, Messages, RenderArgs, RenderingFamily, library_versions, text_digest
from .template import ChatTemplate, continuation
from .template_values import plain_messages
from .template_words import words_in
from .tokenizer import encoded, load_tokenizer, special_tokens, vocabulary_size
from .tokenizer_family import TokenizerFamily


@frozen(eq=False)
class Bound:
    """A family's template with tools and arguments fixed: a `tito_core.TokenizeFn`.

    Attributes:
        family: The family whose tokenizer encodes the text.
        template: The chat template.
        variables: What the template sees beside messages: special tokens, tools, documents and arguments.
        opening: The beginning of an answer, which stands open where else a generation prompt does; None for
            none.
    """

    family: Family
    template: ChatTemplate
    variables: Mapping[str, Any] = field(repr=False)
    opening: Mapping[str, Any] | None = None
    _marker_ids: dict[str, list[int]] = field(factory=dict, init=False, repr=False)

    def __call__(self, messages: Messages, *, add_generation_prompt: bool, **ending: Any) -> list[int]:
        """Return the ids of `messages`; raises `TemplateRefused` where the template rejects them."""
        return self.family.encode(self.text(messages, add_generation_prompt=add_generation_prompt, **ending))

    def rendered(
        self, messages: Messages, since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text of `messages`, and its ids from `since` on if they are asked for.

        Nothing before it is encoded. A template may print it twice or leave it out, whatever the messages
        are: then the ids are those of the whole; see `tito_core.Renderer`.
        """
        whole = self.text(messages, add_generation_prompt=add_generation_prompt)
        if not ids:
            return Rendered(whole)
        return Rendered(whole, self.family.encode(whole) if since is None else self._since(whole, since))

    def _since(self, whole: str, text: str) -> list[int]:
        if whole.count(text) != 1:
            return self.family.encode(whole)
        after = whole.partition(text)[2]
        if not after.startswith(self.family.borders):
            return self.family.encode(text + after)
        marker = self._marker_ids.get(text)
        if marker is None:  # the kernel always cuts at the same text
            self._marker_ids.clear()
            marker = self._marker_ids[text] = self.family.encode(text)
        return [*marker, *self.family.encode(after)]

    def text(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
    ) -> str:
        """Return the text of `messages`; see `Family.text`."""
        if add_generation_prompt and self.opening is not None:
            messages, add_generation_prompt, continue_final_message = [*messages, self.opening], False, True
        if continue_final_message and add_generation_prompt:
            raise InputError(
                "continue_final_message: the last message stays open, so no generation prompt can follow it"
            )
        seen = self.prepared(messages, add_generation_prompt=add_generation_prompt)
        if not continue_final_message:
            return self.render(seen, add_generation_prompt=add_generation_prompt)
        name = "content" if continue_final_message is True else continue_final_message
        marked = continuation(seen, name, self.template.source.text)
        return marked.cut(self.render(marked.messages, add_generation_prompt=False))

    def prepared(self, messages: Messages, *, add_generation_prompt: bool = False) -> list[dict[str, Any]]:
        """Return `messages` as the template gets them: as the family's engine changes them."""
        preparation, copies = self.family.preparation(self.template), plain_messages(messages)
        return preparation.messages(copies, speaking=add_generation_prompt)

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the template looks for in messages, as its source has them."""
        return words_in([self.template.source.text])

    def moment(self) -> Moment:
        """Return the time, as far as the template prints it; the sandbox has no other clock."""
        source = self.template.source.text
        return Moment.at(self.family.clock(), [source, *self.family.rules.clock_reads(source)])

    def origin(self) -> Mapping[str, Any]:
        """Return what decides the ids beside arguments and time."""
        return {
            "template": self.template.source.text,
            "rules": self.family.rules.engine,
            "limits": astuple(self.template.limits),
            "special_tokens": dict(self.family.special_tokens),
            "vocabulary": self.family.vocabulary_digest,
            "splits_special_tokens": self.family.tokenizer.encode_special_tokens,
            "libraries": library_versions("jinja2", "tokenizers"),
            **self.family.encoder_origin(),
        }

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> str:
        """Return the text of `messages` that `prepared` returned."""
        given = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        now = self.family.clock()
        return self.template.render({**self.family.rules.given(now), **self.variables, **given}, now=now)


@frozen(eq=False, kw_only=True)
class Family(RenderingFamily[Bound]):
    """A tokenizer and its chat templates: what turns messages into the ids that a model was trained on.

    A family never changes, so that threads may share it. Make one with `Family.load` from a model folder, or
    with `Family.of_gguf` from a GGUF file. For a tokenizer that is in memory already, `Family.of` returns a
    `TokenizerFamily`.

    Attributes:
        path: The model folder, or the GGUF file.
        tokenizer: The vocabulary, as the library `tokenizers` loads it.
        templates: Templates by name: `default`, and `tool_use` for renders with tools if the folder has one.
        special_tokens: `bos_token`, `eos_token` and others by name: variables for templates. A token that
            is null in the folder is left out.
        stop_ids: The ids that end a turn: those of `generation_config.json`, else the `eos_token`; of a GGUF
            file, those at which llama.cpp ends a turn.
        clock: Returns the time that `strftime_now` prints; called once a render.
        borders: Added tokens that are found in any text before it is split, so that the text on either side
            is encoded separately.
        fast: A faster tokenizer that encodes in place of `tokenizer`, if one was asked for.
        rules: What happens to messages before the template sees them: nothing, as in transformers, unless the
            family is that of an engine (`rendered_as`).
    """

    path: Path
    tokenizer: Tokenizer = field(repr=False)
    templates: Mapping[str, ChatTemplate] = field(repr=False)
    special_tokens: Mapping[str, str]
    stop_ids: tuple[int, ...]
    clock: Callable[[], datetime] = field(repr=False)
    fast: FastTokenizer | None = None
    rules: MessageRules = UNCHANGED
    _files: tuple[Tokenizer, str, int] | None = field(default=None, repr=False)
    borders: tuple[str, ...] = field(init=False, repr=False)
    _kept: dict[str, FamilyRendering[Bound]] = field(factory=dict, init=False, repr=False)

    @borders.default
    def _default_borders(self) -> tuple[str, ...]:
        added = self.tokenizer.get_added_tokens_decoder().values()
        return tuple(token.content for token in added if not (token.normalized or token.single_word))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        template: str | None = None,
        clock: Callable[[], datetime] | None = None,
        limits: TemplateLimits | None = None,
        fast: bool = False,
        check_every: int = CHECK_EVERY,
    ) -> Self:
        """Load a model folder; raises `FolderError` for what is missing or malformed in it.

        Args:
            path: A local folder with `tokenizer.json`; nothing is downloaded.
            template: One of the folder's templates by name, a `.jinja` file in it, or any `.jinja` file by
                path. None: what transformers would use.
            clock: Returns the time that templates print; None: the local time.
            limits: What one render may use; None: `TemplateLimits()`.
            fast: Whether to encode with the package `fastokens`, once it was seen to give the same ids on
                hundreds of texts (see `fast.use`). Raises `InputError` where it is not installed.
            check_every: After how many texts one that `fastokens` encoded is encoded by `tokenizers`, too.
        """
        folder = Folder.read(path)
        sources = folder.chosen(template)
        tokenizer, digest = load_tokenizer(folder)
        named = special_tokens(folder)
        end = tokenizer.token_to_id(named["eos_token"]) if "eos_token" in named else None
        family = cls(
            path=folder.path,
            tokenizer=tokenizer,
            templates=_compiled(sources, limits),
            special_tokens=MappingProxyType(named),
            stop_ids=folder.stops or (() if end is None else (end,)),
            clock=datetime.now if clock is None else clock,
            files=(tokenizer, digest, vocabulary_size(tokenizer)),
        )
        return family.with_fast_tokenizer(check_every=check_every) if fast else family

    @classmethod
    def of_gguf(
        cls,
        path: str | Path,
        *,
        template: str | None = None,
        clock: Callable[[], datetime] | None = None,
        limits: TemplateLimits | None = None,
    ) -> Self:
        """Read tokenizer and chat template from a GGUF file; raises `FolderError` for what is not exact.

        Renders are those that transformers makes with the same template, and not those of llama.cpp's server,
        whose template engine differs. The stop ids are those at which llama.cpp ends a turn. Tokenizers that
        the file does not describe completely, such as those of SentencePiece, are refused.

            family = Family.of_gguf("Qwen3-8B-Q4_K_M.gguf")
            ids = family.ids([{"role": "user", "content": "Hello."}], add_generation_prompt=True)

        Args:
            path: A GGUF file on this machine. Of a model in several files, the first.
            template: One of the file's templates by name, or a `.jinja` file by path. None: `default`, and
                `tool_use` for renders with tools if the file has one.
            clock: Returns the time that templates print; None: the local time.
            limits: What one render may use; None: `TemplateLimits()`.
        """
        model = GgufModel.read(path)
        return cls(
            path=model.folder.path,
            tokenizer=model.tokenizer,
            templates=_compiled(model.folder.chosen(template), limits),
            special_tokens=MappingProxyType(dict(model.special_tokens)),
            stop_ids=model.folder.stops,
            clock=datetime.now if clock is None else clock,
        )

    of = TokenizerFamily.of

    def with_templates(self, sources: Mapping[str, Source], limits: TemplateLimits | None = None) -> Self:
        """Return a family with other templates, by name, and with the same tokenizer."""
        return evolve(self, templates=_compiled(sources, limits))

    def with_special_tokens(self, tokens: Sequence[str]) -> Self:
        """Return a family with these `tokens` as special tokens too; those that it lacks get new ids.

        So a template can be examined with the tokenizer of another model, where its markers are not tokens.
        """
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
        new = all(self.tokenizer.token_to_id(token) is None for token in tokens)
        fast = self._fast.extended(tokenizer, tokens) if self._fast is not None and new else None
        return evolve(self, tokenizer=tokenizer, fast=fast)

    def with_fast_tokenizer(self, *, check_every: int = CHECK_EVERY) -> Self:
        """Return a family that encodes with `fastokens`; the arguments and errors are those of `load`."""
        library()
        prompts = (("prompts", text) for text in probed_texts(self))
        key = text_digest(json.dumps(self._compared_with(), sort_keys=True))
        named = {"name": str(self.path), "key": key}
        return evolve(self, fast=FastTokenizer.of(self.tokenizer, prompts, check_every=check_every, **named))

    @property
    def vocab_size(self) -> int:
        """Number of tokens, with the added ones."""
        return vocabulary_size(self.tokenizer)

    @cached_property
    def vocabulary_digest(self) -> str:
        """A hash of the tokenizer: of its files, if it is still as it was loaded from them."""
        tokenizer, digest, size = self._files or (None, "", 0)
        if tokenizer is self.tokenizer and size == self.vocab_size:
            return digest
        return text_digest(self.tokenizer.to_str())  # takes up to a second

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. A special token in it is one id; no token is added around it."""
        return encoded(self.tokenizer, text).ids if self._fast is None else self._fast.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with special tokens; an id beyond the vocabulary has no text.

        Raises `InputError` for what is not a sequence of ids.
        """
        try:
            return self.tokenizer.decode(list(ids), skip_special_tokens=False)
        except (TypeError, OverflowError) as error:
            raise InputError(f"ids is {ids!r:.60}: {error}; give token ids, such as [1, 2]") from None

    def encoder_origin(self) -> dict[str, str]:
        """Return what encodes in place of `tokenizer`, for keys of what was learned with it."""
        return {} if self._fast is None or self._fast.library is None else {"fast": self._fast.library}

    @property
    def _fast(self) -> FastTokenizer | None:
        """The fast tokenizer, if it is that of `tokenizer`: a family may get another one, or new tokens."""
        fast = self.fast
        same = fast is not None and fast.reference is self.tokenizer and fast.size == self.vocab_size
        return fast if same else None

    def _compared_with(self) -> dict[str, Any]:
        """Return what the comparison of both tokenizers depends on."""
        return {
            "vocabulary": self.vocabulary_digest,
            "splits_special_tokens": self.tokenizer.encode_special_tokens,
            "templates": {name: one.source.text for name, one in self.templates.items()},
            "special_tokens": dict(self.special_tokens),
            "libraries": [library_versions("jinja2", "tokenizers"), installed_version(), code_digest()],
        }

    def _with_rules(self, rules: MessageRules) -> Self:
        return evolve(self, rules=rules)

    def _bind(self, args: RenderArgs) -> Bound:
        template = self._template(with_tools=args.tools is not None)
        tools = self.preparation(template).tools(args.tools)
        variables = {**self.special_tokens, **args.template_args, "tools": tools, "documents": args.documents}
        return Bound(self, template, variables)

    def preparation(self, template: ChatTemplate) -> Preparation:
        """Return what happens to messages and tools before a template sees them."""
        return Preparation.of(self.rules, template.source.text)

    def _template(self, *, with_tools: bool) -> ChatTemplate:
        if with_tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" not in self.templates:
            raise FolderError(
                f"{self.path}: the only template, 'tool_use', needs tools; pass tools, or template='tool_use'"
            )
        return self.templates["default"]


def _compiled(
    sources: Mapping[str, Source], limits: TemplateLimits | None
) -> MappingProxyType[str, ChatTemplate]:
    return MappingProxyType({name: ChatTemplate.compile(source, limits) for name, source in sources.items()})

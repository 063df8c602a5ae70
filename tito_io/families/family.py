"""A model folder, loaded: chat messages to text and ids, the same ones that transformers makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from attrs import evolve, field, frozen
from tokenizers import AddedToken, Tokenizer

from tito_core import InputError

from .folder import Folder, FolderError
from .limits import TemplateLimits
from .template import ChatTemplate, continuation
from .template_values import plain, plain_messages, plain_objects
from .tokenizer import load_tokenizer, special_tokens

Messages = Sequence[Mapping[str, Any]]
Objects = Sequence[Mapping[str, Any]] | None


@frozen(eq=False, kw_only=True)
class Family:
    """A tokenizer and its chat templates. Nothing in it changes: threads may share it."""

    path: Path
    """The folder."""

    tokenizer: Tokenizer = field(repr=False)
    """The vocabulary, as `tokenizers` holds it."""

    templates: Mapping[str, ChatTemplate] = field(repr=False)
    """What a render chooses from: `default`, and `tool_use` where tools are passed and the folder has one."""

    special_tokens: Mapping[str, str]
    """`bos_token`, `eos_token` and others by name: variables for templates. A null one is not there."""

    stop_ids: tuple[int, ...]
    """The ids that end a turn: those of `generation_config.json`, otherwise the end-of-sequence token."""

    clock: Callable[[], datetime] = field(repr=False)
    """The time that `strftime_now` prints, asked once a render."""

    borders: tuple[str, ...] = field(init=False, repr=False)
    """The added tokens that are found in any text first: what stands on either side is encoded apart."""

    @borders.default
    def _found_first(self) -> tuple[str, ...]:
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
    ) -> Self:
        """Load the folder at `path`, or raise a `FolderError` that says what is wrong with it.

        `template` names one of the folder's templates, a `.jinja` file in it, or any `.jinja` file by path.
        """
        folder = Folder.read(path)
        chosen = {name: ChatTemplate.compile(one, limits) for name, one in folder.chosen(template).items()}
        tokenizer, named = load_tokenizer(folder), special_tokens(folder)
        return cls(
            path=folder.path,
            tokenizer=tokenizer,
            templates=MappingProxyType(chosen),
            special_tokens=MappingProxyType(named),
            stop_ids=folder.stops or _end(tokenizer, named),
            clock=datetime.now if clock is None else clock,
        )

    def with_special_tokens(self, tokens: Sequence[str]) -> Self:
        """Return a family whose vocabulary has these as special tokens too, those it lacks with new ids.

        A template of another model can be looked into with a vocabulary at hand, once its markers are tokens.
        """
        tokenizer = Tokenizer.from_str(self.tokenizer.to_str())
        tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in tokens])
        return evolve(self, tokenizer=tokenizer)

    @property
    def vocab_size(self) -> int:
        """How many tokens there are, the added ones too."""
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    def text(
        self,
        messages: Messages,
        *,
        tools: Objects = None,
        documents: Objects = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        **template_args: Any,
    ) -> str:
        """Render `messages`, or raise `TemplateRefused` when the template will not.

        `continue_final_message` leaves the last message open at the end of its content, or of the field that
        it names. `template_args` are variables for the template, and hide special tokens of the same name.
        """
        if continue_final_message and add_generation_prompt:
            raise InputError(
                "continue_final_message: the last message goes on, so no generation prompt follows"
            )
        bound = self._bind(tools, documents, template_args)
        if not continue_final_message:
            return bound.text(messages, add_generation_prompt=add_generation_prompt)
        return bound.open_text(
            messages, "content" if continue_final_message is True else continue_final_message
        )

    def ids(self, messages: Messages, **options: Any) -> list[int]:
        """Return the ids of `text(messages, **options)`."""
        return self.encode(self.text(messages, **options))

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`; a special token in it is one id, and none is added around it."""
        try:
            return self.tokenizer.encode(text, add_special_tokens=False).ids
        except TypeError as error:  # what the library says to a text that has no UTF-8
            raise InputError(
                f"text: cannot be encoded, is there half a surrogate pair in it? {error}"
            ) from error

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens too."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def tokenize_fn(self, *, tools: Objects = None, documents: Objects = None, **template_args: Any) -> Bound:
        """Return the function that the kernel asks: messages to ids, tools and arguments given once."""
        return self._bind(tools, documents, template_args)

    def _bind(self, tools: Objects, documents: Objects, template_args: Mapping[str, Any]) -> Bound:
        variables = {
            **self.special_tokens,
            **{name: plain(value, name) for name, value in template_args.items()},
            "tools": plain_objects(tools, "tools"),
            "documents": plain_objects(documents, "documents"),
        }
        return Bound(self, self._template(with_tools=tools is not None), variables)

    def _template(self, *, with_tools: bool) -> ChatTemplate:
        if with_tools and "tool_use" in self.templates:
            return self.templates["tool_use"]
        if "default" not in self.templates:
            raise FolderError(
                f"{self.path}: its only template, 'tool_use', needs tools; pass some, or name it"
            )
        return self.templates["default"]


@frozen(eq=False)
class Bound:
    """A family's template with tools and arguments in place. Calling it answers the kernel."""

    family: Family
    template: ChatTemplate
    variables: Mapping[str, Any] = field(repr=False)
    _marks: dict[str, list[int]] = field(factory=dict, init=False, repr=False)

    def __call__(self, messages: Messages, *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of `messages`, or raise `TemplateRefused`."""
        return self.family.encode(self.text(messages, add_generation_prompt=add_generation_prompt))

    def since(self, messages: Messages, text: str, *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of what is rendered from `text` on; nothing before is encoded.

        Where the text does not stand there exactly once, which a template may bring about whatever the
        messages say, they are the ids of the whole: see `Ask.since`.
        """
        whole = self.text(messages, add_generation_prompt=add_generation_prompt)
        if whole.count(text) != 1:
            return self.family.encode(whole)
        after = whole.partition(text)[2]
        if after.startswith(self.family.borders):
            return [*self._mark(text), *self.family.encode(after)]
        return self.family.encode(text + after)

    def _mark(self, text: str) -> list[int]:
        """Return the ids of a text that renders are cut at; the kernel has one."""
        ids = self._marks.get(text)
        if ids is None:
            self._marks.clear()
            ids = self._marks[text] = self.family.encode(text)
        return ids

    def text(self, messages: Messages, *, add_generation_prompt: bool = False) -> str:
        """Return the text of `messages`."""
        return self._render(plain_messages(messages), add_generation_prompt)

    def open_text(self, messages: Messages, name: str) -> str:
        """Return the text of `messages`, ending where the field `name` of the last one ends."""
        going_on = continuation(plain_messages(messages), name, self.template.source.text)
        return going_on.cut(self._render(going_on.messages, add_generation_prompt=False))

    def _render(self, messages: list[dict[str, Any]], add_generation_prompt: bool) -> str:
        asked = {"messages": messages, "add_generation_prompt": add_generation_prompt}
        return self.template.render({**self.variables, **asked}, now=self.family.clock())


def _end(tokenizer: Tokenizer, named: Mapping[str, str]) -> tuple[int, ...]:
    index = tokenizer.token_to_id(named["eos_token"]) if "eos_token" in named else None
    return () if index is None else (index,)

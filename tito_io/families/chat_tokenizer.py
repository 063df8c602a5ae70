"""Call a Hugging Face tokenizer or processor in memory, with one interface for both."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

from attrs import field, frozen

from tito_core import InputError, TokenizeError
from tito_core.message import media_in

from .rendering import RenderArgs, library_versions, text_digest
from .template_errors import template_refusal

_OWN = {
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase.apply_chat_template"),
    ("transformers.processing_utils", "ProcessorMixin.apply_chat_template"),
}
"""Functions that render the text and then call the tokenizer with `_AS_TEXT`."""
_AS_TEXT = {"add_special_tokens": False, "padding": False, "truncation": False}
_SAMPLE = "The  quick\n\tbrown fox: {'a': 1.50}\r\nÉté, 東京 🦊 ﬁ  <|x|>  "
"""A text with what tokenizers treat differently: spaces, digits, scripts, and what Unicode composes."""


@frozen(eq=False, kw_only=True)
class ChatTokenizer:
    """A tokenizer or processor, with the differences between their kinds and versions hidden.

    Attributes:
        given: The tokenizer or processor.
        renders: The object whose `apply_chat_template` is called.
        encodes: The tokenizer: `renders` itself, or the one inside a processor.
        template: The name or text of a template, passed to `apply_chat_template`; None for its own.
        refusals: Exceptions by which `renders` rejects messages, beside those of templates.
        text_first: Whether `renders` is known to render a text and then encode it with `encodes`.
        options: What `apply_chat_template` must be given so that it returns ids.
    """

    given: Any
    renders: Any
    encodes: Any
    template: str | None
    refusals: tuple[type[Exception], ...]
    text_first: bool
    options: Mapping[str, Any]
    _digests: dict[int, str] = field(factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, given: Any, template: str | None, refusals: tuple[type[Exception], ...]) -> Self:
        """Find out what `given` is; raises `InputError` if it renders no messages."""
        if not callable(getattr(given, "apply_chat_template", None)):
            raise InputError(
                f"tokenizer is {type(given).__name__}: give a tokenizer or processor with"
                " apply_chat_template; Family.load takes a model folder"
            )
        inner = getattr(given, "tokenizer", None)
        processes = callable(getattr(inner, "apply_chat_template", None))
        bare = processes and template is None and getattr(given, "chat_template", None) is None
        renders: Any = inner if bare else given
        return cls(
            given=given,
            renders=renders,
            encodes=inner if processes else given,
            template=template,
            refusals=refusals,
            text_first=_is_own(renders),
            options={"tokenize": True, **_plain_answer(renders.apply_chat_template)},
        )

    def text(self, messages: Sequence[Mapping[str, Any]], args: RenderArgs, **options: Any) -> str:
        """Return the text of `messages`; raises `TemplateRefused` where the template rejects them."""
        text = self._apply(messages, args, {**options, "tokenize": False})
        if not isinstance(text, str):
            raise TokenizeError(
                f"apply_chat_template(tokenize=False) returned {type(text).__name__}: it must return a string"
            )
        return text

    def ids(self, messages: Sequence[Mapping[str, Any]], args: RenderArgs, **options: Any) -> list[int]:
        """Return the ids of `messages`; raises `TemplateRefused` where the template rejects them."""
        shows = self.takes_images and any(map(media_in, messages))  # it would ask for the images themselves
        if self.text_first or shows:
            return self.encode(self.text(messages, args, **options))
        return one_list(self._apply(messages, args, {**options, **self.options}), "apply_chat_template")

    def encode(self, text: str) -> list[int]:
        """Return the ids of `text`. A special token in it is one id; no token is added around it."""
        try:
            if self.text_first:  # as its apply_chat_template does
                return one_list(self.encodes(text, **_AS_TEXT), "the tokenizer")
            return one_list(self.encodes.encode(text, add_special_tokens=False), "encode")
        except (TypeError, ValueError) as error:
            if not _is_unicode(text):
                raise InputError(
                    f"text: has half a surrogate pair, which no id stands for: {error}"
                ) from error
            raise

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with special tokens."""
        options = {"clean_up_tokenization_spaces": False} if self.text_first else {}
        return str(self.encodes.decode(list(ids), skip_special_tokens=False, **options))

    @property
    def takes_images(self) -> bool:
        """Whether it is a processor that takes images."""
        return self.given is not self.encodes and getattr(self.given, "image_processor", None) is not None

    def image_tokens(self) -> dict[str, list[int]]:
        """Return the ids of tokens that may stand for an image, by the names that the objects give them."""
        found: dict[str, list[int]] = {}
        if not self.takes_images:
            return found
        special = getattr(self.encodes, "special_tokens_map", {})
        for name, value in (*vars(self.given).items(), *special.items()):
            # transformers names them by their use, such as `image_token`
            if "token" in name and type(value) in (str, int) and value:
                found.setdefault(name, self.encode(value) if isinstance(value, str) else [value])
        return found

    @property
    def sources(self) -> list[str]:
        """The texts of all templates that a render may use; empty if they are unknown."""
        owners = [self.renders, self.encodes]
        found = [self.template, *(getattr(one, "chat_template", None) for one in owners)]
        return list(dict.fromkeys(_texts(found))) if self.text_first else []

    def origin(self) -> Mapping[str, Any] | None:
        """Return what decides the ids of a rendering; None if Python code of others does."""
        if not self.text_first:
            return None
        return {
            "classes": [
                f"{type(one).__module__}.{type(one).__qualname__}" for one in (self.renders, self.encodes)
            ],
            "template": self.template,
            "templates": self.sources,
            "special_tokens": self.encodes.special_tokens_map,
            "vocabulary": self._vocabulary_digest(),
            "splits_special_tokens": getattr(self.encodes, "split_special_tokens", None),
            "sample": self.encode(_SAMPLE),
            "libraries": library_versions("transformers", "jinja2", "tokenizers"),
        }

    def _vocabulary_digest(self) -> str:
        """Return a hash of the vocabulary; writing it out takes up to a second, so that it is kept."""
        size = len(self.encodes)
        if size not in self._digests:
            backend = getattr(self.encodes, "backend_tokenizer", None)
            if backend is not None:
                self.encode(
                    ""
                )  # takes off the padding and truncation of the last call, which are written, too
                text = str(backend.to_str())
            else:
                added = getattr(self.encodes, "added_tokens_decoder", {})
                text = repr((sorted(self.encodes.get_vocab().items()), sorted(map(repr, added.items()))))
            self._digests[size] = text_digest(text)
        return self._digests[size]

    def _apply(
        self, messages: Sequence[Mapping[str, Any]], args: RenderArgs, options: Mapping[str, Any]
    ) -> Any:
        given = {"tools": args.tools, "documents": args.documents, "chat_template": self.template}
        named = {name: value for name, value in given.items() if value is not None}
        try:
            return self.renders.apply_chat_template(list(messages), **named, **args.template_args, **options)
        except Exception as error:
            refused = template_refusal(error, self.refusals)
            if refused is None:
                raise
            raise refused from error


def _is_own(renders: Any) -> bool:
    """Tell whether `apply_chat_template` is that of transformers: not overridden, patched or wrapped."""
    if "apply_chat_template" in getattr(renders, "__dict__", {}):
        return False
    functions, function = [], getattr(type(renders), "apply_chat_template", None)
    while function is not None:  # and those that it decorates
        functions.append(function)
        function = getattr(function, "__wrapped__", None)
    rooms = [str(getattr(one, "__globals__", {}).get("__name__")) for one in functions]
    named = [(getattr(one, "__module__", None), getattr(one, "__qualname__", None)) for one in functions[-1:]]
    return _OWN.issuperset(named) and {room.partition(".")[0] for room in rooms} == {"transformers"}


def _plain_answer(method: Callable[..., Any]) -> Mapping[str, Any]:
    """Return `return_dict=False` if a method takes it: otherwise transformers 5 returns a mapping."""
    parameters = inspect.signature(method).parameters
    takes = "return_dict" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    return {"return_dict": False} if takes else {}


def one_list(answer: Any, who: str) -> list[int]:
    """Return the ids in an answer: a list, an array, a mapping with `input_ids`, or a batch of one."""
    if isinstance(answer, Mapping) and "input_ids" in answer:
        answer = answer["input_ids"]
    answer = getattr(answer, "ids", answer)
    answer = answer.tolist() if hasattr(answer, "tolist") else answer
    if isinstance(answer, list) and len(answer) == 1 and not isinstance(answer[0], int):
        return one_list(answer[0], who)
    if not isinstance(answer, list | tuple):
        raise TokenizeError(
            f"{who} returned {type(answer).__name__}: it must return the ids of one conversation"
        )
    return list(answer)


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings in a `chat_template`: a string, strings by name, or a list of objects."""
    if isinstance(value, str):
        yield value
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for one in inner:
        yield from _texts(one)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

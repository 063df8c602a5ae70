"""Keep what users and tools write as text, also where it spells a special token.

A tool that returns `<|im_end|>` must not end a turn, but a tokenizer reads these letters as the token. So
each is replaced by a random stand-in before the template is rendered. In the ids, each stand-in is then
replaced by the ids of the letters. The template and the rest of the text do not change. Every text of a
content is searched, whatever its shape, and so is what templates make of adjacent texts.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import attrs
from tokenizers import Tokenizer

from tito_core import InputError, Message, Rendered
from tito_io.client.driver import InThread
from tito_io.engines.protocol import Rendering
from tito_io.families.family import Bound, Family

ROLES = frozenset(("user", "tool"))
"""Whose texts are searched. System texts are the operator's, and assistants' are the model's own."""
KEPT = 256
"""How many renderings' templates are kept."""


@attrs.frozen(eq=False)
class SpecialTokenGuard:
    """A model folder that reads spelled special tokens as text.

    Attributes:
        family: The folder; its tokenizer knows the stand-ins.
        known: The texts of stand-ins by the text that each replaces.
        ids: The ids of the replaced letters by the stand-in's id; none of them is a special token.
        pattern: Matches the text of any special token.
    """

    family: Family
    known: Mapping[str, str]
    ids: Mapping[int, tuple[int, ...]]
    pattern: re.Pattern[str]
    _templates: dict[str, InThread] = attrs.field(factory=dict, init=False, repr=False)
    """Templates by the keys of their renderings."""

    @classmethod
    def of(cls, family: Family, *, guarded: bool = True) -> SpecialTokenGuard:
        """Return the guard of a folder; not `guarded`, it renders as the folder does.

        Raises `InputError` where the vocabulary cannot write a special token's letters.
        """
        texts = special_texts(family.tokenizer) if guarded else []
        first_letters = sorted({text[0] for text in texts} - {*texts})
        salt = secrets.token_hex(8)  # so that a text cannot contain a stand-in on purpose
        described = json.loads(family.tokenizer.to_str())
        # Without added tokens, a tokenizer reads a special token's text as letters.
        plain = Tokenizer.from_str(json.dumps({**described, "added_tokens": []}))
        known = {text: f"\ue000{salt}:{i}\ue001" for i, text in enumerate([*texts, *first_letters])}
        letters = {stand_in: _letters(plain, family, text) for text, stand_in in known.items()}
        extended = family.with_special_tokens(list(letters))
        ids = {extended.tokenizer.token_to_id(stand_in): found for stand_in, found in letters.items()}
        longest = sorted(texts, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
        return cls(extended, known, {key: value for key, value in ids.items() if key is not None}, pattern)

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many special tokens users and tools spell."""
        return sum(self._hide(message)[1] for message in messages)

    def tokenize_fn(self, rendering: Rendering) -> InThread:
        """Return what renders messages with tools and template arguments."""
        if rendering.opening is not None:
            bound = self.tokenize_fn(attrs.evolve(rendering, opening=None)).bound
            return InThread(attrs.evolve(bound, opening=rendering.opening))
        known = self._templates.get(rendering.key)
        if known is None:
            while len(self._templates) >= KEPT:
                del self._templates[next(iter(self._templates))]
            bound = self.family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args)
            guarded = GuardedBound(bound.family, bound.template, bound.variables, guard=self)
            known = self._templates[rendering.key] = InThread(guarded)
        return known

    def hidden(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with stand-ins for spelled special tokens."""
        return [self._hide(message)[0] for message in messages]

    def shown(self, ids: Sequence[int]) -> list[int]:
        """Return ids with the letters' ids for stand-ins."""
        if self.ids.keys().isdisjoint(ids):
            return list(ids)
        return [*chain.from_iterable(self.ids.get(index, (index,)) for index in ids)]

    def _hide(self, message: Message) -> tuple[Message, int]:
        """Return a message with stand-ins, and their number."""
        if message.get("role") not in ROLES:
            return message, 0
        fields = {name: value for name, value in message.items() if name != "role"}
        texts = list(_texts(fields))
        if not any(map(self.pattern.search, (*(one.text for one in texts), _adjacent(texts)))):
            return message, 0
        whole = [self.pattern.subn(lambda match: self.known[match.group()], one.text) for one in texts]
        apart = self._apart(
            [attrs.evolve(one, text=text) for one, (text, _) in zip(texts, whole, strict=True)]
        )
        hidden = {"role": message["role"], **_with_texts(fields, iter(apart))}
        changed = sum(one.text != text for one, (text, _) in zip(apart, whole, strict=True))
        return hidden, sum(count for _, count in whole) + changed

    def _apart(self, texts: list[FoundText]) -> list[FoundText]:
        """Return texts that spell no special token when joined: the first letter of each is hidden.

        Hiding one token can complete another from what is left and right of it, so this repeats.
        """
        begins = {match.start() for match in self.pattern.finditer(_adjacent(texts))}
        if not begins:
            return texts
        changed, start = [], 0
        for one in texts:
            letters = [
                self.known[letter] if one.beside and start + place in begins else letter
                for place, letter in enumerate(one.text)
            ]
            changed.append(attrs.evolve(one, text="".join(letters)))
            start += len(one.text) if one.beside else 0
        return self._apart(changed)


@attrs.frozen
class FoundText:
    """A text somewhere in a message.

    Attributes:
        text: The text.
        beside: Whether a template may join it to the text before; it does not join keys and types of parts.
    """

    text: str
    beside: bool


@attrs.frozen(eq=False)
class GuardedBound(Bound):
    """A guarded folder's template with tools and arguments.

    Attributes:
        guard: The guard.
    """

    guard: SpecialTokenGuard = attrs.field(kw_only=True)

    def __call__(
        self, messages: Sequence[Message], *, add_generation_prompt: bool, **ending: Any
    ) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the template rejects them."""
        hidden, speaking = self.guard.hidden(messages), add_generation_prompt
        return self.guard.shown(super().__call__(hidden, add_generation_prompt=speaking, **ending))

    def rendered(self, messages: Sequence[Message], since: str | None, **options: bool) -> Rendered:
        """Return the text with stand-ins, and its ids as `tito_core.Renderer` does."""
        found = super().rendered(self.guard.hidden(messages), since, **options)
        return Rendered(found.text, self.guard.shown(found.ids))


def special_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the texts of a vocabulary's special tokens."""
    return [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special]


def _texts(value: Any, *, beside: bool = True) -> Iterator[FoundText]:
    """Yield every text in a value, in order."""
    if isinstance(value, str):
        yield FoundText(value, beside)
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield FoundText(str(name), beside=False)
            yield from _texts(item, beside=beside and name != "type")
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for item in value:
            yield from _texts(item, beside=beside)


def _with_texts(value: Any, texts: Iterator[FoundText]) -> Any:
    """Return a value with other texts, in the order of `_texts`."""
    if isinstance(value, str):
        return next(texts).text
    if isinstance(value, Mapping):
        return {next(texts).text: _with_texts(item, texts) for item in value.values()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_with_texts(item, texts) for item in value]
    return value


def _adjacent(texts: Iterable[FoundText]) -> str:
    """Return the text that a template may make of texts."""
    return "".join(one.text for one in texts if one.beside)


def _letters(plain: Tokenizer, family: Family, text: str) -> tuple[int, ...]:
    """Return ids that spell a special token's text, encoded whole or letter by letter."""
    special = {family.tokenizer.token_to_id(one) for one in special_texts(family.tokenizer)}
    for pieces in ([text], list(text)):
        ids = tuple(chain.from_iterable(plain.encode(one, add_special_tokens=False).ids for one in pieces))
        if family.decode(ids) == text and special.isdisjoint(ids):
            return ids
    raise InputError(
        f"--family {family.path}: its vocabulary cannot spell {text!r} in letters; with "
        "--special-tokens keep what users and tools say is read as it stands"
    )

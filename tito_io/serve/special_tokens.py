"""What users and tools say stays text, also where it spells a special token.

A tool that returns `<|im_end|>` must not end a turn. A tokenizer reads such letters as the token; so before a
template is filled in, each is replaced by a stand-in that nobody can guess, and in the ids each stand-in is
replaced by the ids of the letters. The template and the rest of the text are none the wiser. Whatever shape a
content has, every text in it is looked at, and so is what templates make of texts that stand side by side.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import anyio.to_thread
import attrs
from tokenizers import Tokenizer

from tito_core import InputError, Message
from tito_io.families.family import Bound, Family

ROLES = frozenset(("user", "tool"))
"""Who speaks for the world. System texts are the operator's, and assistants' are the model's own."""


@attrs.frozen
class Spelled:
    """A special token that may be spelled out."""

    stand_in: str
    ids: tuple[int, ...]
    """The ids of its letters, the token not among them."""


@attrs.frozen(eq=False)
class Guard:
    """A family that reads spelled special tokens as text."""

    family: Family
    known: Mapping[str, Spelled]
    """Special tokens by their text."""
    ids: Mapping[int, tuple[int, ...]]
    """What stands for a stand-in's id."""
    pattern: re.Pattern[str]

    @classmethod
    def of(cls, family: Family, *, guarded: bool = True) -> Guard:
        """Make ready; raises `InputError` where the vocabulary cannot write a special token's letters.

        Not `guarded`, it renders as the family does.
        """
        texts = special_texts(family.tokenizer) if guarded else []
        begun = sorted({text[0] for text in texts} - {*texts})
        salt = secrets.token_hex(8)
        plain = _plain(family.tokenizer)
        known = {
            text: Spelled(f"\ue000{salt}:{place}\ue001", _letters(plain, family, text))
            for place, text in enumerate([*texts, *begun])
        }
        extended = family.with_special_tokens([one.stand_in for one in known.values()])
        found = {extended.tokenizer.token_to_id(one.stand_in): one.ids for one in known.values()}
        longest = sorted(texts, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, longest)) or r"(?!)")
        return cls(
            extended, known, {index: ids for index, ids in found.items() if index is not None}, pattern
        )

    def count(self, messages: Sequence[Message]) -> int:
        """Return how many special tokens are spelled out where the world speaks."""
        return sum(self._hide(message)[1] for message in messages)

    def tokenize_fn(self, tools: Sequence[Mapping[str, Any]], args: Mapping[str, Any]) -> Guarded:
        """Return what renders messages."""
        return Guarded(self, self.family.tokenize_fn(tools=tools or None, **args))

    def hidden(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with stand-ins in them."""
        return [self._hide(message)[0] for message in messages]

    def shown(self, ids: Sequence[int]) -> list[int]:
        """Return ids with letters for stand-ins."""
        if self.ids.keys().isdisjoint(ids):
            return list(ids)
        return [*chain.from_iterable(self.ids.get(index, (index,)) for index in ids)]

    def _hide(self, message: Message) -> tuple[Message, int]:
        """Return a message with stand-ins in it, and how many there are."""
        if message.get("role") not in ROLES:
            return message, 0
        said = {name: value for name, value in message.items() if name != "role"}
        texts = list(_texts(said))
        if not any(map(self.pattern.search, (*(one.said for one in texts), _joined(texts)))):
            return message, 0
        whole = [self.pattern.subn(self._stand_in, one.said) for one in texts]
        apart = self._apart(
            [attrs.evolve(one, said=text) for one, (text, _) in zip(texts, whole, strict=True)]
        )
        hidden = {"role": message["role"], **_retold(said, iter(apart))}
        changed = sum(one.said != text for one, (text, _) in zip(apart, whole, strict=True))
        return hidden, sum(count for _, count in whole) + changed

    def _apart(self, texts: list[FoundText]) -> list[FoundText]:
        """Return texts that spell nothing where they are put side by side: what begins a token is hidden."""
        begins = {match.start() for match in self.pattern.finditer(_joined(texts))}
        if not begins:
            return texts
        found, start = [], 0
        for one in texts:
            length = len(one.said) if one.beside else 0
            letters = [
                self.known[letter].stand_in if one.beside and start + place in begins else letter
                for place, letter in enumerate(one.said)
            ]
            found.append(attrs.evolve(one, said="".join(letters)))
            start += length
        return self._apart(found)

    def _stand_in(self, found: re.Match[str]) -> str:
        return self.known[found.group()].stand_in


@attrs.frozen
class FoundText:
    """A text somewhere in a message."""

    said: str
    beside: bool
    """Whether a template may put it beside the text before it: keys and kinds of parts it does not."""


@attrs.frozen
class Guarded:
    """A guarded family's template with tools and arguments, asked from asynchronous code."""

    guard: Guard
    bound: Bound

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the template rejects them."""
        return await anyio.to_thread.run_sync(self._ids, messages, None, add_generation_prompt)

    async def since(
        self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids from `text` on; see `tito_core.Ask`."""
        return await anyio.to_thread.run_sync(self._ids, messages, text, add_generation_prompt)

    def _ids(self, messages: Sequence[Message], text: str | None, add_generation_prompt: bool) -> list[int]:
        hidden = self.guard.hidden(messages)
        if text is None:
            return self.guard.shown(self.bound(hidden, add_generation_prompt=add_generation_prompt))
        cut = self.bound.since(hidden, text, add_generation_prompt=add_generation_prompt)
        return self.guard.shown(cut)


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


def _retold(value: Any, texts: Iterator[FoundText]) -> Any:
    """Return a value with other texts, in the order of `_texts`."""
    if isinstance(value, str):
        return next(texts).said
    if isinstance(value, Mapping):
        return {next(texts).said: _retold(item, texts) for item in value.values()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_retold(item, texts) for item in value]
    return value


def _joined(texts: Iterable[FoundText]) -> str:
    """Return what a template may make of texts."""
    return "".join(one.said for one in texts if one.beside)


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer that knows no added token, so that letters are letters."""
    return Tokenizer.from_str(json.dumps({**json.loads(tokenizer.to_str()), "added_tokens": []}))


def _letters(plain: Tokenizer, family: Family, text: str) -> tuple[int, ...]:
    """Return ids that spell a special token's text, whole or letter by letter."""
    special = {family.tokenizer.token_to_id(one) for one in special_texts(family.tokenizer)}
    for pieces in ([text], list(text)):
        ids = tuple(chain.from_iterable(plain.encode(one, add_special_tokens=False).ids for one in pieces))
        if family.decode(ids) == text and special.isdisjoint(ids):
            return ids
    raise InputError(
        f"--family {family.path}: its vocabulary cannot spell {text!r} in letters; with "
        "--special-tokens keep what users and tools say is read as it stands"
    )

"""What users and tools say stays text, also where it spells a special token.

A tool that returns `<|im_end|>` must not end a turn. A tokenizer reads such letters as the token; so before a
template is filled in, each is replaced by a stand-in that nobody can guess, and in the ids each stand-in is
replaced by the ids of the letters. The template and the rest of the text are none the wiser.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import anyio.to_thread
import attrs
from tokenizers import Tokenizer

from tito_core import InputError, Message
from tito_io.family import Bound, Family

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
        salt = secrets.token_hex(8)
        plain = _plain(family.tokenizer)
        known = {
            text: Spelled(f"\ue000{salt}:{place}\ue001", _letters(plain, family, text))
            for place, text in enumerate(texts)
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
        return sum(len(self.pattern.findall(text)) for text in chain.from_iterable(map(_texts, messages)))

    def tokenize_fn(self, tools: Sequence[Mapping[str, Any]], args: Mapping[str, Any]) -> Guarded:
        """Return what renders messages."""
        return Guarded(self, self.family.tokenize_fn(tools=tools or None, **args))

    def hidden(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with stand-ins in them."""
        return [self._hidden(message) for message in messages]

    def shown(self, ids: Sequence[int]) -> list[int]:
        """Return ids with letters for stand-ins."""
        if self.ids.keys().isdisjoint(ids):
            return list(ids)
        return [*chain.from_iterable(self.ids.get(index, (index,)) for index in ids)]

    def _hidden(self, message: Message) -> Message:
        if message.get("role") not in ROLES or not any(map(self.pattern.search, _texts(message))):
            return message
        content = message["content"]
        parts = content if isinstance(content, str) else [self._part(part) for part in content]
        return {**message, "content": self._text(parts) if isinstance(parts, str) else parts}

    def _part(self, part: Any) -> Any:
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            return {**part, "text": self._text(part["text"])}
        return part

    def _text(self, text: str) -> str:
        return self.pattern.sub(lambda found: self.known[found.group()].stand_in, text)


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
        """Return the ids from the last place of `text` on; see `tito_core.Ask`."""
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


def _texts(message: Message) -> list[str]:
    """Return what a message of the world says."""
    content = message.get("content") if message.get("role") in ROLES else None
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, Sequence) else ()
    return [part["text"] for part in parts if isinstance(part, Mapping) and isinstance(part.get("text"), str)]


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

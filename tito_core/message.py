"""Messages as callers pass them, copied once.

Agents change their message objects in place. Ids that were sampled after one text must never be matched
to another text, so a step keeps private copies and never an object that a caller may still edit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, takewhile
from typing import Any, TypeAlias, overload

import attrs

from .checks import short_repr
from .errors import InputError
from .shared import Shared

Message: TypeAlias = Mapping[str, Any]
"""One OpenAI chat message: a mapping with `role`, `content`, `tool_calls` and so on."""

MAX_DEPTH = 100
"""Deeper nesting is an `InputError`: no message needs it, and recursion must be bounded."""

_TEXT = frozenset((str,))
_NESTED = frozenset((dict, list))

MEDIA = re.compile(
    r"(input_)?(audio|file|image|video)|(audio|image|video)_url|(audio|image|prompt)_embeds|image_pil|document"
)
"""Content part types whose ids are more than the text around them."""
BESIDE = ("audio", "images", "videos")
"""Keys of a message that hold media beside its content."""


CALL_BITS = 1021
SWITCHES = ("/think", "/no_think", "/nothink")
"""Words in a text with which templates switch reasoning on and off."""
LISTENED_TO = {"user": "user", "system": "system", "developer": "system"}
"""Roles whose texts may have such words, and the role that templates know them by."""


def _has_switch(message: Message) -> bool:
    texts = texts_in(message) if message["role"] in LISTENED_TO else ()
    return any(word in text for text in texts for word in SWITCHES)


def texts_in(message: Message) -> list[str]:
    """Return the texts of a message's content: the string, or those of its parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return [content] if isinstance(content, str) else []
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str)]


def as_id(value: Any) -> str | int | None:
    """Return the id of a call or of a result; None for a missing one, and for what is no id."""
    return value if isinstance(value, str | int) else None


def call_ids(message: Message) -> list[str | int | None]:
    """Return the ids of a message's tool calls, None for a call without one."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return []
    given = [call.get("id") for call in calls if isinstance(call, dict)]
    return list(map(as_id, given))


def called_ids(turn: Message, environment: Sequence[Message]) -> Iterator[str | int | None]:
    """Yield the ids of the calls of a turn and of the messages after it."""
    return chain.from_iterable(map(call_ids, (turn, *environment)))


@attrs.frozen
class Summary:
    """Facts about messages, kept so that they are not read again. Most messages add nothing to them.

    Attributes:
        mixed: How many messages hold more than strings and None.
        media: How many media the messages have.
        opening: The system and developer messages at the beginning.
        instructed: Position of the last developer message, -1 without one: after one vLLM moves all system
            texts to the beginning.
        switched: Roles of messages after the opening that say one of `SWITCHES`, which templates look for.
        called: Bits of the hashes of all tool call ids: whether an id is new is seen without reading them.
    """

    mixed: int = 0
    media: int = 0
    opening: tuple[dict[str, Any], ...] = ()
    instructed: int = -1
    switched: frozenset[str] = frozenset()
    called: int = 0

    def then(self, message: dict[str, Any], place: int) -> Summary:
        """Return the summary of these messages and one more, at `place`; itself if that adds nothing."""
        role, opening, called = message["role"], self.opening, self.called
        if role in {"system", "developer"} and place == len(opening):
            opening = (*opening, message)
        switches = opening is self.opening and _has_switch(message)
        for call_id in call_ids(message):
            called |= 1 << hash(call_id) % CALL_BITS
        longer = Summary(
            mixed=self.mixed + (not _is_text(message)),
            media=self.media + _media_count(message),
            opening=opening,
            instructed=place if role == "developer" else self.instructed,
            switched=self.switched | {LISTENED_TO[role]} if switches else self.switched,
            called=called,
        )
        return self if longer == self else longer


NO_MESSAGES = Summary()


@attrs.frozen(eq=False, repr=False, weakref_slot=False)
class Messages(Shared[dict[str, Any]]):
    """Private copies of messages that share what they extend. Reading one returns a copy again.

    Attributes:
        part: The messages that this link adds to its parent.
        parent: The messages that this one extends; None for the first.
        length: Messages in all.
        asked: Position of the last user message; -1 without one.
        summary: What else is known of all messages; nearly always the parent's own.
        memo: The hash of all messages, once `match.chain_hash` has computed it.
        said: Words that were looked for, and which of them the messages say (see `says`).

    >>> start = Messages.of([{"role": "user", "content": "hi"}])
    >>> longer = start.then([{"role": "assistant", "content": "hello"}])
    >>> len(longer), longer.extends(start), longer[1]["content"]
    (2, True, 'hello')
    """

    asked: int = attrs.field(init=False)
    summary: Summary = attrs.field(init=False)
    memo: int | None = attrs.field(init=False, default=None)
    said: tuple[tuple[str, ...], frozenset[str]] = attrs.field(init=False, default=((), frozenset()))

    @asked.default
    def _last_user(self) -> int:
        users = (place for place, one in enumerate(self.part, self.start) if one["role"] == "user")
        return max(users, default=-1 if self.older is None else self.older.asked)

    @summary.default
    def _summarized(self) -> Summary:
        summary = NO_MESSAGES if self.older is None else self.older.summary
        for place, message in enumerate(self.part, self.start):
            summary = summary.then(message, place)
        return summary

    def calls(self, ids: Collection[str | int | None]) -> bool:
        """Return whether a message calls a tool by one of `ids`; read only where the bits say it may."""
        may = any(self.summary.called >> hash(call_id) % CALL_BITS & 1 for call_id in ids)
        return may and any(not set(ids).isdisjoint(call_ids(message)) for message in super().__iter__())

    def says(self, words: tuple[str, ...]) -> frozenset[str]:
        """Return which of `words` a message after the opening says.

        What older links say is remembered, so that it costs O(new).
        """
        missing = list(takewhile(lambda link: link.said[0] != words, self.links()))
        older = missing[-1].older if missing else self
        known = frozenset[str]() if older is None else older.said[1]
        for link in reversed(missing):
            later = link.part[max(len(self.opening) - link.start, 0) :]
            texts = [text for one in later for text in texts_in(one)]
            known = known.union(word for word in words if any(word in text for text in texts))
            # A cache: the value follows from the frozen fields.
            object.__setattr__(link, "said", (words, known))
        return known

    @property
    def mixed(self) -> int:
        """How many messages hold more than strings and None."""
        return self.summary.mixed

    @property
    def media(self) -> int:
        """How many media the messages have."""
        return self.summary.media

    @property
    def multimodal(self) -> bool:
        """Whether any message has media."""
        return bool(self.media)

    @property
    def opening(self) -> tuple[dict[str, Any], ...]:
        """The system and developer messages at the beginning."""
        return self.summary.opening

    @property
    def instructed(self) -> int:
        """Position of the last developer message; -1 without one."""
        return self.summary.instructed

    @property
    def switched(self) -> frozenset[str]:
        """Roles of messages after the opening that say one of `SWITCHES`."""
        return self.summary.switched

    @property
    def texts(self) -> bool:
        """Whether this part holds strings and None only, so that `==` is exact (True == 1 elsewhere)."""
        return self.mixed == (0 if self.older is None else self.older.mixed)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(copy_of, super().__iter__())

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        stored = super().__getitem__(index)
        return copy_of(stored) if isinstance(stored, dict) else list(map(copy_of, stored))

    @classmethod
    def of(cls, messages: Sequence[Message], name: str = "prompt") -> Messages:
        """Return copies of `messages`. Raises `InputError` that names the invalid one after `name`."""
        return messages if isinstance(messages, cls) else cls(copied(messages, name))

    def peek(self, index: int) -> dict[str, Any]:
        """Return a message as it is stored, for callers that neither change it nor pass it on."""
        return super().__getitem__(index)

    def then(self, messages: Sequence[Message], name: str = "prompt") -> Messages:
        """Return these messages followed by copies of the new ones; costs O(new)."""
        return Messages(copied(messages, name, self.length), self) if messages else self


def copied(messages: Sequence[Message], name: str, offset: int = 0) -> tuple[dict[str, Any], ...]:
    """Return private copies of `messages`; `offset` is the position of the first, for errors.

    >>> copied([{"role": "user", "content": ("a", "b")}], "prompt")
    ({'role': 'user', 'content': ['a', 'b']},)
    >>> copied([{"content": "a"}], "prompt")
    Traceback (most recent call last):
    tito_core.errors.InputError: prompt[0] has no role: every message needs a 'role' that is a string
    """
    given: object = messages
    if not isinstance(given, list | tuple | Sequence) or isinstance(given, str | bytes):
        raise InputError(f"{name} must be a list of messages, not {type(given).__name__}")
    return tuple(message_copy(item, f"{name}[{offset + i}]") for i, item in enumerate(messages))


def message_copy(item: object, where: str) -> dict[str, Any]:
    """Return a copy of one message, after checking that it has a role."""
    message = _copy(item, where, 0)
    if not isinstance(message, dict):
        raise InputError(f"{where} must be a message (a mapping with a role), not {type(item).__name__}")
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise InputError(f"{where} has no role: every message needs a 'role' that is a string")
    return message


def copy_of(message: Message) -> dict[str, Any]:
    """Return a copy that the reader may change, of a message that was copied from a caller's before.

    >>> copy_of({"role": "user", "content": [{"type": "text", "text": "a"}]})
    {'role': 'user', 'content': [{'type': 'text', 'text': 'a'}]}
    """
    return {key: _again(one) if type(one) in _NESTED else one for key, one in message.items()}


def _again(value: Any) -> Any:
    if type(value) is dict:
        return copy_of(value)
    return [_again(one) if type(one) in _NESTED else one for one in value]


def _copy(value: Any, where: str, depth: int) -> Any:
    """Return a copy of JSON-like data; objects of client libraries become what they serialize to."""
    kind = type(value)
    if kind is str or value is None or kind in (int, float, bool):
        return value
    if kind is dict and _TEXT.issuperset(map(type, value)) and _TEXT.issuperset(map(type, value.values())):
        return value.copy()  # as most messages are: it copies all of it
    if depth > MAX_DEPTH:
        raise InputError(f"{where} nests deeper than {MAX_DEPTH} levels: flatten it")
    if isinstance(value, Mapping):
        return {_key(k, where): _copy(v, where, depth + 1) for k, v in value.items()}
    if isinstance(value, str):
        return str.__str__(value)  # a subclass's own text may change
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [_copy(item, where, depth + 1) for item in value]
    return _copy(_fields(value, where), where, depth + 1)


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise InputError(f"{where} has the key {short_repr(key)}: keys are strings, as in JSON")
    return str.__str__(key)


def _fields(value: Any, where: str) -> Mapping[str, Any]:
    """Return the fields of a pydantic, attrs or dataclass object."""
    kind, dump = type(value), getattr(value, "model_dump", None)
    if attrs.has(kind):
        return attrs.asdict(value, recurse=False)
    if hasattr(kind, "__dataclass_fields__"):
        from dataclasses import fields  # noqa: PLC0415  # only dataclasses need it

        return {field.name: getattr(value, field.name) for field in fields(value)}
    try:
        dumped = dump() if callable(dump) and not isinstance(value, type) else None
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{where} holds a {kind.__name__} whose model_dump raises: {error!s:.60}") from error
    if isinstance(dumped, Mapping):
        return dumped
    name = f"class, {value.__name__}" if isinstance(value, type) else kind.__name__
    raise InputError(f"{where} holds a {name}: convert it to plain JSON data first")


def _is_text(value: Any) -> bool:
    """Return whether a value holds no number and no truth value."""
    if isinstance(value, dict | list):
        return all(map(_is_text, value.values() if isinstance(value, dict) else value))
    return value is None or type(value) is str


def is_multimodal(messages: Sequence[Message]) -> bool:
    """Return whether any of `messages` has media: its ids are then more than those of its text.

    >>> is_multimodal([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "..."}}]}])
    True
    >>> is_multimodal([{"role": "user", "content": [{"type": "text", "text": "an image_url"}]}])
    False
    """
    return any(map(_media_count, messages))


def media_in(message: Message) -> list[dict[str, Any]]:
    """Return the media of a message: the parts of its content that are media, and what stands beside it.

    >>> media_in({"role": "user", "content": [{"type": "text", "text": "?"}, {"type": "image", "uuid": "a"}]})
    [{'type': 'image', 'uuid': 'a'}]
    """
    content = message.get("content")
    parts = filter(is_media, content) if isinstance(content, list) else ()
    return [*parts, *({"type": key.removesuffix("s")} for key in BESIDE if message.get(key) is not None)]


def _media_count(message: Message) -> int:
    plain = not isinstance(message.get("content"), list) and message.keys().isdisjoint(BESIDE)
    return 0 if plain else len(media_in(message))


def is_media(part: Any) -> bool:
    """Return whether a content part is a medium, or holds one."""
    if not isinstance(part, dict):
        return False
    kind, inner = part.get("type"), part.get("content")
    if isinstance(inner, list) and any(map(is_media, inner)):
        return True
    names = [kind, *(key for key, value in part.items() if value is not None)]
    return any(isinstance(name, str) and MEDIA.fullmatch(name) for name in names)

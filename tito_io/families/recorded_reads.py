"""Record which keys of messages a template reads, to render equal prompts once."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Mapping
from typing import Any

from attrs import define, field, frozen

_FORM = 2
"""A form of `marshal` in which equal values of equal types are equal bytes."""


def name_of(value: Any) -> bytes:
    """Return bytes that are equal for equal plain values of equal types only."""
    return marshal.dumps(value, _FORM)


@define
class ReadKeys:
    """The keys of one kind of object that were read so far.

    Attributes:
        keys: The keys that were looked up, whether they were there or not.
        whole: Whether an object was used in a way that depends on all its keys, as when it is printed.
    """

    keys: set[str] = field(factory=set)
    whole: bool = False

    @property
    def size(self) -> int:
        """A number that grows with what is read."""
        return len(self.keys) + self.whole

    def part(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was read of an object, as far as it is there."""
        return {key: value for key, value in values.items() if self.whole or key in self.keys}


class RecordingDict(dict[str, Any]):
    """A dict that records what is read of it. It is not empty, and is never changed."""

    __slots__ = ("_reads",)

    def __init__(self, values: Mapping[str, Any], reads: ReadKeys) -> None:
        """Copy `values`."""
        super().__init__(values)
        self._reads = reads

    def __getitem__(self, key: str) -> Any:
        self._reads.keys.add(key)
        return dict.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        self._reads.keys.add(key)  # type: ignore[arg-type]  # a key that no JSON object has is harmless
        return dict.__contains__(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value as `dict.get` does."""
        self._reads.keys.add(key)
        return dict.get(self, key, default)

    def __bool__(self) -> bool:
        return True


def _reading_all(method: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(self: RecordingDict, *args: Any) -> Any:
        self._reads.whole = True
        return method(self, *args)

    recorded.__name__ = method.__name__
    return recorded


# Operators, functions and `json` call these methods of a class that has its own.
_OPERATORS = ("__eq__", "__iter__", "__len__", "__ne__", "__or__", "__repr__", "__reversed__", "__ror__")
_METHODS = ("copy", "items", "keys", "values")
for _name in (*_OPERATORS, *_METHODS):
    setattr(RecordingDict, _name, _reading_all(getattr(dict, _name)))
# Templates and errors of Jinja print the name of a type.
RecordingDict.__name__ = RecordingDict.__qualname__ = "dict"
RecordingDict.__module__ = "builtins"


@frozen
class MessageReads:
    """The keys that a template read from messages, from their tool calls, and from the calls' functions.

    >>> reads = MessageReads()
    >>> message = reads.recording({"role": "user", "content": "hi"})
    >>> message["role"], reads.messages.keys
    ('user', {'role'})
    >>> reads.seen({"role": "user", "content": "hi"}) == reads.seen({"role": "user", "content": "ho"})
    True
    """

    messages: ReadKeys = field(factory=ReadKeys)
    calls: ReadKeys = field(factory=ReadKeys)
    functions: ReadKeys = field(factory=ReadKeys)

    @property
    def size(self) -> int:
        """A number that grows with what is read."""
        return self.messages.size + self.calls.size + self.functions.size

    def recording(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a copy of a plain message that records what is read of it."""
        recording: Mapping[str, Any] = self._each(message, RecordingDict)
        return recording

    def seen(self, message: Mapping[str, Any]) -> bytes:
        """Return what was read of such a message so far; with equal bytes two are rendered equally."""
        return name_of(self._each(message, _part))

    def _each(self, message: Mapping[str, Any], make: Callable[[dict[str, Any], ReadKeys], Any]) -> Any:
        """Return a message made by `make`, with its calls and their functions; what is empty stays."""
        calls = message.get("tool_calls")
        if isinstance(calls, list):
            message = {**message, "tool_calls": [self._call(call, make) for call in calls]}
        return make(dict(message), self.messages) if message else message

    def _call(self, call: Any, make: Callable[[dict[str, Any], ReadKeys], Any]) -> Any:
        if not isinstance(call, dict) or not call:
            return call
        function = call.get("function")
        if isinstance(function, dict) and function:
            call = {**call, "function": make(function, self.functions)}
        return make(call, self.calls)


def _part(values: dict[str, Any], reads: ReadKeys) -> tuple[Any, ...]:
    """Return what was read of an object; a tuple, so that it differs from an empty object."""
    return tuple(reads.part(values).items())

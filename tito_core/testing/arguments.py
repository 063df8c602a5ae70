"""Check the arguments of the tools for tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from ..checks import require, short_repr
from ..errors import InputError
from .toys import Message, Toy

ORDER = "the order is ids, messages, sampled, render, decode"
MESSAGE = f'a mapping such as {{"role": "user", "content": "Hi"}} ({ORDER})'


def check_messages(messages: Sequence[Message]) -> None:
    """Raise `InputError` unless these are messages with roles, at least one."""
    require(messages, Sequence, "messages", f"a list of messages ({ORDER})")
    if not messages:
        raise InputError("messages is empty: give the conversation that the ids stand for")
    for place, message in enumerate(messages):
        require(message, Mapping, f"messages[{place}]", MESSAGE)
        if "role" not in message:
            raise InputError(f"messages[{place}] has no role: give {MESSAGE}")


def check_functions(render: object, decode: object) -> None:
    """Raise `InputError` unless both can be called."""
    if not callable(render):
        expected = "a function of messages and add_generation_prompt that returns ids, such as a toy"
        raise InputError(f"render is {short_repr(render)}: give {expected}")
    if not callable(decode):
        expected = "a function of ids that returns their text, such as toy.decode"
        raise InputError(f"decode is {short_repr(decode)}: give {expected}")


def check_sampled(sampled: object) -> None:
    """Raise `InputError` unless this may have an entry for each assistant message."""
    require(sampled, Collection, "sampled", f"a list with an entry for each assistant message ({ORDER})")


def numbers(values: Iterable[float | None], name: str) -> list[float | None]:
    """Return the numbers of a mask or of log-probabilities; raises `InputError` that begins with `name`."""
    try:
        return [None if value is None else float(value) for value in values]
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is {short_repr(values)}: give a flat list of numbers, one for each id"
        ) from error


def checked_toys(templates: Sequence[Toy]) -> tuple[Toy, ...]:
    """Return toys; raises `InputError` for anything else, such as the name of one."""
    if isinstance(templates, Toy | str):
        raise InputError(f"templates is {short_repr(templates)}: give a list of toys, {_example(templates)}")
    require(templates, Iterable, "templates", "a list of toys, such as [toy_named('chatml')]")
    for place, toy in enumerate(toys := tuple(templates)):
        require(toy, Toy, f"templates[{place}]", f"a toy, {_example(toy)}")
    return toys


def _example(given: object) -> str:
    """Return how to name the toy that was meant."""
    name = given.name if isinstance(given, Toy) else given if isinstance(given, str) else "chatml"
    return f"such as [toy_named({name!r})]"

"""Find out by rendering which variables of a chat template switch reasoning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from attrs import frozen

from tito_core import TemplateRefused
from tito_io.thinking import EFFORT, NO_EFFORT, SWITCHES, switched

from .family import Family

ASKED = [{"role": "user", "content": "a"}]
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "a", "parameters": {"type": "object", "properties": {}}},
}
UNLIKELY = "zqx"
"""An effort that no template knows."""


@frozen
class ThinkingSwitches:
    """The variables that the chat templates of a family read to switch reasoning.

    Attributes:
        read: The names, of `SWITCHES` and `EFFORT`, whose value changes a prompt.
        effort_switches: Whether the effort `none` is known, and not written like any other word.
    """

    read: frozenset[str]
    effort_switches: bool = False

    @classmethod
    def of(cls, family: Family) -> Self:
        """Ask the templates of a family, with and without tools."""
        values = {**SWITCHES, EFFORT: (NO_EFFORT, "low", "high")}
        texts = {name: [_texts(family, name, value) for value in some] for name, some in values.items()}
        read = frozenset(name for name, found in texts.items() if any(one != found[0] for one in found))
        if EFFORT not in read:
            return cls(read)
        written = [
            None if text is None else text.replace(UNLIKELY, NO_EFFORT)
            for text in _texts(family, EFFORT, UNLIKELY)
        ]
        return cls(read, texts[EFFORT][0] != written)

    def reaching(self, args: Mapping[str, Any]) -> dict[str, Any]:
        """Return template arguments without the names that are not read.

        >>> ThinkingSwitches(frozenset(["thinking"])).reaching({"enable_thinking": False, "thinking": False})
        {'thinking': False}
        """
        unread = {*SWITCHES, EFFORT} - self.read
        kept = {name: value for name, value in args.items() if name not in unread}
        by_effort = self.effort_switches and switched(kept) is None and switched(args) is False
        return {**kept, EFFORT: NO_EFFORT} if by_effort else kept

    def unread(self, args: Mapping[str, Any]) -> Iterator[str]:
        """Yield `thinking` and `reasoning_effort` where arguments have them and the templates read nothing.

        >>> [*ThinkingSwitches(frozenset()).unread({"thinking": False})]
        ['thinking']
        """
        reached, wish, effort = self.reaching(args), switched(args), args.get(EFFORT)
        implied = effort is not None and wish is (effort != NO_EFFORT)
        if (
            effort is not None
            and EFFORT not in reached
            and (switched(reached) is None or effort != NO_EFFORT)
        ):
            yield EFFORT
        if (
            wish is not None
            and not implied
            and switched(reached) is None
            and reached.get(EFFORT) != NO_EFFORT
        ):
            yield "thinking"


def _texts(family: Family, name: str, value: Any) -> list[str | None]:
    """Return a prompt without and with tools under one argument; None where the template refuses it."""
    found: list[str | None] = []
    for tools in (None, [TOOL]):
        try:
            found.append(family.text(ASKED, add_generation_prompt=True, tools=tools, **{name: value}))
        except TemplateRefused:
            found.append(None)
    return found

"""The scenarios of all sets of vectors, read from `scenarios.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from .oracle import Message
from .scenario import NEVER, REQUIRED, Chat, Scenario, Turn

SETS = ("valid", "refused", "trap")
_DATA = tomllib.loads(files(__package__).joinpath("scenarios.toml").read_text(encoding="utf-8"))


def scenarios() -> Iterator[Scenario]:
    """Yield the scenarios of all sets."""
    for template, habit in _DATA["habits"].items():
        for name, chat in _DATA["chats"].items():
            table = {**chat, "title": f"{habit} {chat['title']}", "template": template}
            yield _scenario(
                f"valid/{template}/{name}", table, tools="tools" in chat or template == "tools-with-question"
            )
    for name, table in _DATA["scenarios"].items():
        yield _scenario(name, table, tools="tools" in table)


def _scenario(name: str, table: Mapping[str, Any], *, tools: bool) -> Scenario:
    """Return the scenario that a table of the file describes."""
    reason = table.get("reason")
    return Scenario(
        name=name,
        title=table["title"],
        template=table.get("template", "chatml"),
        chat=_chat(table["chat"]),
        tools=_DATA["tools"] if tools else None,
        arguments=table.get("arguments", {}),
        stops=table.get("stops"),
        request=[_message(one) for one in table["request"]] if "request" in table else None,
        more=_chat(table.get("more", ())),
        refusal=REQUIRED if reason else table.get("refusal", NEVER),
        reason=reason,
    )


def _chat(table: Sequence[str | Mapping[str, Any]]) -> Chat:
    named = [_DATA["turns"].get(one, one) if isinstance(one, str) else one for one in table]
    return [_turn(**one) if "turn" in one and not isinstance(one, str) else _message(one) for one in named]


def _turn(turn: str | Mapping[str, Any], **fields: Any) -> Turn:
    return Turn(_message(turn), **fields)


def _message(table: str | Mapping[str, Any]) -> Message:
    """Return a named message, a changed copy of one, or the message itself."""
    if isinstance(table, str):
        found: Message = _DATA["messages"][table]
        return found
    if "like" not in table:
        return table
    changed = {name: value for name, value in table.items() if name not in ("like", "null")}
    return {**_DATA["messages"][table["like"]], **changed, **dict.fromkeys(table.get("null", ()))}

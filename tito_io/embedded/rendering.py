"""The part of a request that a chat template needs, and the ids that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from tito_core import InputError, TemplateRefused
from tito_io.families.family import Family

from .body import Body
from .errors import Refused, invalid
from .messages import readied

GOES_ON, OPENED = "continue_final_message", "add_generation_prompt"
BOTH = f"Cannot set both `{GOES_ON}` and `{OPENED}` to True."
UNSAID = f"{GOES_ON} and {OPENED} are not compatible, and the latter is the default; set it to false."


@frozen
class Rendering:
    """What to render, and how."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    prompted: bool
    """Whether the assistant's turn is opened."""
    continued: bool
    """Whether the last message goes on."""
    arguments: Mapping[str, Any]

    @classmethod
    def read(cls, body: Body, *, renamed: bool = False) -> Rendering:
        """Read it; a template in the request is not trusted.

        Where `renamed`, `reasoning_content` is read as `reasoning`. The engine does that for chat alone: its
        `/tokenize` renders such a message without its thought.
        """
        if body.get("chat_template") is not None:
            raise Refused("A chat template in a request is not trusted; render on your side and send ids.")
        prompted, continued = _ending(body)
        return cls(
            messages=_messages(body, renamed=renamed),
            tools=body.objects("tools"),
            prompted=prompted,
            continued=continued,
            arguments=_arguments(body),
        )

    @property
    def thinking(self) -> bool:
        """Whether the reply may begin with a thought."""
        return self.arguments.get("enable_thinking", True) is not False

    def ids(self, family: Family) -> list[int]:
        """Return the ids, or refuse what the template refuses."""
        try:
            text = family.text(
                readied(self.messages),
                tools=self.tools,
                add_generation_prompt=self.prompted,
                continue_final_message=self.continued,
                **self.arguments,
            )
            return family.encode(text)
        except (TemplateRefused, InputError) as error:
            raise Refused(str(error.__cause__ or error)) from error


def _ending(body: Body) -> tuple[bool, bool]:
    """Return whether an answer is opened, and whether the last message goes on.

    Opening is the default, so that a message which goes on needs both flags. The engine asks first whether
    both say anything, and the word "false" does; null is no value of theirs.
    """
    if body.get(GOES_ON) and body.get(OPENED):
        raise Refused(BOTH)
    for name in (OPENED, GOES_ON):
        if body.values.get(name, True) is None:
            raise invalid("bool_type", f"body.{name}", "Input should be a valid boolean", None)
    prompted, continued = body.flag(OPENED, default=True), body.flag(GOES_ON)
    if prompted and continued:
        raise Refused(UNSAID)
    return prompted, continued


def _messages(body: Body, *, renamed: bool) -> list[dict[str, Any]]:
    messages = body.objects("messages") or []
    if not renamed:
        return messages
    return [{"reasoning": message.get("reasoning_content"), **message} for message in messages]


def _arguments(body: Body) -> dict[str, Any]:
    """Return the template's variables; what the request says elsewhere cannot be said here again."""
    taken = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
    given = body.object("chat_template_kwargs")
    return {name: value for name, value in given.items() if name not in taken}

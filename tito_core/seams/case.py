"""Cases: the kinds of assistant turns and the shapes of what follows them that templates tell apart.

Turns of one kind, and environments of one shape, differ in their words only. A conversation that fits no
kind or shape has no name and is proven each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Self

import attrs

from ..normalization.canonical import REASONING
from ..normalization.clean import flattened
from ..normalization.media import MODALITIES
from .turn import SampledTurn
from .turn_form import WORD, WRITTEN, calls_of, naming

Plain = dict[str, Any]
NAMED = ("user", "tool", "system", "developer")
"""Roles of the message before a turn that has a name. Agents put system messages after tool results."""
FOLLOWING = ("user", "tool", "system", "developer", "assistant")
CONTENTS = ("text", "empty", "null", "absent")
"""Contents that turns of one kind may have."""
KEYS = frozenset(("role", "content", "tool_call_id", "name"))
MANY = "+"
MOST_PARTS = 8
"""Parts of a content that has a name at most."""


def _content(message: Plain) -> str | None:
    """Return `text`, `empty`, `null` or `absent`, or what each part of a list is; None for any other content.

    >>> _content({"content": [{"type": "image"}, {"type": "text", "text": "Whose cat is it?"}]})
    '[image.text]'
    """
    if "content" not in message:
        return "absent"
    content = message["content"]
    if content is None:
        return "null"
    if isinstance(content, list):
        return _parts(content)
    if not isinstance(content, str):
        return None
    return "text" if content.strip() else "empty" if not content else None


def _parts(content: list[Any]) -> str | None:
    names = list(map(_part, content[: MOST_PARTS + 1]))
    return f"[{'.'.join(map(str, names))}]" if 0 < len(names) <= MOST_PARTS and None not in names else None


def _part(part: Any) -> str | None:
    """Return the kind of a part that says nothing beside a text, or is a bare medium."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in MODALITIES and len(part) == 1:
        return str(kind)
    text = part.get("text") if kind == "text" and len(part) == 2 else None  # noqa: PLR2004  # type and text
    return "text" if isinstance(text, str) and text.strip() else None


@attrs.frozen(kw_only=True)
class TurnKind:
    """The kind of an assistant turn.

    Attributes:
        before: Role of the message before it.
        reasoning: Whether it has reasoning.
        calls: How many tool calls it has, 2 for more than one.
        content: `text`, `empty`, `null` or `absent`; without calls always `text`: a turn that says nothing
            has no kind.
        media: What the conversation may show before the turn and after it, such as `("image",)`.
    """

    before: str
    reasoning: bool
    calls: int
    content: str
    media: tuple[str, ...] = ()

    @classmethod
    def of(cls, turn: Plain, before: str, media: tuple[str, ...] = ()) -> Self | None:
        """Return the kind of `turn` after a message of role `before`, None if it has no name.

        >>> TurnKind.of({"role": "assistant", "content": "hi"}, "user")
        TurnKind(before='user', reasoning=False, calls=0, content='text', media=())
        >>> TurnKind.of({"role": "assistant", "content": "hi", "audio": {"id": "a"}}, "user") is None
        True
        """
        calls, content = calls_of(turn), _content(turn)
        if content is None or content not in (CONTENTS if calls else ("text",)):
            return None
        if before not in NAMED or any(map(turn.get, turn.keys() - WRITTEN)):
            return None
        if calls != (turn.get("tool_calls") or []) or not all(map(_is_usual, calls)):
            return None
        return cls(
            before=before,
            reasoning=any(map(turn.get, REASONING)),
            calls=min(len(calls), 2),
            content=content,
            media=media,
        )

    @property
    def label(self) -> str:
        """Its name in tables."""
        words = ("reasoning", "")[not self.reasoning], ("plain", "a call", "calls")[self.calls]
        named = " and ".join(filter(None, words)) if self.calls else words[0] or words[1]
        named += ", with media" * bool(self.media)
        return named if self.before == "user" else f"{named}, in a tool loop"


def _is_usual(call: Plain) -> bool:
    """Return whether a call has the OpenAI form, and a name and an id that are plain words."""
    function = call.get("function")
    if not isinstance(function, dict) or not call.keys() <= {"id", "type", "function", "index"}:
        return False
    return all(isinstance(word, str) and WORD.fullmatch(word) for word in naming(call))


def case_of(turn: SampledTurn, environment: Sequence[Plain]) -> tuple[TurnKind, tuple[str, ...]] | None:
    """Return the kind of `turn` and the shape of the `environment` after it, None if either has no name."""
    kind = TurnKind.of(turn.message, turn.after, turn.modalities)
    shape = None if kind is None else shape_of(flattened(environment), turn.message)
    return None if kind is None or shape is None else (kind, shape)


def shape_of(environment: Sequence[Plain], turn: Plain) -> tuple[str, ...] | None:
    """Return the shape of the `environment` after `turn`, None if it has no name.

    Neighbours of one shape count as many (`user+`). Tool results must answer the turn's calls in order.

    >>> call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    >>> turn = {"role": "assistant", "tool_calls": [call]}
    >>> result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    >>> shape_of([result, {"role": "user", "content": "?"}], turn)
    ('tool', 'user')
    >>> shape_of([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], {"role": "assistant"})
    ('user+',)
    """
    shapes = [_shape(message) for message in environment]
    # Kimi-K2 and gpt-oss name a result by the call with its id.
    answered = [message.get("tool_call_id") for message in environment if message["role"] == "tool"]
    called = [call.get("id") for call in calls_of(turn)]
    if None in shapes or answered != called[: len(answered)] or len(set(called)) != len(called):
        return None
    return tuple(f"{name}{MANY * (len(list(group)) > 1)}" for name, group in groupby(shapes))


def _shape(message: Plain) -> str | None:
    """Return the shape of one message: its role, its content unless that is a text, and `:named`.

    Any other message has none.
    """
    content, role = _content(message), message["role"]
    if role not in FOLLOWING or not message.keys() <= KEYS or content in {None, "null", "absent"}:
        return None
    named = message.get("name") is not None
    if role != "tool" and (named or "tool_call_id" in message):
        return None
    return f"{role}{f':{content}' * (content != 'text')}{':named' * named}"

"""The rules by which an engine changes chat messages before a chat template sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from attrs import field, frozen

from .template_traits import Lists

MEDIA = {
    **dict.fromkeys(("image", "image_url", "input_image"), "image"),
    **dict.fromkeys(("video", "video_url"), "video"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "audio"),
}
"""Types of parts that are media, and as what a template that takes lists gets them."""


class Absent(Enum):
    """How an engine changes a content that is null or left out."""

    KEPT = "stays as it came"
    DROPPED = "the template gets no content"
    EMPTY = "an empty text, or an empty list where texts become lists"
    EMPTY_TEXT = "an empty text"


class NoParts(Enum):
    """How an engine changes a content that is an empty list."""

    JOINED = "an empty text where texts are joined, an empty list otherwise"
    LIST = "an empty list"
    TEXT = "an empty text, which may become a list as other texts do"


class Arguments(Enum):
    """How an engine changes a call's arguments, which requests have as JSON text."""

    OBJECT_IF_WRITTEN = "an object, unless the template writes a text as it is, and an object otherwise"
    JSON_IF_READ = "any JSON where the template reads an object, and what is no JSON is refused; else a text"
    OBJECT_UNLESS_STRING = (
        "an object, unless the template asks `arguments is string` and writes a text as it is"
    )
    OBJECT_OR_EMPTY = "an object; an empty one for what is no JSON object"
    OBJECT_OR_REFUSED = "an object; what is no JSON object is refused"
    OBJECT_OR_TEXT = "an object; what is no JSON object stays a text"


class Developer(Enum):
    """How an engine changes messages of the role `developer`."""

    KEPT = "stay as they came"
    SYSTEM = "`system`, but for templates of gpt-oss"
    MERGED = "`system` where the template does not name the role; all system texts then come first, as one"


class LastTurn(Enum):
    """How an engine changes an assistant's message at the end of a conversation."""

    KEPT = "stays as it came"
    USER = "a text becomes a user's message, without calls and reasoning"


@frozen
class Keys:
    """The keys of an object, in the order in which a template that prints the object writes them.

    Attributes:
        names: The keys that the engine knows.
        others: Whether other keys come after them; else they are dropped.
        fills: What known keys are where they are missing.
        fills_last: Whether those that were missing come last.
        dropped: Other keys that are dropped all the same.
        as_given: Whether the keys that came keep their own order.
    """

    names: tuple[str, ...]
    others: bool = False
    fills: Mapping[str, Any] = field(factory=dict)
    fills_last: bool = False
    dropped: frozenset[str] = frozenset()
    as_given: bool = False


@frozen(kw_only=True, eq=False, repr=False)
class MessageRules:
    """The rules of one engine; the comments in `engines.py` name the lines of its source.

    Attributes:
        engine: The engine and its versions.
        lists: How the engine finds out that a template takes contents as lists of parts.
        wraps: How it finds out that texts, too, have to become lists of one part.
        separator: What joins the text parts of a content where the template takes texts; None joins nothing.
        result_separator: What joins the text parts of a tool result, whatever the template takes; None: as
            any content.
        text_types: Types of parts that are texts; each has its text under `text` or under its own name.
        left_out: Types of parts that are left out.
        passed: Types of parts that the template gets as they came.
        names_tools: Whether a reference to a tool is its name where texts are joined; else refused there.
        mixed: Whether a content that is not all text stays a list where texts are joined; else it is refused.
        skips_unknown: Whether parts of unknown types are left out, too; else they are refused.
        takes_strings: Whether a list may hold bare strings.
        own_types: Types of parts of which a list must have one, or it is refused; empty: any list is taken.
        skips_null: Whether a text that is null or left out is skipped beside others; else it is refused.
        skips_empty: Whether an empty text is skipped where texts are joined.
        skips_first: Whether it is skipped where no text was before it.
        no_parts: What becomes of a content that is an empty list.
        parts: The keys of a text part; None: as they came.
        absent: What becomes of a content that is null or left out.
        refuses_null: The roles whose content may be left out, but is refused if it is null.
        reasoning: The keys under which a request has reasoning; the first that is there counts.
        reasoning_as: The keys under which the template gets it.
        think_tags: Whether reasoning becomes part of the content, between `<think>` and `</think>`, where the
            template does not name `reasoning_content`.
        arguments: What becomes of a call's arguments; None: they stay as they came.
        parses: Parses JSON texts of arguments; raises `ValueError` for other texts.
        keeps_no_calls: Whether an empty list of calls reaches the template.
        calls: The keys of a call; None: as they came.
        functions: The keys of a call's function.
        developer: What becomes of messages of the role `developer`.
        moves_systems: Whether system texts after the first message are changed where the template refuses
            them: leading ones become one, later ones the user's.
        billing_line: Whether a system text loses a first line that begins with `x-anthropic-billing-header`.
        lower_roles: Whether a role is written in small letters, but for the user's.
        messages: The keys of messages by role, those of other roles under the empty name; None: as they came,
            without nulls, and with reasoning under all its names, which transformers sees to.
        lists_last: Whether a content that came as a list stands last in its message, for such a template.
        tools: The keys of a tool; None: as they came.
        bare_tools: Whether a template gets the functions alone.
        tool_functions: The keys of a tool's function.
        defers: Whether a function gets `defer_loading` of its tool where it has none.
        keeps_forbidden_tools: Whether tools stay in the prompt of a request with `tool_choice: "none"`.
        last_turn: What becomes of an assistant's message at the end.
        variables: What the template gets where the request has no variable of that name.
        dates: Formats of the day, which the template gets as variables likewise.
    """

    engine: str
    lists: Lists = Lists.NEVER
    wraps: Lists = Lists.NEVER
    separator: str | None = None
    result_separator: str | None = None
    text_types: frozenset[str] = frozenset({"text"})
    left_out: frozenset[str] = frozenset()
    passed: frozenset[str] = frozenset()
    names_tools: bool = False
    mixed: bool = False
    skips_unknown: bool = False
    takes_strings: bool = False
    own_types: frozenset[str] = frozenset()
    skips_null: bool = False
    skips_empty: bool = False
    skips_first: bool = False
    no_parts: NoParts = NoParts.JOINED
    parts: Keys | None = None
    absent: Absent = Absent.KEPT
    refuses_null: frozenset[str] = frozenset()
    reasoning: tuple[str, ...] = ()
    reasoning_as: tuple[str, ...] = ()
    think_tags: bool = False
    arguments: Arguments | None = None
    parses: Callable[[str], Any] = json.loads
    keeps_no_calls: bool = True
    calls: Keys | None = None
    functions: Keys | None = None
    developer: Developer = Developer.KEPT
    moves_systems: bool = False
    billing_line: bool = False
    lower_roles: bool = False
    messages: Mapping[str, Keys] | None = None
    lists_last: bool = False
    tools: Keys | None = None
    bare_tools: bool = False
    tool_functions: Keys | None = None
    defers: bool = False
    keeps_forbidden_tools: bool = False
    last_turn: LastTurn = LastTurn.KEPT
    variables: Mapping[str, Any] = field(factory=dict)
    dates: Mapping[str, str] = field(factory=dict)

    def given(self, now: datetime) -> dict[str, Any]:
        """Return the variables that a template gets where the request has none of that name."""
        return {**self.variables, **{name: now.strftime(form) for name, form in self.dates.items()}}

    def clock_reads(self, source: str) -> list[str]:
        """Return what stands for the dates that a template reads of `given`, for `Moment.at`."""
        return [f"strftime_now('{form}')" for name, form in self.dates.items() if name in source]

    def __repr__(self) -> str:
        return f"MessageRules({self.engine!r})"

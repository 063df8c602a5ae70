"""Why does a text differ from what was sampled? By rule; of those that hold, the first cause is named.

Who is to blame for a lost or changed text is asked of the template itself: had the turn been sent back as
the very text that was sampled (`verbatim`), would the rendering restate it? Where it would, the parse made
the difference; where it would not, the template. Where that cannot be asked, since some templates refuse a
tool's answer to a turn without calls, what the message still says is evidence: what it has, the template
lost, and what it lacks, the parse.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from ..message import Message
from ..normalization.canonical import sole_text
from .breaks import SAMPLED, Cause, TurnPart

MARKS = re.compile(
    r"</?\w*think\w*>|\[/?THINK\]|<\|channel\|>\w*|<\|(?:begin|end)_of_thought\|>", re.IGNORECASE
)
"""What thinking is fenced with. This names a finding; no id is made of it."""

Found: TypeAlias = "tuple[Cause, str]"


@attrs.frozen(kw_only=True)
class Evidence:
    """What is known of a place where ids differ."""

    part: TurnPart
    used: str
    """The text in use that the rendering does not have, without what both sides begin and end with."""
    rendered: str
    """The text that the rendering has instead."""
    respelled: bool = False
    """Whether the text of a first or last differing token is on both sides: there, only ids differ."""
    cut: bool = False
    """Whether the place reaches the end of a turn that was cut short."""
    seam: bool = False
    """Whether the place holds a turn's stop or close, and ends there."""
    message: Message | None = None
    """What the turn became."""
    verbatim: bool | None = None
    """Whether the rendering would restate the text, had the turn been sent as sampled; None if unasked."""


def causes(evidence: Evidence) -> tuple[Found, ...]:
    """Return every cause that holds with a word about it, in the order of `Cause`.

    >>> message = {"role": "assistant", "reasoning": "2 + 2", "content": "4"}
    >>> seen = Evidence(part=TurnPart.REASONING, used="<think>2 + 2</think>", rendered="", message=message)
    >>> [cause.name for cause, _ in causes(seen)]
    ['THINKING']
    """
    if evidence.used == evidence.rendered:
        stop = [] if evidence.part is TurnPart.CLOSE else _ends(evidence)
        return (*stop, (Cause.RETOKENIZED, "the same text"))
    found = [*_ends(evidence), *_text(evidence)]
    if evidence.respelled:
        found.append((Cause.RETOKENIZED, "text beside it is spelled with other ids too"))
    return tuple(found) or ((Cause.UNKNOWN, "nothing is known of the turn's message"),)


def _ends(seen: Evidence) -> list[Found]:
    """Name what happened where a turn ends."""
    if seen.cut and seen.rendered:
        return [(Cause.TRUNCATED, "the rendering writes on where sampling was cut")]
    return [(Cause.SEAM, "another stop or close")] if seen.seam else []


def _text(seen: Evidence) -> list[Found]:
    """Name what became of the text itself."""
    if seen.part is TurnPart.CLOSE or (seen.cut and not seen.used):
        return []
    if seen.part is not TurnPart.CALLS and squeezed(seen.used) == squeezed(seen.rendered):
        return [(Cause.WHITESPACE, _whose(seen))]
    if seen.part not in SAMPLED and _marks_alone(seen):
        return [(Cause.THINKING, "marks of thinking are not those that the turn was prompted with")]
    if seen.part not in SAMPLED:
        return [(Cause.REWRITTEN, _numbers(seen) or "what was said before is written otherwise")]
    if seen.message is None:
        return []
    thought = _thinking(seen, seen.message)
    return [*thought, *(_blame(seen, seen.message) if not thought or _more(seen, seen.message) else [])]


def _marks_alone(seen: Evidence) -> bool:
    """Tell whether nothing but marks of thinking differ."""
    marked = MARKS.search(seen.used) or MARKS.search(seen.rendered)
    return marked is not None and bare(seen.used) == bare(seen.rendered)


def _whose(seen: Evidence) -> str:
    if seen.part not in SAMPLED:
        return "the template, in what was said between turns"
    return {True: "the parse lost or added it", False: "the template trims or adds it", None: ""}[
        seen.verbatim
    ]


def _thinking(seen: Evidence, message: Message) -> list[Found]:
    """Tell whether thinking is gone from the rendering, though the message has it."""
    lost, left, thought = bare(seen.used), bare(seen.rendered), thinking(message)
    if not lost and not left:
        marked = bool(MARKS.search(seen.used)), bool(MARKS.search(seen.rendered))
        return [(Cause.THINKING, "marks of empty thinking are dropped")] if marked == (True, False) else []
    if not thought or thought in left:
        return []
    whole = thought in lost
    part = seen.part is TurnPart.REASONING and bool(lost) and lost in thought and not left
    return [(Cause.THINKING, "the message has it, the rendering does not")] if whole or part else []


def _more(seen: Evidence, message: Message) -> bool:
    """Tell whether more than the thinking differs."""
    return bare(seen.used).replace(thinking(message), "", 1) != bare(seen.rendered) and bool(
        bare(seen.rendered)
    )


def _blame(seen: Evidence, message: Message) -> list[Found]:
    """Tell the parse from the template."""
    lost = bare(seen.used).replace(thinking(message), "", 1)
    added, held = bare(seen.rendered), bare(fields(message))
    lacks = bool(lost) and lost not in held
    parse = Cause.PARSE, "the message lacks what was sampled" if lacks else "the message spells it otherwise"
    template = Cause.REWRITTEN, _numbers(seen) or "the template writes the message otherwise"
    if seen.verbatim is None:
        invented = not lost and bool(added) and added in held
        return [parse if lacks or invented else template]
    if seen.verbatim:
        return [parse]
    return [parse, template] if lacks else [template]


def _numbers(seen: Evidence) -> str:
    """Tell whether nothing but numbers differ."""
    digits = re.compile(r"\d+")
    same = digits.sub("0", seen.used) == digits.sub("0", seen.rendered)
    return "numbers differ: renumbered" if same else ""


def squeezed(text: str) -> str:
    r"""Return text without white space.

    >>> squeezed(" a\n b")
    'ab'
    """
    return "".join(text.split())


def bare(text: str) -> str:
    r"""Return text without white space and without marks of thinking.

    >>> bare("<think>\n2 + 2</think>")
    '2+2'
    """
    return squeezed(MARKS.sub("", text))


def thinking(message: Message) -> str:
    """Return a message's reasoning, or what its content fences as thinking, without white space.

    >>> thinking({"role": "assistant", "content": "<think>so so</think>yes"})
    'soso'
    """
    said = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(said, str):
        return bare(said)
    content = sole_text(message.get("content"))
    marks = list(MARKS.finditer(content)) if isinstance(content, str) else []
    return bare(content[: marks[-1].start()]) if marks and marks[-1].start() else ""


def fields(message: Message) -> str:
    r"""Return all that a message says, field after field.

    >>> call = {"function": {"name": "f", "arguments": {}}}
    >>> fields({"role": "assistant", "content": "a", "tool_calls": [call]})
    'a\nf\n{}'
    """
    content = sole_text(message.get("content"))
    said = [message.get("reasoning_content"), message.get("reasoning"), content]
    for call in calls(message):
        said += [call.get("id"), call.get("name"), call.get("arguments")]
    return "\n".join(one if isinstance(one, str) else json.dumps(one) for one in said if one is not None)


def calls(message: Message) -> list[dict[str, Any]]:
    """Return a message's tool calls, each flat, whatever is odd about them left out."""
    given = message.get("tool_calls")
    found = [call for call in given if isinstance(call, Mapping)] if isinstance(given, list) else []
    functions = [call.get("function") for call in found]
    return [
        {**call, **(function if isinstance(function, Mapping) else {})}
        for call, function in zip(found, functions, strict=True)
    ]


def part_at(message: Message | None, text: str, place: int) -> TurnPart:
    """Tell which part of a turn's sampled text a place is in.

    >>> message = {"role": "assistant", "reasoning": "hm", "content": "yes", "tool_calls": [{"name": "f"}]}
    >>> [part_at(message, "<think>hm</think>yes{f}", place).name for place in (0, 17, 20)]
    ['REASONING', 'CONTENT', 'CALLS']
    """
    if message is None:
        return TurnPart.CONTENT
    thought = _after(text, message.get("reasoning_content") or message.get("reasoning"), 0)
    marks = [mark.end() for mark in MARKS.finditer(text)]
    thought = max([thought, *marks]) if thinking(message) or marks else 0
    if place < thought:
        return TurnPart.REASONING
    spoken = _after(text, sole_text(message.get("content")), thought)
    return TurnPart.CALLS if calls(message) and place >= spoken else TurnPart.CONTENT


def _after(text: str, said: Any, start: int) -> int:
    """Return where something said ends in a text; `start` where it is not there."""
    words = said.strip() if isinstance(said, str) else ""
    place = text.find(words, start) if words else -1
    return start if place < 0 else place + len(words)

"""Name the causes of a difference by its text: what was sampled, what was rendered, what the message says.

Either the parse or the template changed a text. The template itself can tell which: had the turn been sent
back as the text that was sampled, would the rendering restate it (`verbatim`)? If so, the parse made the
difference, else the template did. Some templates cannot be asked, because they reject a tool's answer to a
turn without calls. Then the message decides: the template lost what it has, and the parse what it lacks.
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
"""Marks around reasoning, by pattern. They only name a cause; no id is ever made from them."""

Finding: TypeAlias = "tuple[Cause, str]"
"""A cause, and what was found in words."""


@attrs.frozen(kw_only=True)
class Evidence:
    """The known facts about a place where ids differ.

    Attributes:
        part: The part of the turn that the place begins in.
        used: The used text that the rendering lacks, without what both sides begin and end with.
        rendered: The text that the rendering has instead.
        respelled: Whether the whole text of the first or last differing id is on both sides. There, only
            ids differ.
        cut: Whether the place reaches the end of a turn that was cut short.
        seam: Whether the place ends with a turn's stop or close.
        message: The message that the turn was parsed to; None where it is not one.
        verbatim: Whether the rendering would restate the text, had the turn been sent as it was sampled.
            None where the template was not asked.
    """

    part: TurnPart
    used: str
    rendered: str
    respelled: bool = False
    cut: bool = False
    seam: bool = False
    message: Message | None = None
    verbatim: bool | None = None


def find_causes(evidence: Evidence) -> tuple[Finding, ...]:
    """Return every cause that holds, in the order of `Cause`.

    >>> message = {"role": "assistant", "reasoning": "2 + 2", "content": "4"}
    >>> seen = Evidence(part=TurnPart.REASONING, used="<think>2 + 2</think>", rendered="", message=message)
    >>> [cause.name for cause, _ in find_causes(seen)]
    ['THINKING']
    """
    if evidence.used == evidence.rendered:
        end = [] if evidence.part is TurnPart.CLOSE else _end_causes(evidence)
        return (*end, (Cause.RETOKENIZED, "the same text"))
    findings = [*_end_causes(evidence), *_text_causes(evidence)]
    if evidence.respelled:
        findings.append((Cause.RETOKENIZED, "text next to it has other ids too"))
    return tuple(findings) or ((Cause.UNKNOWN, "nothing is known of the turn's message"),)


def _end_causes(evidence: Evidence) -> list[Finding]:
    """Return the cause of a difference at the end of a turn."""
    if evidence.cut and evidence.rendered:
        return [(Cause.TRUNCATED, "the rendering continues where sampling was cut")]
    return [(Cause.SEAM, "another stop or close")] if evidence.seam else []


def _text_causes(evidence: Evidence) -> list[Finding]:
    """Return the causes of a difference in the text itself."""
    if evidence.part is TurnPart.CLOSE or (evidence.cut and not evidence.used):
        return []
    # White space inside a call's arguments is spelling of JSON, which the parse decides.
    if evidence.part is not TurnPart.CALLS and unspaced(evidence.used) == unspaced(evidence.rendered):
        details = {True: "the parse lost or added it", False: "the template trims or adds it", None: ""}
        between = "the template, in messages between turns"
        return [(Cause.WHITESPACE, details[evidence.verbatim] if evidence.part in SAMPLED else between)]
    if evidence.part not in SAMPLED:
        marked = MARKS.search(evidence.used) or MARKS.search(evidence.rendered)
        if marked and unmarked(evidence.used) == unmarked(evidence.rendered):
            finding = Cause.THINKING, "marks of reasoning are not those that the turn was prompted with"
        else:
            finding = Cause.REWRITTEN, _renumbered(evidence) or "earlier messages are written differently"
        return [finding]
    if evidence.message is None:
        return []
    reasoning, rendered = reasoning_of(evidence.message), unmarked(evidence.rendered)
    dropped = _dropped_reasoning(evidence, reasoning)
    lost = unmarked(evidence.used)
    if dropped and rendered == ("" if lost in reasoning else lost.replace(reasoning, "", 1)):
        return dropped  # nothing but the reasoning differs
    return [*dropped, *_parse_or_template(evidence, evidence.message, dropped=bool(dropped))]


def _dropped_reasoning(evidence: Evidence, reasoning: str) -> list[Finding]:
    """Return a finding if the rendering lacks reasoning that the message has."""
    lost, left = unmarked(evidence.used), unmarked(evidence.rendered)
    if not lost and not left:
        marks_dropped = MARKS.search(evidence.used) and not MARKS.search(evidence.rendered)
        return [(Cause.THINKING, "marks of empty reasoning are dropped")] if marks_dropped else []
    if not reasoning or reasoning in left:
        return []
    whole = reasoning in lost
    part = evidence.part is TurnPart.REASONING and bool(lost) and lost in reasoning and not left
    return [(Cause.THINKING, "the message has it, the rendering does not")] if whole or part else []


def _parse_or_template(evidence: Evidence, message: Message, *, dropped: bool) -> list[Finding]:
    """Return whether the parse or the template changed the text, besides reasoning that was `dropped`."""
    lost = unmarked(evidence.used).replace(reasoning_of(message), "", 1)
    added, content = unmarked(evidence.rendered), unmarked(all_texts(message))
    if dropped:  # reasoning often has the words of the content, which may be lost all the same
        content = content.replace(reasoning_of(message), "", 1)
    lacks = bool(lost) and lost not in content
    spelled = "the message lacks what was sampled" if lacks else "the message spells it differently"
    parse = Cause.PARSE, spelled
    template = Cause.REWRITTEN, _renumbered(evidence) or "the template writes the message differently"
    if evidence.verbatim is None:
        invented = not lost and bool(added) and added in content
        return [parse if lacks or invented else template]
    if evidence.verbatim:
        return [parse]
    # A template that drops reasoning never restates the sampled text, even if it changes nothing else.
    lost_calls = any(str(call.get("name")) in lost for call in flat_calls(message))
    if lacks and dropped and added in content and not lost_calls:
        return [parse]
    return [parse, template] if lacks else [template]


def _renumbered(evidence: Evidence) -> str:
    """Return a detail if only numbers differ, else an empty text."""
    digits = re.compile(r"\d+")
    same = digits.sub("0", evidence.used) == digits.sub("0", evidence.rendered)
    return "numbers differ: renumbered" if same else ""


def unspaced(text: str) -> str:
    r"""Return text without white space.

    >>> unspaced(" a\n b")
    'ab'
    """
    return "".join(text.split())


def unmarked(text: str) -> str:
    r"""Return text without white space and without marks of reasoning.

    >>> unmarked("<think>\n2 + 2</think>")
    '2+2'
    """
    return unspaced(MARKS.sub("", text))


def reasoning_of(message: Message) -> str:
    """Return a message's reasoning, or what its content has between marks of it, without white space.

    >>> reasoning_of({"role": "assistant", "content": "<think>so so</think>yes"})
    'soso'
    """
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        return unmarked(reasoning)
    content = sole_text(message.get("content"))
    marks = list(MARKS.finditer(content)) if isinstance(content, str) else []
    return unmarked(content[: marks[-1].start()]) if marks and marks[-1].start() else ""


def all_texts(message: Message) -> str:
    r"""Return reasoning, content and tool calls of a message as text, one field a line.

    >>> call = {"function": {"name": "f", "arguments": {}}}
    >>> all_texts({"role": "assistant", "content": "a", "tool_calls": [call]})
    'a\nf\n{}'
    """
    content = sole_text(message.get("content"))
    fields = [message.get("reasoning_content"), message.get("reasoning"), content]
    for call in flat_calls(message):
        fields += [call.get("id"), call.get("name"), call.get("arguments")]
    return "\n".join(
        field if isinstance(field, str) else json.dumps(field) for field in fields if field is not None
    )


def flat_calls(message: Message) -> list[dict[str, Any]]:
    """Return a message's well-formed tool calls, the keys of `function` beside the others."""
    calls = message.get("tool_calls")
    flat = []
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, Mapping):
            function = call.get("function")
            flat.append({**call, **(function if isinstance(function, Mapping) else {})})
    return flat


def part_at(message: Message | None, text: str, place: int) -> TurnPart:
    """Return the part of a turn's sampled text that a place is in.

    Args:
        message: The message that the turn was parsed to, if known.
        text: The sampled text.
        place: A position in `text`.

    >>> message = {"role": "assistant", "reasoning": "hm", "content": "yes", "tool_calls": [{"name": "f"}]}
    >>> [part_at(message, "<think>hm</think>yes{f}", place).name for place in (0, 17, 20)]
    ['REASONING', 'CONTENT', 'CALLS']
    """
    if message is None:
        return TurnPart.CONTENT
    reasoning_end = _end_of(message.get("reasoning_content") or message.get("reasoning"), text, 0)
    marks = [mark.end() for mark in MARKS.finditer(text)]
    reasoning_end = max([reasoning_end, *marks]) if reasoning_of(message) or marks else 0
    if place < reasoning_end:
        return TurnPart.REASONING
    content_end = _end_of(sole_text(message.get("content")), text, reasoning_end)
    return TurnPart.CALLS if flat_calls(message) and place >= content_end else TurnPart.CONTENT


def _end_of(part: Any, text: str, start: int) -> int:
    """Return where a part of a message ends in `text`; `start` where the text does not have it."""
    words = part.strip() if isinstance(part, str) else ""
    place = text.find(words, start) if words else -1
    return start if place < 0 else place + len(words)

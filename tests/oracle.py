"""What `stitch` must answer, found the slow way.

Nothing here is taken from the kernel: messages are compared pair by pair with rules written down a second
time, every step is tried, every overlap is tried, and the true tail is read off a full render of the real
conversation, because a toy template can say where each message's own words end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import attrs

from tito_core import OddStop, Policy, Step, Truncated
from tito_core.testing.readings import NotAnObject, lone_text, object_in, readings, unwrapped
from tito_core.testing.tails import pages, true_tails
from tito_core.testing.toys import Toy

# --- messages: when are two the same? -----------------------------------------------------------------


def same_message(ours: Any, theirs: Any) -> bool:
    """Tell whether two messages are one, by the rules that the design lists."""
    a, b = unwrapped(ours), unwrapped(theirs)
    return (
        a["role"] == b["role"]
        and same_content(a, b)
        and same_reasoning(a, b)
        and same_calls(a.get("tool_calls") or [], b.get("tool_calls") or [])
        and a.get("tool_call_id") == b.get("tool_call_id")
        and (a["role"] == "assistant" or a.get("name") == b.get("name"))
    )


def same_content(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Compare contents: one text part is its string, and an assistant may say nothing in three ways.

    Of a text part nothing counts but its text, and what an assistant thought is no content.
    """
    ours, theirs = (lone_text(spoken(message)) for message in (a, b))
    if a["role"] == "assistant" and not ours and not theirs:
        return True
    return same_json(ours, theirs)


def spoken(message: dict[str, Any]) -> Any:
    """Return a content without what was thought, and its texts without other keys."""
    content = message.get("content")
    if not isinstance(content, list):
        return content
    said = [part for part in content if message["role"] != "assistant" or part.get("type") != "thinking"]
    return [{"type": "text", "text": part["text"]} if part.get("type") == "text" else part for part in said]


def thought(message: dict[str, Any]) -> str:
    """Return what an assistant thought, wherever it stands; lists of texts are one text."""
    content = message.get("content") if message["role"] == "assistant" else None
    parts = [part for part in content if part.get("type") == "thinking"] if isinstance(content, list) else []
    return joined(message.get("reasoning")) or joined(message.get("reasoning_content")) or joined(parts)


def joined(reasoning: Any) -> str:
    """Return reasoning as one text."""
    if isinstance(reasoning, dict):
        return joined(reasoning[reasoning["type"]])
    return "".join(map(joined, reasoning)) if isinstance(reasoning, list) else reasoning or ""


def same_reasoning(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Compare what was thought, under either name or in the content."""
    return thought(a) == thought(b)


def same_calls(ours: list[Any], theirs: list[Any]) -> bool:
    """Compare tool calls in order: id, name and arguments; the index is the wire's business."""
    return len(ours) == len(theirs) and all(
        a.get("id") == b.get("id")
        and a["function"]["name"] == b["function"]["name"]
        and same_arguments(a["function"].get("arguments"), b["function"].get("arguments"))
        for a, b in zip(ours, theirs, strict=True)
    )


def same_arguments(ours: Any, theirs: Any) -> bool:
    """Compare arguments by value where both are objects, byte for byte otherwise."""
    try:
        return same_json(object_in(ours), object_in(theirs))
    except NotAnObject:
        return type(ours) is type(theirs) and bool(ours == theirs)


def same_json(a: Any, b: Any) -> bool:
    """Compare JSON values: `1` is `1.0`, and neither `true` nor `"1"`."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if is_number(a) and is_number(b):
        return Decimal(str(a)) == Decimal(str(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_json(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same_json, a, b))
    return isinstance(a, str) and isinstance(b, str) and a == b


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number; `true` was dealt with before."""
    return isinstance(value, int | float | Decimal)


def has_media(messages: Sequence[Any]) -> bool:
    """Tell whether any message has a content part that is not text."""
    contents = [unwrapped(message).get("content") for message in messages]
    return any(
        part.get("type") != "text" for content in contents if isinstance(content, list) for part in content
    )


# --- steps: which one is used? ------------------------------------------------------------------------


def begins(step: Step, prompt: Sequence[Any]) -> bool:
    """Tell whether a step's messages are a proper prefix of the prompt."""
    messages = list(step.messages)
    return len(messages) < len(prompt) and all(map(same_message, messages, prompt))


def ends_with_turn(step: Step) -> bool:
    """Return whether the last message of a step is an assistant's, and was sampled."""
    return any(message["role"] == "assistant" for message in list(step.completion)[-1:])


def longest(steps: Sequence[Step], prompt: Sequence[Any], key: str | None = None) -> list[Step]:
    """Return the steps that may be used: of all proper prefixes that end with a turn the longest ones."""
    found = [step for step in steps if step.key == key and begins(step, prompt) and ends_with_turn(step)]
    length = max((len(step.messages) for step in found), default=0)
    return [step for step in found if len(step.messages) == length]


# --- the seam: what is written once? --------------------------------------------------------------------


def overlaps(sampled: Sequence[int], close: Sequence[int]) -> list[int]:
    """Return every number of ids that end `sampled` and begin `close`.

    >>> overlaps([5, 7, 7], [7, 7, 8])
    [1, 2]
    """
    sizes = range(1, min(len(sampled), len(close)) + 1)
    return [size for size in sizes if list(sampled[-size:]) == list(close[:size])]


def written(
    completion: Sequence[int], suffix: Sequence[int], tail: Sequence[int], stops: Sequence[int] = ()
) -> set[int]:
    """Return how many ids of the tail may count as sampled already; empty for an odd stop.

    All up to a known stop where that stands once in the suffix; what does not reach one is text. Else the
    largest overlap with the suffix where the template writes it; else the stop alone, where it is the first
    thing that the template writes; else the close and the opener behind it, where all was sampled; else a
    known stop that stands in the suffix several times: as often as the completion ends with it.
    """
    closed = tuple(tail[: len(suffix)]) == tuple(suffix)
    if closed and completion and completion[-1] in stops and list(suffix).count(completion[-1]) == 1:
        return {list(suffix).index(completion[-1]) + 1}
    least = 1 + min((place for place, index in enumerate(suffix) if closed and index in stops), default=0)
    closes = [size for size in overlaps(completion, suffix) if closed and size >= least]
    if closes:
        return {max(closes)}
    opened = [size for size in overlaps(completion, tail[: len(suffix) + 1]) if size >= least]
    if opened or not (closed and completion and completion[-1] in stops):
        return {max(opened)} if opened else set()
    places = [place + 1 for place, index in enumerate(suffix) if index == completion[-1]]
    said = list(completion[-len(suffix) - 1 :]).count(completion[-1])
    return {places[min(said, len(places)) - 1]} if places else set()


def named_like_stop(step: Step, toy: Toy) -> bool:
    """Return whether a tool's name or a call's id spells the close, or a stop: a documented limit."""
    called = [
        (call["function"].get("name"), call.get("id"))
        for call in unwrapped(step.messages[-1]).get("tool_calls") or ()
    ]
    ends = [end for end in (toy.close, *toy.stops) if end]
    return any(end in str(one) for one in called for end in ends)


@attrs.frozen
class Answer:
    """One right answer: the ids, and what was done to get them."""

    step: Step
    ids: list[int]
    kept: int
    """How many ids at the front are the step's own."""


def answers(
    toy: Toy,
    steps: Sequence[Step],
    prompt: Sequence[Any],
    suffix: Sequence[int],
    policy: Policy,
    key: str | None = None,
    stops: Sequence[int] = (),
) -> list[Answer] | None:
    """Return every right answer; none where only a refusal is right; `None` where nobody can tell.

    `stops` are the ids that are known to end a turn.
    """
    if equals_a_step(steps, prompt, key):
        return []
    found: list[Answer] = []
    for step in longest(steps, prompt, key):
        if must_refuse(step, prompt, policy):
            continue
        tails = true_tails(toy, prompt, len(step.messages))
        if tails is None:
            return None
        for tail in tails:
            shown = shown_in_close(toy, step, prompt, tail, len(suffix))
            found += written_after(step, suffix, tail, policy, stops, shown)
        if not suffix and not step.truncated and said_all(toy, step, prompt):
            ids = list(step.ids)
            found += [Answer(step, [*ids, *tail], len(ids)) for tail in tails]
    return found


def shown_in_close(toy: Toy, step: Step, prompt: Sequence[Any], tail: Sequence[int], closed: int) -> set[int]:
    """Return how many ids of its close a turn may have sampled: what stands before those ends its message."""
    position, text = len(step.messages) - 1, toy.decode(list(step.completion_ids))
    written = [page for group in readings(prompt) for page in pages(toy, group)]
    bodies = {page.text[slice(*page.bodies[position])] for page in written if position in page.bodies}
    words = {toy.decode(toy.encode(body)[-1:]) for body in bodies}
    closes = {size: toy.decode(list(tail[:size])) for size in range(1, closed + 1)}
    return {size for size, close in closes.items() for word in words if text.endswith(word + close)}


def said_all(toy: Toy, step: Step, prompt: Sequence[Any]) -> bool:
    """Tell whether a turn that nothing closes was sampled to its last letter: then nothing is missing.

    The kernel may refuse it all the same, for it has not seen the marker that stopped it.
    """
    position = len(step.messages) - 1
    written = [page for group in readings(prompt) for page in pages(toy, group)]
    bodies = [page.text[slice(*page.bodies[position])] for page in written if position in page.bodies]
    ends = [toy.tokenizer.encode(body)[-1:] for body in bodies]
    return bool(step.completion_ids) and list(step.completion_ids)[-1:] in ends


def equals_a_step(steps: Sequence[Step], prompt: Sequence[Any], key: str | None) -> bool:
    """Tell whether nothing is new in the prompt: a stored turn ends where it ends."""
    return any(
        step.key == key
        and ends_with_turn(step)
        and len(step.messages) == len(prompt)
        and all(map(same_message, step.messages, prompt))
        for step in steps
    )


def must_refuse(step: Step, prompt: Sequence[Any], policy: Policy) -> bool:
    """Tell whether the step cannot be used whatever the template writes."""
    return has_media(prompt) or (step.truncated and policy.truncated is Truncated.REFUSE)


def written_after(
    step: Step,
    suffix: Sequence[int],
    tail: Sequence[int],
    policy: Policy,
    stops: Sequence[int],
    shown: set[int],
) -> Iterator[Answer]:
    """Yield the right ways to write a tail after a step."""
    before, completion = list(step.prompt_ids), list(step.completion_ids)
    sampled = [*before, *completion]
    if step.truncated:
        for size in (0, *shown):  # its last ids may be text, too
            yield Answer(step, [*sampled, *tail[size:]], len(sampled))
        return
    sizes = written(completion, suffix, tail, stops) or shown
    for size in sizes:
        yield Answer(step, [*sampled, *tail[size:]], len(sampled))
    if not sizes and policy.odd_stop is OddStop.KEEP:
        yield Answer(step, [*sampled, *tail], len(sampled))
    if not sizes and policy.odd_stop is OddStop.REPLACE:
        kept = completion[:-1]
        done = max(written(kept, suffix, tail), default=0)
        yield Answer(step, [*before, *kept, *tail[done:]], len(before) + len(kept))

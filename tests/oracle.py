"""What `stitch` must answer, found the slow way.

Nothing here is taken from the kernel: messages are compared pair by pair with rules written down a second
time, every step is tried, every overlap is tried, and the true tail is read off a full render of the real
conversation, because a toy template can say where each message's own words end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import attrs

from tito_core import OddStop, Policy, Step, TemplateRefused, Truncated
from tito_core.testing.toys import Message, Toy
from tito_core.testing.toys.page import Page

# --- messages: when are two the same? -----------------------------------------------------------------


def unwrapped(value: Any) -> Any:
    """Return the JSON data in a dict, a mapping, a pydantic or an attrs object, at any depth."""
    if hasattr(value, "model_dump"):
        return unwrapped(value.model_dump())
    if attrs.has(type(value)):
        return unwrapped(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {key: unwrapped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [unwrapped(item) for item in value]
    return value


def same_message(ours: Any, theirs: Any) -> bool:
    """Tell whether two messages are one, by the rules that the design lists."""
    a, b = unwrapped(ours), unwrapped(theirs)
    return (
        a["role"] == b["role"]
        and same_content(a, b)
        and same_reasoning(a, b)
        and same_calls(a.get("tool_calls") or [], b.get("tool_calls") or [])
        and a.get("tool_call_id") == b.get("tool_call_id")
        and a.get("name") == b.get("name")
    )


def same_content(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Compare contents: one text part is its string, and an assistant may say nothing in three ways."""
    ours, theirs = (lone_text(message.get("content")) for message in (a, b))
    if a["role"] == "assistant" and not ours and not theirs:
        return True
    return same_json(ours, theirs)


def lone_text(content: Any) -> Any:
    """Return the text of a lone text part."""
    if isinstance(content, list) and len(content) == 1 and content[0].get("type") == "text":
        return content[0]["text"]
    return content


def same_reasoning(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Compare what was thought, under either name."""
    ours, theirs = (message.get("reasoning") or message.get("reasoning_content") or "" for message in (a, b))
    return bool(ours == theirs)


def same_calls(ours: list[Any], theirs: list[Any]) -> bool:
    """Compare tool calls in order: id, name and arguments; the index is the wire's business."""
    return len(ours) == len(theirs) and all(
        a.get("id") == b.get("id")
        and a["function"]["name"] == b["function"]["name"]
        and same_arguments(a["function"].get("arguments"), b["function"].get("arguments"))
        for a, b in zip(ours, theirs, strict=True)
    )


class NotAnObject(Exception):  # noqa: N818  # no error: the text is compared as it stands
    """Argument text that is not one unambiguous JSON object."""


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of pairs whose keys are all different."""
    if len({key for key, _ in pairs}) != len(pairs):
        raise NotAnObject
    return dict(pairs)


def no_constant(name: str) -> Any:
    """NaN and the infinities are not JSON."""
    raise NotAnObject(name)


def object_in(arguments: Any) -> dict[str, Any]:
    """Return the object that arguments are or spell, with decimals for numbers."""
    if isinstance(arguments, dict):
        return arguments
    if arguments == "":
        return {}
    try:
        found = json.loads(
            arguments,
            object_pairs_hook=without_twins,
            parse_constant=no_constant,
            parse_float=Decimal,
            parse_int=Decimal,
        )
    except (ValueError, RecursionError) as error:
        raise NotAnObject from error
    if not isinstance(found, dict):
        raise NotAnObject
    return found


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


def longest(steps: Sequence[Step], prompt: Sequence[Any], key: str | None = None) -> list[Step]:
    """Return the steps that may be used: of all proper prefixes with the right key the longest ones."""
    found = [step for step in steps if step.key == key and begins(step, prompt)]
    length = max((len(step.messages) for step in found), default=0)
    return [step for step in found if len(step.messages) == length]


# --- the truth about the tail ---------------------------------------------------------------------------


def readings(messages: Sequence[Any]) -> Iterator[list[list[Message]]]:
    """Yield ways to present the real conversation to a template, the most faithful ones first.

    A group is only looked at where every earlier one loses something: a developer becomes a system only
    where the template has no developers, and several parts become one text only where it has no parts.
    """
    real = [unwrapped(message) for message in messages]
    yield [
        [presented(message, None, arguments) for message in real]
        for arguments in (as_it_is, as_object, as_text)
    ]
    for join in (None, "", "\n"):
        yield [
            [developed(presented(message, join, arguments), role) for message in real]
            for role in ("system", "developer")
            for arguments in (as_it_is, as_object, as_text)
        ]
    yield [
        [in_parts(presented(message, None, arguments)) for message in real]
        for arguments in (as_it_is, as_object, as_text)
    ]


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with its text as a list of one part."""
    text = message.get("content")
    return message | {"content": [{"type": "text", "text": text}]} if isinstance(text, str) else message


def presented(message: dict[str, Any], join: str | None, arguments: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a message with a lone part (or all, joined) as text, and its arguments in one form."""
    shown = message | {"content": lone_text(message.get("content"))}
    if join is not None and isinstance(shown["content"], list):
        shown["content"] = join.join(part.get("text", "") for part in shown["content"])
    if message.get("tool_calls"):
        shown["tool_calls"] = [
            call
            | {"function": call["function"] | {"arguments": arguments(call["function"].get("arguments"))}}
            for call in message["tool_calls"]
        ]
    return shown


def developed(message: dict[str, Any], role: str) -> dict[str, Any]:
    """Return a developer's message under another role."""
    return message | {"role": role} if message["role"] == "developer" else message


def as_it_is(arguments: Any) -> Any:
    """Return arguments as they came."""
    return arguments


def as_object(arguments: Any) -> Any:
    """Return arguments as an object where they spell one."""
    if not isinstance(arguments, str):
        return arguments
    try:
        object_in(arguments)
        return json.loads(arguments or "{}")
    except NotAnObject:
        return arguments


def as_text(arguments: Any) -> Any:
    """Return arguments as JSON text."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def true_tails(toy: Toy, prompt: Sequence[Any], matched: int) -> list[tuple[int, ...]] | None:
    """Return what the template truly writes after the first `matched` messages.

    More than one where a careful server has a choice of how to present the same messages; none where every
    presentation loses a new message or the turn itself; `None` where the template refuses the conversation,
    so that there is no truth to compare with.
    """
    rendered = False
    for group in readings(prompt):
        pages = [page for messages in group if (page := rendering(toy, messages)) is not None]
        rendered = rendered or bool(pages)
        tails = {
            tuple(tail) for page in pages if (tail := tail_on(toy, page, matched, len(prompt))) is not None
        }
        if tails:
            return sorted(tails)
    return [] if rendered else None


def pages(toy: Toy, ways: Sequence[Sequence[Message]]) -> list[Page]:
    """Return the pages of those presentations that the template takes."""
    return [page for messages in ways if (page := rendering(toy, messages)) is not None]


def rendering(toy: Toy, messages: Sequence[Message]) -> Page | None:
    """Return the page that the template writes, or None where it refuses."""
    try:
        return toy.page(messages, add_generation_prompt=True)
    except TemplateRefused:
        return None


def tail_on(toy: Toy, page: Page, matched: int, count: int) -> list[int] | None:
    """Return the ids after the words of the last matched message, or None where a new message is lost."""
    turn = page.bodies.get(matched - 1)
    if turn is None or any(index in page.lost for index in range(matched, count)):
        return None
    bodies = [page.bodies.get(index, (0, 0)) for index in range(matched, count)]
    return toy.tokenizer.encode(page.text[turn[1] :]) if min(bodies, default=turn) >= turn else None


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
            found += written_after(step, suffix, tail, policy, stops)
        if not suffix and not step.truncated and said_all(toy, step, prompt):
            ids = list(step.ids)
            found += [Answer(step, [*ids, *tail], len(ids)) for tail in tails]
    return found


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
    """Tell whether nothing is new in the prompt: a stored step ends where it ends."""
    return any(
        step.key == key
        and len(step.messages) == len(prompt)
        and all(map(same_message, step.messages, prompt))
        for step in steps
    )


def must_refuse(step: Step, prompt: Sequence[Any], policy: Policy) -> bool:
    """Tell whether the step cannot be used whatever the template writes."""
    return (
        has_media(prompt)
        or unwrapped(list(step.messages)[-1])["role"] != "assistant"
        or (step.truncated and policy.truncated is Truncated.REFUSE)
    )


def written_after(
    step: Step, suffix: Sequence[int], tail: Sequence[int], policy: Policy, stops: Sequence[int]
) -> Iterator[Answer]:
    """Yield the right ways to write a tail after a step."""
    before, completion = list(step.prompt_ids), list(step.completion_ids)
    sampled = [*before, *completion]
    if step.truncated:
        yield Answer(step, [*sampled, *tail], len(sampled))
        return
    sizes = written(completion, suffix, tail, stops)
    for size in sizes:
        yield Answer(step, [*sampled, *tail[size:]], len(sampled))
    if not sizes and policy.odd_stop is OddStop.KEEP:
        yield Answer(step, [*sampled, *tail], len(sampled))
    if not sizes and policy.odd_stop is OddStop.REPLACE:
        kept = completion[:-1]
        done = max(written(kept, suffix, tail), default=0)
        yield Answer(step, [*before, *kept, *tail[done:]], len(before) + len(kept))

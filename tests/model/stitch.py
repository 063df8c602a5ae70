"""Stitching: the next prompt of a conversation; see docs/concepts.md and docs/howto/stops.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.model.messages import Message, exact, media, names, plain, same_conversation, with_stored_ids
from tests.model.templates import Range, Tail, Template, tails
from tests.model.tokenizers import Tokenizer
from tito_core import OddStop, Policy, Step, Truncated

Placeholders = Mapping[str, list[int]]
"""The ids that a template writes for a medium, by its kind."""


@dataclass
class Answer:
    """A next prompt, and what was done at the close of the turn before it."""

    ids: list[int]
    ledger: list[str]
    media: list[Range]
    close: list[int]
    replaced: int | None
    kept: int | None
    prompt: int
    tail: Tail
    written: int
    new: Sequence[Message] = ()


def stitch(  # noqa: PLR0913  # what the kernel's function takes, and the template itself
    steps: Sequence[Step],
    prompt: Sequence[Any],
    template: Template,
    tokenizer: Tokenizer,
    *,
    policy: Policy,
    key: str | None = None,
    stops: Sequence[int] = (),
    placeholders: Placeholders | None = None,
) -> tuple[Step, set[str], list[Answer]] | str:
    """Return the step that is continued, what was forgiven, and every right next prompt; or why not."""
    located = locate(steps, prompt, policy, key, placeholders)
    if isinstance(located, str):
        return located
    step, forgiven, messages = located
    for name in template.reads:
        if any(
            exact(a.get(name)) != exact(b.get(name)) for a, b in zip(step.messages, messages, strict=False)
        ):
            return "KEY_DIFFERS"
    found = after(
        step,
        messages,
        template,
        tokenizer,
        policy,
        stops,
        placeholders=placeholders,
        truncated=step.truncated,
    )
    return found if isinstance(found, str) else (step, forgiven, found)


def after(  # noqa: PLR0913  # as above
    step: Step,
    messages: Sequence[Message],
    template: Template,
    tokenizer: Tokenizer,
    policy: Policy,
    stops: Sequence[int],
    *,
    placeholders: Placeholders | None,
    truncated: bool | None,
    counted: bool = True,
) -> list[Answer] | str:
    """Return every right next prompt after a step, or why there is none.

    Whether the turn was cut short (`truncated`) and where it begins (`counted`) may be unknown.
    """
    if media(messages) and (why := unfit(step, messages, placeholders or {}, counted=counted)):
        return why
    found = tails(template, tokenizer, messages, len(step.messages))
    if isinstance(found, str):
        return found
    joined = [join(step, tail, policy, stops, truncated=truncated, counted=counted) for tail in found]
    # A turn that nothing closes lacks nothing once its last word was sampled.
    if truncated is False or (truncated is None and not stops):
        said = [tail for tail in found if not tail.closed and tail.last == list(step.ids)[-1:]]
        joined += [join(step, tail, Policy(), stops, truncated=True, counted=counted) for tail in said]
    # A turn that ends inside of its close, as its words show: cut there, or with a stop that is not known.
    if truncated or not set(list(step.ids)[-1:]) & set(stops):
        ends = [(tail, size) for tail in found for size in shown(step, tail, tokenizer)]
        # Of a turn that may be cut, or that has other ids than the template writes, the same ids may be text.
        sure = truncated is False and any(
            tokenizer.encode(tokenizer.decode([*tail.last, *tail.ids[:size]]))[-1:] == list(step.ids)[-1:]
            for tail, size in ends
        )
        joined = [one for one in joined if not sure or (isinstance(one, Answer) and one.written)] + [
            join(step, tail, policy, stops, truncated=truncated, counted=counted, shown=size)
            for tail, size in ends
        ]
    answers = [one for one in joined if isinstance(one, Answer)]
    for one in answers:
        one.new = messages[len(step.messages) :]
    clean = [one for one in answers if not stray(one.ids, one.media, placeholders or {})]
    return clean or next((one for one in joined if isinstance(one, str)), "PLACEHOLDERS")


# --- which step is continued ---------------------------------------------------------------------------


def locate(
    steps: Sequence[Step],
    prompt: Sequence[Any],
    policy: Policy,
    key: str | None,
    placeholders: Placeholders | None,
) -> tuple[Step, set[str], list[Message]] | str:
    """Return the longest step that begins the prompt and ends with an answer.

    Of equals it is that with fewest differences, then the last. With it come what was forgiven, and the
    conversation with the stored ids of its calls.
    """
    messages = [plain(message) for message in prompt]
    compared = [same_conversation(list(step.messages), prompt, policy) for step in steps]
    begun = [
        (step, found) for step, found in zip(steps, compared, strict=True) if found and len(step.messages)
    ]
    fits = [
        one for one in begun if list(one[0].completion)[-1:] and one[0].messages[-1]["role"] == "assistant"
    ]
    longest = max((len(step.messages) for step, _ in fits), default=0)
    fits = [one for one in fits if len(one[0].messages) == longest]
    usable = [one for one in fits if one[0].key == key]
    if not usable or longest == len(messages):
        unmatched = "NOT_ASSISTANT" if begun else "NO_PREFIX"
        why = "NOTHING_NEW" if usable else "RENDERED_DIFFERENTLY" if fits else unmatched
        return "MULTIMODAL" if media(messages) and placeholders is None else why
    step, (forgiven, pairs) = min(reversed(usable), key=lambda one: len(one[1][0]))
    if len(step.prompt) and not len(step.prompt_ids):
        return "NO_IDS"
    if step.truncated and policy.truncated is Truncated.REFUSE:
        return "TRUNCATED"
    if media(messages) and placeholders is None:
        return "MULTIMODAL"
    return step, forgiven, with_stored_ids(messages, pairs) if "RENAMED_TOOL_IDS" in forgiven else messages


def unfit(step: Step, messages: Sequence[Message], placeholders: Placeholders, *, counted: bool) -> str:
    """Return why a conversation with media cannot be continued; an empty text if it can."""
    new, shown = media(messages[len(step.messages) :]), len(media(list(step.messages)))
    if (counted and len(step.media) != shown) or any(k not in placeholders or i is None for k, i, _ in new):
        return "MULTIMODAL"
    return "PLACEHOLDERS" if stray(list(step.ids), ranges(step), placeholders) else ""


def ranges(step: Step) -> list[Range]:
    """Return where the media of a step stand."""
    return [(one.offset, one.stop) for one in step.media]


def stray(ids: Sequence[int], known: Sequence[Range], placeholders: Placeholders) -> bool:
    """Return whether a placeholder stands where no medium is: an engine would put a medium there."""
    stands = [
        (place, place + len(run))
        for run in placeholders.values()
        for place in range(len(ids))
        if list(ids[place : place + len(run)]) == run
    ]
    return any(not any(a <= start and stop <= b for a, b in known) for start, stop in stands)


# --- the close is written once -------------------------------------------------------------------------


def already_sampled(
    turn: Sequence[int], tail: Sequence[int], closed: int, stops: Sequence[int], most: int
) -> int:
    """Return how many ids at the beginning of the tail the turn sampled itself.

    A known stop that stands in the close once is enough, whatever stands before it: text of a close may be
    one id with the turn's last word. Else what counts is the longest run of ids that ends the turn and
    begins the tail, up to the close's end, or one id further where the next opener is the stop. It reaches
    the first known stop. A stop that stands in the close several times was sampled as often as the turn
    ends with it, but at most `most` times where it is unknown where the turn begins.
    """
    close = tail[: closed + (not set(stops) & set(tail[:closed]))]
    marks = [place for place, index in enumerate(close) if index in stops]
    same = [place + 1 for place in marks if turn[-1:] == [close[place]]]
    if len(same) == 1:
        return same[0]
    by_stop = same[: min(turn[-closed - 1 :].count(turn[-1]), most)][-1] if same else 0
    least = 1 + min(marks, default=0)
    runs = [n for n in range(least, closed + 2) if len(turn) >= n and turn[-n:] == tail[:n]]
    return max([by_stop, *runs])


def shown(step: Step, tail: Tail, tokenizer: Tokenizer) -> list[int]:
    """Return how many ids of the close may end the turn: what stands before them ends its words."""
    turn, words = tokenizer.decode(list(step.completion_ids)), tokenizer.decode(tail.last)
    sizes = range(1, tail.closed + 1)
    return [size for size in sizes if turn.endswith(words + tokenizer.decode(tail.ids[:size]))]


def join(
    step: Step,
    tail: Tail,
    policy: Policy,
    stops: Sequence[int],
    *,
    truncated: bool | None,
    counted: bool,
    shown: int = 0,
) -> Answer | str:
    """Write the tail after the turn, without what the turn sampled of it.

    `shown` ids of its close were sampled, although the turn was cut there, or its stop is unknown.
    """
    before, turn, most = list(step.prompt_ids), list(step.completion_ids), len(tail.ids)
    origins, replaced = names(step.ledger), None
    if not counted:  # the turn ends where the ids end, and begins anywhere
        before, turn, most = [], [*before, *turn], 1
        origins = [*names(step.prompt_ledger), *["PROMPT"] * len(step.completion_ids)]
    written = 0 if truncated else already_sampled(turn, tail.ids, tail.closed, stops, most)
    is_text = bool(stops) and not set(turn[-1:]) & set(stops)
    if truncated is None:
        truncated = not written and is_text
    written = written or shown
    if truncated and policy.truncated is Truncated.REFUSE:
        return "TRUNCATED"
    odd = not truncated and not written
    if odd and (
        policy.odd_stop is OddStop.REFUSE or not turn or (policy.odd_stop is OddStop.REPLACE and is_text)
    ):
        return "ODD_STOP"
    if odd and policy.odd_stop is OddStop.REPLACE:
        turn, replaced = turn[:-1], turn[-1]
        written = already_sampled(turn, tail.ids, tail.closed, stops, most)
    added = tail.ids[written:]
    close = added[: max(tail.closed - written, 0)]
    prompt = min(tail.prompt, len(added) - len(close))
    ids = [*before, *turn, *added]
    new = [(a + len(ids) - len(tail.ids), b + len(ids) - len(tail.ids)) for a, b in tail.media]
    rest = ["ENVIRONMENT"] * (len(added) - len(close) - prompt) + ["GENERATION_PROMPT"] * prompt
    ledger = [*origins[: len(before) + len(turn)], *["INSERTED_CLOSE"] * len(close), *rest]
    for a, b in new:
        ledger[a:b] = ["MEDIA"] * (b - a)
    kept = turn[-1] if odd and replaced is None else None
    return Answer(ids, ledger, [*ranges(step), *new], close, replaced, kept, prompt, tail, written)

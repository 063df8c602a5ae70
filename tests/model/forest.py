"""Forest: which call continues which; see docs/concepts.md ("Branch") and docs/reference/samples.md."""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.messages import Message, same_conversation, text_or_parts
from tito_core import Policy
from tito_core.samples import StoredCall

Calls = Sequence[StoredCall]


def prompt_ids(call: StoredCall) -> list[int]:
    """Return the ids that were sent."""
    return list(call.step.prompt_ids)


def sampled(call: StoredCall) -> list[int]:
    """Return the ids that were sampled."""
    return list(call.step.completion_ids)


def ids(call: StoredCall) -> list[int]:
    """Return all ids of a call."""
    return [*prompt_ids(call), *sampled(call)]


def chosen(candidates: Calls, call: StoredCall) -> StoredCall | None:
    """Return the latest of equal candidates before a call, or the first one after it."""
    earlier = [one for one in candidates if one.key < call.key]
    later = [one for one in candidates if one.key > call.key]
    return (
        max(earlier, key=lambda one: one.key)
        if earlier
        else min(later, key=lambda one: one.key, default=None)
    )


def parent(call: StoredCall, calls: Calls) -> StoredCall | None:
    """Return the longest call that sampled something and all of whose ids begin the call's prompt."""
    fits = [one for one in calls if sampled(one) and prompt_ids(call)[: len(ids(one))] == ids(one)]
    return chosen([one for one in fits if len(ids(one)) == max(len(ids(other)) for other in fits)], call)


def path(call: StoredCall, calls: Calls) -> list[StoredCall]:
    """Return the calls from the root to a call."""
    above = parent(call, calls)
    return [call] if above is None else [*path(above, calls), call]


# --- how a call came about -----------------------------------------------------------------------------


def explained(call: StoredCall, calls: Calls) -> tuple[str, str | None]:
    """Return how a call came about, and from which call. Of several kinds the first one here counts."""
    retried = [one for one in calls if prompt_ids(one) == prompt_ids(call) and one.key < call.key]
    if retried and prompt_ids(call):
        return "RETRIES", min(retried, key=lambda one: one.key).name
    above = parent(call, calls)
    known = len(above.step.messages) if above else 0
    prompt = list(call.step.prompt)
    histories = [c for c in calls if c is not call and answer(c) and begins(list(c.step.messages), prompt)]
    longest = max((len(one.step.messages) for one in histories), default=0)
    rewritten = chosen([one for one in histories if len(one.step.messages) == longest], call)
    if rewritten and longest > known:
        return "REWRITES", rewritten.name
    if above:
        return "CONTINUES", above.name
    restated = [one for one in calls if one.key < call.key and restates(prompt, one)]
    last = max(restated, key=lambda one: one.key, default=None)
    return ("COMPACTS", last.name) if last else ("UNRELATED", None)


def answer(call: StoredCall) -> Message | None:
    """Return what the model said, if an assistant's message ends the call."""
    said = list(call.step.completion)[-1:]
    return said[0] if said and said[0]["role"] == "assistant" else None


def begins(messages: Sequence[Message], prompt: Sequence[Message]) -> bool:
    """Return whether messages are the first of a prompt."""
    return same_conversation(messages, prompt, Policy()) is not None


def restates(prompt: Sequence[Message], call: StoredCall) -> bool:
    """Return whether a shorter prompt has another call's last question and answer, or quotes its answer."""
    messages, said = list(call.step.messages), answer(call)
    systems = [opening(prompt), opening(messages)]
    if said is None or len(prompt) >= len(messages) or not begins(*systems) or not begins(*systems[::-1]):
        return False
    pairs = [prompt[i : i + 2] for i in range(len(prompt) - 1)]
    if (
        len(call.step.prompt)
        and len(call.step.completion) == 1
        and any(begins(messages[-2:], pair) for pair in pairs)
    ):
        return True
    text = str(text_or_parts(said.get("content")) or "").strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    outer = [line for line in (*lines[:1], *lines[-1:]) if len(line) >= 16]
    texts = [str(text_or_parts(m.get("content"))) for m in prompt if m["role"] != "assistant"]
    return any(text in one and line in map(str.strip, one.splitlines()) for line in outer for one in texts)


def opening(messages: Sequence[Message]) -> list[Message]:
    """Return the system messages at the beginning."""
    others = [place for place, m in enumerate(messages) if m["role"] not in {"system", "developer"}]
    return list(messages[: min(others, default=len(messages))])


def tree(call: StoredCall, calls: Calls) -> set[str]:
    """Return the names of all calls that are connected with a call, by ids or by an explanation."""
    parents = [(one.name, above.name) for one in calls if (above := parent(one, calls))]
    links = [*parents, *((one.name, other) for one in calls if (other := explained(one, calls)[1]))]
    found = {call.name}
    while more := {name for link in links if found & {*link} for name in link} - found:
        found |= more
    return found

"""verifiers' results (0.1): a rollout a line, saved with `trajectory` among the state columns.

A step has `prompt` and `completion` messages, `tokens` with `prompt_ids`, `completion_ids` and
`completion_logprobs`, and the `response`, whose `message.tokens` are those before the rollout's maximum
length cut them; so these are read where they are there. Tool calls are brought into the chat API's form.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from tito_core import Message, Step
from tito_core.samples import RoutedExperts, StoredCall
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check

from .form import Batch, CallPlace, Record, StoredForm, named

KEPT = ("example_id", "task")
"""What of a rollout goes into its calls' metadata; of a step it is `advantage` and `extras`."""


def _batches(record: Record, number: int) -> Iterator[Batch]:
    check = Check("the rollout", EngineAnswer(200, record))
    steps = check.get(record, "trajectory", list)
    name = next((named(step, "trajectory_id") for step in steps if isinstance(step, Mapping)), None)
    called = name or f"line-{number}"
    yield Batch(
        conversation=called,
        parts=[partial(_read, record, step, f"{called}.{index}") for index, step in enumerate(steps)],
    )


def _read(record: Record, step: object, name: str, place: CallPlace) -> Iterator[StoredCall]:
    check = Check(f"step {name}", EngineAnswer(200, step))
    held = check.get({"step": step}, "step", dict)
    tokens, uncut = _tokens(check, held)
    prompt_ids, ids = check.ids(tokens, "prompt_ids"), check.ids(tokens, "completion_ids")
    said, finish = tokens.get("completion_logprobs"), _finish_reason(check, held)
    truncated = finish in ("length", "abort") or (not uncut and held.get("is_truncated") is True)
    yield StoredCall(
        name=name,
        step=Step(
            prompt=_messages(check, held, "prompt"),
            completion=_messages(check, held, "completion"),
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=check.logprobs(said, len(ids)) if isinstance(said, list) and (said or not ids) else None,
            truncated=truncated,
        ),
        order=place.order,
        finish_reason=finish,
        routed_experts=_experts(check, tokens.get("routed_experts"), len(prompt_ids), len(ids)),
        reward=record.get("reward") if held.get("reward") is None else held["reward"],
        metadata=_metadata(record, held),
    )


def _tokens(check: Check, step: Record) -> tuple[Record, bool]:
    """Return the ids of a step, and whether they are as the engine sent them."""
    response = step.get("response")
    message = response.get("message") if isinstance(response, Mapping) else None
    tokens = message.get("tokens") if isinstance(message, Mapping) else None
    if isinstance(tokens, Mapping):
        return tokens, True
    if step.get("tokens") is None:
        check.fail("it has no tokens: run with a client that asks for them")
    return check.get(step, "tokens", dict), False


def _finish_reason(check: Check, step: Record) -> str | None:
    response = step.get("response")
    message = response.get("message") if isinstance(response, Mapping) else None
    said = message.get("finish_reason") if isinstance(message, Mapping) else None
    return None if said is None else check.finish_reason({"finish_reason": said})


def _messages(check: Check, step: Record, name: str) -> list[Message]:
    """Return messages; a prompt of the completions API is one text."""
    found = step.get(name)
    if isinstance(found, str):
        return [{"role": "text", "content": found}]
    return [chat(check, message) for message in check.get(step, name, list)]


def chat(check: Check, message: object) -> Message:
    """Return a message in the chat API's form: a call's name and arguments are a `function`.

    >>> check = Check("a step", EngineAnswer(200, None))
    >>> made = chat(check, {"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "1", "name": "add", "arguments": "{}"}]})
    >>> made["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'add', 'arguments': '{}'}}]
    """
    held: dict[str, Any] = check.get({"message": message}, "message", dict)
    calls = held.get("tool_calls")
    return {**held, "tool_calls": [_call(call) for call in calls]} if isinstance(calls, list) else held


def _call(call: object) -> object:
    if not isinstance(call, Mapping) or "function" in call or "name" not in call:
        return call
    function = {name: call[name] for name in ("name", "arguments") if name in call}
    return {"id": call.get("id"), "type": "function", "function": function}


def _experts(check: Check, found: object, prompt: int, sampled: int) -> RoutedExperts | None:
    """Return rows of `[position][layer][expert]`: for all ids, all but the last, or the sampled ones."""
    if not found:
        return None
    rows = check.get({"routed_experts": found}, "routed_experts", list)
    start = 0 if len(rows) in (prompt + sampled, prompt + sampled - 1) else prompt
    if start and len(rows) not in (sampled, sampled - 1):
        check.fail(f"{len(rows)} rows of routed experts for {prompt} prompt and {sampled} sampled ids")
    try:
        shape = (len(rows), len(rows[0]), len(rows[0][0]))
        numbers = array("i", [number for row in rows for layer in row for number in layer])
    except (TypeError, OverflowError, IndexError):
        check.fail("`routed_experts` is no table of positions, layers and experts")
    return RoutedExperts(data=numbers.tobytes(), dtype="int32", shape=shape, start=start)


def _metadata(record: Record, step: Record) -> dict[str, Any]:
    held = {name: record[name] for name in KEPT if record.get(name) is not None}
    own = {name: step[name] for name in ("advantage", "extras") if step.get(name)}
    return held | own


FORM = StoredForm(
    name="verifiers",
    told="results of verifiers 0.1, saved with the column `trajectory`",
    whole=True,
    knows=lambda record: "trajectory" in record,
    batches=_batches,
)

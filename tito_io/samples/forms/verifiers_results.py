"""Format `verifiers`: results of verifiers 0.1, one rollout per line, saved with the column `trajectory`.

A step has `prompt` and `completion` messages, `tokens` with `prompt_ids`, `completion_ids` and
`completion_logprobs`, and the `response`. The rollout's maximum length cuts `tokens`, but not
`response.message.tokens`, so the latter are read if present. Tool calls are converted to the chat API's form.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tito_core import Message, Step
from tito_core.samples import RoutedExperts, StoredCall
from tito_io.engines.replies.invariants import Check

from .form import Batch, CallPlace, Record, StoredForm, at, first_id, record_check

METADATA = ("example_id", "task")
"""Fields of a rollout that become metadata of its calls; of a step these are `advantage` and `extras`."""


def _batches(record: Record, number: int) -> Iterator[Batch]:
    check = record_check("the rollout", record)
    steps = check.get(record, "trajectory", list)
    known = next((first_id(step, "trajectory_id") for step in steps if isinstance(step, Mapping)), None)
    name = known or f"line-{number}"
    yield Batch(
        conversation=name,
        parts=[partial(_read, record, step, f"{name}.{index}") for index, step in enumerate(steps)],
    )


def _read(record: Record, step: object, name: str, place: CallPlace) -> Iterator[StoredCall]:
    check = record_check(f"step {name}", step)
    fields = check.typed(step, dict, "step")
    tokens, uncut = _tokens(check, fields)
    prompt_ids, ids = check.ids(tokens, "prompt_ids"), check.ids(tokens, "completion_ids")
    message = at(fields, "response", "message")
    finish = None if at(message, "finish_reason") is None else check.finish_reason(message)
    truncated = finish in ("length", "abort") or (not uncut and fields.get("is_truncated") is True)
    metadata = {key: record[key] for key in METADATA if record.get(key) is not None}
    metadata |= {key: fields[key] for key in ("advantage", "extras") if fields.get(key)}
    yield StoredCall(
        name=name,
        step=Step(
            prompt=_messages(check, fields, "prompt"),
            completion=_messages(check, fields, "completion"),
            prompt_ids=prompt_ids,
            completion_ids=ids,
            logprobs=_logprobs(check, tokens.get("completion_logprobs"), ids),
            truncated=truncated,
        ),
        order=place.order,
        finish_reason=finish,
        routed_experts=_experts(check, tokens.get("routed_experts"), len(prompt_ids), len(ids)),
        reward=record.get("reward") if fields.get("reward") is None else fields["reward"],
        metadata=metadata,
    )


def _tokens(check: Check, step: Record) -> tuple[Record, bool]:
    """Return the ids of a step, and whether they are uncut, as the engine sent them."""
    tokens = at(step, "response", "message", "tokens")
    if isinstance(tokens, Mapping):
        return tokens, True
    if step.get("tokens") is None:
        check.fail("it has no tokens: run verifiers with a client that requests token ids")
    return check.get(step, "tokens", dict), False


def _logprobs(check: Check, values: object, ids: Sequence[int]) -> tuple[float | None, ...] | None:
    # verifiers sends an empty list for a turn without log-probabilities.
    if not isinstance(values, list) or (ids and not values):
        return None
    return check.logprobs(values, len(ids))


def _messages(check: Check, step: Record, name: str) -> list[Message]:
    """Return the messages in a field; a prompt of the completions API is one text."""
    text = step.get(name)
    if isinstance(text, str):
        return [{"role": "text", "content": text}]
    return [chat_message(check, message) for message in check.get(step, name, list)]


def chat_message(check: Check, message: object) -> Message:
    """Return a message in the chat API's form, where a tool call's name and arguments are in `function`.

    >>> check = record_check("a step", None)
    >>> message = chat_message(check, {"role": "assistant", "content": None, "tool_calls": [
    ...     {"id": "1", "name": "add", "arguments": "{}"}]})
    >>> message["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'add', 'arguments': '{}'}}]
    """
    fields: dict[str, Any] = check.typed(message, dict, "message")
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return fields
    return {**fields, "tool_calls": [_chat_call(call) for call in calls]}


def _chat_call(call: object) -> object:
    if not isinstance(call, Mapping) or "function" in call or "name" not in call:
        return call
    function = {name: call[name] for name in ("name", "arguments") if name in call}
    return {"id": call.get("id"), "type": "function", "function": function}


def _experts(check: Check, value: object, prompt: int, sampled: int) -> RoutedExperts | None:
    """Return rows of `[position][layer][expert]`: for all ids, all but the last, or the sampled ones."""
    if not value:
        return None
    rows = check.typed(value, list, "routed_experts")
    start = 0 if len(rows) in (prompt + sampled, prompt + sampled - 1) else prompt
    if start and len(rows) not in (sampled, sampled - 1):
        check.fail(f"{len(rows)} rows of routed experts for {prompt} prompt and {sampled} sampled ids")
    try:
        shape = (len(rows), len(rows[0]), len(rows[0][0]))
        numbers = array("i", [number for row in rows for layer in row for number in layer])
    except (TypeError, OverflowError, LookupError):
        check.fail("`routed_experts` is not a table of positions, layers and experts")
    return RoutedExperts(data=numbers.tobytes(), dtype="int32", shape=shape, start=start)


FORM = StoredForm(
    name="verifiers",
    description="rollouts of verifiers 0.1, column `trajectory` saved",
    whole=True,
    matches=lambda record: "trajectory" in record,
    batches=_batches,
)

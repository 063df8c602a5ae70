"""Formats `exchange` and `miles`: requests with the engine's replies, as they were sent over HTTP.

An exchange is `{"request": body, "response": body}`. vLLM, SGLang and Dynamo each have their own fields for
ids; if a reply has several, they must agree. A streamed reply is read from the list of its events. A line may
have more keys: the conversation's id (`ID_FIELDS`), `reward` and `metadata`, and `status` and `path`, which
show whether the line is about a turn at all.

A Miles session is the answer of `GET /sessions/{id}`. Each of its records has a request and SGLang's reply,
and `input_ids` of the request is the prompt. A server that branches answers with its latest branch alone.
Where its tree of turns shows others, they are reported as a problem.

Unlike a live reply, a stored one may lack log-probabilities and counts. It may not lack ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, NoReturn

import orjson

from tito_core import InputError, Message, Step, render_key
from tito_core.samples import StoredCall
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.invariants import Check

from . import exchange_fields as fields
from .form import Batch, CallMaker, CallPlace, Record, StoredForm, at, first_id, record_check

ID_FIELDS = ("conversation", "conversation_id", "session_id", "trajectory_id", "rollout_id")
"""Fields with a line's conversation id; the first that is present is used."""
TURN_PATHS = ("/completions", "/generate", "/completions/tokens", "/messages", "/responses")
"""Ends of the paths of routes that sample turns."""


def read(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    """Yield the calls of an exchange: one for each choice, none if the request was not for a turn."""
    path, status = record.get("path"), record.get("status", record.get("status_code"))
    if isinstance(path, str) and not path.partition("?")[0].endswith(TURN_PATHS):
        return
    if type(status) is int and not HTTPStatus(200) <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    response = record.get("response", record)
    check = record_check("the reply", response)
    request = record.get("request") or {}
    if not isinstance(request, Mapping):
        check.fail("its request is not an object")
    for body, choice in _choices(check, response):
        yield _call(check, record, request, body, choice, place)


def _choices(check: Check, body: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each choice with the reply's body; on SGLang's own route a choice is a body itself."""
    body = _events(check, body) if isinstance(body, str) else body
    items: list[Any] = body if isinstance(body, list) else [body]
    if _generated(items):
        for turn in items:
            yield turn, turn
        return
    whole = _assembled(check, items) if isinstance(body, list) else body
    choices = check.get(whole, "choices", list)
    if not choices:
        check.fail("it has no choices")
    for choice in choices:
        yield whole, check.typed(choice, dict, "choice")


def _events(check: Check, text: str) -> list[Any]:
    """Return the events of a stream that was stored as text."""
    data = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    if not data:
        check.fail("it is a text without stream events")
    try:
        return [one if one == "[DONE]" else orjson.loads(one) for one in data]
    except orjson.JSONDecodeError:
        check.fail("an event of the stream is not valid JSON")


def _generated(turns: Sequence[Any]) -> bool:
    """Tell whether these are whole turns of SGLang's `/generate`, and not events of a stream."""
    return bool(turns) and all(
        isinstance(turn, Mapping)
        and "output_ids" in turn
        and isinstance(turn.get("meta_info"), Mapping)
        and turn["meta_info"].get("finish_reason") is not None
        for turn in turns
    )


def _assembled(check: Check, events: Sequence[object]) -> dict[str, Any]:
    """Return the reply that a stream's events make up."""
    assembly = Assembly()
    for event in events:
        if isinstance(event, str):  # the `[DONE]` at the end
            continue
        chunk = check.typed(event, dict, "event")
        if "choices" not in chunk:
            check.fail("it is a stream without chat or completion chunks: store the whole reply instead")
        try:
            assembly.add(chunk)
        except (AttributeError, TypeError, ValueError):
            check.fail("a chunk has values of other types than the chunks before it")
    for index in assembly.choices:
        check.typed(index, int, "index")
    return assembly.body()


def _call(
    check: Check, record: Record, request: Record, body: Record, choice: Record, place: CallPlace
) -> StoredCall:
    prompt, completion = fields.prompt(check, request, body, choice), fields.completion(check, body, choice)
    fields.check_counts(check, body, prompt, completion)
    finish = fields.finish_reason(check, body, choice)
    metadata = {name: body[name] for name in ("model", "created") if body.get(name) is not None}
    if isinstance(record.get("metadata"), Mapping):
        metadata |= record["metadata"]
    return StoredCall(
        name=_name(body, choice, place),
        step=Step(
            # The messages of a prompt that was sent as ids alone are unknown.
            prompt=check.find(request, "messages", list) or [],
            completion=[_message(choice)],
            prompt_ids=prompt,
            completion_ids=completion,
            logprobs=fields.logprobs(check, body, choice, completion),
            truncated=finish in ("length", "abort"),
            key=_key(request),
        ),
        order=place.order,
        finish_reason=finish,
        weight_versions=fields.weights(check, body, choice, len(completion)),
        routed_experts=fields.experts(check, request, body, choice, len(prompt) + len(completion)),
        reward=record.get("reward"),
        metadata=metadata,
    )


def _name(body: Record, choice: Record, place: CallPlace) -> str:
    """Return the engine's id of a reply, with the choice's number if it is not the first."""
    name = first_id(body, "id", "request_id") or first_id({"id": at(body, "meta_info", "id")}, "id")
    index = choice.get("index") or 0
    return f"{name or f'line-{place.line}'}{f'.{index}' if index else ''}"


def _message(choice: Record) -> Message:
    message = choice.get("message")
    if isinstance(message, Mapping):
        return {"role": "assistant", **message}
    text = choice.get("text")
    return {"role": "assistant", "content": text if isinstance(text, str) else ""}


def _key(request: Record) -> str | None:
    """Return the render key, if messages were rendered."""
    tools, args = request.get("tools"), request.get("chat_template_kwargs")
    if request.get("messages") is None or not isinstance(tools, list | None):
        return None
    return render_key(tools, args) if isinstance(args, Mapping | None) else None


def _session(record: Record, _: int) -> Iterator[Batch]:
    check = record_check("the session", record)
    exchanges = [check.typed(one, dict, "record") for one in check.get(record, "records", list)]
    leaves = at(record, "metadata", "tree", "leaves")
    parts: list[CallMaker] = [partial(read, one) for one in exchanges]
    if isinstance(leaves, list) and len(leaves) > 1:
        parts.append(partial(_missing_branches, len(leaves) - 1))
    yield Batch(conversation=first_id(record, "session_id"), parts=parts)


def _missing_branches(count: int, _: CallPlace) -> NoReturn:
    raise InputError(
        f"the records leave out the session's other branches, {count} of them; "
        "/sessions/ID/calls has those of all"
    )


FORM = StoredForm(
    name="exchange",
    description="requests with replies of vLLM, SGLang or Dynamo",
    matches=lambda record: "response" in record or "choices" in record or "output_ids" in record,
    batches=lambda record, _: [
        Batch(conversation=first_id(record, *ID_FIELDS), parts=(partial(read, record),))
    ],
)
MILES = StoredForm(
    name="miles",
    description="session records of Miles",
    whole=True,
    matches=lambda record: "records" in record,
    batches=_session,
)

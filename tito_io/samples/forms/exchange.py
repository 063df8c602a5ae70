"""Requests with the engine's replies, as they went over the wire: `{"request": body, "response": body}`.

vLLM, SGLang and Dynamo each have their own places for ids; all that a reply names must agree. Streams are
read from the list of their events. What else stands in the line is left alone, but for the conversation's
id (`ID_FIELDS`), `reward`, and `status` and `path`, by which a request for anything but a turn is known.

Unlike a live reply, a stored one may lack log-probabilities and counts. It may not lack ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson

from tito_core import Message, Step, render_key
from tito_core.samples import StoredCall
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.invariants import Check

from . import exchange_fields as ids
from .exchange_fields import experts
from .form import Batch, CallPlace, Record, StoredForm, named

ID_FIELDS = ("conversation", "conversation_id", "session_id", "trajectory_id", "rollout_id")
"""Where a line may say which conversation it belongs to; the first that is there counts."""
TURNS = ("/completions", "/generate", "/completions/tokens", "/messages", "/responses")
"""How the paths end that sample turns."""


def _batches(record: Record, _: int) -> Iterator[Batch]:
    yield Batch(conversation=named(record, *ID_FIELDS), parts=(partial(read, record),))


def read(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    """Make calls of an exchange: as many as the reply has turns, none where no turn was asked for."""
    if not _sampled(record):
        return
    check = Check("the reply", EngineAnswer(HTTPStatus.OK, record.get("response", record)))
    request = record.get("request") or {}
    if not isinstance(request, Mapping):
        check.fail("its request is no object")
    for body, choice in _turns(check, record.get("response", record)):
        yield _call(check, record, request, body, choice, place)


def _sampled(record: Record) -> bool:
    """Tell whether a line is about a turn: another route's answer, or a refusal, holds none."""
    path, status = record.get("path"), record.get("status", record.get("status_code"))
    asked = not isinstance(path, str) or path.partition("?")[0].endswith(TURNS)
    answered = type(status) is not int or HTTPStatus(200) <= status < HTTPStatus.MULTIPLE_CHOICES
    return asked and answered


def _turns(check: Check, body: object) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each turn of a reply beside the reply; SGLang's own route answers with turns themselves."""
    body = _events(check, body) if isinstance(body, str) else body
    items: list[Any] = body if isinstance(body, list) else [body]
    if _generated(items):
        for turn in items:
            yield turn, turn
        return
    whole = _assembled(check, items) if isinstance(body, list) else body
    choices = check.get(whole, "choices", list)
    if not choices:
        check.fail("there is no choice in it")
    for choice in choices:
        yield check.get({"whole": whole}, "whole", dict), check.get({"choice": choice}, "choice", dict)


def _events(check: Check, text: str) -> list[Any]:
    """Return the events of a stream that is kept as it came."""
    said = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    if not said:
        check.fail("it is a text and no stream of events")
    try:
        return [one if one == "[DONE]" else orjson.loads(one) for one in said]
    except orjson.JSONDecodeError:
        check.fail("an event of the stream is no JSON")


def _generated(turns: Sequence[Any]) -> bool:
    """Tell whether these are turns of SGLang's `/generate`, none of them an event of a stream."""
    return bool(turns) and all(
        isinstance(turn, Mapping)
        and "output_ids" in turn
        and isinstance(turn.get("meta_info"), Mapping)
        and turn["meta_info"].get("finish_reason") is not None
        for turn in turns
    )


def _assembled(check: Check, events: Sequence[object]) -> dict[str, Any]:
    """Return what a stream's events amount to."""
    made = Assembly()
    for event in events:
        if isinstance(event, str):  # the `[DONE]` at the end
            continue
        chunk = check.get({"event": event}, "event", dict)
        if "choices" not in chunk:
            check.fail("it is a stream of something other than chat or completion chunks: store it whole")
        try:
            made.add(chunk)
        except (AttributeError, TypeError, ValueError):
            check.fail("a chunk's values are of another kind than those before it")
    return made.body()


def _call(
    check: Check, record: Record, request: Record, body: Record, choice: Record, place: CallPlace
) -> StoredCall:
    prompt, completion = ids.prompt(check, request, body, choice), ids.completion(check, body, choice)
    ids.counted(check, body, prompt, completion)
    finish = ids.finish_reason(check, body, choice)
    return StoredCall(
        name=_name(body, choice, place),
        step=Step(
            prompt=_asked(check, request),
            completion=[_said(choice)],
            prompt_ids=prompt,
            completion_ids=completion,
            logprobs=ids.logprobs(check, body, choice, completion),
            truncated=finish in ("length", "abort"),
            key=_key(request),
        ),
        order=place.order,
        finish_reason=finish,
        weight_versions=ids.weights(check, body, choice, len(completion)),
        routed_experts=experts(check, request, body, choice, len(prompt) + len(completion)),
        reward=record.get("reward"),
        metadata=_metadata(record, body),
    )


def _name(body: Record, choice: Record, place: CallPlace) -> str:
    """Return the engine's name for a reply, and the turn's number where it is not the first."""
    meta = body.get("meta_info")
    name = named(body, "id", "request_id") or (named(meta, "id") if isinstance(meta, Mapping) else None)
    index = choice.get("index") or 0
    return f"{name or f'line-{place.line}'}{f'.{index}' if index else ''}"


def _asked(check: Check, request: Record) -> list[Message]:
    """Return the messages that were sent; of a prompt that went by ids alone there may be none."""
    return [] if request.get("messages") is None else check.get(request, "messages", list)


def _said(choice: Record) -> Message:
    message = choice.get("message")
    if isinstance(message, Mapping):
        return {"role": "assistant", **message}
    text = choice.get("text")
    return {"role": "assistant", "content": text if isinstance(text, str) else ""}


def _key(request: Record) -> str | None:
    """Return the key of the rendering, where messages were rendered."""
    tools, args = request.get("tools"), request.get("chat_template_kwargs")
    if request.get("messages") is None or not isinstance(tools, list | None):
        return None
    return render_key(tools, args) if isinstance(args, Mapping | None) else None


def _metadata(record: Record, body: Record) -> dict[str, Any]:
    given = record.get("metadata")
    held = {name: body[name] for name in ("model", "created") if body.get(name) is not None}
    return {**held, **(given if isinstance(given, Mapping) else {})}


def _knows(record: Record) -> bool:
    return "response" in record or "choices" in record or "output_ids" in record


FORM = StoredForm(
    name="exchange",
    told="requests with replies of vLLM, SGLang or Dynamo",
    whole=False,
    knows=_knows,
    batches=_batches,
)

"""A session as JSON: its records (`GET /sessions/ID`), and its calls (`/sessions/ID/calls`).

Records are those of the session protocol, for the turns up to the newest one: each repeats the whole
conversation and all ids, so they grow with the square of the turns. They are written one after the other, and
what a record repeats is copied as text. Calls are the turns of all branches, a line each in tito's own format
with what is new in it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import orjson

from tito_core import Message
from tito_core.samples import StoredCall
from tito_io.dialects import Chat
from tito_io.dialects.protocol import ParsedRequest, TurnAnswer
from tito_io.dialects.wire import dumps
from tito_io.engines.digits import Digits
from tito_io.engines.protocol import Reply, Usage
from tito_io.samples.forms.tito import line

from .commit import Commit
from .session import Session
from .sglang_fields import meta_info

PATHS = {
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "responses": "/v1/responses",
    "google": "/v1beta/models",
}


def session_records(session: Session) -> Iterator[bytes]:
    """Return the JSON of a session's records and metadata in parts, a record each; linear in its own size.

    It is the session at the time of the call, whatever becomes of it while the parts are read.
    """
    metadata = dumps(session_metadata(session))
    head = b'{"session_id":%b,"records":[' % orjson.dumps(session.name)
    return _joined(head, _records(session.path(session.newest)), b'],"metadata":%b}' % metadata)


def session_calls(session: Session, engine: str | None) -> Iterator[bytes]:
    """Return the turns of all branches in tito's own format, a line each, as `tito samples` reads them.

    Each names the engine whose prompts were rendered, for `tito audit`; None for one without rules.
    A turn that no client is known to have says so in its metadata. It is the session at the time of the call,
    whatever becomes of it while the lines are read.
    """
    turns = [(_with_received(node.call, session), node.parent) for node in session.forest.nodes]
    return _lines(session.name, turns, engine)


def _with_received(call: StoredCall, session: Session) -> StoredCall:
    unreceived = call.name in session.unreceived
    return attrs.evolve(call, metadata={**call.metadata, "received": False}) if unreceived else call


def _lines(
    session: str, turns: Sequence[tuple[StoredCall, str | None]], engine: str | None
) -> Iterator[bytes]:
    """Yield the lines of calls, each with the name of the one that it continues."""
    written = dict[str | None, StoredCall]()
    for call, parent in turns:
        yield line(session, call, written.get(parent), engine)
        written[call.name] = call


def _joined(head: bytes, records: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    yield head
    for place, record in enumerate(records):
        yield b"," + record if place else record
    yield end


def _records(path: Sequence[Commit]) -> Iterator[bytes]:
    """Yield the records of turns that continue each other, oldest first."""
    digits, known, length = Digits(), b"", 0
    for commit in path:
        prompt = _with_messages(known, commit.step.prompt[length:])
        yield _record(commit, b"[%b]" % prompt, digits.write(b"[", commit.step.prompt_ids, b"]"))
        known, length = _with_messages(prompt, commit.step.completion), commit.step.messages.length


def _with_messages(known: bytes, messages: Sequence[Message]) -> bytes:
    """Return the JSON of messages, without brackets, after that of others."""
    return b",".join((*filter(None, (known,)), *map(dumps, messages)))


def session_metadata(session: Session) -> dict[str, Any]:
    """Return what the protocol says of a session beside its records."""
    newest, forest = session.newest, session.forest
    nodes = [
        _node(session.commits[node.name], node.parent)
        | ({"received": False} if node.name in session.unreceived else {})
        for node in forest.nodes
    ]
    leaves = [{"node_id": name, "path_node_ids": list(forest.path(name))} for name in forest.leaves]
    return {
        "accumulated_token_ids": [] if newest is None else newest.step.ids.tolist(),
        "max_trim_tokens": 0,
        **({} if newest is None else {"tito_session_mismatch": []}),
        "tree": {"nodes": nodes, "leaves": leaves},
    }


def _node(commit: Commit, parent: str | None) -> dict[str, Any]:
    step = commit.step
    return {
        "id": commit.name,
        "parent": parent,
        "seq": commit.call.order,
        "truncated": step.truncated,
        "committed_at": commit.at,
        "completion_span": [len(step.prompt_ids), len(step.ids)],
        "num_tokens": len(step.ids),
        "response_id": commit.response,
    }


def _record(commit: Commit, messages: bytes, input_ids: bytes) -> bytes:
    """Return one turn: its request with the whole conversation and all ids, and the engine's answer."""
    request = {**commit.origin.request, **_rendering(commit), "messages": messages, "input_ids": input_ids}
    return _object(
        {
            "timestamp": commit.at,
            "request_timestamp": commit.origin.requested,
            "method": "POST",
            "path": PATHS.get(commit.origin.dialect, ""),
            "request": _object(request),
            "response": _response(commit),
            "status_code": 200,
        }
    )


def _object(fields: Mapping[str, Any]) -> bytes:
    """Return the JSON of an object; bytes are JSON already.

    >>> _object({"a": 1, "b": b"[2]"})
    b'{"a":1,"b":[2]}'
    """
    texts = ((name, value if isinstance(value, bytes) else dumps(value)) for name, value in fields.items())
    return b"{%b}" % b",".join(b"%b:%b" % (dumps(name), value) for name, value in texts)


def _response(commit: Commit) -> dict[str, Any]:
    """Return the engine's answer to one turn."""
    reply, body = stored_reply(commit), commit.origin.request
    model = str(body.get("model") or "default")
    answer = TurnAnswer.of(reply, id=commit.response, created=int(commit.at), model=model)
    response = Chat().answer_body(ParsedRequest(messages=(), logprobs=True, body=body), answer)
    experts = commit.call.routed_experts
    routed = {} if experts is None else {"routed_experts": b64encode(experts.data).decode()}
    choice = response["choices"][0]
    choice["meta_info"] = meta_info(commit.response, reply) | routed
    if choice["message"].get("tool_calls"):  # SGLang numbers them, in whole answers too
        calls = choice["message"]["tool_calls"]
        choice["message"]["tool_calls"] = [{**call, "index": place} for place, call in enumerate(calls)]
    return response


def _rendering(commit: Commit) -> dict[str, Any]:
    """Return what a prompt was rendered with: its tools, and the template arguments of all fields."""
    tools, args = orjson.loads(commit.step.key or "[[],{}]")
    return {**({"tools": tools} if tools else {}), **({"chat_template_kwargs": args} if args else {})}


def stored_reply(commit: Commit) -> Reply:
    """Return the engine's reply as far as it is stored."""
    step, message = commit.step, commit.step.completion[0]
    return Reply(
        prompt_ids=step.prompt_ids,
        completion_ids=tuple(step.completion_ids),
        logprobs=step.logprobs,
        message=message,
        text=str(message.get("content") or ""),
        finish_reason=commit.call.finish_reason or "stop",
        usage=Usage(
            prompt_tokens=len(step.prompt_ids),
            completion_tokens=len(step.completion_ids),
            cached_tokens=commit.origin.cached,
        ),
        stop_reason=commit.origin.stop_reason,
        request_id=commit.origin.engine_request,
        worker=commit.origin.worker,
        weight_versions=commit.call.weight_versions,
        routed_experts=commit.call.routed_experts,
        sampling_mask=step.sampling_mask,
        raw={},
    )

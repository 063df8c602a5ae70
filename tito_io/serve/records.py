"""What a session shows of itself: its turns up to the newest, as the session protocol records them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from tito_core.samples import Forest
from tito_io.dialects import Chat
from tito_io.dialects.protocol import ParsedRequest, SampledMessage, TurnAnswer
from tito_io.engines.protocol import Reply, Usage

from .commit import Commit
from .session import Session
from .sglang_fields import meta_info

PATHS = {"chat": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}


def shown(session: Session) -> dict[str, Any]:
    """Return the records and the metadata of a session; linear in what it shows."""
    newest = session.newest
    forest = session.forest
    records = [_record(one) for one in _lineage(session, forest, newest)]
    return {"session_id": session.name, "records": records, "metadata": metadata(session, forest)}


def metadata(session: Session, forest: Forest | None = None) -> dict[str, Any]:
    """Return what is said of a session beside its records."""
    newest = session.newest
    grown = forest if forest is not None else session.forest
    found: dict[str, Any] = {
        "accumulated_token_ids": [] if newest is None else newest.step.ids.tolist(),
        "max_trim_tokens": 0,
    }
    if newest is not None:
        found["tito_session_mismatch"] = []
    return {**found, "tree": _tree(session, grown)}


def _lineage(session: Session, forest: Forest, newest: Commit | None) -> list[Commit]:
    """Return the turns whose ids the newest one has, oldest first."""
    return [] if newest is None else [session.commits[name] for name in forest.path(newest.name)]


def _tree(session: Session, forest: Forest) -> dict[str, Any]:
    nodes = [_node(session.commits[node.name], node.parent) for node in forest.nodes]
    leaves = [{"node_id": name, "path_node_ids": list(forest.path(name))} for name in forest.leaves]
    return {"nodes": nodes, "leaves": leaves}


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


def _record(commit: Commit) -> dict[str, Any]:
    """Return one turn: the request as it amounts to, and the engine's answer with all its ids."""
    reply = replied(commit)
    asked = ParsedRequest(messages=tuple(commit.step.prompt), logprobs=True, body=commit.origin.asked)
    answer = TurnAnswer(
        id=commit.response,
        created=int(commit.at),
        model=str(commit.origin.asked.get("model") or "default"),
        choices=(SampledMessage.of(reply),),
        prompt_ids=reply.prompt_ids,
        usage=reply.usage,
    )
    response = Chat().answer_body(asked, answer)
    response["choices"][0]["meta_info"] = meta_info(commit.response, reply) | _routed(commit)
    return {
        "timestamp": commit.at,
        "request_timestamp": commit.origin.requested,
        "method": "POST",
        "path": PATHS.get(commit.origin.dialect, ""),
        "request": _request(commit),
        "response": response,
        "status_code": 200,
    }


def _request(commit: Commit) -> Mapping[str, Any]:
    said = {"messages": list(commit.step.prompt), "input_ids": commit.step.prompt_ids.tolist()}
    return {**commit.origin.asked, **said}


def _routed(commit: Commit) -> dict[str, Any]:
    experts = commit.call.routed_experts
    return {} if experts is None else {"routed_experts": b64encode(experts.data).decode()}


def replied(commit: Commit) -> Reply:
    """Return the engine's reply as far as it is kept."""
    step, sampled = commit.step, len(commit.step.completion_ids)
    usage = Usage(
        prompt_tokens=len(step.prompt_ids), completion_tokens=sampled, cached_tokens=commit.origin.cached
    )
    return Reply(
        prompt_ids=tuple(step.prompt_ids),
        completion_ids=tuple(step.completion_ids),
        logprobs=step.logprobs,
        message=step.completion[0],
        text=str(step.completion[0].get("content") or ""),
        finish_reason=commit.call.finish_reason or "stop",
        usage=usage,
        stop_reason=commit.origin.stop_reason,
        weight_versions=commit.call.weight_versions,
        routed_experts=commit.call.routed_experts,
        raw={},
    )

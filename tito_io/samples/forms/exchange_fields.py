"""Where the replies of engines keep ids and what belongs to them.

Each function reads one fact from all the places that versions and routes know; where several have it they
must agree. (vLLM 0.28 to 0.32, SGLang 0.5.13 to 0.5.23, Dynamo 1.6, Miles.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.replies import npy
from tito_io.engines.replies.described_experts import routed_experts as described
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.shapes import named_ids, same_ids
from tito_io.engines.replies import sglang_meta as meta

from .form import Record

SAMPLED = ("token_ids", "response_token_ids", "completion_token_ids", "output_ids")
SENT = (
    ("kv_transfer_params", "prompt_token_ids"),
    ("nvext", "token_data"),
    *(("prompt_token_ids",), ("input_ids",), ("prompt",), ("tokens",), ("token_ids",)),
)
"""Where requests have the prompt's ids, one route or another; a prompt may be text too."""


def _at(holder: object, *path: str) -> Any:
    """Return what lies at the end of a path through objects; None where it breaks off.

    >>> _at({"a": {"b": 1}}, "a", "b"), _at({"a": None}, "a", "b")
    (1, None)
    """
    for name in path:
        holder = holder.get(name) if isinstance(holder, Mapping) else None
    return holder


def completion(check: Check, body: Record, choice: Record) -> tuple[int, ...]:
    """Return the sampled ids."""
    found = {name: check.ids({name: value}, name) for name, value in _sampled(check, body, choice)}
    if not found:
        check.fail(
            "it has no sampled ids: ask vLLM for return_token_ids, SGLang for return_meta_info or "
            "return_token_ids, Dynamo for nvext"
        )
    if len(set(found.values())) > 1:
        check.fail(f"`{'` and `'.join(found)}` name different ids for one turn")
    return next(iter(found.values()))


def _sampled(check: Check, body: Record, choice: Record) -> Iterator[tuple[str, object]]:
    for name in SAMPLED:
        if choice.get(name) is not None:
            yield name, choice[name]
    yield from _beside(check, body)
    triples = _at(choice, "meta_info", "output_token_logprobs")
    if isinstance(triples, list):
        yield "output_token_logprobs", [meta.triple_id(check, triple) for triple in triples]
    named = _named(choice)
    if named is not None:
        yield "logprobs", named


def _named(choice: Record) -> list[int] | None:
    """Return the ids that vLLM names in place of texts (`return_tokens_as_token_ids`), None for others."""
    flat, entries = _at(choice, "logprobs", "tokens"), _at(choice, "logprobs", "content")
    if not isinstance(flat, list):
        flat = [_at(one, "token") for one in entries] if isinstance(entries, list) else []
    return named_ids(flat) or None


def _beside(check: Check, body: Record) -> Iterator[tuple[str, object]]:
    """Yield what Dynamo says beside the choices: by its frontend, or else by its worker."""
    said = _at(body, "nvext", "completion_token_ids")
    found = said if said is not None else _at(body, "nvext", "engine_data", "completion_token_ids")
    if found is None:
        return
    if len(body.get("choices") or ()) != 1:
        check.fail("it has several turns, and Dynamo tells the ids of one: ask for them one by one")
    yield "nvext", found


def prompt(check: Check, request: Record, body: Record, choice: Record) -> tuple[int, ...]:
    """Return the ids that the engine says it saw; where it says nothing, those that were sent."""
    echoes = (
        choice.get("prompt_token_ids"),
        body.get("prompt_token_ids"),
        _at(body, "nvext", "prompt_token_ids"),
        _at(body, "sglext", "input_ids"),
    )
    worker = _at(body, "nvext", "engine_data", "prompt_token_ids")
    known = [one for one in (*echoes, *_sent(request), worker) if one is not None]
    if not known:
        check.fail("neither the reply nor the request has the prompt's ids: ask for return_token_ids")
    if worker is not None and worker != known[0] and _at(body, "nvext", "completion_token_ids") is None:
        check.fail("another worker went on with the turn, and told of its own part alone")
    return check.ids({"the prompt": known[0]}, "the prompt")


def _sent(request: Record) -> Iterator[list[Any]]:
    held = [_at(request, *path) for path in SENT]
    return (value for value in held if isinstance(value, list) and set(map(type, value)) == {int})


def counted(check: Check, body: Record, prompt: Sequence[int], completion: Sequence[int]) -> None:
    """Demand that what the engine counted is there, where one turn was counted by itself."""
    choices, usage = body.get("choices"), body.get("usage") or body.get("meta_info")
    if not isinstance(usage, Mapping) or (isinstance(choices, list) and len(choices) > 1):
        return
    if type(usage.get("completion_tokens")) is int:
        check.count("sampled ids", len(completion), "counted ones", usage["completion_tokens"])
    worker = _at(body, "nvext", "engine_data", "prompt_token_ids")
    moved = isinstance(worker, list) and len(worker) != len(prompt)  # the worker that went on counts anew
    if type(usage.get("prompt_tokens")) is int and not moved:
        check.count("prompt ids", len(prompt), "counted ones", usage["prompt_tokens"])


def logprobs(
    check: Check, body: Record, choice: Record, ids: Sequence[int]
) -> tuple[float | None, ...] | None:
    """Return one log-probability an id, from the first source that has any; None where none has."""
    entries, said = _at(choice, "meta_info", "output_token_logprobs"), choice.get("logprobs")
    if isinstance(entries, list):
        return meta.triples(check, choice["meta_info"], ids)
    if isinstance(_at(said, "content"), list):
        content = [check.get({"entry": entry}, "entry", dict) for entry in _at(said, "content")]
        same_ids(check, [_token(entry) for entry in content], ids)
        return check.logprobs([entry.get("logprob") for entry in content], len(ids))
    if isinstance(_at(said, "token_logprobs"), list):
        tokens = _at(said, "tokens")
        same_ids(check, tokens if isinstance(tokens, Sequence) else (), ids)
        return check.logprobs(_at(said, "token_logprobs"), len(ids))
    held = _at(body, "nvext", "engine_data", "completion_logprobs")
    return check.logprobs(held, len(ids)) if isinstance(held, list) and len(held) == len(ids) else None


def _token(entry: Record) -> object:
    number = entry.get("token_id")
    return f"token_id:{number}" if type(number) is int else entry.get("token")


def finish_reason(check: Check, body: Record, choice: Record) -> str | None:
    """Return why the turn ended, in our word; the engine's own reason goes before the chat's."""
    detail = _at(body, "nvext", "detailed_finish_reason")
    if isinstance(detail, str) and detail.partition(":")[0].strip() in ("length", "abort", "cancelled"):
        return check.finish_reason({"finish_reason": detail.partition(":")[0].strip()})
    own = _at(choice, "meta_info", "finish_reason", "type")
    if own in ("length", "abort"):
        return str(own)
    said = choice.get("finish_reason") or own
    return None if said is None else check.finish_reason({"finish_reason": said})


def weights(check: Check, body: Record, choice: Record, count: int) -> tuple[WeightVersion, ...]:
    """Return which weights sampled what, where all of it is said."""
    first = not choice.get("index")
    spans = (
        choice.get("weight_versions")
        or _at(choice, "meta_info", "weight_versions")
        or (_at(body, "metadata", "weight_versions") if first else None)
    )
    return check.weight_versions(spans, count)


NUMPY = "k05VTVBZ"
"""What the base64 of a `.npy` file begins with."""


def experts(check: Check, request: Record, body: Record, choice: Record, ids: int) -> RoutedExperts | None:
    """Return the rows of a turn of `ids` ids; None where there are none.

    vLLM sends a `.npy` file, Dynamo says the form beside the numbers, SGLang sends bare numbers of all layers
    side by side (`routed_experts_prompt_start` and `routed_experts_start_len` say where they begin).
    """
    found = _found(body, choice)
    if found is None:
        return None
    if isinstance(found, Mapping):
        return described(check, found, ids)
    if isinstance(found, str) and found.startswith(NUMPY):
        try:
            return npy.routed_experts(found, _start(request, "routed_experts_prompt_start"))
        except ValueError as error:
            check.fail(f"`routed_experts` is unreadable: {error}")
    return meta.experts(check, found, ids, _start(request, "routed_experts_start_len"), None)


def _found(body: Record, choice: Record) -> object:
    for holder in (choice, choice.get("meta_info"), body.get("nvext"), body.get("sglext")):
        found = holder.get("routed_experts") if isinstance(holder, Mapping) else None
        if found is not None:
            return found
    return None


def _start(request: Record, name: str) -> int:
    found = request.get(name)
    return found if type(found) is int else 0

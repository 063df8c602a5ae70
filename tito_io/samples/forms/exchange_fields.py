"""Read ids, log-probabilities, weight versions and routed experts from stored engine replies.

Each function reads one fact from all fields that versions and routes have for it; if several are present,
they must agree. (vLLM 0.28 to 0.32, SGLang 0.5.13 to 0.5.23, Dynamo 1.6, Miles.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.replies import sglang_meta as meta
from tito_io.engines.replies.experts import bare_experts, described_experts, npy_experts
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.shapes import named_ids, same_ids

from .form import Record, at

COMPLETION_FIELDS = ("token_ids", "response_token_ids", "completion_token_ids", "output_ids")
"""Fields of a choice with the sampled ids."""
PROMPT_PATHS = (
    ("kv_transfer_params", "prompt_token_ids"),
    ("nvext", "token_data"),
    *(("prompt_token_ids",), ("input_ids",), ("prompt",), ("tokens",), ("token_ids",)),
)
"""Fields of a request with the prompt's ids, on one route or another; `prompt` may also be text."""
NUMPY = "k05VTVBZ"
"""The base64 beginning of a `.npy` file."""


def completion(check: Check, body: Record, choice: Record) -> tuple[int, ...]:
    """Return the sampled ids; refuse a reply without them, or with different ones in several fields."""
    sources = {
        name: check.ids({name: value}, name) for name, value in _completion_fields(check, body, choice)
    }
    if not sources:
        check.fail(
            "it has no sampled ids: ask vLLM for return_token_ids, SGLang for return_meta_info or "
            "return_token_ids, Dynamo for nvext"
        )
    if len(set(sources.values())) > 1:
        check.fail(f"`{'` and `'.join(sources)}` have different ids for one turn")
    return next(iter(sources.values()))


def _completion_fields(check: Check, body: Record, choice: Record) -> Iterator[tuple[str, object]]:
    for name in COMPLETION_FIELDS:
        if choice.get(name) is not None:
            yield name, choice[name]
    # Dynamo has ids beside the choices: its frontend's, or else its worker's.
    beside = at(body, "nvext", "completion_token_ids")
    beside = beside if beside is not None else at(body, "nvext", "engine_data", "completion_token_ids")
    if beside is not None:
        if len(body.get("choices") or ()) != 1:
            check.fail("it has several choices, and Dynamo sends the ids of one: ask for one at a time")
        yield "nvext", beside
    triples = at(choice, "meta_info", "output_token_logprobs")
    if isinstance(triples, list):
        yield "output_token_logprobs", [meta.triple_id(check, triple) for triple in triples]
    # vLLM writes ids in the place of texts if asked for `return_tokens_as_token_ids`.
    flat, entries = at(choice, "logprobs", "tokens"), at(choice, "logprobs", "content")
    if not isinstance(flat, list):
        flat = [at(one, "token") for one in entries] if isinstance(entries, list) else []
    ids = named_ids(flat)
    if ids:
        yield "logprobs", ids


def prompt(check: Check, request: Record, body: Record, choice: Record) -> tuple[int, ...]:
    """Return the prompt ids that the engine echoed; without an echo, those that were sent."""
    echoes = (
        choice.get("prompt_token_ids"),
        body.get("prompt_token_ids"),
        at(body, "nvext", "prompt_token_ids"),
        at(body, "sglext", "input_ids"),
    )
    sent = (at(request, *path) for path in PROMPT_PATHS)
    sent_ids = (value for value in sent if isinstance(value, list) and set(map(type, value)) == {int})
    worker = at(body, "nvext", "engine_data", "prompt_token_ids")
    known = [one for one in (*echoes, *sent_ids, worker) if one is not None]
    if not known:
        check.fail("neither the reply nor the request has the prompt's ids: ask for return_token_ids")
    # After a migration Dynamo's second worker reports the first one's sampled ids as part of its prompt.
    if worker is not None and worker != known[0] and at(body, "nvext", "completion_token_ids") is None:
        check.fail("another worker continued the turn, and the reply has only that worker's ids")
    return check.ids({"the prompt": known[0]}, "the prompt")


def check_counts(check: Check, body: Record, prompt: Sequence[int], completion: Sequence[int]) -> None:
    """Refuse a reply whose counts are not those of its ids; counts over several choices are ignored."""
    choices, usage = body.get("choices"), body.get("usage") or body.get("meta_info")
    if not isinstance(usage, Mapping) or (isinstance(choices, list) and len(choices) > 1):
        return
    if type(usage.get("completion_tokens")) is int:
        check.count("sampled ids", len(completion), "counted ones", usage["completion_tokens"])
    worker = at(body, "nvext", "engine_data", "prompt_token_ids")
    moved = isinstance(worker, list) and len(worker) != len(prompt)  # the second worker starts its own count
    if type(usage.get("prompt_tokens")) is int and not moved:
        check.count("prompt ids", len(prompt), "counted ones", usage["prompt_tokens"])


def logprobs(
    check: Check, body: Record, choice: Record, ids: Sequence[int]
) -> tuple[float | None, ...] | None:
    """Return one log-probability per id from the first field that has any, None if no field has."""
    triples, chat = at(choice, "meta_info", "output_token_logprobs"), choice.get("logprobs")
    if isinstance(triples, list):
        return meta.triples(check, choice["meta_info"], ids)
    if isinstance(at(chat, "content"), list):
        content = [check.typed(entry, dict, "entry") for entry in at(chat, "content")]
        same_ids(check, [_token(entry) for entry in content], ids)
        return check.logprobs([entry.get("logprob") for entry in content], len(ids))
    if isinstance(at(chat, "token_logprobs"), list):
        return check.logprobs(at(chat, "token_logprobs"), len(ids))
    worker = at(body, "nvext", "engine_data", "completion_logprobs")
    return check.logprobs(worker, len(ids)) if isinstance(worker, list) and len(worker) == len(ids) else None


def _token(entry: Record) -> object:
    number = entry.get("token_id")
    return f"token_id:{number}" if type(number) is int else entry.get("token")


def finish_reason(check: Check, body: Record, choice: Record) -> str | None:
    """Return why the turn ended, None if the reply does not say.

    The engine's own reason is preferred to the chat API's, which may hide a turn that was cut short.
    """
    detail = at(body, "nvext", "detailed_finish_reason")
    if isinstance(detail, str) and detail.partition(":")[0].strip() in ("length", "abort", "cancelled"):
        return check.finish_reason({"finish_reason": detail.partition(":")[0].strip()})
    own = at(choice, "meta_info", "finish_reason", "type")
    if own in ("length", "abort"):
        return str(own)
    reason = choice.get("finish_reason") or own
    return None if reason is None else check.finish_reason({"finish_reason": reason})


def weights(check: Check, body: Record, choice: Record, count: int) -> tuple[WeightVersion, ...]:
    """Return which weights sampled which of `count` ids; nothing if the reply does not cover all of them."""
    first = not choice.get("index")
    spans = (
        choice.get("weight_versions")
        or at(choice, "meta_info", "weight_versions")
        or (at(body, "metadata", "weight_versions") if first else None)
    )
    return check.weight_versions(spans, count)


def experts(check: Check, request: Record, body: Record, choice: Record, ids: int) -> RoutedExperts | None:
    """Return the routed experts of a turn of `ids` ids; None if the reply has none.

    vLLM sends a `.npy` file. Dynamo sends the shape beside the numbers. SGLang sends bare numbers of all
    layers side by side. The request's `routed_experts_prompt_start` or `routed_experts_start_len` is the
    position of the first.
    """
    holders = (choice, choice.get("meta_info"), body.get("nvext"), body.get("sglext"))
    values = (at(holder, "routed_experts") for holder in holders)
    value = next((one for one in values if one is not None), None)
    if value is None:
        return None
    if isinstance(value, Mapping):
        return described_experts(check, value, ids)
    if isinstance(value, str) and value.startswith(NUMPY):
        try:
            return npy_experts(value, _whole_number(request, "routed_experts_prompt_start"))
        except ValueError as error:
            check.fail(f"`routed_experts` is unreadable: {error}")
    return bare_experts(check, value, ids, _whole_number(request, "routed_experts_start_len"), None)


def _whole_number(request: Record, name: str) -> int:
    value = request.get(name)
    return value if type(value) is int else 0

"""Which experts ids went through, however an engine's stored reply writes it."""

from __future__ import annotations

from collections.abc import Mapping

from tito_core.samples import RoutedExperts
from tito_io.engines.replies import npy
from tito_io.engines.replies.described_experts import routed_experts as described
from tito_io.engines.replies.invariants import Check
from tito_io.engines.sglang import meta_info as meta

from .form import Record

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

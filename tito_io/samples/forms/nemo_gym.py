"""Formats `nemo-gym` and `nemo-gym-rollouts`: calls that NeMo Gym captured, and its finished rollouts.

A captured call is a line of `ID.tokens.jsonl`; its prompt may hold only what follows the call before, which
stands in an earlier line. A finished rollout has output items with ids in its `response`. See
`tito_io.integrations.nemo_gym` for the fields. Images and routed experts become metadata, unread.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tito_core import Ids, InputError
from tito_core.samples import StoredCall
from tito_io.integrations.nemo_gym import (
    added_prompt,
    call_name,
    captured_call,
    require_complete,
    response_calls,
)

from .form import Batch, CallPlace, Record, StoredForm, at, first_id


def _captured(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    prompt = Ids.of(added_prompt(record), "prompt_token_ids")
    if record.get("prompt_is_delta"):
        name = record.get("parent_call_id")
        parent = place.calls.get(name) if isinstance(name, str) else None
        if parent is None:
            raise InputError(
                f"call {call_name(record)!r:.60} continues {name!r:.60}, which is in no readable line before"
            )
        prompt = parent.ids.then(prompt)
    yield captured_call(record, prompt, order=place.order)


def _rollout(record: Record, place: CallPlace) -> Iterator[StoredCall]:
    del place  # the items have an order of their own
    calls = response_calls(record)
    if not calls:
        raise InputError(
            "no output item of the rollout has generation_token_ids: let the model server send ids"
        )
    yield from calls


CAPTURED = StoredForm(
    name="nemo-gym",
    description="calls that NeMo Gym captured",
    matches=lambda record: "model_call_id" in record and "generation_token_ids" in record,
    batches=lambda record, _: [
        Batch(conversation=first_id(record, "rollout_id"), parts=(partial(_captured, record),))
    ],
    check_file=require_complete,
)
ROLLOUTS = StoredForm(
    name="nemo-gym-rollouts",
    description="finished rollouts of NeMo Gym",
    whole=True,
    matches=lambda record: "responses_create_params" in record and "response" in record,
    batches=lambda record, number: [
        Batch(
            conversation=first_id({"id": at(record, "response", "id")}, "id") or f"line-{number}",
            parts=(partial(_rollout, record),),
        )
    ],
)

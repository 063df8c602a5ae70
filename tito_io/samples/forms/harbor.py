"""Format `harbor`: rollout details of Harbor's trials, one trial's result or agent context per line.

Fields: harbor 0.25.0, `harbor/models/agent/rollout_detail.py`, `agent/context.py` and `trial/result.py`. A
detail has `prompt_token_ids`, `completion_token_ids` and `logprobs`, each a list with one list per turn.
Every prompt is whole. Its `extra` has lists of one value per turn. There are no messages.

Several rewards of a trial become metadata; the one named `reward`, or the only one, is the reward.
tito writes an agent context, with the messages and the other fields of each call in `extra`. A detail is a
path to a leaf of the conversation's tree; a turn is in the first detail that contains it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from tito_core import Step
from tito_core.samples import Forest, StoredCall
from tito_io.engines.replies.invariants import Check

from .call_extra import (
    MARK,
    added_messages,
    call_extra,
    dumped,
    extended_call,
    joined_messages,
    read_logprobs,
)
from .form import Batch, CallPlace, Record, StoredForm, at, first_id, record_check
from .tito import fingerprint

IDS = ("prompt_token_ids", "completion_token_ids")


def write(conversation: str, forest: Forest, _: bool) -> Iterator[bytes]:
    """Yield the agent context of a conversation."""
    written: set[str] = set()
    details = [_detail(forest, leaf, written) for leaf in forest.leaves]
    calls = forest.calls
    record = {
        "n_input_tokens": sum(call.start for call in calls),
        "n_output_tokens": sum(call.stop - call.start for call in calls),
        "rollout_details": details,
        "metadata": {"conversation": conversation},
    }
    yield dumped(record, conversation)


def _detail(forest: Forest, leaf: str, written: set[str]) -> dict[str, Any]:
    """Return the turns on the path to a leaf that no detail before it has."""
    path = [forest[name].call for name in forest.path(leaf)]
    pairs = zip([None, *path], path, strict=False)
    turns = [(call, older) for older, call in pairs if call.name not in written]
    written.update(call.name for call in path)
    # Harbor's type has numbers only, so that one missing value leaves out a detail's log-probabilities.
    whole = all(call.step.logprobs is not None and None not in call.step.logprobs for call, _ in turns)
    detail: dict[str, Any] = {
        "prompt_token_ids": [call.step.prompt_ids.tolist() for call, _ in turns],
        "completion_token_ids": [call.step.completion_ids.tolist() for call, _ in turns],
    }
    if whole:
        detail["logprobs"] = [list(call.step.logprobs or ()) for call, _ in turns]
    return {**detail, "extra": {MARK: [_own(call, older, whole=whole) for call, older in turns]}}


def _own(call: StoredCall, older: StoredCall | None, *, whole: bool) -> dict[str, Any]:
    step = None if older is None else older.step
    change, added = added_messages(call.step, step)
    own = {"prompt": added, "completion": list(call.step.completion), **call_extra(call, step)}
    if older is not None:
        own |= {"continues": older.name, "joins": fingerprint(older.step)}
    if change is not None:
        own["restated"] = change
    if not whole and call.step.logprobs is not None:
        own["logprobs"] = list(call.step.logprobs)
    return own


def _batches(record: Record, number: int) -> Iterator[Batch]:
    check = record_check("the trial", record)
    results = [record] if record.get("step_results") is None else check.get(record, "step_results", list)
    name = first_id(record, "trial_name", "id") or f"line-{number}"
    parts = [
        partial(turns.call, index)
        for place, result in enumerate(results)
        for turns in _details(result, name if len(results) == 1 else f"{name}.step-{place + 1}", record)
        for index in range(turns.count)
    ]
    conversation = at(record, "metadata", "conversation")
    yield Batch(conversation=conversation if isinstance(conversation, str) else name, parts=parts)


def _details(result: object, name: str, record: Record) -> Iterator[DetailTurns]:
    """Yield the rollout details of one agent context."""
    check = record_check(f"trial {name}", result)
    holder = check.typed(result, dict, "step_results")
    context = holder if "rollout_details" in holder else check.get(holder, "agent_result", dict)
    details = context.get("rollout_details")
    if not isinstance(details, list):
        check.fail("it has no rollout_details: run the agent with collect_rollout_details")
    rewards = at(holder, "verifier_result", "rewards") or at(record, "verifier_result", "rewards")
    for index, one in enumerate(details):
        path = f"trial {name}, rollout_details[{index}]"
        yield DetailTurns.of(path, f"{name}.{index}", one, rewards if isinstance(rewards, Mapping) else {})


@attrs.frozen
class DetailTurns:
    """The turns of one rollout detail.

    Attributes:
        check: Raises errors that name the detail.
        name: Beginning of the calls' names.
        detail: The detail.
        rewards: The verifier's rewards by name.
        count: How many turns there are.
    """

    check: Check
    name: str
    detail: Record
    rewards: Mapping[str, Any]
    count: int

    @classmethod
    def of(cls, path: str, name: str, detail: object, rewards: Mapping[str, Any]) -> DetailTurns:
        """Check that the lists of a detail have one item per turn; raises `InvalidReplyError`."""
        check = record_check(path, detail)
        fields = check.typed(detail, dict, "rollout_details")
        lists = {field: check.get(fields, field, list) for field in IDS}
        lists |= {
            f"extra.{field}": value for field, value in (check.find(fields, "extra", dict) or {}).items()
        }
        if fields.get("logprobs") is not None:
            lists["logprobs"] = check.get(fields, "logprobs", list)
        count = len(lists[IDS[0]])
        for field, values in lists.items():
            # Harbor appends nothing for a turn that has none, so that other turns would be taken for it.
            check.count(f"turns in {field}", len(check.typed(values, list, field)), f"in {IDS[0]}", count)
        return cls(check, name, fields, rewards, count)

    def call(self, index: int, place: CallPlace) -> Iterator[StoredCall]:
        """Yield the call of a turn."""
        check = attrs.evolve(self.check, where=f"{self.check.where}, turn {index}")
        prompt, ids = ((check.ids({field: self.detail[field][index]}, field)) for field in IDS)
        extra = {field: values[index] for field, values in (self.detail.get("extra") or {}).items()}
        own = check.find({MARK: extra.pop(MARK, None)}, MARK, dict) or {}
        older = self._older(check, own, place)
        if older is not None and prompt[: len(older.ids)] != tuple(older.ids):
            check.fail("prompt_token_ids do not continue the ids of the call that it continues")
        holder = {"logprobs": self.detail["logprobs"][index]} if self.detail.get("logprobs") else own
        step = Step(
            prompt=joined_messages(older, own.get("restated"), check.find(own, "prompt", list) or []),
            completion=own.get("completion", []),
            prompt_ids=prompt if older is None else older.ids.then(prompt[len(older.ids) :]),
            completion_ids=ids,
            logprobs=read_logprobs(check, holder, own, len(ids)),
        )
        call = extended_call(step, own, older, name=f"{self.name}.{index}", order=place.order)
        yield call if own else attrs.evolve(call, reward=self._reward(check), metadata=self._metadata(extra))

    def _older(self, check: Check, own: Record, place: CallPlace) -> Step | None:
        name = own.get("continues")
        if name is None:
            return None
        call = place.calls.get(name) if isinstance(name, str) else None
        if call is None:
            check.fail(f"it continues the call {name!r:.60}, which could not be read")
        return call.step

    def _reward(self, check: Check) -> float | None:
        only = next(iter(self.rewards.values()), None) if len(self.rewards) == 1 else None
        reward = self.rewards.get("reward", only)
        if isinstance(reward, bool) or not isinstance(reward, int | float | None):
            check.fail(f"the reward is {reward!r:.40}: expected a number")
        return reward

    def _metadata(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        return {**extra, **({"rewards": dict(self.rewards)} if self.rewards else {})}


FORM = StoredForm(
    name="harbor",
    description="rollout details of Harbor's trials",
    whole=True,
    matches=lambda record: (
        "rollout_details" in record or "agent_result" in record or "step_results" in record
    ),
    batches=_batches,
    write=write,
)

"""Format `atif`: trajectories of the Agent Trajectory Interchange Format, one per line, as Harbor has them.

Fields: harbor 0.25.0, `harbor/models/trajectories` (ATIF 1.8); ids stand in a step's `metrics` as
`prompt_token_ids`, `completion_token_ids` and `logprobs`. Trajectories with the same `session_id` are one
conversation.

tito writes one trajectory for each leaf of a conversation's tree. A step that an earlier trajectory has
already is a copy without metrics (`is_copied_context`), so that each turn trains once. A step that continues
another one has no `prompt_token_ids`: `extra.tito` has `continues`, the `step_id` of the step whose ids all
begin the prompt, and under `prompt_token_ids` the ids that follow them. So a step costs what is new in it.
Written expanded, each step has its whole prompt in `metrics`. ATIF has no reward: `extra.reward` of a
trajectory is that of its calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import attrs

from tito_core import Ids, Message, Step, __version__
from tito_core.samples import Forest, StoredCall
from tito_io.engines.replies.invariants import Check

from .atif_messages import ROLES, append_message, message_step, step_messages, step_results
from .call_extra import (
    MARK,
    added_messages,
    call_extra,
    dumped,
    extended_call,
    joined_messages,
    own_extra,
    read_logprobs,
)
from .form import Batch, CallPlace, Record, StoredForm, at, first_id, record_check
from .tito import fingerprint

NEWEST = 8
"""The newest minor version whose fields are known here; each one added fields to those before it."""
SAMPLED = ("metrics", "completion_token_ids")
VERSION = f"ATIF-v1.{NEWEST}"


def write(conversation: str, forest: Forest, expand: bool) -> Iterator[bytes]:
    """Yield a trajectory for each leaf; `expand` writes the whole prompt's ids in each step."""
    written: set[str] = set()
    for leaf in forest.leaves:
        draft = Draft(expand=expand, written=written)
        for name in forest.path(leaf):
            draft.add(forest[name].call)
        yield dumped(draft.document(conversation, leaf), leaf)


@attrs.define(kw_only=True)
class Draft:
    """A trajectory while it is written.

    Attributes:
        expand: Whether each step has the whole prompt's ids.
        written: Names of calls that this trajectory or an earlier one has.
        steps: The steps so far.
        last: The call of the last step; None before the first.
    """

    expand: bool
    written: set[str]
    steps: list[dict[str, Any]] = attrs.field(factory=list)
    last: StoredCall | None = None
    _place: int = 0
    """The `step_id` of the last call."""
    _counts: list[int] = attrs.field(factory=lambda: [0, 0])

    def add(self, call: StoredCall) -> None:
        """Append what a call adds to the one before it: the messages of its prompt, and its turn."""
        older = None if self.last is None else self.last.step
        change, added = added_messages(call.step, older)
        first = len(self.steps)
        for message in added:
            append_message(self.steps, message)
        for step in self.steps[first:]:
            if step["source"] == "agent":  # no call of this conversation sampled it
                step["is_copied_context"] = True
        step, own = _turn(call, len(self.steps) + 1)
        if call.name in self.written:
            step["is_copied_context"] = True
            own = {"name": call.name}
        else:
            own |= call_extra(call, older) | ({} if change is None else {"restated": change})
            own |= self._ids(call, step)
        _put(step, own)
        self.steps.append(step)
        self.written.add(call.name)
        self.last, self._place = call, step["step_id"]

    def _ids(self, call: StoredCall, step: dict[str, Any]) -> dict[str, Any]:
        """Put the ids into the step's metrics; return those of a continuation."""
        ids, sampled = call.step.prompt_ids, call.step.completion_ids.tolist()
        metrics: dict[str, Any] = {"prompt_tokens": len(ids), "completion_tokens": len(sampled)}
        metrics["completion_token_ids"] = sampled
        self._counts = [self._counts[0] + len(ids), self._counts[1] + len(sampled)]
        own = _logprobs(call, metrics)
        step["metrics"] = metrics
        if self.last is not None:
            own |= {"continues": self._place, "joins": fingerprint(self.last.step)}
        if self.last is None or self.expand:
            metrics["prompt_token_ids"] = ids.tolist()
        else:
            own["prompt_token_ids"] = list(ids[len(self.last.ids) :])
        return own

    def document(self, conversation: str, leaf: str) -> dict[str, Any]:
        """Return the trajectory that ends with the call `leaf`."""
        prompt, completion = self._counts
        return {
            "schema_version": VERSION,
            "session_id": conversation,
            "trajectory_id": f"{conversation}/{leaf}",
            "agent": {"name": "tito", "version": __version__},
            "steps": self.steps,
            "final_metrics": {
                "total_prompt_tokens": prompt,
                "total_completion_tokens": completion,
                "total_steps": len(self.steps),
            },
        }


def _turn(call: StoredCall, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the step of a call's answer, and the messages that it does not show."""
    completion = list(call.step.completion)
    plain = len(completion) == 1 and completion[0]["role"] == "assistant"
    step = message_step(completion[0] if plain else {"role": "assistant", "content": ""}, number)
    model = call.metadata.get("model")
    if isinstance(model, str):
        step["model_name"] = model
    step["llm_call_count"] = 1
    return step, ({} if plain else {"completion": completion})


def _logprobs(call: StoredCall, metrics: dict[str, Any]) -> dict[str, Any]:
    """Put the log-probabilities into a step's metrics; return them if ATIF cannot hold them."""
    values = call.step.logprobs
    if values is None:
        return {}
    if None in values:
        return {"logprobs": list(values)}
    metrics["logprobs"] = list(values)
    return {}


def _put(step: dict[str, Any], own: Mapping[str, Any]) -> None:
    if own:
        step["extra"] = {MARK: {**own_extra(step), **own}}


def _batches(record: Record, number: int) -> Iterator[Batch]:
    parts: list[Any] = []
    for one in _trajectories(record):
        reader = TrajectoryReader.of(one, number)
        parts += (
            [partial(reader.call, index) for index in reader.turns()] if reader.has_ids() else [reader.fail]
        )
    yield Batch(conversation=first_id(record, "session_id", "trajectory_id"), parts=parts)


def _trajectories(record: Record) -> Iterator[Record]:
    """Yield a trajectory and those of its subagents, all of known versions."""
    check = record_check("the trajectory", record)
    version = check.get(record, "schema_version", str)
    match = re.fullmatch(r"ATIF-v1\.(\d{1,4})", version)
    if match is None or int(match[1]) > NEWEST:
        check.fail(f"schema_version is {version!r:.40}: ATIF-v1.0 to {VERSION} are known")
    yield record
    for one in check.find(record, "subagent_trajectories", list) or ():
        yield from _trajectories(check.typed(one, dict, "subagent_trajectories"))


@attrs.define
class TrajectoryReader:
    """Makes the calls of one trajectory; its steps are read in their order.

    Attributes:
        name: The trajectory's id, or a name made of the line's number.
        steps: Its steps.
        reward: The reward of its calls; None for none, and for calls that tito wrote, which have their own.
        names: Names of the calls of the steps that were read, by index.
    """

    name: str
    steps: Sequence[Record]
    reward: float | None = None
    names: dict[int, str] = attrs.field(factory=dict)
    _messages: list[Message] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=lambda: [0])
    """How many messages the first steps have, by their number."""

    @classmethod
    def of(cls, record: Record, line: int) -> TrajectoryReader:
        """Read the steps of a trajectory; raises `InvalidReplyError` that names a malformed one."""
        name = first_id(record, "trajectory_id") or f"line-{line}"
        check = record_check(f"trajectory {name}", record)
        steps = check.get(record, "steps", list)
        for index, step in enumerate(steps):
            _check_step(record_check(f"trajectory {name}, steps[{index}]", step), step)
        reward = at(record, "extra", "reward")
        if isinstance(reward, bool) or not isinstance(reward, int | float | None):
            check.fail(f"extra.reward is {reward!r:.40}: expected a number")
        return cls(name, steps, reward)

    def turns(self) -> list[int]:
        """Return the indexes of the steps that a model sampled."""
        agent = [place for place, step in enumerate(self.steps) if step["source"] == "agent"]
        own = [place for place in agent if not self.steps[place].get("is_copied_context")]
        return [place for place in own if self.steps[place].get("llm_call_count") != 0]

    def has_ids(self) -> bool:
        """Tell whether a step that a model sampled has ids. True where no step was sampled."""
        turns = self.turns()
        return not turns or any(at(self.steps[place], *SAMPLED) is not None for place in turns)

    def fail(self, _: CallPlace) -> NoReturn:
        """Say that a trajectory without ids cannot be read: one error, and not one for each step."""
        self._check(self.turns()[0]).fail(
            "no step has metrics.completion_token_ids: let the agent collect token ids"
        )

    def call(self, index: int, place: CallPlace) -> Iterator[StoredCall]:
        """Yield the call that sampled a step."""
        step = self.steps[index]
        check, own = self._check(index), own_extra(step)
        metrics = self._metrics(check, step)
        base = self._base(check, own, index)
        older = None if base is None else self._call(check, base, place).step
        ids = check.ids(metrics, "completion_token_ids")
        call = extended_call(
            Step(
                prompt=joined_messages(older, own.get("restated"), self._between(base, index)),
                completion=own["completion"] if "completion" in own else [next(step_messages(step))],
                prompt_ids=_prompt_ids(check, metrics, own, older),
                completion_ids=ids,
                logprobs=read_logprobs(check, metrics, own, len(ids)),
            ),
            own,
            older,
            name=f"{self.name}.{step['step_id']}",
            order=place.order,
        )
        _check_counts(check, metrics, call)
        self.names[index] = call.name
        yield call if own else attrs.evolve(call, reward=self.reward)

    def _check(self, index: int) -> Check:
        return record_check(f"trajectory {self.name}, steps[{index}]", None)

    def _metrics(self, check: Check, step: Record) -> Mapping[str, Any]:
        count = step.get("llm_call_count")
        if type(count) is int and count > 1:
            check.fail(f"llm_call_count is {count}: the one step cannot hold the ids of several calls")
        metrics = step.get("metrics")
        if not isinstance(metrics, Mapping) or at(step, *SAMPLED) is None:
            check.fail("metrics has no completion_token_ids: let the agent collect token ids")
        return metrics

    def _base(self, check: Check, own: Record, index: int) -> int | None:
        """Return the index of the step whose ids a prompt continues; None where it says nothing of that."""
        number = own.get("continues")
        if number is None:
            return None
        if type(number) is not int or not 1 <= number <= index:
            check.fail(f"extra.tito.continues is {number!r:.20}: expected the step_id of an earlier step")
        return number - 1

    def _call(self, check: Check, index: int, place: CallPlace) -> StoredCall:
        """Return the call of a step, which may be a copy of one of an earlier trajectory."""
        name = self.names.get(index) or own_extra(self.steps[index]).get("name")
        call = place.calls.get(name) if isinstance(name, str) else None
        if call is None:
            check.fail(f"it continues steps[{index}], which could not be read")
        return call

    def _between(self, base: int | None, index: int) -> list[Message]:
        """Return the messages after a step's own one, up to the step at `index`; without `base` all."""
        self._read_messages(index)
        results = [] if base is None else list(step_results(self.steps[base]))
        start = 0 if base is None else self._ends[base + 1]
        return [*results, *self._messages[start : self._ends[index]]]

    def _read_messages(self, count: int) -> None:
        """Read the messages of the first `count` steps, each once."""
        while len(self._ends) <= count:
            self._messages += step_messages(self.steps[len(self._ends) - 1])
            self._ends.append(len(self._messages))


def _check_step(check: Check, step: object) -> None:
    """Demand the types that messages are made of."""
    fields = check.typed(step, dict, "step")
    check.get(fields, "step_id", int)
    if check.get(fields, "source", str) not in ROLES:
        check.fail(f"source is {fields['source']!r:.20}: expected {', '.join(ROLES)}")
    observation = check.find(fields, "observation", dict) or {}
    for name, holder in (("tool_calls", fields), ("results", observation)):
        for one in check.find(holder, name, list) or ():
            check.typed(one, dict, name)


def _prompt_ids(check: Check, metrics: Record, own: Record, older: Step | None) -> Ids:
    """Return the ids of a prompt, which are whole, or follow those of the step that it continues."""
    if metrics.get("prompt_token_ids") is None:
        if older is None or own.get("prompt_token_ids") is None:
            check.fail("metrics has no prompt_token_ids: let the agent collect token ids")
        return older.ids.then(check.ids(own, "prompt_token_ids"))
    ids = check.ids(metrics, "prompt_token_ids")
    if older is None:
        return Ids.of(ids)
    size = len(older.ids)
    if not Ids.of(ids).starts_with(older.ids):
        check.fail("metrics.prompt_token_ids do not continue the ids of the step that it continues")
    return older.ids.then(ids[size:])


def _check_counts(check: Check, metrics: Record, call: StoredCall) -> None:
    """Demand that counted tokens are those that the step has."""
    for name, size in (("prompt", call.start), ("completion", call.stop - call.start)):
        counted = metrics.get(f"{name}_tokens")
        if type(counted) is int:
            check.count(f"{name} ids", size, "counted ones", counted)


FORM = StoredForm(
    name="atif",
    description="ATIF trajectories with ids, as Harbor has them",
    matches=lambda record: isinstance(record.get("steps"), list) and "schema_version" in record,
    batches=_batches,
    write=write,
    expands=True,
)

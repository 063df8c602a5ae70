"""verifiers' traces (0.4): an episode a line, with a graph of messages for each agent.

A node has what its message adds: `token_ids`, and a `mask` of the sampled ones among them, which are the
last. What a call was sent is the way to its node from the root. A trace is a conversation, with its own
reward; traces of agents that are not trained are left out. Saved log-probabilities are rounded to four
decimals there, and routed experts are not saved at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from tito_core import Ids, Ledger, Messages, Origin, Step
from tito_core.samples import StoredCall
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check

from .form import Batch, CallPlace, Record, StoredForm, named
from .verifiers_results import chat


@attrs.frozen
class End:
    """What stands at the end of a node."""

    messages: Messages = attrs.field(factory=lambda: Messages.of([]))
    ids: Ids = attrs.field(factory=lambda: Ids.of([]))
    ledger: Ledger = attrs.field(factory=lambda: Ledger.of([]))

    @property
    def brought(self) -> Origin:
        """What an id is that nobody sampled, after this."""
        sampled = any(origin is Origin.SAMPLED for origin, _ in self.ledger.runs)
        return Origin.ENVIRONMENT if sampled else Origin.PROMPT


def _batches(record: Record, number: int) -> Iterator[Batch]:
    check = Check("the episode", EngineAnswer(200, record))
    traces = [record] if "nodes" in record else check.get(record, "traces", list)
    for index, one in enumerate(traces):
        trace = check.get({"trace": one}, "trace", dict)
        agent = trace.get("agent")
        if isinstance(agent, Mapping) and agent.get("trainable") is False:
            continue
        name = named(trace, "id") or f"line-{number}.{index}"
        nodes = _some(check, trace, "nodes")
        graph = Graph(Check(f"trace {name}", EngineAnswer(200, trace)), trace, name)
        sampled = [i for i, node in enumerate(nodes) if isinstance(node, Mapping) and node.get("sampled")]
        yield Batch(conversation=name, parts=[partial(graph.call, index) for index in sampled])


@attrs.define
class Graph:
    """The messages of a trace; each node is read once."""

    check: Check
    trace: Record
    name: str
    ends: dict[int, End] = attrs.field(factory=dict)
    calls: dict[int, StoredCall] = attrs.field(factory=dict)

    def call(self, index: int, place: CallPlace) -> Iterator[StoredCall]:
        """Yield the call that sampled a node."""
        self._reach(index)
        yield attrs.evolve(self.calls[index], order=place.order)

    def _reach(self, index: int) -> End:
        """Read a node and what lies before it that was not read yet."""
        way = [index]
        while way[-1] not in self.ends and (parent := self._node(way[-1]).get("parent")) is not None:
            if type(parent) is not int or not 0 <= parent < way[-1]:
                self.check.fail(f"node {way[-1]} has the parent {parent!r:.20}")
            way.append(parent)
        for one in reversed(way):
            if one not in self.ends:
                parent = self._node(one).get("parent")
                self.ends[one] = self._added(one, End() if parent is None else self.ends[parent])
        return self.ends[index]

    def _node(self, index: int) -> dict[str, Any]:
        nodes = self.check.get(self.trace, "nodes", list)
        return self.check.get({"node": nodes[index]}, "node", dict)

    def _added(self, index: int, end: End) -> End:
        node = self._node(index)
        ids = self.check.ids(node, "token_ids") if node.get("token_ids") else ()
        said = [chat(self.check, node.get("message"))]
        if not node.get("sampled"):
            return End(end.messages.then(said), end.ids.then(ids), end.ledger.then((end.brought, len(ids))))
        call = self.calls[index] = self._sampled(index, end, ids)
        return End(call.step.messages, call.step.ids, call.step.ledger)

    def _sampled(self, index: int, end: End, ids: tuple[int, ...]) -> StoredCall:
        node = self._node(index)
        own = self._own(node, ids, index)
        logprobs, finish = _some(self.check, node, "logprobs"), self._finish_reason(index)
        step = Step(
            prompt=end.messages,
            completion=[chat(self.check, node.get("message"))],
            prompt_ids=end.ids.then(ids[:own]),
            completion_ids=ids[own:],
            logprobs=self.check.logprobs(logprobs, len(ids) - own) if logprobs else None,
            truncated=finish in ("length", "abort"),
            prompt_ledger=end.ledger.then((Origin.GENERATION_PROMPT, own)),
        )
        name = f"{self.name}.{index}"
        return StoredCall(
            name=name, step=step, finish_reason=finish, reward=self._reward(), metadata=self._task()
        )

    def _own(self, node: Record, ids: tuple[int, ...], index: int) -> int:
        """Return how many ids of a sampled node its prompt ends with."""
        if not ids:
            self.check.fail(f"node {index} was sampled and has no token_ids: its client kept none")
        mask = self.check.get(node, "mask", list)
        self.check.count(f"mask values of node {index}", len(mask), "token_ids", len(ids))
        own = mask.index(True) if True in mask else len(mask)
        if not all(mask[own:]):
            self.check.fail(f"node {index} was sampled with other ids between")
        return own

    def _finish_reason(self, index: int) -> str | None:
        calls = _some(self.check, self.trace, "calls")
        mine = (call for call in calls if isinstance(call, Mapping) and call.get("node") == index)
        said = next((call.get("finish_reason") for call in mine), None)
        return None if said is None else self.check.finish_reason({"finish_reason": said})

    def _reward(self) -> float | None:
        """Return the sum of what was scored, weighted; None where nothing was."""
        given = self.trace.get("rewards")
        rewards = {} if given is None else self.check.get(self.trace, "rewards", dict)
        scored = [one for one in rewards.values() if isinstance(one, Mapping)]
        values = [(one.get("score"), one.get("weight", 1.0)) for one in scored]
        if any(type(part) not in (int, float) for value in values for part in value):
            self.check.fail("a reward's score or weight is no number")
        return float(sum(score * weight for score, weight in values)) if values else None

    def _task(self) -> dict[str, Any]:
        task, agent = self.trace.get("task"), self.trace.get("agent")
        return {
            "task": task.get("key") if isinstance(task, Mapping) else None,
            "agent": agent.get("name") if isinstance(agent, Mapping) else None,
        }


def _some(check: Check, holder: Record, name: str) -> list[Any]:
    """Return a list; an empty one where there is none, since what is null is left out there."""
    return [] if holder.get(name) is None else check.get(holder, name, list)


FORM = StoredForm(
    name="traces",
    told="traces of verifiers 0.4 (traces.jsonl), but for agents that are not trained",
    whole=True,
    knows=lambda record: "traces" in record or "nodes" in record,
    batches=_batches,
)

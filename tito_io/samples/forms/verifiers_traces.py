"""Format `traces`: traces of verifiers 0.4, one episode per line, with a graph of messages for each agent.

A node has the `token_ids` that its message adds, and a `mask` of the sampled ones, which are the last. The
prompt of a call is the path from the root to its node. A trace is a conversation with its own reward; traces
of agents that are not trained are left out. verifiers rounds saved log-probabilities to four decimals, and
does not save routed experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from tito_core import Ids, Ledger, Messages, Origin, Step
from tito_core.samples import StoredCall
from tito_io.engines.replies.invariants import Check

from .form import Batch, CallPlace, Record, StoredForm, at, first_id, record_check
from .verifiers_results import chat_message


@attrs.frozen
class PathEnd:
    """Everything on the path from the root to a node, the node included.

    Attributes:
        messages: Its messages.
        ids: Its ids.
        ledger: Who wrote them.
        sampled: Whether the model wrote any of them.
    """

    messages: Messages = attrs.field(factory=lambda: Messages.of([]))
    ids: Ids = attrs.field(factory=lambda: Ids.of([]))
    ledger: Ledger = attrs.field(factory=lambda: Ledger.of([]))
    sampled: bool = False


def _batches(record: Record, number: int) -> Iterator[Batch]:
    check = record_check("the episode", record)
    traces = [record] if "nodes" in record else check.get(record, "traces", list)
    for index, one in enumerate(traces):
        trace = check.typed(one, dict, "trace")
        if at(trace, "agent", "trainable") is False:
            continue
        name = first_id(trace, "id") or f"line-{number}.{index}"
        nodes = check.find(trace, "nodes", list) or ()  # verifiers leaves out what is null
        graph = TraceGraph(record_check(f"trace {name}", trace), trace, name)
        sampled = [i for i, node in enumerate(nodes) if isinstance(node, Mapping) and node.get("sampled")]
        yield Batch(conversation=name, parts=[partial(graph.call, index) for index in sampled])


@attrs.define
class TraceGraph:
    """The messages of a trace; each node is read once.

    Attributes:
        check: Raises errors that name the trace.
        trace: Its object.
        name: Its id.
        ends: Nodes that were read, by index.
        calls: The calls of sampled nodes, by index.
    """

    check: Check
    trace: Record
    name: str
    ends: dict[int, PathEnd] = attrs.field(factory=dict)
    calls: dict[int, StoredCall] = attrs.field(factory=dict)

    def call(self, index: int, place: CallPlace) -> Iterator[StoredCall]:
        """Yield the call that sampled a node."""
        self._read_path(index)
        yield attrs.evolve(self.calls[index], order=place.order)

    def _read_path(self, index: int) -> None:
        """Read a node and those before it that were not read yet."""
        path = [index]
        while path[-1] not in self.ends and (parent := self._node(path[-1]).get("parent")) is not None:
            if type(parent) is not int or not 0 <= parent < path[-1]:
                self.check.fail(f"node {path[-1]} has the parent {parent!r:.20}: expected an earlier node")
            path.append(parent)
        for one in reversed(path):
            if one not in self.ends:
                parent = self._node(one).get("parent")
                self.ends[one] = self._added(one, PathEnd() if parent is None else self.ends[parent])

    def _node(self, index: int) -> dict[str, Any]:
        nodes = self.check.get(self.trace, "nodes", list)
        return self.check.typed(nodes[index], dict, "node")

    def _added(self, index: int, end: PathEnd) -> PathEnd:
        """Return the path to a node, which continues the path `end`."""
        node = self._node(index)
        ids = self.check.ids(node, "token_ids") if node.get("token_ids") else ()
        if not node.get("sampled"):
            message = chat_message(self.check, node.get("message"))
            ledger = end.ledger.then((Origin.ENVIRONMENT if end.sampled else Origin.PROMPT, len(ids)))
            return PathEnd(end.messages.then([message]), end.ids.then(ids), ledger, end.sampled)
        step = self._sampled(index, end, ids)
        sampled = end.sampled or bool(step.completion_ids)
        return PathEnd(step.messages, step.ids, step.ledger, sampled)

    def _sampled(self, index: int, end: PathEnd, ids: tuple[int, ...]) -> Step:
        """Keep the call that sampled a node; return its step."""
        node = self._node(index)
        opener = self._generation_prompt(node, ids, index)
        logprobs, finish = self.check.find(node, "logprobs", list), self._finish_reason(index)
        step = Step(
            prompt=end.messages,
            completion=[chat_message(self.check, node.get("message"))],
            prompt_ids=end.ids.then(ids[:opener]),
            completion_ids=ids[opener:],
            logprobs=self.check.logprobs(logprobs, len(ids) - opener) if logprobs else None,
            truncated=finish in ("length", "abort"),
            prompt_ledger=end.ledger.then((Origin.GENERATION_PROMPT, opener)),
        )
        self.calls[index] = StoredCall(
            name=f"{self.name}.{index}",
            step=step,
            finish_reason=finish,
            reward=self._reward(),
            metadata={"task": at(self.trace, "task", "key"), "agent": at(self.trace, "agent", "name")},
        )
        return step

    def _generation_prompt(self, node: Record, ids: tuple[int, ...], index: int) -> int:
        """Return how many ids of a sampled node belong to its prompt."""
        if not ids:
            self.check.fail(f"node {index} was sampled, but has no token_ids: its client stored none")
        mask = self.check.get(node, "mask", list)
        self.check.count(f"mask values of node {index}", len(mask), "token_ids", len(ids))
        opener = mask.index(True) if True in mask else len(mask)
        if not all(mask[opener:]):
            self.check.fail(f"node {index} has unsampled ids between sampled ones")
        return opener

    def _finish_reason(self, index: int) -> str | None:
        calls = self.check.find(self.trace, "calls", list) or ()
        mine = (call for call in calls if isinstance(call, Mapping) and call.get("node") == index)
        reason = next((call.get("finish_reason") for call in mine), None)
        return None if reason is None else self.check.finish_reason({"finish_reason": reason})

    def _reward(self) -> float | None:
        """Return the weighted sum of the scores; None without scores."""
        rewards = self.check.find(self.trace, "rewards", dict) or {}
        scored = [one for one in rewards.values() if isinstance(one, Mapping)]
        values = [(one.get("score"), one.get("weight", 1.0)) for one in scored]
        if any(type(part) not in (int, float) for value in values for part in value):
            self.check.fail("a reward's score or weight is not a number")
        return float(sum(score * weight for score, weight in values)) if values else None


FORM = StoredForm(
    name="traces",
    description="traces of verifiers 0.4, trained agents only",
    whole=True,
    matches=lambda record: "traces" in record or "nodes" in record,
    batches=_batches,
)

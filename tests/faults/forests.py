"""Faults of forests and training rows."""

from __future__ import annotations

from tests.faults.fault import Fault

FORESTS = (
    "tests/core/samples/test_forest.py",
    "tests/property/test_forest_order.py",
    "tests/property/test_forest_parents.py",
)
SAMPLES = (
    "tests/core/samples/test_rows.py",
    "tests/property/test_samples_once.py",
    "tests/property/test_samples_oracle.py",
    "tests/property/test_samples_rows.py",
    "tests/property/test_samples_weights.py",
)

FAULTS = (
    Fault(
        "a split keeps the old way in",
        "samples/trie.py",
        "self.older.newer[self.ids[0]] = upper",
        "pass",
        FORESTS,
    ),
    Fault(
        "a place is not settled after a split",
        "samples/trie.py",
        "while branch.older is not None and depth <= branch.start:",
        "while branch.older is not None and depth < branch.start:",
        FORESTS,
    ),
    Fault(
        "the common prefix is one too long",
        "samples/trie.py",
        "            high = middle\n    return low",
        "            high = middle\n    return min(low + 1, size)",
        FORESTS,
    ),
    Fault(
        "a shorter whole call is the parent",
        "samples/lineage.py",
        "(branch, depths[index - 1]) if index",
        "(branch, depths[0]) if index",
        FORESTS,
    ),
    Fault(
        "an end at the prompt's own end is missed",
        "samples/lineage.py",
        "bisect_right(depths, depth)",
        "bisect_right(depths, depth - 1)",
        FORESTS,
    ),
    Fault("empty calls are parents", "samples/lineage.py", "if call.start < call.stop:", "if True:", FORESTS),
    Fault(
        "the first of equals wins",
        "samples/ties.py",
        'max(bisect_left(self._calls, call.key, key=attrgetter("key")) - 1, 0)',
        "0",
        FORESTS,
    ),
    Fault(
        "the last of equals wins, later or not",
        "samples/ties.py",
        'max(bisect_left(self._calls, call.key, key=attrgetter("key")) - 1, 0)',
        "-1",
        FORESTS,
    ),
    Fault(
        "empty prompts are retries",
        "samples/lineage.py",
        "seen.setdefault(start, call.name) if call.start else call.name",
        "seen.setdefault(start, call.name)",
        FORESTS,
    ),
    Fault(
        "any retold history is a rewrite",
        "samples/lineage.py",
        "if told is None or told.step.messages.length <= known:",
        "if told is None:",
        FORESTS,
    ),
    Fault(
        "memo of passed branches is wrong",
        "samples/lineage.py",
        "(branch, depths[-1])\n        self._last.update(dict.fromkeys(passed, found))",
        "(branch, depths[-1])\n        self._last.update(dict.fromkeys(passed, None))",
        FORESTS,
    ),
    Fault(
        "a later call is compacted",
        "samples/restated.py",
        "if other.key < call.key\n            and ",
        "if ",
        FORESTS,
    ),
    Fault(
        "answer need not be quoted whole", "samples/restated.py", "if _says(call) in text", "if True", FORESTS
    ),
    Fault(
        "a longer prompt compacts",
        "samples/restated.py",
        "len(prompt) < len(other.step.messages)",
        "True",
        FORESTS,
    ),
    Fault(
        "nearest end is not inherited",
        "samples/restated.py",
        "else nearest[self._older[place]]",
        "else 0",
        FORESTS,
    ),
    Fault(
        "arrival order leaks into nodes",
        "samples/forest.py",
        'return sorted(found, key=attrgetter("key"))',
        "return found",
        FORESTS,
    ),
    Fault(
        "a dropped call's children stay", "samples/leave_out.py", "lost.get(node.parent) or (", "(", SAMPLES
    ),
    Fault(
        "groups come in the order of keys",
        "samples/leave_out.py",
        "return sorted(groups.values(), key=lambda group: group[0].call.start)",
        "return groups.values()",
        SAMPLES,
    ),
    Fault(
        "NEWEST keeps the oldest",
        "samples/leave_out.py",
        "    if retries is Retries.NEWEST:\n        return {node.name for node in alive[-1:]}",
        "    if retries is Retries.NEWEST:\n        return {node.name for node in alive[:1]}",
        SAMPLES,
    ),
    Fault(
        "an empty call is the newest retry",
        "samples/leave_out.py",
        " and node.call.ending is not Ending.EMPTY]",
        "]",
        SAMPLES,
    ),
    Fault(
        "shared ids train in every branch",
        "samples/rows.py",
        "        owned[draft.call.name].add(name)",
        (
            "        for each in drafts:\n            if any(one.name == name for one in each.path):\n"
            "                owned[each.call.name].add(name)"
        ),
        SAMPLES,
    ),
    Fault(
        "a masked turn trains",
        "samples/rows.py",
        "if draft.contained(call) and options.rule(call.ending) is not TurnRule.MASK:",
        "if draft.contained(call):",
        SAMPLES,
    ),
    Fault(
        "LAST is FIRST",
        "samples/rows.py",
        "drafts if owner is Owner.FIRST else drafts[::-1]",
        "drafts",
        SAMPLES,
    ),
    Fault("LONGEST is by row kept not leaf", "samples/rows.py", "-draft.call.stop", "-draft.length", SAMPLES),
    Fault(
        "weights by row, not by id",
        "samples/rows.py",
        "weight=counts[name] / totals[units[name]]",
        "weight=1 / len(kept)",
        SAMPLES,
    ),
    Fault(
        "weights of the whole call, not of what stays",
        "samples/rows.py",
        "draft.contained(call) for call in draft.path if",
        "call.stop - call.start for call in draft.path if",
        SAMPLES,
    ),
    Fault(
        "AT_TURN cuts where the next turn begins",
        "samples/rows.py",
        "fitting = [call.stop for call in path if call.start < call.stop <= most]",
        "fitting = [call.start for call in path if call.start <= most]",
        SAMPLES,
    ),
    Fault(
        "cut one id late",
        "samples/rows.py",
        "return Draft(path=path, length=most)",
        "return Draft(path=path, length=most + 1)",
        SAMPLES,
    ),
    Fault(
        "ids behind the cut are not named",
        "samples/rows.py",
        "        if start < size:",
        "        if start == 0 < size:",
        SAMPLES,
    ),
    Fault(
        "missing logprobs are zero",
        "samples/row.py",
        "repeat(None, call.stop - call.start) if sampled is None",
        "repeat(0.0, call.stop - call.start) if sampled is None",
        SAMPLES,
    ),
    Fault(
        "logprobs are one early",
        "samples/row.py",
        "repeat(None, call.start - end),",
        "repeat(None, max(call.start - end - 1, 0)),",
        SAMPLES,
    ),
    Fault(
        "ids that a ledger calls sampled are a call's",
        "samples/row.py",
        "origin, count, None if origin is Origin.SAMPLED else call.name, None",
        "origin, count, call.name, None",
        SAMPLES,
    ),
    Fault(
        "the newest prompt's ledger covers all",
        "samples/row.py",
        "    end = 0\n    for call in path:\n        yield _brought(call, end)",
        "    end = 0\n    for call in path[-1:]:\n        yield _brought(call, end)",
        SAMPLES,
    ),
    Fault(
        "a ledger's tail is not cut",
        "ledger.py",
        "found.append((origin, min(count, left)))",
        "found.append((origin, count))",
        SAMPLES,
    ),
    Fault(
        "the last call wins",
        "samples/experts.py",
        "for experts in known:\n        first =",
        "for experts in reversed(list(known)):\n        first =",
        SAMPLES,
    ),
    Fault(
        "rows are taken from the start of the data",
        "samples/experts.py",
        "[(start - self.start) * size : (stop - self.start) * size]",
        "[: (stop - start) * size]",
        SAMPLES,
    ),
    Fault(
        "fillings count as valid",
        "samples/experts.py",
        "valid = tuple(_joined((start, stop) for start, stop, _ in taken))",
        "valid = ((0, end),) if end else ()",
        SAMPLES,
    ),
    Fault(
        "holes are closed by the first call that reaches them",
        "samples/experts.py",
        "    return before + [(experts.stop, stop) for _, stop in met[-1:] if experts.stop < stop]",
        "    return before",
        SAMPLES,
    ),
    Fault(
        "gaps count as the next version",
        "samples/weights.py",
        "        yield None, run.start - end\n",
        "        yield run.version, run.start - end\n",
        SAMPLES,
    ),
)

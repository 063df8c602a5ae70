"""Each line of `records.jsonl` holds lines of a file, and the conversations and problems that come of them.

- `lines`, or the `text` of a file that is not JSON lines.
- `options`: those of `ReadOptions` that are not the defaults.
- `stored`: the calls of each conversation as format `tito` has them, which is all of them; their names alone
  where there are problems.
- `problems`: what is told of the lines that cannot be read; `error` where all of the file is refused.
- `rule`: what the line is an example of.

The shapes of records are those of real exchanges, and of what verifiers 0.1 and 0.4 (`save_outputs`,
`write_episode`), Harbor, NeMo Gym and Miles write.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from atif import Trajectory
from hypothesis import given
from hypothesis import strategies as st

from tests.io.samples.sample_files import RECORDS, content_of, put, read, recorded, without_reason
from tests.profiles import tries
from tito_core import InputError
from tito_core.samples import Rewards, SampleOptions, make_rows
from tito_io.samples.forms import FORMS
from tito_io.samples.forms.form import StoredForm
from tito_io.samples.forms.tito import FORM
from tito_io.samples.line_groups import Group
from tito_io.samples.read import StoredConversation

READABLE = [row for row in RECORDS if "lines" in row and row.get("stored")]


def calls(stored: StoredConversation) -> list[Any]:
    """Return the calls of a conversation as format `tito` has them."""
    assert FORM.write is not None
    return list(map(orjson.loads, FORM.write(stored.name, stored.forest, False)))  # noqa: FBT003  # as all writers


def outcome(path: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Return what comes of a file, as a line has it."""
    options = {**row.get("options", {})}
    if "group" in options:
        options["group"] = Group[options["group"].upper()]
    try:
        found, problems = read(path, **options)
    except InputError as error:
        return {"error": without_reason(str(error)).replace(str(path), "PATH")}
    names = [[call.name for call in one.forest.calls] for one in found]
    return {
        "stored": names if problems else list(map(calls, found)),
        "problems": [without_reason(str(problem)) for problem in problems],
    }


@pytest.mark.parametrize("row", RECORDS, ids=lambda row: row["rule"])
def test_a_file_becomes_what_its_line_says(tmp_path: Path, row: dict[str, Any]) -> None:
    expected = {name: row[name] for name in ("stored", "problems", "error") if name in row}
    assert outcome(put(tmp_path, content_of(row)), row) == expected


def form_of(row: dict[str, Any]) -> StoredForm:
    return next(form for form in FORMS.values() if form.matches(row["lines"][0]))


def test_each_format_has_examples() -> None:
    assert {form_of(row).name for row in READABLE} == FORMS.keys()


def test_a_trajectory_of_other_agents_is_one_of_the_library_s() -> None:
    (line,) = recorded("Trajectories of other agents are read")
    Trajectory.model_validate(line)


# Whatever stands in a file.

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
JUNK = st.sampled_from([[[]], [{}], {"tito": 1}, {"tito": {"fields": 1}}, {"tito": {"reasoning": []}}])


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in JSON data, as its holder and its key there."""
    keys: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [place for key, item in keys for place in ((value, key), *places(item))]


@pytest.mark.whole
@given(st.sampled_from(READABLE), st.data())
@tries(20)
def test_whatever_is_wrong_in_a_line_is_a_problem_and_no_crash(row: dict[str, Any], data: Any) -> None:
    lines = copy.deepcopy(row["lines"])
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(places(lines)))
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(data.draw(VALUES | JUNK))
    group, content = data.draw(st.sampled_from(Group)), [json.dumps(line).encode() for line in lines]
    with TemporaryDirectory() as folder:
        try:
            stored, problems = read(put(Path(folder), b"\n".join(content)), group=group)
        except InputError:
            return
    may_hold_no_turn = form_of(row).name in ("exchange", "miles", "traces")
    assert stored or problems or may_hold_no_turn
    for one in stored:
        make_rows(one.forest, SampleOptions(rewards=Rewards.PER_LEAF))

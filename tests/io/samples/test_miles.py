"""Miles' session records, as its server answers them, become rows; every id that it sampled trains once."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.io.engines.miles.miles_server import Fake, Says
from tests.io.engines.miles.test_session import HELLO, continued, opened
from tests.io.samples.sample_files import dumped, put, read
from tito_core.samples import Ending, make_rows

pytestmark = pytest.mark.anyio


def unrouted(body: dict[str, Any]) -> None:
    """Leave out the routing, which is no real one here."""
    del body["choices"][0]["meta_info"]["routed_experts"]


async def session(fake: Fake, *, branches: int = 0) -> dict[str, Any]:
    """Return what the server answers of a session of two turns, and of some other turns before them."""
    async with opened(fake) as one:
        for _ in range(branches):
            await one.chat({"messages": HELLO})
        first = await one.chat({"messages": HELLO})
        await one.chat({"messages": continued(first)})
        async with httpx2.AsyncClient(transport=fake.transport, base_url="http://miles") as client:
            found: dict[str, Any] = (await client.get(one.path)).json()
    return found


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("echoes", [False, True])
async def test_a_session_is_a_conversation(tmp_path: Path, later: bool, echoes: bool) -> None:
    fake = Fake(later=later, echoes=echoes, spoil=unrouted, script=[Says(), Says(count=2, finish="length")])
    (stored,), problems = read(put(tmp_path, dumped(await session(fake))))
    assert problems == []
    assert stored.name == stored.name.lower()
    assert len(stored.name) == 32
    assert [call.ending for call in stored.forest.calls] == [Ending.WHOLE, Ending.TRUNCATED]
    (row,) = make_rows(stored.forest).rows
    trained = [number for number, mask in zip(row.ids, row.loss_mask, strict=True) if mask]
    assert trained == fake.sampled
    assert all(
        (value is not None) == bool(mask) for value, mask in zip(row.logprobs, row.loss_mask, strict=True)
    )


async def test_branches_that_the_records_leave_out_are_a_problem(tmp_path: Path) -> None:
    whole = await session(Fake(tree=True, spoil=unrouted))
    branched = await session(Fake(tree=True, spoil=unrouted), branches=2)
    stored, (problem,) = read(put(tmp_path, dumped(whole, branched)))
    assert [len(found.forest) for found in stored] == [2, 2]
    assert (problem.line, "leave out the session's other branches, 2 of them" in problem.reason) == (2, True)


async def test_each_session_is_a_line_and_a_record_may_be_broken(tmp_path: Path) -> None:
    one, other = await session(Fake(spoil=unrouted)), await session(Fake(spoil=unrouted))
    broken = copy.deepcopy(one)
    broken["session_id"] = "broken"
    del broken["records"][0]["request"]["input_ids"]
    broken["records"][0]["response"]["choices"][0].pop("prompt_token_ids", None)
    stored, (problem,) = read(put(tmp_path, dumped(one, broken, other)))
    assert [len(found.forest) for found in stored] == [2, 1, 2]
    assert (problem.line, "has the prompt's ids" in problem.reason) == (2, True)


async def test_what_is_no_list_of_records_is_a_problem(tmp_path: Path) -> None:
    good = await session(Fake(spoil=unrouted))
    path = put(
        tmp_path, dumped(good, {"session_id": "x", "records": {}}, {"session_id": "y", "records": [1]})
    )
    (_,), problems = read(path)
    assert [problem.line for problem in problems] == [2, 3]
    assert "`records` is dict" in problems[0].reason

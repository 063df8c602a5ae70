"""A stored session is the session: every id and message comes back, and what was shared is shared."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import anyio
import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.serve.gateway import HELLO, Reporting, Scripted, embedded_gateway, talking, user
from tito_core import OddStop, Policy, Step, Truncated
from tito_core.samples import Forest, RoutedExperts, StoredCall, WeightVersion, make_rows
from tito_io.serve.commit import Commit, TurnOrigin, decode, encode
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session, SessionHead
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
TEXT = st.text(max_size=6)
CALLS = st.lists(
    st.builds(
        lambda name, args: {"id": name, "function": {"name": "f", "arguments": args}},
        TEXT,
        TEXT | JSON,
    ),
    max_size=2,
)
IDS = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=5)


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[Any], list[int], list[int], Any, bool]:
    """Draw what is new in a turn: messages, prompt ids, sampled ids, log-probabilities, if it was cut."""
    new = [{"role": "user", "content": draw(TEXT), **draw(st.sampled_from([{}, {"x": [1, True]}]))}]
    sampled = draw(st.lists(st.integers(0, 2**32 - 1), max_size=4))
    logprob = st.none() | st.floats(-20, 0)
    size = len(sampled)
    logprobs = draw(st.none() | st.lists(logprob, min_size=size, max_size=size))
    return new, draw(IDS), sampled, logprobs, draw(st.booleans())


@st.composite
def talks(draw: st.DrawFn) -> list[Step]:
    """Draw steps that go on from each other, from any earlier one, or from none."""
    made: list[Step] = []
    for place, (new, ids, sampled, logprobs, cut) in enumerate(
        draw(st.lists(turns(), min_size=1, max_size=6))
    ):
        base = draw(st.sampled_from([None, *made]))
        said = {"role": "assistant", "content": f"{place}", "tool_calls": draw(CALLS)}
        earlier = [] if base is None else list(base.messages)
        kept = [] if base is None else base.ids.tolist()
        made.append(
            Step(
                prompt=[*earlier, *new],
                completion=[said],
                prompt_ids=[*kept, *ids],
                completion_ids=sampled,
                logprobs=logprobs,
                truncated=cut,
                key=draw(st.sampled_from([None, "[[],{}]", '[["tool"],{}]'])),
            )
        )
    return made


def committed(step: Step, place: int) -> Commit:
    size = len(step.completion_ids)
    versions = [WeightVersion(version="v", start=0, stop=size)] if size else []
    experts = RoutedExperts(data=bytes([place, 255]), dtype="uint8", shape=(2, 1)) if place % 2 else None
    call = StoredCall(
        name=f"r{place}",
        step=step,
        finish_reason="length" if step.truncated else "stop",
        weight_versions=versions,
        routed_experts=experts if len(step.ids) > 1 else None,
    )
    origin = TurnOrigin(
        dialect="chat", route="TITO", requested=1.5, forgiven=("ABSENT",), request={"n": [1, None]}
    )
    return Commit(call=call, parent=None, response=f"r{place}", at=2.5, origin=origin)


def plain(commit: Commit) -> Any:
    """Return all that a commit holds, as data."""
    step = commit.step
    return (
        attrs.asdict(attrs.evolve(commit, call=None)),  # type: ignore[arg-type]  # it is compared below
        commit.call.order,
        commit.call.finish_reason,
        commit.call.weight_versions,
        commit.call.routed_experts,
        list(step.prompt),
        list(step.completion),
        step.ids.tolist(),
        step.prompt_ids.tolist(),
        step.logprobs,
        step.truncated,
        step.key,
        step.ledger.spans,
    )


@given(talks())
def test_a_session_that_is_read_again_is_the_same(steps: list[Step]) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.create("a", SessionHead(created=1.0).encoded())
        epoch = (await store.claim("a")).epoch
        session = Session("a", SessionHead(created=1.0), store, GatewayLimits(), epoch)
        for place, step in enumerate(steps):
            await session.commit([committed(step, place)])
        again = Session.restored("a", await store.load("a"), store, GatewayLimits(), epoch)
        assert list(map(plain, again.commits.values())) == list(map(plain, session.commits.values()))
        assert again.ids == session.ids
        for name, commit in again.commits.items():
            if session.commits[name].parent is not None:
                assert commit.parent is not None
                parent = again.commits[commit.parent].step
                assert commit.step.prompt.extends(parent.messages)  # shared, not copied
        assert again.forest == session.forest == Forest.of([one.call for one in session.commits.values()])
        await again.commit([committed(steps[0], 99)])  # and it goes on
        assert again.commits["r99"].call.order == len(steps)

    anyio.run(run)


@given(talks())
def test_a_row_holds_only_what_is_new(steps: list[Step]) -> None:
    async def run() -> None:
        store = MemoryStore()
        await store.create("a", SessionHead(created=1.0).encoded())
        session = Session(
            "a", SessionHead(created=1.0), store, GatewayLimits(), (await store.claim("a")).epoch
        )
        for place, step in enumerate(steps):
            (commit,) = await session.commit([committed(step, place)])
            row = orjson.loads((await store.load("a")).rows[place])
            if commit.parent is not None:
                base = session.commits[commit.parent].step
                assert row["messages"] == list(step.prompt)[len(base.messages) :]
                assert row["kept"] + len(row["ids"]) == len(step.prompt_ids)
                assert row["kept"] >= len(base.prompt_ids)
                assert ("key" in row) is (step.key != base.key)

    anyio.run(run)


@pytest.mark.whole
@pytest.mark.parametrize("odd", [OddStop.KEEP, OddStop.REPLACE])
async def test_a_rollout_read_again_goes_on_by_ids_and_gives_the_same_rows(odd: OddStop) -> None:
    """The embedded engine's odd stops and cut turns are among them."""
    gateway = embedded_gateway(MemoryStore(), GatewayOptions(policy=Policy(odd_stop=odd)), seed=3)
    async with talking(gateway) as talk:
        messages = await talk.turns(30, max_tokens=60)
        session = await talk.session()
        before, rows = list(map(plain, session.commits.values())), make_rows(session.forest).rows
        talk.unload()
        again = await talk.session()
        assert again is not session
        assert list(map(plain, again.commits.values())) == before
        assert make_rows(again.forest).rows == rows
        await talk.chat(messages, max_tokens=60)
        assert (await talk.commits())[-1].origin.route == "TITO"
    assert "SAMPLED" in {span.origin.name for row in rows for span in row.ledger}


async def test_what_is_stored_for_a_turn_does_not_grow_with_the_history() -> None:
    store = MemoryStore()
    tool = {"type": "function", "function": {"name": "f", "description": "long " * 200}}
    async with talking(store=store) as talk:
        await talk.turns(40, tools=[tool])
    sizes = [len(row) for row in (await store.load(talk.name)).rows.values()]
    assert max(sizes[1:]) - min(sizes[1:]) < 50
    assert sizes[1] < 1000


async def test_a_turn_by_messages_whose_ids_came_out_the_same_shares_them() -> None:
    """A cut turn is refused here, and what is rendered for it is what was sampled, closed."""
    ids = (10 + ord("o"), 10 + ord("k"))
    engine = Scripted(finish="length", told={"completion_ids": ids, "logprobs": (-0.5, -0.5)})
    policy = Policy(truncated=Truncated.REFUSE)
    async with talking(engine, choices=GatewayOptions(policy=policy)) as talk:
        await talk.chat([*HELLO, await talk.said(HELLO), user()])
        session = await talk.session()
    first, second = session.commits.values()
    assert second.origin.refusal == "TRUNCATED"
    assert second.parent == first.name
    assert second.step.prompt_ids.extends(first.step.ids)
    assert session.ids == len(second.step.ids)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_row_of_version_1_has_these_fields(tmp_path: Path) -> None:
    """Files of this version are read by every later one."""
    store = SqliteStore.open(tmp_path / "s.db")
    async with talking(Reporting(), store=store, clock=lambda: 1_000.25) as talk:
        body = {"seed": 7, "top_p": 0.5}
        said = await talk.said([user("a")], **body)
        answer = await talk.chat([user("a"), {**said, "mood": 1}, user("b")], **body)
    first, second = (orjson.loads(row) for row in (await store.load(talk.name)).rows.values())
    await store.aclose()
    prompt = [1, 4, 10 + ord("a"), 2, 1, 9]
    origin = {
        "dialect": "chat",
        "route": "MITO",
        "requested": 1_000.25,
        "refusal": None,
        "forgiven": [],
        "expected": 0,
        "cached": None,
        "stop_reason": 2,
        "engine_request": "request 2",
        "worker": "worker 1",
        "instructed": False,
        "retry_key": None,
        "continued": None,
        "asked": body,
    }
    assert {**first, "at": None, "name": None, "response": None} == {
        "v": 1,
        "name": None,
        "parent": None,
        "order": 0,
        "response": None,
        "at": None,
        "messages": [user("a")],
        "completion": [{"role": "assistant", "content": "ok"}],
        "kept": 0,
        "ids": prompt,
        "sampled": [500, 501, 2],
        "logprobs": [-0.5] * 3,
        "truncated": False,
        "wrote": 0,
        "ledger": [["PROMPT", 6]],
        "finish": "stop",
        "versions": [["step 2", 0, 3]],
        "experts": {
            "data": b64encode(bytes(range(8))).decode(),
            "dtype": "uint8",
            "shape": [8, 1, 1],
            "start": 0,
        },
        "origin": origin,
        "key": "[[],{}]",
    }
    names = {"name": answer["id"], "response": answer["id"], "parent": first["name"]}
    new = {**second["origin"], "expected": 9, "cached": 4, "forgiven": ["OTHER_KEYS"], "route": "TITO"}
    assert (second["kept"], second["wrote"], second["order"]) == (9, 9, 1)
    assert second["messages"] == [user("b")]
    assert second.items() >= names.items()
    assert second["origin"] == new == {**origin, **new, "engine_request": "request 4"}


def test_a_head_is_stored_so() -> None:
    """Files of this version are read by every later one."""
    data = b'{"created":1.0,"defaults":{},"evaluation":false,"owner":null,"agent":null}'
    assert SessionHead(created=1.0).encoded() == data
    assert SessionHead.of(data) == SessionHead(created=1.0)


def test_a_row_that_says_little_of_its_turn_is_read() -> None:
    """Earlier gateways of this version stored fewer fields of where a turn came from."""
    step = Step(prompt=[user("a")], completion=[], prompt_ids=[1], completion_ids=[2])
    row = orjson.loads(encode(committed(step, 0), None))
    row["origin"] = {"dialect": "chat", "route": "MITO", "requested": 1.5, "forgiven": [], "asked": {}}
    found = attrs.asdict(decode(orjson.dumps(row), {}).origin)
    said: dict[str, Any] = {"dialect": "chat", "route": "MITO", "requested": 1.5}
    assert found == {
        **dict.fromkeys(found),
        **said,
        "forgiven": (),
        "expected": 0,
        "instructed": False,
        "request": {},
    }

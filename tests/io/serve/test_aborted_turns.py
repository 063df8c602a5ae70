"""A turn that the engine aborts: with `on_abort="resume"` a client never notices, else it is an error."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tests.io.engines.aborting_engine import AbortingEngine
from tests.io.serve.gateway import talking
from tito_core.samples import make_rows
from tito_io.engines.aborted_turns import OnAbort
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
ASKED = [{"role": "user", "content": "be"}]
ROUTE = "/sessions/{}/v1/chat/completions"


def gateway(engine: AbortingEngine, on_abort: OnAbort) -> Gateway:
    chosen = GatewayOptions(on_abort=on_abort)
    return build_gateway(engine, MemoryStore(), model="aborting", options=chosen)


async def answered(engine: AbortingEngine, on_abort: OnAbort, **more: Any) -> tuple[Any, Any]:
    """Return a chat's answer and the session's rows."""
    async with talking(gateway(engine, on_abort)) as talk:
        body = {"messages": ASKED, "max_tokens": 12, **more}
        answer = await talk.http.post(ROUTE.format(talk.name), json=body)
        return answer, make_rows((await talk.session()).forest).rows


@pytest.mark.parametrize("stop", [None, "dc"])
async def test_a_client_gets_the_whole_turn(stop: str | None) -> None:
    more = {} if stop is None else {"stop": stop}
    whole, (row,) = await answered(AbortingEngine(), OnAbort.RAISE, **more)
    for stream in (False, True):
        engine = AbortingEngine([[3], [0], [4]])
        answer, (again,) = await answered(engine, OnAbort.RESUME, stream=stream, **more)
        expected = whole.json()["choices"][0]
        if stream:
            events = [
                orjson.loads(line[6:]) for line in answer.text.split("\n\n") if line.startswith("data: {")
            ]
            choices = [event["choices"][0] for event in events if event["choices"]]
            text = "".join(choice["delta"].get("content") or "" for choice in choices)
            assert (text, choices[-1]["finish_reason"]) == (
                expected["message"]["content"],
                expected["finish_reason"],
            )
        else:
            assert answer.json()["choices"][0]["message"] == expected["message"]
        assert (again.ids, again.loss_mask, again.logprobs) == (row.ids, row.loss_mask, row.logprobs)
        versions = {span.weights for span in again.ledger if span.weights is not None}
        assert len(versions) > 1
        assert len(engine.asked) > len(versions)


async def test_by_default_it_is_an_error_and_nothing_is_stored() -> None:
    engine = AbortingEngine([[3]])
    answer, rows = await answered(engine, OnAbort.RAISE)
    assert answer.status_code == 502
    assert rows == ()
    assert len(engine.asked) == 1

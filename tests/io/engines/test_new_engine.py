"""The guide's engine keeps to the laws of all engines, and a law sees what its reader leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from tests.docs.page import blocks
from tests.io.engines import test_laws as laws
from tests.io.engines.routes import DONE, Handler, Route, events
from tests.io.engines.scripted import MODEL, Script

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[3] / "docs" / "howto" / "engine.md"
ADAPTER = ("KEYS = ", "class YesRequest", "class Yes(")
"""How the blocks with the adapter are known."""


@pytest.fixture
def anyio_backend() -> str:
    """As for the laws."""
    return "asyncio"


def server(scripts: Sequence[Script], context: int) -> Handler:
    """Return the page's server, which samples what it is told."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "yes", "context": context}]})
        body = orjson.loads(request.content)
        turn = scripts[0].within(body["max_tokens"])
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(turn.ids)}
        top = {"prompt_token_ids": body["prompt"], "usage": usage}
        pieces = [([index], [value]) for index, value in zip(turn.ids, turn.logprobs, strict=True)]
        if not body.get("stream"):
            pieces = [(list(turn.ids), list(turn.logprobs))]
        chunks: list[dict[str, Any]] = [
            {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": values}}]}
            for ids, values in pieces
        ]
        chunks[-1]["choices"][0]["finish_reason"] = turn.finish
        if body.get("stream"):
            return events([*chunks, {**top, "choices": []}, DONE])
        return httpx2.Response(200, json={**top, **chunks[0]})

    return handle


def route(left_out: str = "") -> Route:
    """Return the page's engine, without one line of its code."""
    found = [one.text for one in blocks(PAGE.read_text(encoding="utf-8")) if one.language == "python"]
    code = "\n".join(one for one in found if any(part in one for part in ADAPTER))
    assert code.count("\n") <= 120
    lines = [line for line in code.splitlines() if not (left_out and left_out in line)]
    assert len(lines) == len(code.splitlines()) - bool(left_out)
    namespace: dict[str, Any] = {"__name__": "page"}
    exec("\n".join(lines), namespace)  # noqa: S102  # the page's own code
    lacks = ("n", "streamed n", "stop", "seed")
    return Route(
        adapter=namespace["Yes"], path="/v9/sample", server=server, options={"family": MODEL}, lacks=lacks
    )


@pytest.mark.parametrize("streamed", [False, True])
async def test_the_engine_of_the_guide_keeps_to_the_laws(streamed: bool) -> None:
    made = route()
    for name in laws.TURNS:
        await laws.test_a_turn_is_what_was_sampled_and_streamed_is_the_same(made, name)
    for law in (
        laws.test_a_cut_turn_has_no_stop_token,
        laws.test_calls_are_read_from_the_ids_where_the_message_is_made_of_them,
        laws.test_a_server_that_saw_another_prompt_is_refused,
        laws.test_counts_of_sampled_ids_that_do_not_agree_are_refused,
        laws.test_no_id_and_no_log_probability_is_lost_moved_or_made_up,
        laws.test_no_malformed_answer_gives_a_wrong_reply_or_an_error_of_python_s_own,
        laws.test_an_aborted_turn_goes_on_after_exactly_its_ids,
    ):
        await law(made, streamed=streamed)
    await laws.test_turns_of_a_conversation_that_is_rendered_here_keep_their_ids(made)
    await laws.test_what_a_caller_asks_for_is_sent_or_refused_by_name(made)
    await laws.test_a_stream_that_breaks_keeps_the_ids_that_came(made, [])


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_engine_that_compares_no_prompt_breaks_a_law(streamed: bool) -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        await laws.test_a_server_that_saw_another_prompt_is_refused(route("check.echo("), streamed=streamed)

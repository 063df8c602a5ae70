"""Every row's sampled ids are the engine's replies, byte for byte, and each trains once.

The replies are read here by other, shorter code than the project's: recorded exchanges with real engines
(the environment variable TITO_EXCHANGES names their folder), and rollouts of the embedded engine that branch.
"""

from __future__ import annotations

import gzip
import json
import os
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import httpx2
import pytest
from click.testing import CliRunner

from tests.io.samples.row_files import READERS
from tests.io.samples.sample_files import dumped, own, put
from tito_core import Trajectory
from tito_core.samples import StoredCall
from tito_io.client.conversation import Conversation
from tito_io.client.turn import ClientTurn, reply_message
from tito_io.embedded import app
from tito_io.engines.protocol import Sampling
from tito_io.engines.vllm import VLLM
from tito_io.samples.command import samples
from tito_io.samples.entry import Entry
from tito_io.samples.forms.tito import call_of

FOLDER = os.environ.get("TITO_EXCHANGES")
FILES = sorted(Path(FOLDER).glob("[a-z]*-[0-9]*.jsonl*")) if FOLDER else []
"""Recordings of the engines that have an adapter: `NAME-VERSION.jsonl`."""


def made(path: Path, *options: str, kind: str = ".parquet") -> list[Entry]:
    """Return the rows that the command makes of a file."""
    output = path.parent / f"rows{kind}"
    result = CliRunner().invoke(samples, [str(path), "-o", str(output), *options])
    assert result.exit_code in (0, 1), result.output
    return list(READERS[kind](output))


def packed(ids: Any) -> bytes:
    return array("I", ids).tobytes()


def compared(entries: list[Entry], replies: Mapping[str, tuple[list[int], list[int]]]) -> None:
    """See that rows hold the replies, prompt and sampled ids, and that each of these trains once."""
    trained = Counter[tuple[str, int]]()
    for entry in entries:
        row = entry.row
        for turn in row.turns:
            prompt, ids = replies[turn.call]
            assert packed(row.ids[turn.start : turn.stop]) == packed(ids)
            assert packed(row.ids[: turn.start]) == packed(prompt)
        held = {turn.call: turn for turn in row.turns}
        for span in row.ledger:
            places = range(span.start, span.stop)
            assert all(row.loss_mask[place] == span.trained for place in places)
            if span.trained:
                assert span.call is not None
                start = held[span.call].start
                trained.update((span.call, place - start) for place in places)
    assert trained == Counter(
        (name, place) for name, (_, ids) in replies.items() for place in range(len(ids))
    )


# Recorded exchanges.


def told(line: dict[str, Any]) -> Iterator[tuple[str, list[int], list[int]]]:
    """Yield name, prompt and sampled ids of the turns of an exchange, as far as this knows to find them."""
    body = line["response"]
    if line["status"] != 200 or not isinstance(body, dict | list) or "stream" in line["name"]:
        return
    if line["path"] == "/generate":
        for one in body if isinstance(body, list) else [body]:
            sent = line["request"].get("input_ids")
            if one["meta_info"]["finish_reason"] and sent and isinstance(sent[0], int):
                yield one["meta_info"]["id"], sent, one["output_ids"]
        return
    if not isinstance(body, dict):
        return
    for choice in body.get("choices") or []:
        ids = choice.get("token_ids") or choice.get("response_token_ids")
        prompt = body.get("prompt_token_ids") or choice.get("prompt_token_ids")
        prompt = prompt or line["request"].get("token_ids")
        if ids and prompt and not line["request"].get("echo"):
            index = choice["index"]
            yield f"{body.get('id') or body['request_id']}{f'.{index}' if index else ''}", prompt, ids


@pytest.mark.skipif(not FILES, reason="needs recorded exchanges: name their folder with TITO_EXCHANGES")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_rows_of_recorded_exchanges_hold_the_replies(tmp_path: Path, path: Path) -> None:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    known = {name: (prompt, ids) for line in raw.splitlines() for name, prompt, ids in told(json.loads(line))}
    entries = made(put(tmp_path, raw))
    rows = {turn.call: entry for entry in entries for turn in entry.row.turns}
    assert known.keys() <= rows.keys()
    for name, (prompt, ids) in known.items():
        row = rows[name].row
        (turn,) = (turn for turn in row.turns if turn.call == name)
        assert packed(row.ids[: turn.stop]) == packed([*prompt, *ids])
        assert list(row.loss_mask[turn.start : turn.stop]) == [1] * len(ids)
    if not path.name.startswith("dynamo"):  # which tells of ids in places that `told` does not know
        assert len(known) > 15


# Rollouts that branch.


@attrs.define
class Recorded(httpx2.AsyncBaseTransport):
    """Hands requests on, and keeps those for turns with their replies."""

    inner: httpx2.AsyncBaseTransport
    exchanges: list[dict[str, Any]] = attrs.field(factory=list)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self.inner.handle_async_request(request)
        body = await response.aread()
        if request.method == "POST":
            sent = json.loads(await request.aread())
            self.exchanges.append(
                {"path": request.url.path, "request": sent, "response": json.loads(body), "status": 200}
            )
        return response


async def grown(
    conversation: Conversation, messages: list[Any], turns: int
) -> list[tuple[ClientTurn, list[Any]]]:
    """Take some turns; return each with the messages after it."""
    found = []
    for number in range(turns):
        turn = await conversation.turn(messages)
        said = reply_message(turn.reply)
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": "42"}
            for call in said.get("tool_calls") or ()
        ]
        messages = [*messages, said, *(results or [{"role": "user", "content": f"Go on {number}."}])]
        found.append((turn, messages))
    return found


async def rollout(seed: int) -> tuple[list[ClientTurn], list[dict[str, Any]]]:
    """Return the turns of a rollout with a branch, a branch of that, and a retry."""
    transport = Recorded(httpx2.ASGITransport(app(seed)))
    async with VLLM("http://embedded", transport=transport) as engine:

        def at(trajectory: Trajectory, seed: int) -> Conversation:
            return Conversation(
                engine=engine, trajectory=trajectory, sampling=Sampling(max_tokens=60, seed=seed)
            )

        trunk = at(Trajectory(), seed)
        stem = await grown(trunk, [{"role": "user", "content": "What is the weather in Paris?"}], 5)
        branch = at(Trajectory(list(trunk.trajectory)[:2]), seed + 1)
        left = await grown(branch, [*stem[1][1][:-1], {"role": "user", "content": "No."}], 3)
        again = at(Trajectory(list(trunk.trajectory)[:4]), seed + 2)
        right = await grown(again, stem[3][1], 1)
    return [turn for turn, _ in (*stem, *left, *right)], transport.exchanges


@pytest.mark.anyio
@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("seed", range(4))
async def test_rows_of_a_rollout_with_branches_hold_the_replies(tmp_path: Path, seed: int, kind: str) -> None:
    turns, exchanges = await rollout(seed)
    replies = {str(turn.reply.raw["id"]): turn.reply for turn in turns}
    assert len(replies) == len(turns) == 9
    known = {name: (list(one.prompt_ids), list(one.completion_ids)) for name, one in replies.items()}
    calls: list[StoredCall] = [
        call_of(turn, str(turn.reply.raw["id"]), order) for order, turn in enumerate(turns)
    ]
    entries = made(put(tmp_path, own("c", calls)), kind=kind)
    compared(entries, known)
    assert len(entries) >= 2
    compared(made(put(tmp_path, dumped(*exchanges)), kind=kind), known)
    compared(made(put(tmp_path, own("c", calls)), "--rows", "call", "--owner", "last", kind=kind), known)
    for entry in entries:
        held = {turn.call: turn for turn in entry.row.turns}
        for name, turn in held.items():
            assert entry.row.logprobs[turn.start : turn.stop] == replies[name].logprobs

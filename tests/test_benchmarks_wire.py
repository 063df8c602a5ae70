"""The wire and prefix-cache benchmarks measure what their labels say, and reject programs that differ."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import prefix_cache, wire
from benchmarks.history import History, histories
from benchmarks.prefix_cache import CacheResults
from benchmarks.prefix_turns import Shape, TurnCounts, turn_counts
from benchmarks.renderer import load_renderer
from benchmarks.wire_programs import OpenAIClient, first_turn, open_conversation, parts
from tito_io.engines.protocol import InvalidReplyError, Reply, Usage

pytestmark = pytest.mark.usefixtures("light_heap")


@pytest.fixture(scope="module")
def history() -> History:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("TITO_FAMILIES", raising=False)
        return histories(load_renderer(), [4], 6)[0]


@pytest.mark.parametrize("parsed_prompt", [False, True])
def test_each_call_is_the_next_turn_of_one_conversation(history: History, parsed_prompt: bool) -> None:
    one = open_conversation(history, parsed_prompt=parsed_prompt)
    one.server.keeps = True
    before = history.last.ids.tolist()
    for _ in range(3):
        turn = one.turn()
        assert turn.stitched is not None
        assert one.server.prompt_ids()[: len(before)] == before
        assert b'"return_token_ids"' not in one.server.sent
        before = one.conversation.trajectory[-1].ids.tolist()


def test_the_parts_belong_to_one_turn(history: History) -> None:
    taken, one = parts(history), open_conversation(history)
    one.server.keeps = True
    one.turn()
    assert taken.body() == taken.sent == one.server.sent
    assert taken.stitch().ids == one.server.prompt_ids()
    assert list(taken.parse().completion_ids) == one.server.sampled
    assert wire.check_agreement(history, taken) == len(one.server.prompt_ids())


def test_a_first_turn_sends_all_ids_and_gets_them_back(history: History) -> None:
    reply: Any = first_turn(history)()
    assert reply.raw["choices"][0]["prompt_token_ids"] == history.prompt_ids


@pytest.mark.parametrize("spoilt", [False, True])
def test_programs_that_send_other_ids_stop_the_comparison(
    history: History, spoilt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = OpenAIClient.__init__

    def wrong(self: OpenAIClient, history: History, *, raw: bool) -> None:
        original(self, history, raw=raw)
        if raw is spoilt:
            setattr(self, "extra" if raw else "prompt", {"prompt": [1, 2, 3]} if raw else [1, 2, 3])

    monkeypatch.setattr(OpenAIClient, "__init__", wrong)
    with pytest.raises(wire.DisagreementError, match="extra_body" if spoilt else "prompt="):
        wire.check_agreement(history, parts(history))


def test_a_wrong_count_of_prompt_ids_stops_a_turn(history: History) -> None:
    one = open_conversation(history)
    one.server.count += 1
    with pytest.raises(InvalidReplyError, match="counted prompt ids"):
        one.turn()


def test_the_wire_command_prints_one_object_or_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TITO_FAMILIES", raising=False)
    monkeypatch.setattr(wire, "QUICK", ((3, 5),))
    monkeypatch.setattr(wire, "LONG", 10)
    done = CliRunner().invoke(wire.main, ["--quick", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (case,), (target,) = found["cases"], found["targets"]
    work = sum(case["timings"][name]["warm"] for name in wire.WORK)
    assert target["value"] == pytest.approx(work / case["timings"][wire.FLOOR]["warm"])
    assert wire.OPENAI in case["timings"]
    tables = CliRunner().invoke(wire.main, ["--quick"])
    assert all(name in tables.stdout for name in case["timings"])


# The prefix cache.


def reply(prompt: list[int], cached: int | None, ids: tuple[int, ...] = (7, 8)) -> Reply:
    return Reply(
        prompt_ids=prompt,
        completion_ids=ids,
        logprobs=None,
        message=None,
        text="",
        finish_reason="length",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids), cached_tokens=cached),
        raw={},
    )


def test_only_whole_blocks_of_computed_ids_can_be_reused() -> None:
    """The last sampled id was never an input, and the last id of a prompt is computed again."""
    before = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 3, 9]]
    turn = turn_counts(reply([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 8), before[:1], 4, 0.5)
    assert (turn.prompt, turn.available, turn.shared, turn.cached, turn.first) == (10, 8, 8, 8, 0.5)
    assert turn_counts(reply([1, 2, 3, 4, 5, 6, 7, 8], 4), before[:1], 4, 0.5).shared == 4
    assert turn_counts(reply([1, 2, 3, 4, 5, 6, 8, 8], 4), before, 4, 0.5).shared == 4
    assert turn_counts(reply([1, 2, 3, 4, 5], 0), before, 4, 0.5).available == 0
    assert turn_counts(reply([1, 2, 3], 0), [], 4, 0.5).shared == 0


def test_an_engine_without_cache_counts_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="reports no cached_tokens"):
        turn_counts(reply([1, 2], None), [], 4, 0.5)
    with pytest.raises(RuntimeError, match="streamed no id"):
        turn_counts(reply([1, 2], 0), [], 4, None)


def test_sums_are_fractions_of_all_turns() -> None:
    turns = {
        prefix_cache.TITO: [
            [TurnCounts(10, 0, 0, 0, 0.1), TurnCounts(20, 8, 8, 8, 0.2), TurnCounts(30, 16, 16, 16, 0.3)]
        ],
        prefix_cache.MITO: [
            [TurnCounts(10, 0, 0, 0, 0.1), TurnCounts(20, 8, 4, 4, 0.4), TurnCounts(30, 16, 8, 4, 0.6)]
        ],
    }
    found = CacheResults(4, Shape(3, 5, 5), turns)
    assert found.sums(prefix_cache.TITO) == {"of the prompts": 24 / 60, "of available": 1, "of shared": 1}
    assert found.sums(prefix_cache.MITO) == {
        "of the prompts": 8 / 60,
        "of available": 8 / 24,
        "of shared": 8 / 12,
    }
    assert found.late(prefix_cache.MITO) == 0.5
    data = json.loads(json.dumps(prefix_cache.json_data(found)))
    assert data["reached"][prefix_cache.TITO]["of available"] == 1
    assert data["rounds"][prefix_cache.MITO][0][1]["cached"] == 4

"""The llama.cpp adapter against a real server with a tiny model. Server and tests take seconds."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import attrs
import pytest

from benchmarks.llamacpp import ByIds, TurnCounts, converse
from tests.engines.conftest import asked_for
from tests.engines.llamacpp import CONTEXT, SLOTS, llamacpp
from tests.engines.server import Server
from tests.engines.talk import HELLO, marker_id
from tests.environment import Say
from tito_core import Ids, InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.llamacpp import LlamaCpp, LlamaCppNotice
from tito_io.engines.llamacpp.recovery import Recovery, whole_id
from tito_io.engines.llamacpp.requests import COMPLETION, FIXED, NEUTRAL
from tito_io.engines.protocol import (
    AuthenticationError,
    Delta,
    ModelLimits,
    OverlongError,
    Reply,
    RequestError,
    Sampling,
    UnsupportedError,
)
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
PARROT = 'root ::= "a🦜b🦜"'
LONGEST_POLLS = 600
"""How often a server is asked whether it has noticed something, 0.05 s apart."""


@pytest.fixture(scope="module")
def family(llamacpp_server: Server) -> Family:
    """Load the model's folder."""
    return Family.load(llamacpp_server.family)


@pytest.fixture
async def engine(llamacpp_server: Server, family: Family) -> AsyncIterator[LlamaCpp]:
    """Return the adapter at the run's server."""
    async with LlamaCpp(llamacpp_server.base_url, family=family) as found:
        yield found


@pytest.fixture(scope="module")
def odd_server(tmp_path_factory: pytest.TempPathFactory, say: Say) -> Iterator[Server]:
    """Lend a server that shifts its context, drafts ids, and wants a key."""
    asked_for("llamacpp")
    settings = ("ctx_shift=True", "speculative=NGRAM_SIMPLE", "api_keys=['secret']")
    with llamacpp(say, tmp_path_factory.mktemp("odd") / "odd.log", *settings) as server:
        yield server


def ids_of(family: Family) -> Ids:
    return Ids.of(family.ids(HELLO, add_generation_prompt=True))


async def all_scored(engine: LlamaCpp, reply: Reply) -> list[float | None]:
    """Return the log-probability of every sampled id, each asked for by itself."""
    recovery = Recovery(engine.wire, "tiny", whole_id(engine.family), engine.family.vocab_size)
    prompt = Ids.of(reply.prompt_ids)
    return [
        await recovery.logprob(prompt.then(reply.completion_ids[:place]), index)
        for place, index in enumerate(reply.completion_ids)
    ]


async def test_the_sizes_are_the_servers(engine: LlamaCpp, family: Family) -> None:
    assert await engine.limits() == ModelLimits(max_model_len=CONTEXT, vocab_size=family.vocab_size)
    assert (await engine.served()).name == "tiny"


@pytest.mark.parametrize("architecture", ["qwen3", "lfm2"])
async def test_a_conversation_with_tools_evaluates_each_id_once(
    architecture: str, tmp_path_factory: pytest.TempPathFactory, say: Say
) -> None:
    """With attention, and with a memory that cannot be cut and no checkpoints of it."""
    asked_for("llamacpp")
    log = tmp_path_factory.mktemp("talk") / "talk.log"
    settings = ("n_parallel=1", "n_ctx_checkpoints=0")
    counts: list[TurnCounts] = []
    with llamacpp(say, log, *settings, architecture=architecture) as server:
        async with LlamaCpp(server.base_url, family=Family.load(server.family)) as engine:
            counts = await converse(ByIds(engine), 10, lambda: None)
    assert [one.evaluated for one in counts] == [one.new for one in counts]
    assert not any(one.drifted for one in counts)


@pytest.mark.parametrize("seed", range(6))
async def test_log_probabilities_stand_at_their_ids(engine: LlamaCpp, family: Family, seed: int) -> None:
    """Traps 1 and 2, on random text: each value is that of its id, asked for by itself."""
    seen: list[Delta] = []

    async def watch(delta: Delta) -> None:
        seen.append(delta)

    reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=24, seed=seed), watch=watch)
    assert [delta.ids for delta in seen] == [reply.completion_ids]
    scored = await all_scored(engine, reply)
    assert None not in scored
    values = zip(reply.logprobs or (), scored, strict=True)
    assert all(one is None or other == pytest.approx(one, abs=1e-4) for one, other in values)


async def test_missing_log_probabilities_are_recovered(llamacpp_server: Server, family: Family) -> None:
    """Trap 2: the ids of two parrots. Trap 13: the end of a grammar is one of the model's ends."""
    sampling = Sampling(max_tokens=20, seed=1, extra={"grammar": PARROT})
    async with LlamaCpp(llamacpp_server.base_url, family=family) as plain:
        without = await plain.from_ids(ids_of(family), sampling)
    async with LlamaCpp(llamacpp_server.base_url, family=family, recover_logprobs=True) as engine:
        reply = await engine.from_ids(ids_of(family), sampling)
    assert (without.completion_ids, without.text) == (reply.completion_ids, "a🦜b🦜")
    assert without.notices == (LlamaCppNotice.LOGPROBS_MISSING,)
    assert reply.notices == (LlamaCppNotice.LOGPROBS_RECOVERED,)
    missing = [place for place, value in enumerate(without.logprobs or ()) if value is None]
    assert missing
    assert all((reply.logprobs or ())[place] is not None for place in missing)
    ends = (marker_id(family, "<|im_end|>"), marker_id(family, "<|endoftext|>"))
    assert reply.stop_reason in ends
    assert reply.completion_ids[-1] == reply.stop_reason


async def test_an_answer_keeps_to_a_json_schema(engine: LlamaCpp, family: Family) -> None:
    closed = [*ids_of(family), *family.encode("<think>\n\n</think>\n\n")]
    blank = [index for index in range(family.vocab_size) if not family.decode([index]).strip()]
    never = {"logit_bias": [[index, False] for index in blank]}  # a random model writes little else in JSON
    for seed in range(3):
        sampling = Sampling(max_tokens=200, seed=seed, constraint=Constraint(schema=SCHEMA), extra=never)
        reply = await engine.from_ids(closed, sampling)
        assert set(json.loads(reply.text)) == {"ok", "kind"}
        assert reply.finish_reason == "stop"
        assert reply.message is not None
        assert Constraint(schema=SCHEMA).unmet(reply.message) is None
    with pytest.raises(UnsupportedError, match="its grammar would bind the reasoning"):
        await engine.from_ids(ids_of(family), sampling)
    wrong = attrs.evolve(sampling, constraint=Constraint(schema={"type": "no such type"}))
    with pytest.raises(UnsupportedError, match="makes no grammar of it, and ignores it"):
        await engine.from_ids(closed, wrong)


async def test_a_stop_string_ends_the_text_and_not_the_ids(engine: LlamaCpp, family: Family) -> None:
    """Traps 3 and 8."""
    whole = await engine.from_ids(ids_of(family), Sampling(max_tokens=24, seed=0))
    stop = whole.text[8:14]
    reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=24, seed=0, stop=(stop,)))
    assert reply.completion_ids == whole.completion_ids[: len(reply.completion_ids)]
    assert (reply.text, reply.stop_reason) == (whole.text[: whole.text.index(stop)], stop)
    assert len(reply.logprobs or ()) == len(reply.completion_ids)
    content = str((reply.message or {})["content"])
    assert content == reply.text


async def test_ids_that_the_model_does_not_have_are_not_sent(engine: LlamaCpp) -> None:
    """Traps 6 and 7, and that the real server takes what is not sent here."""
    for ids in ([2**40], [10**6], [-1], []):
        with pytest.raises(InputError, match="ids"):
            await engine.from_ids(ids, Sampling(max_tokens=1))
    body = {**NEUTRAL, **FIXED, "prompt": [2**40], "n_predict": 1}
    answer = await engine.wire.post(COMPLETION, body)
    assert (answer["tokens_evaluated"], answer["prompt"]) == (1, "!")


async def test_special_tokens_have_text(engine: LlamaCpp, family: Family) -> None:
    """Trap 9."""
    start = marker_id(family, "<|im_start|>")
    bias = {"logit_bias": [[start, 1000]]}
    reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=3, extra=bias))
    assert (reply.completion_ids, reply.text) == ((start,) * 3, "<|im_start|>" * 3)
    assert reply.notices == ()


async def test_connections_are_used_again_and_none_is_lost(engine: LlamaCpp, family: Family) -> None:
    """Trap 11: the server closes each connection after an error, and after 100 requests."""
    for number in range(220):
        if number % 50 == 7:
            with pytest.raises(RequestError):
                await engine.from_ids(ids_of(family), Sampling(max_tokens=1, extra={"grammar": "root ::= ("}))
        reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=1, seed=number))
        assert len(reply.completion_ids) == 1


async def test_turns_of_one_request_are_those_of_seeds_in_a_row(engine: LlamaCpp, family: Family) -> None:
    """Trap 14."""
    reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=8, seed=7, n=3))
    alone = [await engine.from_ids(ids_of(family), Sampling(max_tokens=8, seed=seed)) for seed in (7, 8, 9)]
    turns = (reply, *reply.siblings)
    assert [turn.completion_ids for turn in turns] == [turn.completion_ids for turn in alone]
    assert reply.usage.completion_tokens == 24
    with pytest.raises(RequestError):
        await engine.from_ids(ids_of(family), Sampling(max_tokens=1, n=SLOTS + 1))


async def test_the_context_is_not_left(odd_server: Server, family: Family) -> None:
    """Trap 15, at a server that would shift its context."""
    async with LlamaCpp(odd_server.base_url, family=family, api_key="secret") as engine:
        prompt = (list(ids_of(family)) * 200)[: CONTEXT - 20]
        reply = await engine.from_ids(prompt, Sampling(max_tokens=300, extra={"ignore_eos": True}))
        assert (len(reply.completion_ids), reply.finish_reason) == (20, "length")
        assert reply.raw["truncated"] is False
        with pytest.raises(OverlongError):
            await engine.from_ids((prompt * 2)[:CONTEXT], Sampling(max_tokens=1))
        body = {**NEUTRAL, **FIXED, "prompt": prompt, "n_predict": 300, "ignore_eos": True}
        shifted = await engine.wire.post(COMPLETION, body)
        assert (shifted["tokens_predicted"], shifted["truncated"]) == (300, True)


async def test_an_id_beside_a_draft_has_no_log_probability(odd_server: Server, family: Family) -> None:
    """Trap 4: what the server writes as 0.0, for drafts that it rejected as well, is None."""
    prompt = list(range(100, 900, 100)) * 6
    sampling = Sampling(max_tokens=200, temperature=0.0, extra={"ignore_eos": True})
    async with LlamaCpp(odd_server.base_url, family=family, api_key="secret") as engine:
        reply = await engine.from_ids(prompt, sampling)
        scored = await all_scored(engine, reply)
    entries = reply.raw["completion_probabilities"]
    assert any(entry["logprob"] == 0.0 for entry in entries)
    assert 0.0 not in (reply.logprobs or ())
    values = zip(reply.logprobs or (), scored, strict=True)
    assert all(one is None or other == pytest.approx(one, abs=1e-3) for one, other in values)


async def test_a_wrong_key_is_an_error(odd_server: Server, family: Family) -> None:
    async with LlamaCpp(odd_server.base_url, family=family) as engine:
        with pytest.raises(AuthenticationError):
            await engine.from_ids(ids_of(family), Sampling(max_tokens=1))


async def test_a_stop_id_must_be_an_end_of_the_model(engine: LlamaCpp, family: Family) -> None:
    sampling = Sampling(max_tokens=4, stop_ids=family.stop_ids)
    assert (await engine.from_ids(ids_of(family), sampling)).completion_ids
    with pytest.raises(UnsupportedError, match="100 does not end a turn"):
        await engine.from_ids(ids_of(family), Sampling(max_tokens=4, stop_ids=(100,)))


async def test_every_sampler_that_is_sent_is_one_that_the_server_reads(
    engine: LlamaCpp, family: Family
) -> None:
    """It repeats each, and would take its own default for one that it does not know."""
    reply = await engine.from_ids(ids_of(family), Sampling(max_tokens=1))
    used: dict[str, Any] = reply.raw["generation_settings"]
    assert NEUTRAL.keys() <= used.keys()


async def test_a_cancelled_turn_ends_at_the_server(engine: LlamaCpp, family: Family) -> None:
    """The server looks for a closed connection once a second."""
    async with anyio.create_task_group() as group:
        group.start_soon(engine.from_ids, ids_of(family), Sampling(extra={"ignore_eos": True}))
        await _slots(engine, processing=True)
        group.cancel_scope.cancel()
    await _slots(engine, processing=False)


async def _slots(engine: LlamaCpp, *, processing: bool) -> None:
    """Return once a slot is at work, or none is."""
    for _ in range(LONGEST_POLLS):
        slots = await engine.wire.get("/slots")
        if any(slot["is_processing"] for slot in slots) == processing:
            return
        await anyio.sleep(0.05)
    raise AssertionError(f"the slots were never seen so: processing={processing}")

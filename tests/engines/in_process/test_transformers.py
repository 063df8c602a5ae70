"""What `transformers`' `generate` does otherwise than one may expect."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from tests.engines.talk import HELLO, TOOLED
from tito_core import OddStop, Policy, Trajectory
from tito_io.client import Route, TokenClient
from tito_io.engines.in_process import TransformersModel
from tito_io.engines.in_process.token_sampler import BatchSampler
from tito_io.engines.protocol import Sampling, ServerError
from tito_io.families import Family

from .objects import without_markers
from .reference import Reference
from .test_turns import CLOSE, step_of

pytestmark = pytest.mark.anyio

PROMPT = list(range(100, 400))
ENDLESS = {"logits_processor": [without_markers]}


async def test_log_probabilities_of_the_distribution_that_was_sampled_from(
    made: Any, family: Family, reference: Reference
) -> None:
    """`raw` is the model's own; `processed` has temperature and top_k in it."""
    sampling = Sampling(max_tokens=12, temperature=0.5, seed=3, extra={"top_k": 4})
    raw = await TransformersModel(made, family).from_ids(PROMPT, sampling)
    processed = await TransformersModel(made, family, logprobs="processed").from_ids(PROMPT, sampling)
    assert raw.completion_ids == processed.completion_ids
    torch: Any = import_module("torch")
    ids = [*PROMPT, *raw.completion_ids]
    with torch.no_grad():
        logits = reference.model(torch.tensor([ids])).logits[0, len(PROMPT) - 1 : -1] / 0.5
    kept = logits.topk(4).values[:, -1:]
    exact = torch.log_softmax(logits.masked_fill(logits < kept, float("-inf")), dim=-1)
    exact = exact.gather(-1, torch.tensor(raw.completion_ids)[:, None])[:, 0].tolist()
    assert processed.logprobs == pytest.approx(exact, abs=1e-4)
    assert raw.logprobs == pytest.approx(reference.logprobs(ids, len(PROMPT)), abs=1e-4)


async def test_a_sampling_mask_has_the_ids_that_were_kept_and_values_are_over_these(
    engine: TransformersModel, reference: Reference
) -> None:
    sampling = Sampling(
        max_tokens=12, temperature=0.5, seed=3, sampling_masks=True, extra={"top_k": 4, "top_p": 0.9}
    )
    reply = await engine.from_ids(PROMPT, sampling)
    torch: Any = import_module("torch")
    with torch.no_grad():
        logits = reference.model(torch.tensor([[*PROMPT, *reply.completion_ids]])).logits[
            0, len(PROMPT) - 1 :
        ]
    assert reply.sampling_mask is not None
    for place, kept in enumerate(reply.sampling_mask):
        likely = logits[place].topk(len(kept)).indices.tolist()
        assert sorted(kept) == sorted(likely)
        assert len(kept) <= 4
        exact = torch.log_softmax(logits[place][list(kept)] / 0.5, dim=-1)
        value = (reply.logprobs or ())[place]
        assert value == pytest.approx(exact[list(kept).index(reply.completion_ids[place])].item(), abs=1e-4)
    greedy = await engine.from_ids(PROMPT, attrs.evolve(sampling, temperature=0.0))
    assert greedy.sampling_mask is not None
    assert [list(kept) for kept in greedy.sampling_mask] == [[one] for one in greedy.completion_ids]
    assert set(greedy.logprobs or ()) == {0.0}


async def test_random_numbers_of_others_stay_as_they_are(engine: TransformersModel) -> None:
    torch: Any = import_module("torch")
    torch.manual_seed(11)
    expected = torch.rand(3).tolist()
    torch.manual_seed(11)
    await engine.from_ids(PROMPT, Sampling(max_tokens=5, temperature=1.0, seed=4))
    await engine.from_ids(PROMPT, Sampling(max_tokens=5, temperature=1.0))
    assert torch.rand(3).tolist() == expected


async def test_no_id_is_ruled_out_unless_asked(engine: TransformersModel) -> None:
    """Where no config says otherwise, `generate` takes the 50 likeliest alone."""
    torch: Any = import_module("torch")
    sampling = Sampling(max_tokens=60, temperature=1.0, seed=1, extra=ENDLESS)
    reply = await engine.from_ids(PROMPT, sampling)
    ids = [*PROMPT, *reply.completion_ids]
    with torch.no_grad():
        logits = engine.model(torch.tensor([ids])).logits[0, len(PROMPT) - 1 : -1]
    chosen = logits.gather(-1, torch.tensor(reply.completion_ids)[:, None])
    ranks = (logits > chosen).sum(-1).tolist()
    assert max(ranks) > 50
    limited = attrs.evolve(sampling, extra={**ENDLESS, "top_k": 1})
    greedy = attrs.evolve(sampling, temperature=0.0)
    replies = [await engine.from_ids(PROMPT, one) for one in (limited, greedy)]
    assert replies[0].completion_ids == replies[1].completion_ids


@pytest.mark.parametrize(("name", "value"), [("top_k", 1), ("do_sample", False)])
async def test_the_models_own_parameters_are_the_defaults(
    engine: TransformersModel, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    greedy = await engine.from_ids(PROMPT, Sampling(max_tokens=9, temperature=0.0))
    monkeypatch.setattr(engine.model.generation_config, name, value)
    assert (await engine.from_ids(PROMPT, Sampling(max_tokens=9))).completion_ids == greedy.completion_ids


async def test_a_penalty_changes_what_is_sampled(engine: TransformersModel) -> None:
    prompt = [100] * 30
    strong = Sampling(max_tokens=20, temperature=0.0, extra={"repetition_penalty": 1.8})
    replies = [await engine.from_ids(prompt, one) for one in (strong, attrs.evolve(strong, extra={}))]
    assert replies[0].completion_ids != replies[1].completion_ids


async def test_a_tokenizer_in_memory_serves_as_well(made: Any, folder: Path) -> None:
    transformers: Any = import_module("transformers")
    family = Family.of(transformers.AutoTokenizer.from_pretrained(folder))
    client = TokenClient(TransformersModel(made, family), policy=Policy(odd_stop=OddStop.KEEP))
    steps, messages = Trajectory(), list(HELLO)
    for _ in range(3):
        done = await client.turn(steps, messages, tools=TOOLED.tools, sampling={"max_tokens": 8})
        if steps:
            assert done.step.prompt_ids.starts_with(steps[-1].ids)
        steps = steps.append(done.step)
        messages += [done.message, {"role": "user", "content": "Go on."}]
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: 2}


async def test_a_turn_whose_end_is_seen_late_is_the_same(
    engine: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU, `generate` looks one step later whether a turn has ended (`DeferredStopCheck`)."""
    sampling = Sampling(max_tokens=30, temperature=1.0, seed=2, n=3, stop=("e", "t"))
    expected = await engine.from_ids(PROMPT, sampling)
    seen: list[Any] = []
    now = BatchSampler.ended

    def late(self: BatchSampler, input_ids: Any, scores: Any, **more: Any) -> Any:
        seen.append(now(self, input_ids, scores, **more))
        return seen[-2] if len(seen) > 1 else seen[-1].logical_and(seen[-1].logical_not())

    monkeypatch.setattr(BatchSampler, "ended", late)
    reply = await engine.from_ids(PROMPT, sampling)
    assert len(seen) > max(len(turn.completion_ids) for turn in (reply, *reply.siblings))
    for one, other in zip((expected, *expected.siblings), (reply, *reply.siblings), strict=True):
        assert (one.completion_ids, one.logprobs) == (other.completion_ids, other.logprobs)


async def test_rows_that_ended_get_nothing_more(engine: TransformersModel, family: Family) -> None:
    """In a batch, shorter turns are padded until the longest has ended."""
    common = family.encode(" return")
    sampling = Sampling(max_tokens=40, temperature=1.0, seed=2, n=6, stop_ids=tuple(range(100, 400)))
    reply = await engine.from_ids(common * 5, sampling)
    turns = [reply, *reply.siblings]
    assert len({len(turn.completion_ids) for turn in turns}) > 1
    for turn in turns:
        ends = [index in range(100, 400) or index in (3060, 3062) for index in turn.completion_ids]
        assert not any(ends[:-1])


# Batches.


async def concurrent(engine: TransformersModel, asked: list[tuple[list[int], Sampling]]) -> list[Any]:
    """Return the replies to turns that are asked for at once; an error in the place of its own."""
    found: list[Any] = [None] * len(asked)

    async def ask(place: int) -> None:
        try:
            found[place] = await engine.from_ids(*asked[place])
        except ServerError as error:
            found[place] = error

    async with anyio.create_task_group() as tasks:
        for place in range(len(asked)):
            tasks.start_soon(ask, place)
    return found


def asked_turns() -> list[tuple[list[int], Sampling]]:
    """Return prompts of different lengths, each with other parameters."""
    extras: list[dict[str, Any]] = [{}, {"repetition_penalty": 1.3}, {"top_k": 9}, {"top_p": 0.8}]
    return [
        (
            PROMPT[: 40 + 61 * place],
            Sampling(max_tokens=10 + 5 * place, temperature=1.0, seed=place, n=n, extra=extra),
        )
        for place, (extra, n) in enumerate(zip(extras, (1, 2, 3, 1), strict=True))
    ]


async def test_turns_of_a_batch_are_those_of_single_ones(
    engine: TransformersModel, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shorter prompts are padded, with an id that a prompt may have, too."""
    calls: list[tuple[int, ...]] = []
    generate = engine.model.generate

    def counted(ids: Any, **more: Any) -> Any:
        calls.append(tuple(ids.shape))
        return generate(ids, **more)

    asked = asked_turns()
    single = [await engine.from_ids(*one) for one in asked]
    monkeypatch.setattr(engine.model, "generate", counted)
    batch = await concurrent(engine, asked)
    assert calls == [(7, len(asked[-1][0]))]
    for one, other in zip(single, batch, strict=True):
        for alone, beside in zip((one, *one.siblings), (other, *other.siblings), strict=True):
            assert beside.completion_ids == alone.completion_ids
            assert beside.logprobs == pytest.approx(alone.logprobs, abs=1e-4)
            assert reference.distance(step_of(beside)) < CLOSE


async def test_an_error_of_a_processor_ends_its_turn_alone(engine: TransformersModel) -> None:
    def failing(*_: Any) -> Any:
        raise RuntimeError("the caller's own")

    asked = asked_turns()
    wrong = attrs.evolve(asked[1][1], extra={"logits_processor": [failing]})
    found = await concurrent(engine, [asked[0], (asked[1][0], wrong), asked[2]])
    assert isinstance(found[1], ServerError)
    for place in (0, 2):
        assert found[place].completion_ids == (await engine.from_ids(*asked[place])).completion_ids

"""Models of transformers and mlx-lm, which are run here. `tests/engines` samples with real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tests.io.engines.scripted import MODEL, PROMPT, spelled
from tito_core import InputError
from tito_io.engines.in_process import MlxModel, TransformersModel
from tito_io.engines.protocol import Delta, ModelLimits, OverlongError, Sampling, UnsupportedError

from .fakes import CONTEXT, ENDLESS, YES, Model, Sampled, made

pytestmark = pytest.mark.anyio
SHORT = Sampling(max_tokens=9)
OWN = {"temperature": 0.6, "top_k": 20}


async def test_a_model_in_training_mode_is_refused() -> None:
    engine, fake = made("transformers")
    fake.training = True
    with pytest.raises(UnsupportedError, match=r"model\.eval\(\)"):
        await engine.from_ids(PROMPT, SHORT)


@pytest.mark.parametrize(
    ("field", "value", "neutral"),
    [
        ("num_beams", 4, 1),
        ("no_repeat_ngram_size", 3, 0),
        ("typical_p", 0.5, 1.0),
        ("stop_strings", ["a"], None),
    ],
)
async def test_what_would_change_sampling_unseen_is_refused(field: str, value: Any, neutral: Any) -> None:
    with pytest.raises(UnsupportedError, match=f"generation_config has {field}"):
        await made("transformers", **{field: value})[0].from_ids(PROMPT, SHORT)
    assert (await made("transformers", **{field: neutral})[0].from_ids(PROMPT, SHORT)).text == "Yes."


@pytest.mark.parametrize(
    ("given", "problem", "text"),
    [
        ({"logprobs": "logits"}, InputError, "'raw' or 'processed'"),
        ({"output_format": "logits"}, InputError, "output_format"),
        ({}, UnsupportedError, "encoder"),
    ],
)
def test_an_encoder_and_a_wrong_mode_are_refused(given: Any, problem: type[Exception], text: str) -> None:
    model = Model()
    model.config.is_encoder_decoder = not given
    with pytest.raises(problem, match=text):
        TransformersModel(model, MODEL, **given)


@pytest.mark.parametrize(
    ("own", "sampling", "expected"),
    [
        ({"temperature": 0.6, "top_k": 20}, {}, (0.6, 20, None)),
        (
            {"temperature": 0.6, "top_k": 20},
            {"temperature": 1.0, "extra": {"top_k": 0, "top_p": 0.5}},
            (1.0, 0, 0.5),
        ),
        ({"temperature": 0.6, "do_sample": False}, {}, (0, None, None)),
    ],
)
async def test_the_callers_parameters_come_before_the_models_own(
    own: Any, sampling: Any, expected: Any
) -> None:
    engine, fake = made("transformers", **own)
    await engine.from_ids(PROMPT, Sampling(**sampling))
    assert tuple(fake.choices[name] for name in ("temperature", "top_k", "top_p")) == expected


@pytest.mark.parametrize(
    ("stated", "stops"),
    [(None, [*MODEL.stop_ids]), (spelled("e")[0], spelled("e")), (spelled("se"), spelled("se"))],
)
async def test_a_turn_ends_at_the_models_own_ids(stated: Any, stops: list[int]) -> None:
    engine, fake = made(
        "transformers", Sampled(ids=[*spelled("Y"), *stops, *spelled("more")]), eos_token_id=stated
    )
    reply = await engine.from_ids(PROMPT, SHORT)
    assert reply.completion_ids == (*spelled("Y"), stops[0])
    (asked,) = fake.seen
    assert sorted(asked.given.eos_token_id) == sorted(stops)
    assert asked.given.pad_token_id == stops[0]


async def test_sizes_come_from_the_models_arguments_or_the_caller() -> None:
    engine, model = made("mlx")
    assert (await engine.limits()).max_model_len == CONTEXT
    assert (await MlxModel(model, MODEL, context_length=50).limits()).max_model_len == 50
    model.args = SimpleNamespace(text_config={"vocab_size": 70, "max_position_embeddings": 60})
    assert await engine.limits() == ModelLimits(max_model_len=60, vocab_size=70)
    model.args = SimpleNamespace()
    assert await engine.limits() == ModelLimits(max_model_len=None, vocab_size=MODEL.vocab_size)
    with pytest.raises(OverlongError):
        await MlxModel(model, MODEL, context_length=len(PROMPT)).from_ids(PROMPT, Sampling())


@pytest.mark.parametrize("kind", ["transformers", "mlx"])
async def test_a_model_without_a_context_length_needs_a_limit(kind: str) -> None:
    engine, model = made(kind)
    model.args, model.config.get_text_config = SimpleNamespace(), SimpleNamespace
    with pytest.raises(InputError, match="max_tokens is None"):
        await engine.from_ids(PROMPT, Sampling())


async def test_processors_go_to_the_generator() -> None:
    engine, model = made("mlx")
    processor = object()
    await engine.from_ids(PROMPT, Sampling(n=1, extra={"logits_processors": [processor], "top_k": 3}))
    assert model.seen[0].given == [[processor]]


# Batches.

IN_ORDER = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""Trio runs tasks in random order."""


async def together(engine: Any, *asked: tuple[list[int], Sampling]) -> list[Any]:
    """Ask for turns in one step of the event loop; return the replies in order."""
    replies: list[Any] = [None] * len(asked)

    async def ask(place: int, prompt: list[int], sampling: Sampling) -> None:
        replies[place] = await engine.from_ids(prompt, sampling)

    async with anyio.create_task_group() as tasks:
        for place, (prompt, sampling) in enumerate(asked):
            tasks.start_soon(ask, place, prompt, sampling)
    return replies


LONG = [*PROMPT, *PROMPT]
NEAR_THE_END = [PROMPT[0]] * (CONTEXT - 12)


@IN_ORDER
@pytest.mark.parametrize(
    ("asked", "batches"),
    [
        ([(LONG, SHORT), (list(PROMPT), SHORT), (LONG, Sampling(max_tokens=7, n=2))], [3]),
        ([(LONG, Sampling(max_tokens=9, n=3)), (LONG, SHORT), (LONG, Sampling(max_tokens=9, n=2))], [2, 1]),
        ([(LONG, Sampling(max_tokens=9, n=6)), (LONG, SHORT)], [1, 1]),
        ([(NEAR_THE_END, Sampling(max_tokens=3)), (list(PROMPT), Sampling(max_tokens=20))], [1, 1]),
    ],
    ids=["all fit", "as many as may be", "one request has more", "beyond the context"],
)
async def test_turns_that_are_asked_for_together_are_a_batch(asked: list[Any], batches: list[int]) -> None:
    fake = Model(turns=[YES] * 6)
    engine = TransformersModel(fake, MODEL, batch_size=4)
    replies = [await together(engine, *asked) for _ in range(2)][-1]
    assert fake.batches == batches * 2
    for (prompt, sampling), reply in zip(asked, replies, strict=True):
        turns = [reply, *reply.siblings]
        assert list(reply.prompt_ids) == prompt
        assert [turn.completion_ids for turn in turns] == [tuple(YES.ids)[: sampling.max_tokens]] * sampling.n


@IN_ORDER
@pytest.mark.parametrize("kind", ["a state", "own positions"])
async def test_prompts_of_other_lengths_are_no_batch_where_the_model_sees_padding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Model()
    if kind == "a state":
        monkeypatch.setattr(fake, "_is_stateful", True, raising=False)
    else:
        monkeypatch.setattr(fake, "forward", lambda ids: ids)
    engine = TransformersModel(fake, MODEL)
    await together(engine, (LONG, SHORT), (list(PROMPT), SHORT), (list(PROMPT), SHORT))
    assert fake.batches == [1, 2]


@pytest.mark.parametrize("value", [0, True, 2.0])
def test_a_wrong_batch_size_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="batch_size is"):
        TransformersModel(Model(), MODEL, batch_size=value)


@IN_ORDER
@pytest.mark.parametrize("how", ["ends", "is given up", "is given up while it waits"])
async def test_a_turn_does_not_wait_for_longer_ones_of_others(how: str) -> None:
    """The other one is endless until this one is over."""
    fake = Model(turns=[ENDLESS])
    engine = TransformersModel(fake, MODEL, batch_size=1 if how.endswith("waits") else 2)
    begun, over = anyio.Event(), anyio.Event()

    async def other(_: Delta) -> None:
        begun.set()
        if over.is_set():
            endless.cancel()

    async def this() -> None:
        with anyio.CancelScope() as scope:
            tasks.start_soon(given_up, scope)
            await engine.from_ids(PROMPT, Sampling(max_tokens=3 if how == "ends" else CONTEXT - len(PROMPT)))
        over.set()

    async def given_up(scope: anyio.CancelScope) -> None:
        await begun.wait()
        if how != "ends":
            scope.cancel()

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as endless:
                tasks.start_soon(this)
                await engine.from_ids(PROMPT, Sampling(), watch=other)
    assert endless.cancelled_caught

"""A `transformers` model: what is decided before it is run. `tests/engines` samples with real ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.io.engines.in_process.fakes import CONTEXT, MODEL
from tito_core import InputError
from tito_io.engines.in_process import TransformersModel
from tito_io.engines.protocol import Sampling, UnsupportedError

pytestmark = pytest.mark.anyio


class Model(SimpleNamespace):
    """A model that is never run, with what adapters look for."""

    layers: tuple[object, ...] = ()

    def __call__(self) -> None:
        """Compute nothing."""

    def generate(self) -> None:
        """Sample nothing."""


def model(**config: Any) -> Any:
    """Return what is read of a model before it is run."""
    fields = {"do_sample": True, "eos_token_id": None, "pad_token_id": None, **config}
    text = SimpleNamespace(max_position_embeddings=CONTEXT)
    return Model(
        config=SimpleNamespace(is_encoder_decoder=False, get_text_config=lambda: text),
        generation_config=SimpleNamespace(**fields),
        get_input_embeddings=lambda: SimpleNamespace(num_embeddings=MODEL.vocab_size),
        training=False,
        device="cpu",
    )


async def test_a_missing_package_is_named() -> None:
    with pytest.raises(UnsupportedError, match=r"^torch cannot be imported.*run tito in the environment"):
        await TransformersModel(model(), MODEL).from_ids([1], Sampling(max_tokens=1))


async def test_a_model_in_training_mode_is_refused() -> None:
    training = model()
    training.training = True
    with pytest.raises(UnsupportedError, match=r"model\.eval\(\)"):
        await TransformersModel(training, MODEL).from_ids([1], Sampling(max_tokens=1))


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
        await TransformersModel(model(**{field: value}), MODEL).from_ids([1], Sampling(max_tokens=1))
    with pytest.raises(UnsupportedError, match="torch"):
        await TransformersModel(model(**{field: neutral}), MODEL).from_ids([1], Sampling(max_tokens=1))


def test_an_encoder_and_a_wrong_mode_are_refused() -> None:
    encoder = model()
    encoder.config.is_encoder_decoder = True
    with pytest.raises(UnsupportedError, match="encoder"):
        TransformersModel(encoder, MODEL)
    wrong: Any = "logits"
    with pytest.raises(InputError, match="'raw' or 'processed'"):
        TransformersModel(model(), MODEL, logprobs=wrong)
    with pytest.raises(InputError, match="output_format"):
        TransformersModel(model(), MODEL, output_format=wrong)


def test_the_callers_parameters_come_before_the_models_own() -> None:
    engine = TransformersModel(model(temperature=0.6, top_k=20), MODEL)
    own = engine._choices(Sampling())
    assert (own["temperature"], own["top_k"], own["top_p"]) == (0.6, 20, None)
    given = engine._choices(Sampling(temperature=1.0, extra={"top_k": 0, "top_p": 0.5}))
    assert (given["temperature"], given["top_k"], given["top_p"]) == (1.0, 0, 0.5)
    assert TransformersModel(model(do_sample=False), MODEL)._choices(Sampling())["temperature"] == 0


@pytest.mark.parametrize(("stated", "stops"), [(None, MODEL.stop_ids), (7, (7,)), ([7, 8], (7, 8))])
def test_a_turn_ends_at_the_models_own_ids(stated: Any, stops: tuple[int, ...]) -> None:
    engine = TransformersModel(model(eos_token_id=stated), MODEL)
    assert engine._stop_ids() == stops
    assert engine._padding(stops) == stops[0]


async def test_a_model_without_a_context_length_needs_a_limit() -> None:
    endless = model()
    endless.config.get_text_config = SimpleNamespace
    with pytest.raises(InputError, match="max_tokens is None"):
        await TransformersModel(endless, MODEL).from_ids([1], Sampling())

"""A model of `mlx-lm`, over a generator of a few lines. `tests/engines` samples with a real one.

The fake refuses what `mlx_lm/generate.py` of mlx-lm 0.32.2 refuses, and says where that is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import anyio
import pytest

from tests.io.engines.scripted import CALL, END, MODEL, PROMPT, YES, Heard, Script, spelled
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.in_process import MlxModel
from tito_io.engines.protocol import Delta, OverlongError, Rendering, Sampling, ServerError, UnsupportedError

pytestmark = pytest.mark.anyio
STREAMED = pytest.mark.parametrize("streamed", [False, True])
CONTEXT = 300
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)


class Values:
    """A row of log-probabilities, of which one is asked for."""

    def __init__(self, index: int, value: float) -> None:
        self.index, self.value = index, value

    def __getitem__(self, index: int) -> Any:
        """Return the value of the id that was sampled; another id's would be another's."""
        value = self.value if index == self.index else -99.0
        return SimpleNamespace(item=lambda: value)


class BatchGenerator:
    """As far as `BatchGenerator` is used; its turns are scripted."""

    scripts: ClassVar[Sequence[Script]] = (YES,)
    made: ClassVar[list[BatchGenerator]] = []
    failing: ClassVar[Exception | None] = None

    def __init__(
        self, model: object, *, completion_batch_size: int = 32, prefill_batch_size: int = 8
    ) -> None:
        assert model == "the model"
        self.sizes = completion_batch_size, prefill_batch_size
        self.rows: dict[int, int] = {}
        self.inserted: list[Any] = []
        self.made.append(self)

    def insert(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        *,
        samplers: list[Any],
        logits_processors: list[list[Any]],
    ) -> list[int]:
        """Take prompts (generate.py:1643, insert_segments): an entry of each for every prompt."""
        if not len(prompts) == len(max_tokens) == len(samplers) == len(logits_processors):
            raise ValueError("Option must have one entry per segment")
        if not all(prompts):
            raise ValueError("Sequence 0 has an empty prompt.")
        if min(max_tokens) <= 0:
            raise ValueError("Sequence 0's max_tokens must be > 0.")
        assert all(type(prompt) is list for prompt in prompts)
        self.inserted = [prompts, max_tokens, logits_processors]
        self.rows = dict.fromkeys(range(7, 7 + len(prompts)), 0)
        return list(self.rows)

    def next_generated(self) -> list[Any]:
        """Return an id of each turn that goes on (generate.py:1901).

        Without stop tokens only `max_tokens` ends a turn (generate.py:1468); the others go on until removed.
        """
        if self.failing is not None:
            raise self.failing
        found = []
        for number in list(self.rows):
            script, place = self.scripts[number - 7], self.rows[number]
            most = self.inserted[1][number - 7]
            index = script.ids[place] if place < len(script.ids) else spelled("x")[0]
            value = script.logprobs[place] if place < len(script.ids) else -1.0
            self.rows[number] += 1
            ended = "length" if place + 1 >= most else None
            found.append(
                SimpleNamespace(uid=number, token=index, logprobs=Values(index, value), finish_reason=ended)
            )
            if ended:
                del self.rows[number]
        return found

    def remove(self, uids: list[int]) -> None:
        """Take turns out (generate.py:1744); one that is not there is none."""
        for number in uids:
            del self.rows[number]


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the packages be imported, without what computes."""
    monkeypatch.setattr(BatchGenerator, "made", [])
    modules: dict[str, Any] = {name: ModuleType(name) for name in ("mlx_lm", "mlx_lm.generate", "mlx.core")}
    modules |= {name: ModuleType(name) for name in ("mlx", "mlx_lm.sample_utils")}
    modules["mlx_lm.generate"].BatchGenerator = BatchGenerator
    keys = SimpleNamespace(key=lambda seed: seed, split=lambda key, count=2: [key] * count)
    modules["mlx.core"].random = keys
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)


class Model(str):
    """The model: what is read of it before it is run."""

    __slots__ = ("args",)
    layers: tuple[object, ...] = ()

    def __call__(self) -> None:
        """Compute nothing."""


def engine(scripts: Sequence[Script] = (YES,), **options: Any) -> MlxModel:
    BatchGenerator.scripts = scripts
    BatchGenerator.failing = None
    model: Any = Model("the model")
    model.args = SimpleNamespace(vocab_size=MODEL.vocab_size, max_position_embeddings=CONTEXT)
    return MlxModel(model, MODEL, **options)


@STREAMED
async def test_ids_and_log_probabilities_are_those_that_were_sampled(*, streamed: bool) -> None:
    heard = Heard()
    reply = await engine().from_ids(PROMPT, Sampling(), watch=heard if streamed else None)
    assert (reply.completion_ids, reply.logprobs) == (YES.ids, YES.logprobs)
    assert (reply.finish_reason, reply.stop_reason, reply.text) == ("stop", END, "Yes.")
    (made,) = BatchGenerator.made
    assert made.inserted[:2] == [[list(PROMPT)], [CONTEXT - len(PROMPT)]]
    assert not made.rows
    if streamed:
        assert (heard.ids, heard.logprobs, heard.text) == (YES.ids, YES.logprobs, "Yes.")
        assert len(heard.deltas) == len(YES.ids)


async def test_a_cut_turn_has_no_stop_token() -> None:
    reply = await engine().from_ids(PROMPT, Sampling(max_tokens=2))
    assert (reply.completion_ids, reply.finish_reason, reply.text) == (YES.ids[:2], "length", "Ye")


@pytest.mark.parametrize(
    ("sampling", "reason"), [({"stop": ("es",)}, "es"), ({"stop_ids": tuple(spelled("s"))}, spelled("s")[0])]
)
async def test_stops_of_the_callers_end_a_turn(sampling: Any, reason: int | str) -> None:
    reply = await engine().from_ids(PROMPT, Sampling(**sampling))
    assert reply.completion_ids == YES.ids[:3]
    assert (reply.finish_reason, reply.stop_reason) == ("stop", reason)
    assert reply.text == ("Y" if reason == "es" else "Ye")


async def test_turns_of_one_request_are_a_batch() -> None:
    no = Script(ids=(*spelled("No"), END))
    heard = Heard()
    reply = await engine([YES, no]).from_ids(PROMPT, Sampling(n=2), watch=heard)
    (other,) = reply.siblings
    assert (reply.completion_ids, other.completion_ids) == (YES.ids, no.ids)
    assert (other.logprobs, other.text) == (no.logprobs, "No")
    (made,) = BatchGenerator.made
    assert made.sizes == (2, 2)


@STREAMED
async def test_calls_are_read_from_the_ids(*, streamed: bool) -> None:
    watch = Heard() if streamed else None
    reply = await engine([CALL]).from_ids(PROMPT, Sampling(), Rendering(tools=TOOLS), watch=watch)
    assert reply.message is not None
    assert reply.message["tool_calls"][0]["function"]["name"] == "look"


async def test_processors_go_to_the_generator() -> None:
    processor = object()
    await engine().from_ids(PROMPT, Sampling(extra={"logits_processors": [processor], "top_k": 3}))
    assert BatchGenerator.made[0].inserted[2] == [[processor]]


async def test_a_cancelled_turn_is_taken_no_further() -> None:
    endless = Script(ids=tuple(spelled("x" * 200)))
    with anyio.CancelScope() as scope:

        async def cancel(_: Delta) -> None:
            scope.cancel()

        # As many ids as cannot have been sampled before it is cancelled.
        await engine([endless], context_length=10**6).from_ids(PROMPT, Sampling(), watch=cancel)
    assert scope.cancelled_caught
    assert BatchGenerator.made[0].rows  # it would have gone on
    again = engine()
    assert (await again.from_ids(PROMPT, Sampling())).completion_ids == YES.ids
    await again.aclose()


async def test_a_failing_model_is_a_server_error() -> None:
    broken = engine()
    BatchGenerator.failing = RuntimeError("[metal::malloc] it is full")
    with pytest.raises(ServerError, match=r"BatchGenerator raised RuntimeError: the engine failed"):
        await broken.from_ids(PROMPT, Sampling())


async def test_sizes_come_from_the_models_arguments_or_the_caller() -> None:
    assert (await engine().limits()).max_model_len == CONTEXT
    assert (await engine(context_length=50).limits()).max_model_len == 50
    made = engine()
    made.model.args = SimpleNamespace(text_config={"vocab_size": 70, "max_position_embeddings": 60})
    assert ((await made.limits()).max_model_len, (await made.limits()).vocab_size) == (60, 70)
    made.model.args = SimpleNamespace()
    assert ((await made.limits()).max_model_len, (await made.limits()).vocab_size) == (None, MODEL.vocab_size)
    with pytest.raises(InputError, match="max_tokens is None"):
        await made.from_ids(PROMPT, Sampling())
    with pytest.raises(OverlongError):
        await engine(context_length=len(PROMPT)).from_ids(PROMPT, Sampling())


async def test_what_cannot_be_honoured_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"'repetition_penalty' cannot be passed.*logits_processors"):
        await engine().from_ids(PROMPT, Sampling(extra={"repetition_penalty": 2}))
    with pytest.raises(UnsupportedError, match=r"response_format.*mlx"):
        await engine().from_ids(PROMPT, Sampling(constraint=Constraint(schema={"type": "object"})))


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlx_lm.generate", None)
    with pytest.raises(UnsupportedError, match=r"^mlx_lm\.generate cannot be imported"):
        await engine().from_ids(PROMPT, Sampling())

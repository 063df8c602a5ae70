"""A teacher scores the exact ids that a student sampled; one with another tokenizer is refused by name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
import httpx2
import pytest

from tito_core import Ids, InputError, Step
from tito_core.samples import Forest, StoredCall, make_rows
from tito_io.engines.protocol import Engine, InvalidReplyError, UnsupportedError
from tito_io.engines.registry import embedded
from tito_io.engines.scores import score, score_by_teacher
from tito_io.engines.vllm import VLLM
from tito_io.engines.vllm.requests import scoring

pytestmark = pytest.mark.anyio
IDS = [30, 31, 32, 33, 34, 35]


async def test_a_teacher_scores_each_id_and_the_likeliest_in_its_place() -> None:
    student, teacher = embedded(seed=1), embedded(seed=2)
    step = Step(prompt=[], completion=[], prompt_ids=IDS[:3], completion_ids=IDS[3:], logprobs=[-1.0] * 3)
    [row] = make_rows(Forest.of([StoredCall(name="a", step=step)])).rows
    found = await score_by_teacher(teacher, row.ids, row.turns[0].start, student=student, top=3)
    assert found.logprobs == await score(teacher, IDS, 3)
    for index, value, likely in zip(IDS[3:], found.logprobs, found.top, strict=True):
        assert len(likely) == len(dict(likely)) == 3
        assert [logprob for _, logprob in likely] == sorted((logprob for _, logprob in likely), reverse=True)
        assert dict(likely).get(index, value) == value
        assert likely[0][1] >= (value or 0.0)
    columns = found.columns()
    assert {name: len(values) for name, values in columns.items()} == dict.fromkeys(columns, len(row))
    assert columns["teacher_logprobs"] == [None] * 3 + list(found.logprobs)
    pairs = zip(columns["teacher_top_ids"][3:], columns["teacher_top_logprobs"][3:], strict=True)
    assert [tuple(zip(*pair, strict=True)) for pair in pairs] == list(found.top)


@attrs.frozen
class OtherWords:
    """An engine whose tokenizer reads an id as another text."""

    name: str = "other"

    async def output_parser(self) -> Any:
        async def decode(ids: list[int]) -> str:
            return "~" * len(ids)

        return SimpleNamespace(tokenizer=SimpleNamespace(decode=decode))


async def test_a_teacher_with_another_tokenizer_is_refused_by_name() -> None:
    student: Any = OtherWords("my student")
    with pytest.raises(InputError, match="has another tokenizer than the student 'my student': the"):
        await score_by_teacher(embedded(), IDS, 3, student=student, top=2)


async def test_an_engine_without_alternatives_is_refused() -> None:
    teacher: Any = OtherWords("my teacher")
    with pytest.raises(UnsupportedError, match="my teacher: its adapter scores no alternatives"):
        await score_by_teacher(teacher, IDS, 3, student=embedded(), top=2)


@pytest.mark.parametrize(("start", "top"), [(0, 1), (6, 1), (True, 1), (3, 0), (3, True)])
async def test_a_range_without_ids_is_refused(start: int, top: int) -> None:
    with pytest.raises(InputError, match="give a"):
        await score_by_teacher(embedded(), IDS, start, student=embedded(), top=top)


def answering(entries: list[Any]) -> Engine:
    """Return vLLM with a server that scores IDS with `entries`."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json={"data": [{"id": "m", "root": "m", "max_model_len": 64}]})
        choice = {
            "index": 0,
            "text": "",
            "token_ids": [5],
            "finish_reason": "length",
            "prompt_token_ids": IDS,
        }
        usage = {"prompt_tokens": len(IDS), "completion_tokens": 1}
        body = {"choices": [{**choice, "prompt_logprobs": entries}], "usage": usage}
        return httpx2.Response(200, json=body)

    return VLLM("http://vllm", transport=httpx2.MockTransport(handle))


def ranked(index: int, **ranks: float) -> dict[str, Any]:
    """Return an entry: the id itself on rank 9, and others by rank."""
    own = {str(index): {"logprob": -9.0, "rank": 9}}
    return own | {str(60 + int(r[1])): {"logprob": value, "rank": int(r[1])} for r, value in ranks.items()}


async def test_alternatives_are_read_by_rank() -> None:
    entries = [None, *(ranked(index, r2=-2.0, r1=-1.0) for index in IDS[1:])]
    engine: Any = answering(entries)
    found = await engine.top_scores(Ids.of(IDS), 4, 2)
    assert found.logprobs == (-9.0, -9.0)
    assert found.top == (((61, -1.0), (62, -2.0)),) * 2
    with pytest.raises(InvalidReplyError, match=r"the ranks \[1, 2, 9\], where 1 to 3 belong"):
        await engine.top_scores(Ids.of(IDS), 4, 3)


def test_a_request_names_how_many_alternatives_it_wants() -> None:
    assert scoring("m", Ids.of(IDS), 5)["prompt_logprobs"] == 5
    assert scoring("m", Ids.of(IDS))["prompt_logprobs"] == 0

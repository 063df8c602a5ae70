"""An engine's own words reach whoever sent the request: short, and without what was said in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.io.gateway import Scripted, client, opened, scripted_gateway
from tito_io.engines.faults import fault
from tito_io.engines.protocol import Answer
from tito_io.serve.quoted import LONGEST, SAME, letters, without

PRIVATE = "the launch code of the lighthouse is 4711-apricot"


async def refused(status: int, message: str, path: str = "/v1/chat/completions", **more: Any) -> Any:
    """Return what a client is told where an engine complains."""
    answer = Answer(status, {"error": {"message": message, "type": "BadRequestError"}})
    engine = Scripted(raises=[fault("POST http://engine/v1/completions", answer)])
    async with client(scripted_gateway(engine)) as http:
        name = await opened(http)
        body = {"messages": [{"role": "user", "content": PRIVATE}], "max_tokens": 5, **more}
        return await http.post(f"/sessions/{name}{path}", json=body)


@pytest.mark.anyio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_client_reads_what_the_engine_says_of_its_request(path: str) -> None:
    found = await refused(400, "logit_bias: token 99 is\nnot in the vocabulary", path)
    assert found.status_code == 400
    said = found.json()["error"]["message"]
    assert said.endswith("it says: logit_bias: token 99 is not in the vocabulary")
    assert "answer.body" not in found.text


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 422, 500])
async def test_nothing_that_was_said_comes_back(status: int) -> None:
    found = await refused(status, f"1 validation error: input_value='{PRIVATE}', input_type=str")
    assert "apricot" not in found.text
    assert (
        "it says: 1 validation error: input_value='[...]', input_type=str" in found.json()["error"]["message"]
    )
    assert "apricot" not in (await refused(status, PRIVATE)).text


@pytest.mark.anyio
async def test_words_are_cut_and_credentials_are_nobody_s() -> None:
    found = await refused(400, "nowhere " * 1000)
    assert found.json()["error"]["message"].count("nowhere") == LONGEST // 8
    found = await refused(401, "Incorrect API key provided: sk-42")
    assert "sk-42" not in found.text


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_no_long_part_of_what_was_said_is_left(said: str, before: str, after: str) -> None:
    shown, spoken = letters(without(f"{before}{said}{after}", said)), letters(said)
    for place in range(len(spoken) - SAME + 1):
        assert spoken[place : place + SAME] not in shown


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("der zündcode DES MAJAKS:\n灯台の鍵 4711", "[...]"),
        (ascii("Der Zündcode des Majaks: 灯台の鍵 4711"), "'[...]'"),
        (repr("Der Zündcode des Majaks:\n 灯台の鍵 4711"), "'[...]'"),
        (json.dumps(json.dumps("Der Zündcode des Majaks: 灯台の鍵 4711")), r'"\"[...]\""'),
    ],
)
def test_another_writing_is_a_quotation_too(written: str, left: str) -> None:
    assert without(f"bad: {written}.", "Der Zündcode des Majaks: 灯台の鍵 4711") == f"bad: {left}."


LONG = st.text(st.characters(codec="utf-8", exclude_characters="\\", max_codepoint=0xFFFF), min_size=2 * SAME)
WRITTEN = st.sampled_from(
    [
        str.upper,
        str.title,
        repr,
        lambda text: repr(repr(text)),
        ascii,
        json.dumps,
        lambda text: json.dumps(json.dumps(text, ensure_ascii=False)),
        "\n".join,
    ]
)


@given(LONG.filter(lambda text: len(letters(text)) >= SAME), WRITTEN)
def test_nothing_comes_back_in_another_writing(said: str, written: Callable[[str], str]) -> None:
    assume(letters(said.upper()) == letters(said.title()) == letters(said))  # letters that have no other case
    shown, spoken = letters(without(f"bad value: {written(said)}", said)), letters(said)
    for place in range(len(spoken) - SAME + 1):
        assert spoken[place : place + SAME] not in shown


@given(st.text(max_size=60))
def test_words_that_repeat_nothing_stay(words: str) -> None:
    assert without(words, "") == words

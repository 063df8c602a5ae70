"""An engine's own words reach whoever sent the request: short, and without what was said in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.io.serve.gateway import Scripted, talking
from tito_io.engines.errors import fault
from tito_io.engines.protocol import EngineAnswer
from tito_io.serve.redact import GAP, LONGEST, MOST, SAME, engine_words, letters, redact

pytestmark = pytest.mark.anyio
PRIVATE = "the launch code of the lighthouse is 4711-apricot"


def repeated(message: str, body: dict[str, Any]) -> str:
    """Return what is repeated of an engine's complaint about a request."""
    return engine_words(fault("POST http://engine", EngineAnswer(400, {"error": {"message": message}})), body)


async def refused(status: int, message: str, path: str = "/v1/chat/completions", **more: Any) -> Any:
    """Return what a client is told where an engine complains."""
    answer = EngineAnswer(status, {"error": {"message": message, "type": "BadRequestError"}})
    async with talking(Scripted(raises=[fault("POST http://engine/v1/completions", answer)])) as talk:
        body = {"messages": [{"role": "user", "content": PRIVATE}], "max_tokens": 5, **more}
        return await talk.post(body, path)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_client_reads_what_the_engine_says_of_its_request(path: str) -> None:
    found = await refused(400, "logit_bias: token 99 is\nnot in the vocabulary", path)
    assert found.status_code == 400
    said = found.json()["error"]["message"]
    assert said.endswith("it says: logit_bias: token 99 is not in the vocabulary")
    assert "answer.body" not in found.text


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_nothing_that_was_said_comes_back(status: int) -> None:
    found = await refused(status, f"1 validation error: input_value='{PRIVATE}', input_type=str")
    assert "apricot" not in found.text
    assert (
        "it says: 1 validation error: input_value='[...]', input_type=str" in found.json()["error"]["message"]
    )
    assert "apricot" not in (await refused(status, PRIVATE)).text


async def test_words_are_not_repeated_where_looking_for_quotations_would_take_long() -> None:
    messages = [{"role": "user", "content": "x" * MOST}]
    found = await refused(400, "logit_bias: token 99 is unknown", messages=messages)
    assert found.status_code == 400
    assert "it says" not in found.text
    assert "logit_bias" not in found.text


@pytest.mark.whole
@pytest.mark.parametrize("value", [None, "", 7, {}, [], True])
def test_what_is_looked_through_is_bounded_whatever_it_is(value: Any) -> None:
    assert repeated("no", {"input": [value] * MOST}) == ""
    assert repeated("no", {"input": [value] * (MOST // 3)}) == "; it says: no"


async def test_what_tools_are_made_of_is_not_repeated_and_what_all_have_is() -> None:
    schema = {"type": "object", "properties": {"projectNightingale": {"enum": [4111111111111111]}}}
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {**schema, "additionalProperties": False}},
    }
    words = "additionalProperties: unknown projectNightingale, input_value=4111111111111111, tool_call_id"
    found = await refused(400, words, tools=[tool])
    said = found.json()["error"]["message"].partition("it says: ")[2]
    assert said == "additionalProperties: unknown [...], input_value=[...], tool_call_id"


@pytest.mark.parametrize(
    "name",
    [
        *("additionalProperties", "exclusiveMaximum", "exclusiveMinimum", "maxProperties", "minProperties"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "cache_control", "function_call"),
        *("input_schema", "reasoning_content", "tool_call_id"),
    ],
)
def test_keys_of_the_apis_and_of_schemas_are_no_quotations(name: str) -> None:
    assert (
        repeated(f"{name} is wrong", {"tools": [{"parameters": {name: 1}}]}) == f"; it says: {name} is wrong"
    )
    tool = {"parameters": {f"my_own_{name}": 2}}
    assert repeated(f"my_own_{name} is wrong", {"tools": [tool]}) == "; it says: [...] is wrong"


FEW = st.text("ab", max_size=80)


@given(FEW, FEW)
def test_what_is_in_both_is_found_as_by_looking_for_each(short: str, long: str) -> None:
    places = [place for place in range(len(short) - SAME + 1) if short[place : place + SAME] in long]
    marked = {place + step for place in places for step in range(SAME)}
    shown = "".join("-" if place in marked else letter for place, letter in enumerate(short))
    assert redact(short, long) == re.sub("-+", GAP, shown)


@given(st.text("abc", min_size=SAME, max_size=SAME), st.integers(0, 30), st.integers(0, 30))
def test_a_quotation_is_found_at_every_place(run: str, before: int, after: int) -> None:
    assert redact(f"x{run}y", "-" * before + run + "+" * after) == f"x{GAP}y"


async def test_words_are_cut_and_credentials_are_nobody_s() -> None:
    found = await refused(400, "nowhere " * 1000)
    assert found.json()["error"]["message"].count("nowhere") == LONGEST // 8
    found = await refused(401, "Incorrect API key provided: sk-42")
    assert "sk-42" not in found.text


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=20))
def test_no_long_part_of_what_was_said_is_left(said: str, before: str, after: str) -> None:
    shown, spoken = letters(redact(f"{before}{said}{after}", said)), letters(said)
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
    assert redact(f"bad: {written}.", "Der Zündcode des Majaks: 灯台の鍵 4711") == f"bad: {left}."


@pytest.mark.parametrize("write", [json.dumps, ascii, lambda text: json.dumps(json.dumps(text))])
def test_letters_beyond_the_first_plane_are_escaped_in_two_halves_or_by_number(
    write: Callable[[str], str],
) -> None:
    said = "a 😀 b 😀 c 😀 d 😀 e 😀 f 😀"
    shown = redact(write(said), said)
    assert GAP in shown
    assert not set("abcdef😀0") & set(shown)


LONG = st.text(st.characters(codec="utf-8", exclude_characters="\\"), min_size=2 * SAME)
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
    shown, spoken = letters(redact(f"bad value: {written(said)}", said)), letters(said)
    for place in range(len(spoken) - SAME + 1):
        assert spoken[place : place + SAME] not in shown


@given(st.text(max_size=60))
def test_words_that_repeat_nothing_stay(words: str) -> None:
    assert redact(words, "") == words

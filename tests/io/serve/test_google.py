"""The routes of Google's Gemini API: every id is the engine's, and errors have the form its clients read."""

from __future__ import annotations

from typing import Any

import httpx2
import orjson
import pytest

from tests.io.serve.gateway import Remembering, embedded_gateway, talking
from tito_core.samples import make_rows
from tito_io.embedded import FaultRates
from tito_io.serve.auth import HEADER

pytestmark = pytest.mark.anyio
TURNS = 12
TOOLS = [{"functionDeclarations": [{"name": "look", "parameters": {"type": "OBJECT", "properties": {}}}]}]
HELLO: dict[str, Any] = {"role": "user", "parts": [{"text": "Where is the bridge?"}]}
GENERATE = "v1beta/models/any:generateContent"
STREAM = "v1beta/models/any:streamGenerateContent?alt=sse"


def added_up(raw: bytes) -> dict[str, Any]:
    """Return the content of a stream."""
    chunks = [orjson.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: ")]
    parts = [part for one in chunks for part in one["candidates"][0]["content"]["parts"]]
    assert chunks[-1]["candidates"][0]["finishReason"] in ("STOP", "MAX_TOKENS")
    return {"role": "model", "parts": parts}


async def said(http: httpx2.AsyncClient, at: str, contents: list[Any], *, stream: bool) -> dict[str, Any]:
    """Take a turn; return its content."""
    body = {"contents": contents, "tools": TOOLS, "generationConfig": {"maxOutputTokens": 120}}
    answer = await http.post(f"{at}{STREAM if stream else GENERATE}", json=body)
    assert answer.status_code == 200, answer.text
    if stream:
        return added_up(answer.content)
    content: dict[str, Any] = answer.json()["candidates"][0]["content"]
    return content


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("named", [True, False], ids=["ids", "no ids"])
async def test_every_id_is_kept_through_turns_with_functions(*, stream: bool, named: bool) -> None:
    async with talking(embedded_gateway(fault_rates=FaultRates(malformed=0.0))) as talk:
        contents: list[Any] = [HELLO]
        for _ in range(TURNS):
            content = await said(talk.http, f"/sessions/{talk.name}/", contents, stream=stream)
            calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            if not named:
                for call in calls:
                    del call["id"]
            kept = [{key: call[key] for key in ("id", "name") if key in call} for call in calls]
            results: list[Any] = [{"functionResponse": {**one, "response": {}}} for one in kept]
            contents += [content, {"role": "user", "parts": results or [{"text": "more"}]}]
        commits, (row,) = await talk.commits(), make_rows((await talk.session()).forest).rows
        engine = talk.engine
    assert isinstance(engine, Remembering)
    assert [commit.origin.dialect for commit in commits] == ["google"] * TURNS
    assert [commit.origin.route for commit in commits].count("MITO") == 1
    trained = [one for one, mask in zip(row.ids, row.loss_mask, strict=True) if mask]
    assert trained == [one for reply in engine.replies for one in reply.completion_ids]


async def test_a_key_of_google_s_clients_names_a_session() -> None:
    async with talking(embedded_gateway()) as talk:
        answer = await talk.http.post(
            f"/{GENERATE}", json={"contents": [HELLO]}, headers={"x-goog-api-key": talk.name}
        )
        assert answer.headers[HEADER] == talk.name
        assert answer.json()["modelVersion"] == "any"


async def test_tokens_are_counted() -> None:
    async with talking(embedded_gateway()) as talk:
        counts = [
            (await talk.post(body, "/v1beta/models/a/b:countTokens")).json()
            for body in ({"contents": [HELLO]}, {"contents": [HELLO, HELLO]})
        ]
    assert 0 < counts[0]["totalTokens"] < counts[1]["totalTokens"]


@pytest.mark.parametrize(
    ("path", "status", "word"),
    [
        (GENERATE, 400, "INVALID_ARGUMENT"),
        ("v1beta/models/any:streamGenerateContent", 400, "INVALID_ARGUMENT"),
        ("v1beta/models/any:countTokens", 400, "INVALID_ARGUMENT"),
    ],
)
async def test_errors_have_google_s_form(path: str, status: int, word: str) -> None:
    async with talking(embedded_gateway()) as talk:
        answer = await talk.post({"contents": []}, f"/{path}")
        lost = await talk.http.post(f"/sessions/{'0' * 32}/{path}?alt=sse", json={"contents": [HELLO]})
    assert (answer.status_code, answer.json()["error"]["status"]) == (status, word)
    assert (lost.status_code, lost.json()["error"]["status"]) == (404, "NOT_FOUND")


async def test_the_library_s_newer_version_of_the_api_is_the_same() -> None:
    """`google-genai` 3.4 sends requests there, and Pydantic AI such a mode with Gemini's models."""
    config = {"functionCallingConfig": {"mode": "VALIDATED"}}
    body = {"contents": [HELLO], "tools": TOOLS, "toolConfig": config}
    body["generationConfig"] = {"maxOutputTokens": 120}
    async with talking(embedded_gateway()) as talk:
        at = f"/sessions/{talk.name}/v1/models/gemini-3-pro-preview"
        answer = await talk.http.post(f"{at}:generateContent", json=body)
        streamed = await talk.http.post(f"{at}:streamGenerateContent?alt=sse", json=body)
        counted = await talk.http.post(f"{at}:countTokens", json={"contents": [HELLO]})
        named = await talk.http.get(f"{at}:generateContent")
    assert [one.status_code for one in (answer, streamed, counted)] == [200, 200, 200], answer.text
    assert answer.json()["candidates"][0]["content"]["role"] == "model"
    assert added_up(streamed.content)["role"] == "model"
    assert named.status_code == 404  # a model of that name is asked for

"""Google's Gemini API: what its clients send becomes messages, and errors name what cannot be translated.

The client for Python runs in `tests/agents` (google-adk), the one for JavaScript likewise (gemini-cli).
"""

from __future__ import annotations

from typing import Any

import orjson

from tito_io.dialects import Google
from tito_io.dialects.protocol import ReplyStamp
from tito_io.engines.protocol import Delta

from .dialect_turns import answer, events

GOOGLE = Google()
HELLO: dict[str, Any] = {"role": "user", "parts": [{"text": "hi"}]}


def parsed(*contents: Any, **fields: Any) -> Any:
    return GOOGLE.parse({"contents": list(contents) or [HELLO], **fields})


def test_the_path_says_the_model_and_whether_it_is_streamed() -> None:
    asked = Google(model="gemini", streaming=True).parse({"contents": [HELLO]})
    assert (asked.model, asked.stream) == ("gemini", True)


def test_a_whole_answer() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    message = {"role": "assistant", "content": "So", "reasoning": "hm", "tool_calls": [call]}
    asked = parsed(generationConfig={"responseLogprobs": True})
    body = GOOGLE.answer_body(asked, answer(message, (7,), finish_reason="length"))
    (candidate,) = body["candidates"]
    assert candidate["content"] == {
        "role": "model",
        "parts": [
            {"text": "hm", "thought": True},
            {"text": "So"},
            {"functionCall": {"id": "a", "name": "look", "args": {"x": 1}}},
        ],
    }
    assert candidate["finishReason"] == "MAX_TOKENS"
    assert candidate["logprobsResult"]["chosenCandidates"] == [
        {"token": "token_id:7", "tokenId": 7, "logProbability": -0.5}
    ]
    assert body["usageMetadata"] == {
        "promptTokenCount": 10,
        "candidatesTokenCount": 1,
        "totalTokenCount": 11,
        "cachedContentTokenCount": 6,
    }
    assert (body["modelVersion"], body["responseId"]) == ("m", "resp_1")


def test_a_count_takes_contents_or_a_request() -> None:
    bodies: tuple[dict[str, Any], ...] = (
        {"contents": [HELLO]},
        {"generateContentRequest": {"contents": [HELLO]}},
    )
    for body in bodies:
        assert GOOGLE.parse_count(body).messages == ({"role": "user", "content": "hi"},)
    assert GOOGLE.count_body(7) == {"totalTokens": 7}


def test_reasoning_is_streamed_in_one_part() -> None:
    stream = GOOGLE.stream(parsed(), ReplyStamp(id="r", created=1, model="m"))
    raw = [
        stream.delta(Delta(ids=(1,), text=text)) for text in ("<think>", "h", "m", "</think>", "So", " it")
    ]
    raw.append(stream.finish(answer({"role": "assistant", "content": "So it", "reasoning": "hm"})))
    found = [one["candidates"][0]["content"]["parts"] for one in events(b"".join(raw))]
    assert found == [[{"text": "hm", "thought": True}], [{"text": "So"}], [{"text": " it"}], []]


def test_an_error_in_a_stream_is_plain_json_with_a_status() -> None:
    stream = GOOGLE.stream(parsed(), ReplyStamp(id="r", created=1, model="m"))
    error = orjson.loads(stream.fail(503, "engine_unreachable", "gone"))["error"]
    assert (error["code"], error["status"], error["message"]) == (503, "UNAVAILABLE", "gone")
    assert GOOGLE.error(400, "X", "no", param="contents")["error"]["details"][0]["metadata"] == {
        "field": "contents"
    }

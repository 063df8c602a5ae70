"""Answers of Google's Gemini API: whole, or as a stream of answers whose parts add up.

Google's clients for JavaScript and Python read an error in a stream as plain JSON.
"""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects.message_parts import AssistantParts, arguments_object
from tito_io.dialects.protocol import ParsedRequest, SampledMessage, TokenText, TurnAnswer
from tito_io.dialects.stream_text import OrderedStream
from tito_io.dialects.wire import MISSING_LOGPROB, dumps, event, google_error
from tito_io.engines.protocol import Usage

BLANK = b"\n\n"


def answer_body(request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
    """Return the body of a whole answer."""
    said = AssistantParts.of(answer.choices[0].message)
    parts: list[dict[str, Any]] = []
    if said.reasoning:
        parts.append({"text": said.reasoning, "thought": True})
    if said.content:
        parts.append({"text": said.content})
    return _last(request, answer, [*parts, *_calls(said)])


def _last(request: ParsedRequest, answer: TurnAnswer, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return an answer with the finish reason and the token counts."""
    choice = answer.choices[0]
    finish = {"finishReason": "MAX_TOKENS" if choice.finish_reason == "length" else "STOP"}
    scored = request.logprobs and choice.logprobs is not None
    logprobs = {"logprobsResult": logprobs_result(choice, answer.token_text)} if scored else {}
    body = _body(answer.id, answer.model, parts, **finish, **logprobs)
    return {**body, "usageMetadata": usage(answer.usage)}


def _body(identifier: str, model: str, parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    candidate = {"content": {"role": "model", "parts": parts}, "index": 0, **more}
    return {"candidates": [candidate], "modelVersion": model, "responseId": identifier}


def _calls(said: AssistantParts) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": call.id, "name": call.name, "args": arguments_object(call.arguments)}}
        for call in said.calls
    ]


def logprobs_result(choice: SampledMessage, token_text: TokenText) -> dict[str, Any]:
    """Return the log-probabilities of the sampled ids.

    >>> said = SampledMessage(message={}, finish_reason="stop", completion_ids=(7,), logprobs=(-0.5,))
    >>> logprobs_result(said, lambda index: "hi")["chosenCandidates"]
    [{'token': 'hi', 'tokenId': 7, 'logProbability': -0.5}]
    """
    pairs = zip(choice.completion_ids, choice.logprobs or (), strict=True)
    chosen = [
        {
            "token": token_text(index),
            "tokenId": index,
            "logProbability": MISSING_LOGPROB if logprob is None else logprob,
        }
        for index, logprob in pairs
    ]
    return {"chosenCandidates": chosen, "topCandidates": []}


def usage(counted: Usage) -> dict[str, Any]:
    """Return the token counts.

    >>> usage(Usage(prompt_tokens=10, completion_tokens=2, cached_tokens=8))["cachedContentTokenCount"]
    8
    """
    cached = counted.cached_tokens
    return {
        "promptTokenCount": counted.prompt_tokens,
        "candidatesTokenCount": counted.completion_tokens,
        "totalTokenCount": counted.prompt_tokens + counted.completion_tokens,
        **({} if cached is None else {"cachedContentTokenCount": cached}),
    }


@attrs.define
class GoogleStream(OrderedStream):
    """One answer as a stream.

    Reasoning is sent in one part: Gemini CLI trims each part of it, and sends it back so after a restart.
    """

    REASONING, CONTENT = "thought", "text"

    unsent: str = attrs.field(default="", init=False)
    """Reasoning that was not sent yet."""

    def start(self) -> bytes:
        """Return nothing: the API has no event before the first part."""
        return b""

    def ping(self) -> bytes:
        """Return a blank line: no client of this API counts events, and each event is a part of the turn.

        An answer without parts makes chats of Google's own clients drop the turn from their history
        (`isValidResponse` in `@google/genai` 3.3, `_validate_response` in `google/genai/chats.py` 3.6).
        """
        return BLANK

    def finish(self, answer: TurnAnswer) -> bytes:
        """Return what is left, the function calls, the finish reason and the token counts."""
        message = answer.choices[0].message
        rest = self.send(self.text.remaining(message)) + self._thought()
        return rest + event(_last(self.request, answer, _calls(AssistantParts.of(message))))

    def fail(self, status: int, kind: str, message: str) -> bytes:
        """Return an error in place of what is left."""
        return dumps({"error": google_error(status, kind, message, None)})

    def open_part(self, kind: str) -> bytes:
        """Return the reasoning where it ends; other parts are not opened or closed."""
        self.open = kind
        return self._thought() if kind == self.CONTENT else b""

    def grow(self, kind: str, more: str) -> bytes:
        """Return the answer with one more part, which clients add to those before; hold reasoning back."""
        if kind == self.REASONING:
            self.unsent += more
            return b""
        return self._part({"text": more})

    def _thought(self) -> bytes:
        text, self.unsent = self.unsent, ""
        return self._part({"text": text, "thought": True}) if text else b""

    def _part(self, part: dict[str, Any]) -> bytes:
        return event(_body(self.stamp.id, self.stamp.model, [part]))

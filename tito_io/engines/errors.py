"""Turn an engine's error answer into an error class: one classifier for all engines.

Proxies send one engine's texts from another engine's routes, so a text is recognized wherever it comes from.
The engine's text is `EngineError.reason`. It is repeated in the message only where it cannot hold any
part of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import attrs

from tito_core import TemplateRefused

from .protocol import AuthenticationError, EngineAnswer, EngineError, OverlongError, RequestError, ServerError

LONGEST_REASON = 1000
"""The most characters of a chat template's error that are kept, and of an error that is bare text."""
OVERLONG_STATUSES = frozenset((400, 413, 422))
OVERLONG = re.compile(
    r"maximum context length|maximum model length|model(?:'s)? context length"
    r"|(?:greater|longer|more) than `?max_model_len"
    r"|exceed(?:s|ed|ing)? (?:the )?(?:model's )?(?:available )?context (?:size|length|limit|window)"
    r"|context (?:size|length|limit|window) (?:is |was )?exceeded"
    r"|(?:input|prompt)\b[^.]{0,40} exceeds the maximum allowed length"
    r"|(?:^|[.:;(\[\"'] ?|\b(?:your|the|this) )(?:input|prompt) is too long"
    r"|\binputs?(?: tokens?)? exceeds? the configured limit|exceed(?:s|ed)? (?:the )?model token limit"
    r"|should not exceed max_(?:num_tokens|seq_len)|`default_max_tokens` \(-?\d+\) must be greater than 0"
    r"|too many total text bytes|\b(?:context_length_exceeded|prompt_too_long)\b",
    re.IGNORECASE,
)
"""How engines state that a prompt, or a prompt and its completion, does not fit the context."""
OVERLONG_CODES = frozenset(("context_length_exceeded", "exceed_context_size_error", "prompt_too_long"))
"""The same as an error's `code` or `type`."""

HARMLESS = re.compile(
    r"The model `[\w./:-]{1,100}` does not exist"
    r"|Token id -?\d+ is out of vocabulary"
    r"|\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"
    r"|\b[a-z_]+ must be [\w ,(\[\])-]{1,60}, got -?[\d.]*\d"
    r"|Cannot apply chat template to an empty conversation"
    r"|maximum (?:context|model) length (?:is |of )?(?:\d+|\(\d+\))"
    r"|Value must be between [\d.]+ <= value <= [\d.]+, but got -?[\d.]*\d"
    r"|(?:max_num_tokens|max_seq_len|model context length) \(\d+\)|not enabled logprobs_mode"
    r"|Prompt contains invalid tokens|failed to parse grammar"
    r"|sampling distribution replay requires (?:temperature|top_k) > 0"
    r"|return_sampling_mask requires top_k=1 [\w <=.]{1,60}; got top_k=-?\d+"
    r"|prompt contains (?:at least )?\d+|Input length \(\d+\)|decoder prompt \(length \d+\)"
)
"""Parts of engines' error texts that cannot hold any of the conversation."""


@attrs.frozen
class Diagnosis:
    """What a failure means: the error class, what to do, and which argument to change."""

    kind: type[EngineError]
    advice: str
    parameter: str = ""


BY_STATUS: Mapping[int, Diagnosis] = {
    401: Diagnosis(
        AuthenticationError, "the engine wants other credentials; pass the right api_key", "api_key"
    ),
    403: Diagnosis(
        AuthenticationError,
        "these credentials may not do that; pass another api_key, or allow it there",
        "api_key",
    ),
    404: Diagnosis(
        RequestError, "no such model or route there; check the base_url and the model's name", "base_url"
    ),
    408: Diagnosis(RequestError, "the engine did not get to it in time; ask again later"),
    429: Diagnosis(RequestError, "the engine has too much to do; ask again later"),
}
"""What a status alone means."""
OVERLONG_PROMPT = Diagnosis(OverlongError, "the prompt does not fit the model's context; shorten it")
FAILED = Diagnosis(ServerError, "the engine failed; look into its log")
NOT_AN_ENGINE = Diagnosis(
    RequestError, "something stands between here and the engine; check the base_url", "base_url"
)
REFUSED = Diagnosis(RequestError, "the engine refuses this request; correct what it names")


@attrs.frozen
class Complaint:
    """An engine's error body, in whichever form it came.

    Attributes:
        message: The engine's text.
        kind: Its `type`, such as `BadRequestError`.
        code: Its `code` where that is a word, such as `context_length_exceeded`.
        param: The request key that it names.
        room: How many ids were requested and how many fit; None where it does not state these numbers.
    """

    message: str = ""
    kind: str = ""
    param: str = ""
    code: str = attrs.field(default="", repr=False)
    room: tuple[int, int] | None = attrs.field(default=None, repr=False)

    @classmethod
    def of(cls, body: object) -> Complaint:
        """Read an error body: nested, flat, or a bare string.

        A long bare text is a page, or repeats the request, and a list of what is wrong with a request repeats
        it too: neither is kept.

        >>> Complaint.of({"error": {"message": "no", "type": "BadRequestError", "param": None}})
        Complaint(message='no', kind='BadRequestError', param='')
        >>> Complaint.of({"error": "Unauthorized"}).message, Complaint.of({"detail": "Not Found"}).message
        ('Unauthorized', 'Not Found')
        >>> Complaint.of({"details": {"type": "context_length", "limit": 2048, "actual": 2100}}).room
        (2100, 2048)
        """
        inner = body.get("error", body) if isinstance(body, Mapping) else body
        if isinstance(inner, Mapping) and isinstance(inner.get("detail"), Mapping):
            inner = inner["detail"]
        if not isinstance(inner, Mapping):
            return cls(inner if isinstance(inner, str) and len(inner) <= LONGEST_REASON else "")
        message, code = inner.get("message") or inner.get("detail"), inner.get("code")
        details = inner.get("details")  # Dynamo's, of a prompt that does not fit
        numbers = details if isinstance(details, Mapping) and details.get("type") == "context_length" else {}
        actual, limit = numbers.get("actual"), numbers.get("limit")
        room = (actual, limit) if type(actual) is int and type(limit) is int else None
        kind, param = str(inner.get("type") or ""), str(inner.get("param") or "")
        words = [one if isinstance(one, str) else "" for one in (message, code)]
        return cls(words[0], kind, param, words[1], room)

    @property
    def overlong(self) -> bool:
        """Whether it means that the prompt does not fit the context.

        Of a prompt that fills the context exactly, vLLM states that `max_tokens` must be at least 1. Errors
        about the form of a request (`Bad Request`) repeat parts of it, which may hold any text.
        """
        if self.room is not None or {self.code, self.kind} & OVERLONG_CODES:
            return True
        if self.kind == "Bad Request":
            return False
        left_nothing = self.param == "max_tokens" and "got 0" in self.message
        return self.param == "input_tokens" or left_nothing or bool(OVERLONG.search(self.message))

    @property
    def quoted(self) -> str:
        """The parts of its text that hold none of the conversation, in parentheses; may be empty."""
        words = [match.group() for match in HARMLESS.finditer(self.message)]
        words += [f"{self.room[0]} ids, and there is room for {self.room[1]}"] if self.room else []
        words += [f"parameter {self.param}"] if re.fullmatch(r"[\w.]{1,60}", self.param) else []
        return f" ({'; '.join(words)})" if words else ""


def refused_by_template(error: RequestError, otherwise: re.Pattern[str]) -> TemplateRefused | None:
    """Return the chat template's refusal that a server's error holds; None where it is another error.

    Servers send what a template raises in the envelope of their own errors, without a parameter; `otherwise`
    matches the texts of those.
    """
    answer = error.answer or EngineAnswer(0, None)
    complaint = Complaint.of(answer.body)
    by_template = answer.status == HTTPStatus.BAD_REQUEST and complaint.kind == "BadRequestError"
    if not by_template or complaint.param or otherwise.search(complaint.message):
        return None
    return TemplateRefused(complaint.message[:LONGEST_REASON]) if complaint.message else None


def fault(where: str, answer: EngineAnswer) -> EngineError:
    """Return the error for an error answer; `where` is the request, as errors name it."""
    complaint, status = Complaint.of(answer.body), answer.status
    if status in OVERLONG_STATUSES and complaint.overlong:
        diagnosis = OVERLONG_PROMPT
    elif status in BY_STATUS:
        diagnosis = BY_STATUS[status]
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        diagnosis = FAILED
    else:
        diagnosis = NOT_AN_ENGINE if status < HTTPStatus.BAD_REQUEST else REFUSED
    return diagnosis.kind(
        f"{where} answered {status}{complaint.quoted}: {diagnosis.advice}",
        answer,
        hint="its own words are in the error's `reason`",
        where=where,
        parameter=diagnosis.parameter,
    )

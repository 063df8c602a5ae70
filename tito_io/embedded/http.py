"""Read request bodies and write answers, streams and errors in the form of a vLLM 0.32 server."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from uuid import uuid4

import anyio.lowlevel
import orjson
from attrs import frozen
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tito_io.fields import Fields

from .generation import Generation

VERSION = "0.32.0"
"""The version of the server whose routes and errors these are."""
FINGERPRINT = f"vllm-{VERSION}-embedded"


class BadRequest(Exception):  # noqa: N818  # it names what happened to the request
    """A request that is answered with an error. The messages are those of the real server, word for word.

    Attributes:
        message: What is wrong.
        param: The parameter that is wrong, where it is one.
        kind: The error's `type` in the body.
        status: The HTTP status, which is the error's `code` in the body, too.
    """

    def __init__(
        self, message: str, *, param: str | None = None, kind: str = "BadRequestError", status: int = 400
    ) -> None:
        """Keep what the error body says."""
        super().__init__(message)
        self.message, self.param, self.kind, self.status = message, param, kind, status

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        }


def bad_value(message: str, param: str, value: object = None) -> BadRequest:
    """Return the error for a parameter's value, which the message repeats at its end.

    >>> bad_value("n must be at least 1, got 0.", "n", 0).message
    'n must be at least 1, got 0. (parameter=n, value=0)'
    """
    shown = "" if value is None else f", value={value}"
    return BadRequest(f"{message} (parameter={param}{shown})", param=param)


def unsupported(name: str) -> BadRequest:
    """Return the error for a parameter that the real server acts on and a sampler of words cannot."""
    return bad_value(f"`{name}` is not supported by the embedded sampler; leave it out.", name)


def invalid(kind: str, path: str, message: str, value: object, context: object = None) -> BadRequest:
    """Return pydantic's error for a body of the wrong shape; `path` is one such as `body.messages`."""
    # An error does not repeat a whole request: it has a container's size, or the beginning of a text.
    size = f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, list | dict) else None
    found: dict[str, object] = {"type": kind, "loc": path, "msg": message, "input": size or str(value)[:200]}
    if context is not None:
        found["ctx"] = context
    return BadRequest(f"1 validation error:\n  {found}", param=path, kind="Bad Request")


LARGEST = 2**63 - 1
BOOLEANS: Mapping[object, bool] = {
    **dict.fromkeys((True, "true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys((False, "false", "f", "no", "n", "off", "0"), False),
}
"""What pydantic reads as true and false: the numbers 1 and 0, too, and words in any case."""
KINDS: Mapping[type, tuple[str, str]] = {
    str: ("string_type", "Input should be a valid string"),
    dict: ("dict_type", "Input should be a valid dictionary"),
    list: ("list_type", "Input should be a valid list"),
}
"""Pydantic's code and message for a value that is of another type."""


@frozen
class Body(Fields):
    """The body of a request, or an object in it."""

    ITEM: ClassVar[str] = ".{}"

    path: str = "body"

    @classmethod
    async def read(cls, request: Request) -> Body:
        """Read the body of a request; raises `BadRequest` where it is not a JSON object."""
        media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media != "application/json":
            text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
            raise BadRequest(text, kind="Bad Request")
        values = _decoded(await request.body())
        if not isinstance(values, dict):
            text = "Input should be a valid dictionary or object to extract fields from"
            raise invalid("model_attributes_type", "body", text, values)
        return cls(values)

    def missing(self, path: str, kind: type) -> Exception:
        """Return the error for a missing field."""
        del kind
        return invalid("missing", path, "Field required", dict(self.values))

    def wrong_type(self, path: str, kind: type, value: object) -> Exception:
        """Return the error for a field of another type."""
        return invalid(KINDS[kind][0], path, KINDS[kind][1], value)

    def given(self, name: str) -> Any:
        """Return a field that must be there, though it may be null."""
        if name not in self.values:
            raise self.missing(self.at(name), object)
        return self.values[name]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false, in any of the spellings that pydantic reads.

        >>> Body({"stream": "off"}).flag("stream"), Body({"stream": 1}).flag("stream")
        (False, True)
        """
        value = self.values.get(name)
        if value is None:
            return default
        truth = BOOLEANS.get(value.lower() if isinstance(value, str) else value) if value.__hash__ else None
        if truth is None:
            raise invalid("bool_parsing", self.at(name), "Input should be a valid boolean", value)
        return truth

    def integer(self, name: str) -> int | None:
        """Return a whole number, or None."""
        value = self.number(name)
        if value is not None and value != int(value):
            raise invalid("int_from_float", self.at(name), "Input should be a valid integer", value)
        return None if value is None else int(value)

    def number(self, name: str) -> float | int | None:
        """Return a finite number, or None."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise invalid("float_type", self.at(name), "Input should be a valid number", value)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings; one string alone is a list of one."""
        value = self.values.get(name)
        texts = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(texts, list) or not all(isinstance(item, str) for item in texts):
            raise self.wrong_type(self.at(name), str, value)
        return texts


def token_ids(value: Any, path: str) -> list[int]:
    """Return `value` as token ids: whole numbers from 0 on."""
    if not isinstance(value, list):
        raise invalid(KINDS[list][0], path, KINDS[list][1], value)
    # A prompt may have 100,000 ids: the usual case takes three passes in C, and only an error looks at each.
    if set(map(type, value)) <= {int} and (not value or 0 <= min(value) <= max(value) <= LARGEST):
        return value
    for place, item in enumerate(value):
        if type(item) is not int:
            raise invalid("int_type", f"{path}.{place}", "Input should be a valid integer", item)
        if item < 0:
            message = "Input should be greater than or equal to 0"
            raise invalid("greater_than_equal", f"{path}.{place}", message, item, {"ge": 0})
    raise invalid("less_than_equal", path, "Input should be less than 2**63", value)


def _decoded(raw: bytes) -> Any:
    """Decode JSON, or raise an error that names the place where it is not valid."""
    if not raw:
        raise invalid("missing", "body", "Field required", None)
    with suppress(orjson.JSONDecodeError):
        return orjson.loads(raw)
    try:
        body = json.loads(raw)  # allows what orjson does not, such as NaN; its errors have the place
        json.dumps(body, ensure_ascii=False).encode()  # half of a surrogate pair has no ids, and no answer
    except json.JSONDecodeError as error:
        place = f"body.{error.pos}"
        raise invalid("json_invalid", place, "JSON decode error", {}, {"error": error.msg}) from error
    except (UnicodeError, RecursionError) as error:
        raise HTTPException(400, "There was an error parsing the body") from error
    return body


class JSON(Response):
    """A JSON answer, written by orjson: it is quick with hundreds of thousands of ids."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of `content`."""
        return orjson.dumps(content)


def stream(bodies: Iterable[Any]) -> StreamingResponse:
    """Answer with `bodies`, one server-sent event each."""

    async def events() -> AsyncIterator[bytes]:
        for body in bodies:
            yield b"data: " + orjson.dumps(body) + b"\n\n"
            await anyio.lowlevel.checkpoint()
        yield b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


@frozen
class Stamp:
    """The fields that begin every body of one answer."""

    id: str
    kind: str
    created: int
    model: str

    @classmethod
    def of(cls, request: Request, prefix: str, kind: str, model: str) -> Stamp:
        """Return the stamp of an answer; its id is the request's `X-Request-Id`, otherwise a random one."""
        name = request.headers.get("x-request-id") or uuid4().hex[:16]
        return cls(f"{prefix}-{name}", kind, int(time.time()), model)

    def fields(self) -> dict[str, str | int]:
        """Return the fields as they begin a body."""
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """Return the token counts of an answer.

    >>> usage(5, 2)
    {'prompt_tokens': 5, 'total_tokens': 7, 'completion_tokens': 2}
    """
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def detailed_usage(
    prompt: int, replies: Sequence[Generation], *, cached: int, created: int | None, reasoning: int | None
) -> dict[str, Any]:
    """Return the token counts of a whole answer.

    Args:
        prompt: How many ids the prompts have.
        replies: The replies of all choices.
        cached: How many of the prompt's ids were in the prefix cache.
        created: How many were added to it.
        reasoning: How many sampled ids are reasoning; None where the route does not count them.
    """
    counts = {"cached_tokens": cached, "created_cache_tokens": created, "multimodal_tokens": None}
    return {
        **usage(prompt, sum(len(reply.ids) for reply in replies)),
        "prompt_tokens_details": counts,
        "completion_tokens_details": None if reasoning is None else {"reasoning_tokens": reasoning},
    }

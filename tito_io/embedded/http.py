"""Why a request is not answered, in the engine's words and envelope."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import anyio.lowlevel
import orjson
from attrs import frozen
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse


class BadRequest(Exception):  # noqa: N818  # it names what happened to the request
    """A request that gets an error body. The texts are those that clients of the engine already know."""

    def __init__(
        self, message: str, *, param: str | None = None, kind: str = "BadRequestError", status: int = 400
    ) -> None:
        """Say what is wrong, and with which parameter."""
        super().__init__(message)
        self.message = message
        self.param = param
        self.kind = kind
        self.status = status

    def body(self) -> dict[str, Any]:
        """Return the JSON body."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"error": error}


def bad(message: str, param: str, value: object = None) -> BadRequest:
    """Refuse a parameter's value, which the message repeats at its end.

    >>> bad("n must be at least 1, got 0.", "n", 0).message
    'n must be at least 1, got 0. (parameter=n, value=0)'
    """
    told = f"parameter={param}" + ("" if value is None else f", value={value}")
    return BadRequest(f"{message} ({told})", param=param)


def unsupported(name: str) -> BadRequest:
    """Refuse a parameter that a real engine acts on and a sampler of words cannot."""
    return bad(f"`{name}` is not supported by the embedded sampler; leave it out.", name)


def invalid(kind: str, place: str, told: str, given: object, context: object = None) -> BadRequest:
    """Refuse a body of the wrong shape: `place` is a path such as `body.messages`."""
    found = {"type": kind, "loc": place, "msg": told, "input": _shown(given)}
    if context is not None:
        found["ctx"] = context
    return BadRequest(f"1 validation error:\n  {found}", param=place, kind="Bad Request")


def unknown_model(asked: str, served: str) -> BadRequest:
    """Refuse a model that is not served."""
    text = f"The model `{asked}` does not exist. Valid aliases: {served}."
    return BadRequest(text, param="model", kind="NotFoundError", status=404)


def _shown(given: object) -> object:
    """Describe a container by its size and cut a long text: an error does not repeat a whole request."""
    if isinstance(given, list | dict):
        return f"<{type(given).__name__} of {len(given)} items>"
    return str(given)[:200]


LARGEST = 2**63 - 1
SAID: Mapping[object, bool] = {
    **dict.fromkeys((True, "true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys((False, "false", "f", "no", "n", "off", "0"), False),
}
"""What the engine reads as true and false: the numbers one and zero, too, and words in any case."""


@frozen
class Body:
    """The object; `None` and a missing key are the same."""

    values: Mapping[str, Any]

    @classmethod
    async def read(cls, request: Request) -> Body:
        """Read it from a request, or refuse what is not a JSON object."""
        media = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if media != "application/json":
            text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
            raise BadRequest(text, kind="Bad Request")
        values = _decoded(await request.body())
        if not isinstance(values, dict):
            text = "Input should be a valid dictionary or object to extract fields from"
            raise invalid("model_attributes_type", "body", text, values)
        return cls(values)

    def get(self, name: str) -> Any:
        """Return a value of any type, or None."""
        return self.values.get(name)

    def need(self, name: str) -> Any:
        """Return a value that must be there."""
        if name not in self.values:
            raise invalid("missing", f"body.{name}", "Field required", dict(self.values))
        return self.values[name]

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return true or false, said in any of the ways that the engine reads.

        >>> Body({"stream": "off"}).flag("stream"), Body({"stream": 1}).flag("stream")
        (False, True)
        """
        value = self.get(name)
        if value is None:
            return default
        word = SAID.get(value.lower() if isinstance(value, str) else value) if value.__hash__ else None
        if word is None:
            raise invalid("bool_parsing", f"body.{name}", "Input should be a valid boolean", value)
        return word

    def integer(self, name: str) -> int | None:
        """Return a whole number, or None."""
        value = self.number(name)
        if value is not None and value != int(value):
            raise invalid("int_from_float", f"body.{name}", "Input should be a valid integer", value)
        return None if value is None else int(value)

    def number(self, name: str) -> float | int | None:
        """Return a finite number, or None."""
        value = self.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise invalid("float_type", f"body.{name}", "Input should be a valid number", value)
        return value

    def text(self, name: str) -> str | None:
        """Return a string, or None."""
        value = self.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid("string_type", f"body.{name}", "Input should be a valid string", value)
        return value

    def object(self, name: str) -> Mapping[str, Any]:
        """Return an object, empty where there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise invalid("dict_type", f"body.{name}", "Input should be a valid dictionary", value)
        return {} if value is None else value

    def objects(self, name: str) -> list[dict[str, Any]] | None:
        """Return a list of objects, or None."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise invalid("list_type", f"body.{name}", "Input should be a valid list", value)
        for place, item in enumerate(value):
            if not isinstance(item, dict):
                raise invalid("dict_type", f"body.{name}.{place}", "Input should be a valid dictionary", item)
        return value

    def ids(self, name: str) -> list[int]:
        """Return token ids, none where the key is missing."""
        value = self.get(name)
        return [] if value is None else token_ids(value, f"body.{name}")

    def texts(self, name: str) -> list[str]:
        """Return strings; one string alone is a list of one."""
        value = self.get(name)
        found = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise invalid("string_type", f"body.{name}", "Input should be a valid string", value)
        return found


def token_ids(value: Any, place: str) -> list[int]:
    """Return `value` as ids: whole numbers from 0 on."""
    if not isinstance(value, list):
        raise invalid("list_type", place, "Input should be a valid list", value)
    if set(map(type, value)) <= {int} and (not value or 0 <= min(value) <= max(value) <= LARGEST):
        return value
    for index, item in enumerate(value):
        if type(item) is not int:
            raise invalid("int_type", f"{place}.{index}", "Input should be a valid integer", item)
        if item < 0:
            told = "Input should be greater than or equal to 0"
            raise invalid("greater_than_equal", f"{place}.{index}", told, item, {"ge": 0})
    raise invalid("less_than_equal", place, "Input should be less than 2**63", value)


def _decoded(raw: bytes) -> Any:
    """Decode JSON, and say where it is broken."""
    if not raw:
        raise invalid("missing", "body", "Field required", None)
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        pass
    try:
        return json.loads(raw)  # allows what orjson does not, NaN for one; else it tells the place
    except json.JSONDecodeError as error:
        place = f"body.{error.pos}"
        raise invalid("json_invalid", place, "JSON decode error", {}, {"error": error.msg}) from error
    except UnicodeDecodeError as error:
        raise HTTPException(400, "There was an error parsing the body") from error


class JSON(Response):
    """A JSON answer; ids by the hundred thousand are written quickly."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes of `content`."""
        return orjson.dumps(content)


def stream(bodies: Iterable[Any]) -> StreamingResponse:
    """Answer with `bodies`, one event each."""
    return StreamingResponse(_events(bodies), media_type="text/event-stream")


async def _events(bodies: Iterable[Any]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield b"data: " + orjson.dumps(body) + b"\n\n"
        await anyio.lowlevel.checkpoint()
    yield b"data: [DONE]\n\n"

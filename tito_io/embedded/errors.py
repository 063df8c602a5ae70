"""Why a request is not answered, in the engine's words and envelope."""

from __future__ import annotations

from typing import Any


class Refused(Exception):  # noqa: N818  # it names what happened to the request
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


def bad(message: str, param: str, value: object = None) -> Refused:
    """Refuse a parameter's value, which the message repeats at its end.

    >>> bad("n must be at least 1, got 0.", "n", 0).message
    'n must be at least 1, got 0. (parameter=n, value=0)'
    """
    told = f"parameter={param}" + ("" if value is None else f", value={value}")
    return Refused(f"{message} ({told})", param=param)


def unsupported(name: str) -> Refused:
    """Refuse a parameter that a real engine acts on and a sampler of words cannot."""
    return bad(f"`{name}` is not supported by the embedded sampler; leave it out.", name)


def invalid(kind: str, place: str, told: str, given: object, context: object = None) -> Refused:
    """Refuse a body of the wrong shape: `place` is a path such as `body.messages`."""
    found = {"type": kind, "loc": place, "msg": told, "input": _shown(given)}
    if context is not None:
        found["ctx"] = context
    return Refused(f"1 validation error:\n  {found}", param=place, kind="Bad Request")


def unknown_model(asked: str, served: str) -> Refused:
    """Refuse a model that is not served."""
    text = f"The model `{asked}` does not exist. Valid aliases: {served}."
    return Refused(text, param="model", kind="NotFoundError", status=404)


def _shown(given: object) -> object:
    """Describe a container by its size and cut a long text: an error does not repeat a whole request."""
    if isinstance(given, list | dict):
        return f"<{type(given).__name__} of {len(given)} items>"
    return str(given)[:200]

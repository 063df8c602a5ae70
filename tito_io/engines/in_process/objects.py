"""Check the object that an adapter is made with by what is used of it: its package is not imported."""

from __future__ import annotations

from collections.abc import Mapping

from tito_core import InputError
from tito_core.checks import short_repr

TAKERS: Mapping[str, str] = {
    "LLM": "VllmLLM",
    "AsyncLLM": "VllmAsync",
    "LLMEngine": "VllmLLM with the vllm.LLM around it",
    "Engine": "SglangEngine",
}
"""Which adapter takes an object, by the name of its class in vLLM or SGLang."""


def check_object(value: object, name: str, needed: tuple[str, ...], expected: str, adapter: str) -> None:
    """Raise `InputError` unless an object has what the adapter uses of it.

    Args:
        value: The object.
        name: The argument, as the error names it.
        needed: Attributes that the object must have.
        expected: What the adapter takes.
        adapter: The adapter's own name.

    >>> check_object("Qwen/Qwen3-4B", "llm", ("llm_engine",), "a vllm.LLM", "VllmLLM")
    Traceback (most recent call last):
    tito_core.errors.InputError: llm is 'Qwen/Qwen3-4B', which has no llm_engine: give a vllm.LLM
    """
    if isinstance(value, type):
        raise InputError(f"{name} is the class {value.__qualname__}: give an object of it, {expected}")
    missing = next((one for one in needed if not hasattr(value, one)), None)
    if missing is None:
        return
    kind = type(value).__name__
    taker = TAKERS.get(kind, adapter)
    hint = "" if taker == adapter else f"; this one goes into {taker}"
    raise InputError(f"{name} is {described(value)}, which has no {missing}: give {expected}{hint}")


def described(value: object) -> str:
    """Return what an object is: plain values as they are, other objects by their class.

    >>> described("x"), described(None), described((1, 2)), described(described)
    ("'x'", 'None', 'a tuple', 'a builtins.function')
    """
    if value is None or isinstance(value, str | int | float | tuple | list):
        return short_repr(value)
    return f"a {type(value).__module__}.{type(value).__qualname__}"

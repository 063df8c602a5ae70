"""Adapters of the kernel: engines, tokenizers, chat templates, and the `tito` command.

What most programs need can be imported from here. A module is loaded when its name is asked for, so that a
program pays for what it uses, and needs the packages of that alone.

>>> from tito_io import CallFile, Family, TokenClient
>>> TokenClient.__module__
'tito_io.client.token_client'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import AsyncBridge as AsyncBridge
    from .client import Conversation as Conversation
    from .client import TokenClient as TokenClient
    from .client import rendered_by as rendered_by
    from .engines.dynamo import Dynamo as Dynamo
    from .engines.llamacpp import LlamaCpp as LlamaCpp
    from .engines.sglang import SGLang as SGLang
    from .engines.vllm import VLLM as VLLM
    from .families import Family as Family
    from .samples.forms.tito import CallFile as CallFile

_PLACES = {
    "AsyncBridge": "client",
    "CallFile": "samples.forms.tito",
    "Conversation": "client",
    "Dynamo": "engines.dynamo",
    "Family": "families",
    "LlamaCpp": "engines.llamacpp",
    "SGLang": "engines.sglang",
    "TokenClient": "client",
    "VLLM": "engines.vllm",
    "rendered_by": "client",
}
"""The modules that define the names."""

__all__ = list(_PLACES)

if not TYPE_CHECKING:  # else every name would be one to type checkers

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_PLACES[name]}", __name__), name)

"""The switch for reasoning under the names that chat templates have for it, and those that clients send.

Each vendor's template reads another variable, and each vendor's clients name their own. A wish is written
under all names, as NVIDIA Dynamo does (`dynamo/frontend/thinking.py`), and so reaches whichever is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SWITCHES: Mapping[str, tuple[Any, Any]] = {
    "enable_thinking": (False, True),  # Qwen, GLM, Nemotron, Gemma
    "thinking": (False, True),  # Kimi, DeepSeek, Granite
    "thinking_mode": ("disabled", "enabled"),  # MiniMax M3
}
"""The variables that switch reasoning, with their values for off and on."""
EFFORT = "reasoning_effort"
"""The variable for how much a model reasons. Mistral and Cohere read `none` in it as off."""
NO_EFFORT = "none"


def switched(args: Mapping[str, Any]) -> bool | None:
    """Return whether template arguments switch reasoning on; None where they do neither.

    >>> switched({"thinking_mode": "disabled"}), switched({"thinking_mode": "adaptive"})
    (False, None)
    """
    for name, values in SWITCHES.items():
        for on, value in enumerate(values):
            if name in args and args[name] == value and type(args[name]) is type(value):
                return bool(on)
    return None


def under_all_names(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return template arguments in which a switch that has one of the names has all of them.

    >>> under_all_names({"thinking": False, "a": 1})
    {'enable_thinking': False, 'thinking': False, 'thinking_mode': 'disabled', 'a': 1}
    """
    wish = switched(args)
    spelled = {} if wish is None else {name: values[wish] for name, values in SWITCHES.items()}
    return {**spelled, **args}


def with_effort(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return template arguments in which an effort switches reasoning, if nothing else does.

    vLLM and SGLang do so: `none` is off, every other effort is on (`ChatCompletionRequest` in
    `vllm/entrypoints/openai/chat_completion/protocol.py` and `sglang/srt/entrypoints/openai/protocol.py`).

    >>> with_effort({"reasoning_effort": "none"})["enable_thinking"]
    False
    """
    if args.get(EFFORT) is None or switched(args) is not None:
        return dict(args)
    return {**under_all_names({"enable_thinking": args[EFFORT] != NO_EFFORT}), **args}

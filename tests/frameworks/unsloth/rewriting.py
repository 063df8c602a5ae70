"""What Unsloth makes of TRL's trainer with a GPU: its functions that rewrite methods, from its own file.

Their module cannot be imported without Triton. These few need nothing but `re`.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any

import trl.trainer.grpo_trainer as of_trl

HELPERS = ("_guard_vllm_sync_reload_for_shared_weights",)
METHODS = ("_generate", "_generate_single_turn")
"""The methods that sample."""


def source() -> str:
    """Return the text of the file with which Unsloth rewrites trainers."""
    spec = find_spec("unsloth")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "models" / "rl_replacements.py").read_text()


@cache
def functions() -> dict[str, Any]:
    """Return the functions that rewrite the methods that sample, by the names of these."""
    wanted = {f"grpo_trainer_{name}": name for name in METHODS}
    parts: list[ast.stmt] = [
        part
        for part in ast.parse(source()).body
        if isinstance(part, ast.FunctionDef) and part.name in (*wanted, *HELPERS)
    ]
    space: dict[str, Any] = {"re": re}
    exec(compile(ast.Module(parts, []), "rl_replacements.py", "exec"), space)  # noqa: S102  # of the wheel
    return {name: space[function] for function, name in wanted.items() if function in space}


def rewritten(name: str) -> FunctionType:
    """Return a method of TRL's trainer as Unsloth rewrites it."""
    text = functions()[name](name, inspect.getsource(getattr(of_trl.GRPOTrainer, name)))
    text = text.replace("super()", "super(GRPOTrainer, self)")  # which is not its class's body any more
    space = dict(vars(of_trl))
    exec(f"class Part:\n{text}", space)  # noqa: S102  # likewise
    found: FunctionType = vars(space["Part"])[name]
    return found

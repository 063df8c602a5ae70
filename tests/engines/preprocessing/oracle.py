"""Ask an engine's own code what it makes of chat requests; no engine runs for it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.engines import sglang, vllm
from tests.environment import Environment, Say, cache
from tito_io.engines.openai_fields import wire_messages

from .shapes import Conversation

HERE = Path(__file__).parent
ENVIRONMENTS: Mapping[str, Callable[[Say], Environment]] = {
    "vllm": vllm.environment,
    "sglang": sglang.environment,
}
REASONING = {"vllm": "reasoning", "sglang": "reasoning_content"}
"""The key under which the adapter sends reasoning."""

Answer = Mapping[str, Any]
"""`text`, or `error`; and `conversation`, what the template got."""
Ask = Callable[[str, Conversation, Mapping[str, Any]], Answer]


@contextmanager
def oracle(engine: str, say: Say) -> Iterator[Ask]:
    """Lend the code of an engine: ask it with a template, a conversation and variables."""
    found = ENVIRONMENTS[engine](say)
    model = vllm.model(vllm.environment(say), say)
    script, errors = HERE / f"{engine}_oracle.py", cache() / f"{engine}-oracle.log"
    command = [str(found.python), "-W", "ignore", str(script), str(model)]
    pipe = subprocess.PIPE
    with (
        errors.open("w") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True) as child,
    ):
        try:
            if not any(line.startswith('{"ready"') for line in iter(child.stdout.readline, "")):  # type: ignore[union-attr]  # it is a pipe
                raise RuntimeError(f"{script.name} ended: {errors.read_text()[-2000:]}")
            yield lambda template, one, variables: _asked(child, engine, template, one, variables)
        finally:
            child.terminate()


def _asked(
    child: subprocess.Popen[str], engine: str, template: str, one: Conversation, variables: Mapping[str, Any]
) -> Answer:
    question = {
        "template": template,
        "messages": wire_messages(one.messages, REASONING[engine]),
        "tools": one.tools,
        "variables": variables,
    }
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(question) + "\n")
    child.stdin.flush()
    answer: Answer = json.loads(child.stdout.readline())
    return answer

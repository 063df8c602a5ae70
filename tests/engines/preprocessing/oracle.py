"""Ask an engine's own code what it makes of chat requests; no engine runs for it."""

from __future__ import annotations

import json
import os
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
SETTINGS: Mapping[str, Mapping[str, str]] = {"vllm": vllm.SETTINGS, "sglang": sglang.SETTINGS}
"""Environment variables; what SGLang lacks on a CPU is found by them."""
REASONING = {"vllm": "reasoning", **dict.fromkeys(("sglang", "dynamo", "llamacpp"), "reasoning_content")}
"""The key under which the adapter sends reasoning."""

Answer = Mapping[str, Any]
"""`text`, or `error`."""
Ask = Callable[[str, Conversation, Mapping[str, Any]], Answer]


@contextmanager
def oracle(engine: str, say: Say) -> Iterator[Ask]:
    """Lend the code of an engine: ask it with a template, a conversation and variables."""
    found = ENVIRONMENTS[engine](say)
    model = vllm.model(vllm.environment(say), say)
    errors = cache() / f"{engine}-oracle.log"
    command = [str(found.python), "-W", "ignore", str(HERE / "oracle_process.py"), engine, str(model)]
    pipe = subprocess.PIPE
    with (
        errors.open("w") as log,
        subprocess.Popen(
            command, env={**os.environ, **SETTINGS[engine]}, stdin=pipe, stdout=pipe, stderr=log, text=True
        ) as child,
    ):
        try:
            questions, replies = child.stdin, child.stdout
            assert questions is not None
            assert replies is not None
            if not any(line.startswith('{"ready"') for line in iter(replies.readline, "")):
                raise RuntimeError(f"the code of {engine} ended: {errors.read_text()[-2000:]}")

            def ask(template: str, one: Conversation, variables: Mapping[str, Any]) -> Answer:
                questions.write(_question(engine, template, one, variables))
                questions.flush()
                answer: Answer = json.loads(replies.readline())
                return answer

            yield ask
        finally:
            child.terminate()


def _question(engine: str, template: str, one: Conversation, variables: Mapping[str, Any]) -> str:
    """Return the line of a question: messages as the adapter sends them."""
    messages = wire_messages(one.messages, REASONING[engine])
    question = {"template": template, "messages": messages, "tools": one.tools, "variables": variables}
    return json.dumps(question) + "\n"

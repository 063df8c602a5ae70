"""A loop over OpenAI's client, which behaves as WAY says: `URL WAY TASK`. It tests the harness itself."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "read_note",
        "description": "Read the first lines of a note.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path", "lines"],
        },
    },
}
SET_TITLE: Any = {"type": "function", "function": {"name": "set_title"}}


def read_note(path: str, lines: int) -> str:
    """Return the first lines of a note."""
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


def echo(message: Any, way: str) -> dict[str, Any]:
    """Return what the next request says of an answer."""
    said: dict[str, Any] = message.model_dump(exclude_none=True)
    return {**said, "content": "I said something else."} if way == "edits" else said


def main(url: str, way: str, task: str) -> None:
    """Read notes until the model has enough."""
    if way == "hangs":
        time.sleep(600)
    if way == "stays":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    messages: list[Any] = [{"role": "user", "content": task}]
    unknown: dict[str, Any] = {"tool_choice": "no such choice"} if way == "errs" else {}
    if way == "titles":
        client.chat.completions.create(model="any", messages=messages)
    if way == "tooled titles":
        client.chat.completions.create(model="any", messages=messages, tools=[SET_TITLE])
    while True:
        asked: Any = {"messages": messages, "tools": [TOOL], **unknown}
        answer = client.chat.completions.create(model="any", **asked)
        message = answer.choices[0].message
        messages.append(echo(message, way))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            text = read_note(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


main(*sys.argv[1:])

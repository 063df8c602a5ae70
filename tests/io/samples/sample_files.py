"""Files of stored trajectories, written in each of the forms that are read."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from tito_core.samples import Forest, StoredCall
from tito_io.samples.conversation import Problem
from tito_io.samples.forms.tito import line, write_calls
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.read import StoredConversation, conversations


def examples(name: str) -> list[dict[str, Any]]:
    """Return the examples of a file of this folder."""
    return list(map(orjson.loads, Path(__file__).with_name(name).read_bytes().splitlines()))


RECORDS = examples("records.jsonl")
"""Lines of files with what comes of them; `test_records` says how."""
WHY = re.compile(r"(?<=is not valid JSON: ).*?(?=, at character)")


def without_reason(text: str) -> str:
    """Return what is told without the library's words for what is no JSON."""
    return WHY.sub("WHY", text)


def content_of(example: dict[str, Any]) -> bytes:
    """Return the file of an example: its `text`, or its `lines` of JSON."""
    return example["text"].encode() if "text" in example else dumped(*example["lines"])


def recorded(rule: str) -> list[Any]:
    """Return the lines of the first example of a rule."""
    row = next(row for row in RECORDS if row["rule"] == rule)
    found: list[Any] = row["lines"] if "lines" in row else [orjson.loads(row["text"])]
    return found


def own(conversation: str, calls: Iterable[StoredCall]) -> bytes:
    """Return calls in tito's own form, one after the other."""
    file = io.BytesIO()
    write_calls(file, conversation, calls)
    return file.getvalue()


def own_forest(conversation: str, forest: Forest) -> bytes:
    """Return all calls of a forest, each without the history of the call that it continues."""
    written: dict[str | None, StoredCall] = {}
    lines = []
    for node in forest.nodes:
        lines.append(line(conversation, node.call, written.get(node.parent)))
        written[node.name] = node.call
    return b"".join(lines)


def dumped(*records: Any) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def put(folder: Path, content: bytes, name: str = "log.jsonl") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read(path: Path, **reading: Any) -> tuple[list[StoredConversation], list[Problem]]:
    found = list(conversations(path, ReadOptions(**reading)))
    stored = [one for one in found if isinstance(one, StoredConversation)]
    return stored, [one for one in found if isinstance(one, Problem)]


def chat(
    name: str, prompt_ids: Sequence[int], ids: Sequence[int], messages: Sequence[Any] = (), **more: Any
) -> dict[str, Any]:
    """Return an exchange with vLLM's chat route; `more` stands beside request and response."""
    logprobs = {"content": [{"token": "x", "logprob": -0.5 - place} for place in range(len(ids))]}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": f"said {name}", "tool_calls": None},
        "logprobs": logprobs,
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": list(ids),
    }
    usage = {"prompt_tokens": len(prompt_ids), "completion_tokens": len(ids)}
    response = {
        "id": name,
        "model": "m",
        "choices": [choice],
        "usage": usage,
        "prompt_token_ids": list(prompt_ids),
    }
    request = {"model": "m", "messages": list(messages) or [{"role": "user", "content": "hi"}]}
    return {"request": request, "response": response, **more}

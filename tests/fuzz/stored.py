"""Files of stored trajectories, in each format, compressed or not, and the rows that are made of them."""

from __future__ import annotations

import atexit
import gzip
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any

import orjson
import zstandard

from tests.core.samples.calls import call
from tests.io.samples.sample_files import chat, dumped, recorded
from tito_core import TitoError
from tito_core.samples import Forest, SampleOptions
from tito_io.samples.conversation import Problem
from tito_io.samples.convert import WRITABLE, converted
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.read import StoredConversation, conversations
from tito_io.samples.rows import to_rows

from .replies import RECORDS
from .target import Parser, Target

LONGEST = 1 << 20
"""Bytes of the longest line."""


@cache
def folder() -> Path:
    """Return a folder of this process for inputs that are files."""
    made = mkdtemp(prefix="tito-fuzz-")
    atexit.register(rmtree, made, ignore_errors=True)
    return Path(made)


def in_file(read: Callable[[Path], object], name: str) -> Parser:
    """Return the parser of a file of this name: `read` takes its path."""

    def parse(data: bytes) -> object:
        path = folder() / name
        path.write_bytes(data)
        return read(path)

    return parse


def _rows(path: Path) -> object:
    """Read conversations as `tito samples` does: make their rows, and write them in every other format."""
    found = list(conversations(path, ReadOptions(max_line=LONGEST)))
    stored = [one for one in found if isinstance(one, StoredConversation)]
    rows = list(to_rows(stored, SampleOptions()))
    for form in WRITABLE.values():
        for one in converted(stored, form, expand=form.expands):
            if not isinstance(one, Problem):
                list(map(orjson.loads, one[1]))
    return rows


CALLS = [call("a", [1, 2], [3], words="hi"), call("b", [1, 2, 3, 4], [5], order=1, reward=0.5)]
FOREST = Forest.of(CALLS)


def _written(form: str, *, expand: bool = False) -> bytes:
    write = WRITABLE[form].write
    if write is None:
        raise AssertionError(form)
    return b"".join(write("talk", FOREST, expand))


def _traces() -> bytes:
    """Return an episode of verifiers 0.4."""
    asked = {"message": {"role": "user", "content": "q"}, "token_ids": [1, 2], "parent": None}
    said: dict[str, Any] = {"role": "assistant", "content": "hi", "reasoning_content": None, "tool_calls": []}
    sampled = {"message": said, "token_ids": [3, 4], "mask": [False, True], "logprobs": [-0.5]}
    nodes = [asked, {**sampled, "parent": 0, "sampled": True, "finish_reason": "stop"}]
    trace = {"id": "t", "agent": {"trainable": True}, "nodes": nodes, "rewards": {"a": 1.0}}
    return dumped({"id": "e", "traces": [trace]})


def _events() -> bytes:
    """Return an exchange whose reply is a stream."""
    delta = {"index": 0, "delta": {"content": "hi"}, "token_ids": [3], "finish_reason": "stop"}
    stream = (
        f"data: {orjson.dumps({'prompt_token_ids': [1], 'choices': [delta]}).decode()}\n\ndata: [DONE]\n\n"
    )
    return dumped({"request": {"messages": []}, "response": stream})


def _gym_rollout() -> bytes:
    item: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
    item |= {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    answer = {"id": "r", "output": [item]}
    return dumped({"responses_create_params": {"input": "hi"}, "response": answer, "reward": 1.0})


CONTENTS: Mapping[str, bytes] = {
    "tito": _written("tito"),
    "atif": _written("atif"),
    "atif whole": _written("atif", expand=True),
    "atif foreign": dumped(*recorded("Trajectories of other agents are read")),
    "harbor": _written("harbor"),
    "harbor trial": dumped(*recorded("Trials of Harbor are read")),
    "gym": dumped(*recorded("Calls of a rollout are one conversation")),
    "gym rollout": _gym_rollout(),
    "miles": RECORDS,
    "verifiers": dumped(*recorded("A result of verifiers is a conversation")),
    "traces": _traces(),
    "chat": dumped(chat("a", [1, 2], [3]), chat("b", [1, 2, 3], [4])),
    "generated": dumped(*recorded("SGLang's own route has its ids in meta_info")),
    "legacy": dumped(*recorded("Each turn of a reply is a call")),
    "dynamo exchange": dumped(*recorded("Dynamo tells ids beside the choices")),
    "events": _events(),
}
COMPRESSED: Mapping[str, tuple[Parser, bytes]] = {
    "gz": (in_file(_rows, "a.jsonl.gz"), gzip.compress(CONTENTS["tito"], mtime=0)),
    "zst": (in_file(_rows, "a.jsonl.zst"), zstandard.ZstdCompressor().compress(CONTENTS["tito"])),
}
TARGETS = (
    Target(
        name="samples",
        parsers={name: (in_file(_rows, "a.jsonl"), content) for name, content in CONTENTS.items()},
        errors=(TitoError,),
    ),
    Target(name="samples-compressed", parsers=COMPRESSED, errors=(TitoError,), json=False),
)

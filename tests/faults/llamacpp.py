"""Faults of the llama.cpp adapter."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

LLAMACPP = partial(
    Fault, package="tito_io", suites=("tests/io/engines/llamacpp",), plugins=("anyio.pytest_plugin",)
)

FAULTS = (
    LLAMACPP(
        "an entry that fits two places takes the first",
        "engines/llamacpp/replies.py",
        "        if place == len(ids) - 1 - from_end:\n",
        "        if place >= 0 <= from_end:\n",
    ),
    LLAMACPP(
        "the 0.0 of an id beside a draft is believed",
        "engines/llamacpp/replies.py",
        'values[place] = fields.get("logprob") if check.get(fields, "top_logprobs", list) else None',
        'values[place] = fields.get("logprob")',
    ),
    LLAMACPP(
        "a watched turn is streamed",
        "engines/llamacpp/engine.py",
        "reply = await self._send(await self._request(turn, schema), None, COMPLETION)",
        "reply = await self._send(await self._request(turn, schema), watch, COMPLETION)",
    ),
    LLAMACPP(
        "the server's minimum probability stays",
        "engines/llamacpp/requests.py",
        '    "min_p": 0.0,\n',
        "",
    ),
    LLAMACPP(
        "a missing log-probability is asked for after the whole turn",
        "engines/llamacpp/recovery.py",
        "prompt.then(turn.completion_ids[:place])",
        "prompt.then(turn.completion_ids)",
    ),
)
"""Each is a trap of the server that the adapter would fall into."""

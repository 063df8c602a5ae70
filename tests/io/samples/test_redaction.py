"""Redacted calls keep what a bug needs, and no text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.io.samples.sample_files import put, read
from tests.profiles import tries
from tests.stored.values import CALLS as STORED
from tito_core import Step
from tito_core.samples import Forest, StoredCall, make_rows
from tito_core.testing.strategies.stored_call import CALLS
from tito_io.cli.group import tito
from tito_io.samples.forms.tito import line
from tito_io.samples.read import StoredConversation
from tito_io.samples.redaction import Redaction

WHO, DOOR, TOOL, ARGUMENT = "Zimmerman", "sesame-street", "look_up_patient", "patient_name"
CALL_ID, TENANT, CITY = "call_abcdefgh", "tenant-seven", "Zürich"
SECRETS = (WHO, DOOR, TOOL, ARGUMENT, CALL_ID, TENANT, CITY)


def redacted(calls: list[StoredCall], *, ids: bool = False) -> Forest:
    (one,) = Redaction(ids=ids).conversations(
        [StoredConversation(name="talk", forest=Forest.of(calls), first=1, last=1)]
    )
    assert isinstance(one, StoredConversation)
    assert one.name == "conversation-0001"
    return one.forest


def messages(forest: Forest) -> list[Any]:
    return [dict(one) for call in forest.calls for one in call.step.messages]


def structure(forest: Forest) -> list[Any]:
    """Return what must not change: the tree by places, lengths, ledgers, numbers and roles."""
    place = {name: index for index, name in enumerate(node.name for node in forest.nodes)}
    return [
        (
            None if node.parent is None else place[node.parent],
            *(len(ids) for ids in (node.call.step.prompt_ids, node.call.step.completion_ids)),
            *(node.call.step.ledger, node.call.step.logprobs, node.call.step.truncated, node.call.reward),
            *(node.call.finish_reason, node.call.order),
            [message["role"] for message in node.call.step.messages],
            [(one.offset, one.length) for one in node.call.step.media],
        )
        for node in forest.nodes
    ]


@pytest.mark.whole
@given(CALLS, st.booleans())
@tries(10)
def test_the_structure_stays(calls: list[StoredCall], numbered: bool) -> None:
    before, after = Forest.of(calls), redacted(calls, ids=numbered)
    assert structure(after) == structure(before)
    old, new = messages(before), messages(after)
    assert [[a == b for b in new] for a in new] == [[a == b for b in old] for a in old]
    rows = [
        [(len(row), row.loss_mask, row.logprobs) for row in make_rows(one).rows] for one in (before, after)
    ]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("numbered", [False, True])
def test_ids_stay_or_are_numbered_one_to_one(*, numbered: bool) -> None:
    before, after = Forest.of(STORED), redacted([*STORED], ids=numbered)
    pairs = {
        pair
        for old, new in zip(before.calls, after.calls, strict=True)
        for pair in zip(old.ids, new.ids, strict=True)
    }
    assert len({old for old, _ in pairs}) == len({new for _, new in pairs}) == len(pairs) == 11
    assert all(old == new for old, new in pairs) is not numbered
    masks = [one.calls[0].step.sampling_mask for one in (before, after)]
    assert masks[0] is not None
    assert masks[1] is not None
    assert (masks[1].counts, masks[1].ids[0]) == (masks[0].counts, dict(pairs)[4])


def secret_calls() -> list[StoredCall]:
    function = {"name": TOOL, "arguments": f'{{"{ARGUMENT}":"{WHO}"}}'}
    tool = {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}}
    step = Step(
        prompt=[{"role": "user", "content": [{"type": "text", "text": f"Open {DOOR}!"}], "name": WHO}],
        completion=[
            {
                "role": "assistant",
                "content": CITY,
                "reasoning_content": WHO,
                "tool_calls": [{"id": CALL_ID, "type": "function", "function": function}],
            }
        ],
        prompt_ids=[1],
        completion_ids=[2],
        key=orjson.dumps([[tool], {}]).decode(),
    )
    broken = {"type": "function", "function": {"name": TOOL, "arguments": f'{{"{ARGUMENT}": "{WHO}'}}
    later = Step(
        prompt=[*step.messages, {"role": "tool", "tool_call_id": CALL_ID, "content": WHO, TENANT: 5}],
        completion=[{"role": "assistant", "content": None, "tool_calls": [{"id": "7", **broken}]}],
        prompt_ids=[1, 2, 3],
        completion_ids=[4],
    )
    return [
        StoredCall(name=f"{TENANT}-{place}", step=one, order=place, metadata={"tenant": TENANT})
        for place, one in enumerate((step, later))
    ]


@pytest.mark.parametrize("form", ["tito", "atif", "harbor"])
def test_no_text_is_left(form: str, tmp_path: Path) -> None:
    file = put(tmp_path, b"".join(line(TENANT, call) for call in secret_calls()))
    out = tmp_path / "out.jsonl"
    command = ["samples", str(file), "--format", form, "--redact", "texts", "-o", str(out)]
    done = CliRunner().invoke(tito, command)
    assert done.exit_code == 0, done.output
    content = out.read_text(encoding="utf-8")
    words = {word for secret in SECRETS for word in re.findall(r"\w{5,}", secret)}
    assert [word for word in sorted(words) if word in content] == []
    stored, problems = read(out)
    assert not problems
    assert [len(one.forest) for one in stored] == [2]


def test_names_of_tools_and_ids_of_calls_still_fit_together() -> None:
    forest = redacted(secret_calls())
    user, turn, result, last = forest.calls[1].step.messages
    (call,), (broken,) = turn["tool_calls"], last["tool_calls"]
    ((tool,), _) = orjson.loads(str(forest.calls[0].step.key))
    assert call["id"] == result["tool_call_id"]
    assert call["function"]["name"] == broken["function"]["name"] == tool["function"]["name"]
    arguments = orjson.loads(call["function"]["arguments"])
    assert [*arguments.values()] == [user["name"]] == [turn["reasoning_content"]]
    assert len(user["name"]) == len(WHO)
    assert tool["function"]["parameters"] == {"type": "object"}


def test_short_texts_stay_different() -> None:
    words = Redaction()
    texts = [chr(97 + place) for place in range(26)] + [str(place) for place in range(10)] + ["", " ", "!"]
    assert len({words.text(text) for text in texts}) == len(texts)
    assert [words.text(text) for text in ("", " ", "!\n")] == ["", " ", "!\n"]


def test_redaction_without_a_format_is_refused() -> None:
    done = CliRunner().invoke(tito, ["samples", "-", "--redact", "texts"])
    assert (done.exit_code, "--redact belongs to --format" in done.output) == (2, True)

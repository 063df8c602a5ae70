"""The layouts of the formats that tito writes: other programs and later versions read these files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.io.samples.sample_files import put, read
from tito_core import Message, Step, __version__
from tito_core.ledger import Origin
from tito_core.samples import Forest, RoutedExperts, StoredCall, WeightVersion
from tito_io.samples.forms import FORMS

LAYOUTS = Path(__file__).with_name("layouts")
WRITTEN = [("tito", False), ("atif", False), ("atif", True), ("harbor", False)]
TOOL: Message = {"role": "tool", "tool_call_id": "c1", "content": "7"}
CALLS = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]


def calls() -> list[StoredCall]:
    """Return a call, one that continues it, and one that restates its messages otherwise."""
    asked: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    first = Step(
        prompt=asked,
        completion=[{"role": "assistant", "content": "", "reasoning": "r", "tool_calls": CALLS}],
        prompt_ids=[1, 2, 3],
        completion_ids=[4, 5],
        logprobs=[-0.5, -0.25],
        key='[[],{"t":1}]',
    )
    second = Step(
        prompt=[*first.messages, TOOL],
        completion=[{"role": "assistant", "content": "ok", "name": "n"}],
        prompt_ids=[*first.ids, 6, 7],
        completion_ids=[8],
        logprobs=[-1.0],
        truncated=True,
        key=first.key,
        prompt_ledger=first.ledger.then((Origin.INSERTED_CLOSE, 1), (Origin.GENERATION_PROMPT, 1)),
    )
    restated = {"role": "user", "content": "Q"}
    third = Step(
        prompt=[asked[0], restated, first.completion[0], TOOL, {"role": "user", "content": "and?"}],
        completion=[{"role": "assistant", "content": "no"}],
        prompt_ids=[*first.ids, 9],
        completion_ids=[10, 11],
        logprobs=[None, -2.0],
        truncated=True,
    )
    return [
        StoredCall(
            name="a",
            step=first,
            order=3,
            finish_reason="stop",
            weight_versions=[WeightVersion(version="v1", start=0, stop=2)],
            reward=0.5,
            metadata={"k": [1]},
        ),
        StoredCall(
            name="b",
            step=second,
            order=5,
            finish_reason="length",
            weight_versions=[WeightVersion(version="v2", start=0, stop=1)],
            routed_experts=RoutedExperts(data=bytes(range(7)), dtype="uint8", shape=(7, 1, 1)),
            reward=0.5,
        ),
        StoredCall(name="c", step=third, order=9, finish_reason="abort", reward=0.5),
    ]


def layout(form: str, *, expand: bool) -> bytes:
    text = (LAYOUTS / f"{form}{'-expanded' * expand}.jsonl").read_text()
    return text.replace('"version":"VERSION"', f'"version":"{__version__}"').encode()


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_a_format_is_written_as_it_was(form: str, *, expand: bool) -> None:
    write = FORMS[form].write
    assert write is not None
    assert b"".join(write("talk", Forest.of(calls()), expand)) == layout(form, expand=expand)


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_a_file_of_before_is_read(tmp_path: Path, form: str, *, expand: bool) -> None:
    (stored,), problems = read(put(tmp_path, layout(form, expand=expand)), form=form)
    assert problems == []
    assert stored.name == "talk"
    assert stored.forest.calls == Forest.of(calls()).calls
    first, second, _ = (one.step for one in stored.forest.calls)
    assert second.prompt_ids.extends(first.ids)  # shared, not copied
    assert second.prompt.extends(first.messages)

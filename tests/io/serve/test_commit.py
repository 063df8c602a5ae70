"""Stored turns: what comes back, and what is no turn of this version."""

from __future__ import annotations

from typing import Any

import attrs
import orjson
import pytest

from tito_core import InputError, Ledger, Origin, SamplingMask, Step
from tito_core.data import to_data
from tito_core.media.ranges import MediaRange
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion
from tito_io.serve.commit import Commit, TurnOrigin, decode, encode
from tito_io.serve.session import SessionHead
from tito_io.serve.store import LostError

CAT = MediaRange(modality="image", identity="cat", offset=1, length=2, collapsed=(7,))
DOG = attrs.evolve(CAT, identity="dog", offset=5)


def committed(name: str, step: Step, parent: str | None = None, **more: Any) -> Commit:
    call = StoredCall(
        name=name,
        step=step,
        order=3,
        finish_reason="length" if step.truncated else "stop",
        weight_versions=[WeightVersion(version="w", start=0, stop=1)],
        routed_experts=RoutedExperts(data=bytes([1, 2]), dtype="uint8", shape=(2, 1, 1), start=1),
    )
    origin = TurnOrigin(
        dialect="chat",
        route="MITO",
        requested=1.5,
        refusal="NO_PREFIX",
        forgiven=("a", "b"),
        expected=1,
        cached=2,
        stop_reason=9,
        engine_request="q",
        worker="w1",
        instructed=True,
        retry_key="k",
        request={"model": "m"},
    )
    return Commit(call=call, parent=parent, response="r", at=2.5, origin=attrs.evolve(origin, **more))


FIRST = Step(
    prompt=[{"role": "user", "content": "hi"}],
    completion=[{"role": "assistant", "content": "yes"}],
    prompt_ids=[1, 7, 7, 2],
    completion_ids=[3, 4],
    logprobs=[-0.5, None],
    key="[[],{}]",
    media=[CAT],
)
NEXT: dict[str, dict[str, Any]] = {
    "all ids": {"prompt_ids": FIRST.ids.then([5, 7, 7]), "media": [CAT, DOG]},
    "no new ids": {"prompt_ids": FIRST.ids, "media": [CAT]},
    "the prompt's ids": {"prompt_ids": FIRST.prompt_ids.then([8, 7, 7]), "media": [CAT, DOG]},
    "other ids": {"prompt_ids": [9, 7, 7, 7], "media": [CAT]},
    "other images": {"prompt_ids": [9, 7, 7, 7], "media": [attrs.evolve(CAT, identity="cow")]},
    "no images": {"prompt_ids": [9, 9], "media": []},
    "another key": {"prompt_ids": FIRST.ids, "media": [CAT], "key": None},
    "masks": {
        "prompt_ids": FIRST.ids,
        "media": [CAT],
        "logprobs": [-0.5],
        "sampling_mask": SamplingMask([6, 2**31], [2]),
    },
    "cut short": {"prompt_ids": FIRST.ids, "media": [CAT], "truncated": True, "logprobs": None},
    "an own ledger": {
        "prompt_ids": FIRST.ids,
        "media": [CAT],
        "prompt_ledger": Ledger.of([(Origin.PROMPT, 6)]),
    },
}


@pytest.mark.parametrize("name", NEXT)
def test_a_turn_comes_back_after_the_one_that_it_continues(name: str) -> None:
    first = committed("a", FIRST)
    prompt = FIRST.messages.then([{"role": "user", "content": "more"}])
    fields: dict[str, Any] = {"completion_ids": [6], "key": "[[],{}]", **NEXT[name]}
    step = Step(prompt=prompt, completion=[{"role": "assistant", "content": "no"}], **fields)
    second = committed("b", step, "a", refusal=None, forgiven=())
    known = {"a": decode(encode(first, None), {})}
    found = decode(encode(second, first), known)
    assert known["a"] == first
    assert found == second
    assert found.step.prompt_ledger == step.prompt_ledger
    assert (list(found.step.media), found.step.key) == (list(step.media), step.key)
    assert (b'"mask"' in encode(second, first)) == (name == "masks")
    assert found.step.prompt.parent is known["a"].step.messages
    with pytest.raises(LostError):
        decode(encode(second, first), {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 2}, "a stored turn has the form 2, and this gateway reads 1"),
        ({"kept": 5}, "a stored turn keeps 5 ids of a parent that has 6"),
        ({"media": {"kept": 2, "new": []}}, "a stored turn keeps 2 media of a parent that has 1"),
        ({"media": {"kept": 0, "new": [{}]}}, "a stored turn cannot be read: TypeError"),
        ({"origin": {}}, "a stored turn cannot be read: KeyError"),
        ({"ledger": [["nobody", 1]]}, "a stored turn cannot be read: KeyError"),
        ({"ids": "a secret"}, "a stored turn cannot be read: InputError"),
        ({"name": None}, "a stored turn cannot be read: InputError"),
        ({"experts": {"data": "?"}}, "a stored turn cannot be read: "),
        ({"mask": {"ids": "AAAA", "counts": [1]}}, "a stored turn cannot be read: InputError"),
        ({"mask": to_data(SamplingMask([3, 9], [1, 1]))}, "a stored turn cannot be read: InputError"),
    ],
)
def test_a_row_that_is_no_turn_is_refused(change: dict[str, Any], said: str) -> None:
    first = committed("a", FIRST)
    step = Step(
        prompt=FIRST.messages, completion=[], prompt_ids=FIRST.ids.then([8]), completion_ids=[6], media=[CAT]
    )
    row = orjson.loads(encode(committed("b", step, "a"), first))
    assert row["kept"] == 6
    with pytest.raises(InputError) as refused:
        decode(orjson.dumps({**row, **change}), {"a": first})
    assert str(refused.value).startswith(said)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{}", b"\xff"])
def test_what_is_no_row_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="a stored turn cannot be read: "):
        decode(data, {})


def test_the_head_of_a_session_comes_back() -> None:
    head = SessionHead(created=1.5, defaults={"top_p": 0.5}, evaluation=True, owner="o", agent="a")
    assert SessionHead.of(head.encoded()) == head
    assert SessionHead.of(b'{"created": 1.5}') == SessionHead(created=1.5)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{}", b'{"created": 1, "colour": 2}'])
def test_what_is_no_head_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match=r"a stored session cannot be read: (TypeError|JSONDecodeError)"):
        SessionHead.of(data)

"""Each rule of the checker finds what contradicts it, in histories that were written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson
import pytest

from tests.simulate.checker import violations
from tests.simulate.history import (
    Answer,
    Attempt,
    History,
    Sampling,
    SessionHistory,
    StoredTurn,
    TrainingRow,
    read_answer,
)

Change = Callable[[History], object]
PROMPT, IDS, LOGPROBS = (1, 2), (3, 4), (-0.5, -1.0)
TURN = StoredTurn(
    name="r1", response="r1", asked="1.1", key=False, received=True, prompt=PROMPT, ids=IDS, logprobs=LOGPROBS
)


def written(name: str) -> bytearray:
    body = orjson.dumps({"id": name, "choices": [{"message": {}, "token_ids": [3, 4]}]})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return bytearray(head + body)


def ask(history: History, number: int, name: str, **more: Any) -> Attempt:
    """Add an attempt that got a whole answer."""
    made = Attempt(number=number, session="s", asked="1.1", body=b"{}", sent=number * 10.0)
    made.began, made.finished = made.sent, made.sent + 5
    made.answer = Answer(status=200, complete=True, name=name, prompt=PROMPT, sampled=(IDS,))
    made.written = written(name)
    put(made, more)
    history.attempts.append(made)
    return made


@pytest.fixture
def history() -> History:
    """Return the history of one session with one turn, as it should be."""
    made = History(lambda: 0.0, 0.0)
    row = TrainingRow(tokens=PROMPT + IDS, mask=(0, 0, 1, 1), logprobs=(0.0, 0.0, *LOGPROBS))
    made.sessions["s"] = SessionHistory(name="s", label="alpha", status=200, turns=[TURN], rows=[row])
    made.samplings.append(Sampling(number=1, prompt=PROMPT, ids=IDS, logprobs=LOGPROBS, text="I am alpha"))
    ask(made, 1, "r1")
    return made


def test_a_history_as_it_should_be_has_no_violations(history: History) -> None:
    assert violations(history) == []


def put(owner: object, fields: Mapping[str, object]) -> None:
    for name, value in fields.items():
        setattr(owner, name, value)


def turns(*found: StoredTurn) -> Change:
    """Return a change that lets the store have these turns alone."""
    return lambda history: history.sessions["s"].turns.__setitem__(slice(None), found)


def session(**fields: Any) -> Change:
    """Return a change of what was found of the session at the end."""
    return lambda history: put(history.sessions["s"], fields)


def row(times: int, **fields: Any) -> Change:
    """Return a change that adds the training row so often, with other fields."""

    def change(history: History) -> None:
        history.sessions["s"].rows += [attrs.evolve(history.sessions["s"].rows[0], **fields)] * times

    return change


def first(**fields: Any) -> Change:
    """Return a change of the first attempt."""
    return lambda history: put(history.attempts[0], fields)


def asked(name: str, **more: Any) -> Change:
    """Return a change that adds an attempt with an answer."""
    return lambda history: ask(history, 2, name, **more)


def sampled(**fields: Any) -> Change:
    """Return a change that adds a session and what was sampled in it."""

    def change(history: History) -> None:
        history.sessions["t"] = SessionHistory(name="t", label="beta", status=200)
        history.samplings.append(attrs.evolve(history.samplings[0], number=2, **fields))

    return change


def lose_and_sample_again(history: History) -> None:
    history.attempts[0].written.clear()
    history.attempts[0].answer = None
    history.stored["r1"] = 12.0
    turns(attrs.evolve(TURN, received=False), AGAIN)(history)
    ask(history, 2, "r2")


AGAIN = attrs.evolve(TURN, name="r2", response="r2")
OTHER = Answer(status=200, complete=True, name="r1", prompt=PROMPT, sampled=((3, 5),))
ENDED = {"deleting": 5.0, "deleted": 5.0}


def gone(**fields: Any) -> Change:
    """Return a change to a session that was deleted before it had any turn."""
    return session(**ENDED, status=404, **fields)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ([turns(), session(rows=[])], "not have its ids"),
        ([turns(attrs.evolve(TURN, ids=(3, 5)))], "never sampled"),
        ([turns(attrs.evolve(TURN, logprobs=(-0.5, -2.0)))], "other log-probabilities"),
        ([turns(TURN, attrs.evolve(AGAIN, received=False))], "are stored 2 times"),
        ([first(answer=OTHER)], "received other ids"),
        ([session(rows=[])], "0 rows train this"),
        ([row(1)], "2 rows train this"),
        ([row(1, mask=(0, 1, 1, 1))], "which are no stored turn"),
        ([session(calls={})], "not in its calls"),
        ([session(calls={"r1": (PROMPT, (3, 5))})], "calls have other ids"),
        ([first(written=written("r1")[:-1])], "counts as received"),
        ([lose_and_sample_again], "both train"),
        ([turns(*(attrs.evolve(one, key=True) for one in (TURN, AGAIN)))], "2 answers of it are stored"),
        ([first(key="a"), asked("r2", key="a")], "received 2 answers"),
        ([asked("r1", asked="1.2")], "another's answer"),
        ([sampled(prompt=(9,), ids=(9,), text="alpha beta")], "has words of alpha, beta"),
        ([sampled(text="I am beta"), lambda one: one.samplings.pop(0)], "sampled for another session"),
        ([session(**ENDED)], "got a turn in a session that was deleted"),
        ([lambda one: one.attempts.clear(), gone(left=["turns"])], "the store has turns"),
        ([gone(), lambda one: one.reads.append((6.0, 200, "s"))], "was read later"),
    ],
)
def test_what_contradicts_a_rule_is_found(history: History, changes: list[Change], found: str) -> None:
    for change in changes:
        change(history)
    assert any(found in text for text in violations(history)), violations(history)


def test_either_of_two_lost_turns_is_the_answer_to_their_request(history: History) -> None:
    """The first request was sent twice; each copy got a turn before the gateway ended."""
    lose_and_sample_again(history)
    assert any("both train" in text for text in violations(history))
    history.stored["r2"] = 12.0
    assert not any("both train" in text for text in violations(history))


def test_who_goes_on_after_one_choice_has_received_all_of_that_answer(history: History) -> None:
    lost = [attrs.evolve(TURN, name=name, response="r0", ids=ids) for name, ids in (("a", (5,)), ("b", (6,)))]
    after = attrs.evolve(TURN, name="r2", response="r2", prompt=(*PROMPT, 6))
    session = history.sessions["s"]
    session.turns += lost
    assert sum("counts as received" in text for text in violations(history)) == 2
    session.turns.append(after)
    ask(history, 2, "r2")
    assert not any("counts as received" in text for text in violations(history))


def test_half_a_stream_is_not_an_answer() -> None:
    whole = b'data: {"id": "a", "choices": [{"index": 0, "delta": {"content": "x"}}]}\n\ndata: [DONE]\n\n'
    kind = "text/event-stream; charset=utf-8"
    assert read_answer(200, kind, whole, ended=True).taken
    for end in range(len(whole)):
        assert not read_answer(200, kind, whole[:end], ended=True).taken
    failed = whole.replace(b"data: [DONE]", b'data: {"error": {"code": "StoreError"}}\n\ndata: [DONE]')
    assert not read_answer(200, kind, failed, ended=True).taken

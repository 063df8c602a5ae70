"""Each rule of the checker finds what contradicts it, in histories that were written by hand."""

from __future__ import annotations

from collections.abc import Callable

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

PROMPT, IDS, LOGPROBS = (1, 2), (3, 4), (-0.5, -1.0)
TURN = StoredTurn(
    name="r1", response="r1", asked="1.1", key=False, received=True, prompt=PROMPT, ids=IDS, logprobs=LOGPROBS
)


def written(name: str) -> bytearray:
    body = orjson.dumps({"id": name, "choices": [{"message": {}, "token_ids": [3, 4]}]})
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return bytearray(head + body)


def ask(history: History, number: int, name: str, **more: object) -> Attempt:
    """Add an attempt that got a whole answer."""
    made = Attempt(number=number, session="s", asked="1.1", body=b"{}", sent=number * 10.0)
    made.began, made.finished = made.sent, made.sent + 5
    made.answer = Answer(status=200, complete=True, name=name, prompt=PROMPT, sampled=(IDS,))
    made.written = written(name)
    for field, value in more.items():
        setattr(made, field, value)
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


def lose(history: History) -> None:
    history.sessions["s"].turns.clear()
    history.sessions["s"].rows.clear()


def change_ids(history: History) -> None:
    history.sessions["s"].turns[:] = [attrs.evolve(TURN, ids=(3, 5))]


def change_logprobs(history: History) -> None:
    history.sessions["s"].turns[:] = [attrs.evolve(TURN, logprobs=(-0.5, -2.0))]


def store_twice(history: History) -> None:
    history.sessions["s"].turns.append(attrs.evolve(TURN, name="r2", response="r2", received=False))


def receive_other_ids(history: History) -> None:
    history.attempts[0].answer = Answer(
        status=200, complete=True, name="r1", prompt=PROMPT, sampled=((3, 5),)
    )


def train_nothing(history: History) -> None:
    history.sessions["s"].rows.clear()


def train_more(history: History) -> None:
    row = attrs.evolve(history.sessions["s"].rows[0], mask=(0, 1, 1, 1))
    history.sessions["s"].rows.append(row)


def show_no_calls(history: History) -> None:
    history.sessions["s"].calls = {}


def show_other_calls(history: History) -> None:
    history.sessions["s"].calls = {"r1": (PROMPT, (3, 5))}


def train_twice(history: History) -> None:
    history.sessions["s"].rows *= 2


def count_as_received(history: History) -> None:
    history.attempts[0].written = written("r1")[:-1]


def lose_and_sample_again(history: History) -> None:
    history.attempts[0].written.clear()
    history.attempts[0].answer = None
    history.stored["r1"] = 12.0
    turns = history.sessions["s"].turns
    turns[:] = [attrs.evolve(TURN, received=False), attrs.evolve(TURN, name="r2", response="r2")]
    ask(history, 2, "r2")


def two_with_a_key(history: History) -> None:
    turns = history.sessions["s"].turns
    turns[:] = [attrs.evolve(TURN, key=True), attrs.evolve(TURN, key=True, name="r2", response="r2")]


def two_answers_with_a_key(history: History) -> None:
    history.attempts[0].key = "a"
    ask(history, 2, "r2", key="a")


def another_s_answer(history: History) -> None:
    ask(history, 2, "r1", asked="1.2")


def mixed_prompt(history: History) -> None:
    history.sessions["t"] = SessionHistory(name="t", label="beta", status=200)
    history.samplings.append(Sampling(number=2, prompt=(9,), ids=(9,), logprobs=(0.0,), text="alpha beta"))


def another_s_turn(history: History) -> None:
    history.samplings[0] = attrs.evolve(history.samplings[0], text="I am beta")


def come_back(history: History) -> None:
    history.sessions["s"].deleting = history.sessions["s"].deleted = 5.0


def leave_rows(history: History) -> None:
    come_back(history)
    history.attempts.clear()
    history.sessions["s"].status, history.sessions["s"].left = 404, ["turns"]


def read_after_the_end(history: History) -> None:
    come_back(history)
    history.attempts.clear()
    history.sessions["s"].status = 404
    history.reads.append((6.0, 200, "s"))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lose, "not have its ids"),
        (change_ids, "never sampled"),
        (change_logprobs, "other log-probabilities"),
        (store_twice, "are stored 2 times"),
        (receive_other_ids, "received other ids"),
        (train_nothing, "0 rows train this"),
        (train_twice, "2 rows train this"),
        (train_more, "which are no stored turn"),
        (show_no_calls, "not in its calls"),
        (show_other_calls, "calls have other ids"),
        (count_as_received, "counts as received"),
        (lose_and_sample_again, "both train"),
        (two_with_a_key, "2 answers of it are stored"),
        (two_answers_with_a_key, "received 2 answers"),
        (another_s_answer, "another's answer"),
        (mixed_prompt, "has words of alpha, beta"),
        (another_s_turn, "sampled for another session"),
        (come_back, "got a turn in a session that was deleted"),
        (leave_rows, "the store has turns"),
        (read_after_the_end, "was read later"),
    ],
)
def test_what_contradicts_a_rule_is_found(
    history: History, change: Callable[[History], None], found: str
) -> None:
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

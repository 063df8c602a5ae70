"""Judge a history: what clients received, what the engine sampled, and what the rows say.

Nothing here knows how the gateway works. Each rule is a sentence of the documentation; a violation is a line
of text that names the session and the turn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby

import attrs

from tests.simulate.history import Answer, Attempt, History, Sampling, SessionHistory, StoredTurn, TrainingRow
from tests.simulate.network import written_answer

OK, NOT_FOUND = 200, 404
Ids = tuple[tuple[int, ...], tuple[int, ...]]
"""The ids of a prompt, and those that were sampled after it."""


def violations(history: History) -> list[str]:
    """Return what of a history contradicts the documentation."""
    return [*history.odd, *chain.from_iterable(by_rule(history).values())]


def by_rule(history: History) -> dict[str, list[str]]:
    """Return what of a history contradicts each rule, by the rule's name."""
    case = Case.of(history)
    rules = (
        acknowledged_turns_are_stored,
        received_ids_are_stored,
        turns_are_what_was_sampled,
        samplings_are_stored_once,
        stored_turns_are_trained,
        turns_train_once,
        only_turns_are_trained,
        calls_show_all_turns,
        calls_show_what_is_stored,
        unreceived_turns_are_marked,
        lost_turns_are_handed_out,
        keys_name_one_turn,
        answers_are_to_their_requests,
        sessions_do_not_mix,
        deleted_sessions_stay_away,
    )
    return {rule.__name__: list(rule(case)) for rule in rules}


@attrs.frozen(kw_only=True)
class Case:
    """A history, and what is looked up in it often.

    Attributes:
        history: The history.
        written: What the gateways wrote for each attempt while its connection was open.
        samplings: The engine's replies by prompt ids and sampled ids. Short ones may be equal.
    """

    history: History
    written: Mapping[int, Answer | None]
    samplings: Mapping[Ids, list[Sampling]]

    @classmethod
    def of(cls, history: History) -> Case:
        """Look a history through."""
        samplings: dict[Ids, list[Sampling]] = {}
        for one in history.samplings:
            samplings.setdefault((one.prompt, one.ids), []).append(one)
        return cls(
            history=history,
            written={one.number: written_answer(one) for one in history.attempts},
            samplings=samplings,
        )

    def kept(self) -> Iterator[SessionHistory]:
        """Yield the sessions that nobody asked to delete."""
        return (one for one in self.history.sessions.values() if one.deleting is None)

    def sent(self, session: SessionHistory) -> set[str]:
        """Return the responses that a gateway wrote whole to a connection that was open as far as it knew."""
        answers = (self.written[one.number] for one in self.attempts(session))
        return {answer.name for answer in answers if answer is not None and answer.taken}

    def attempts(self, session: SessionHistory) -> list[Attempt]:
        """Return the attempts of a session."""
        return [one for one in self.history.attempts if one.session == session.name]

    def received(self, session: SessionHistory) -> Iterator[tuple[int, Answer]]:
        """Yield the whole turns that clients of a session received, with the attempts' numbers."""
        for attempt in self.attempts(session):
            if attempt.answer is not None and attempt.answer.taken:
                yield attempt.number, attempt.answer


def acknowledged_turns_are_stored(case: Case) -> Iterator[str]:
    """Every turn that a client received whole is stored."""
    for session in case.kept():
        stored = _by_response(session)
        acknowledged = {
            answer.name: (number, len(answer.sampled)) for number, answer in case.received(session)
        }
        for name, (number, count) in acknowledged.items():
            found = len(stored.get(name, []))
            if found < count:
                yield (
                    f"{session.label}: attempt {number} received {name}, and the store does not have its "
                    f"ids; it has {found} turns of that name"
                )


def received_ids_are_stored(case: Case) -> Iterator[str]:
    """Every turn that a client received whole is stored once, with the ids that the client received."""
    for session in case.kept():
        stored = _by_response(session)
        for number, answer in case.received(session):
            turns = stored.get(answer.name, [])
            missing = len(turns) < len(answer.sampled)
            if not missing and sorted(one.ids for one in turns) != sorted(answer.sampled):
                yield f"{session.label}: attempt {number} received other ids of {answer.name} than are stored"
            elif answer.prompt and any(one.prompt != answer.prompt for one in turns):
                yield f"{session.label}: {answer.name} is stored with another prompt than was received"


def turns_are_what_was_sampled(case: Case) -> Iterator[str]:
    """Every stored turn has the ids and log-probabilities of one reply of the engine."""
    for session in case.history.sessions.values():
        for turn in session.turns:
            found = case.samplings.get((turn.prompt, turn.ids), [])
            if not found:
                yield f"{session.label}: the engine never sampled the ids of {turn.name} after its prompt"
            elif turn.logprobs not in [one.logprobs for one in found]:
                yield f"{session.label}: {turn.name} has other log-probabilities than the engine reported"


def samplings_are_stored_once(case: Case) -> Iterator[str]:
    """No two stored turns have one reply of the engine."""
    sessions = case.history.sessions.values()
    used = Counter((turn.prompt, turn.ids) for session in sessions for turn in session.turns)
    for ids, count in used.items():
        sampled = [one.number for one in case.samplings.get(ids, [])]
        if 0 < len(sampled) < count:
            yield f"the samplings {sampled} are stored {count} times"


def stored_turns_are_trained(case: Case) -> Iterator[str]:
    """Every stored turn is trained in a row, with its log-probabilities."""
    for session in case.kept():
        if session.status != OK:
            yield f"{session.label}: at the end its rows are answered with {session.status}"
        else:
            yield from (text for text, missing in _trained(session) if missing > 0)


def turns_train_once(case: Case) -> Iterator[str]:
    """No turn is trained in two rows."""
    for session in case.kept():
        yield from (text for text, missing in _trained(session) if missing < 0)


def only_turns_are_trained(case: Case) -> Iterator[str]:
    """Nothing is trained but the ids of stored turns."""
    for session in case.kept():
        turns = _by_ids(session)
        for row in session.rows:
            for start, end in _runs(row.mask):
                if (row.tokens[:start], row.tokens[start:end]) not in turns:
                    yield f"{session.label}: a row trains ids {start} to {end}, which are no stored turn"


def calls_show_all_turns(case: Case) -> Iterator[str]:
    """Every stored turn is shown in `/calls`."""
    for session in case.kept():
        if session.calls is not None:
            missing = [turn.name for turn in session.turns if turn.name not in session.calls]
            yield from (f"{session.label}: {name} is stored, and is not in its calls" for name in missing)


def calls_show_what_is_stored(case: Case) -> Iterator[str]:
    """Every turn in `/calls` is a stored one, with its ids."""
    for session in case.kept():
        stored = {turn.name: (turn.prompt, turn.ids) for turn in session.turns}
        for name, ids in (session.calls or {}).items():
            if stored.get(name) != ids:
                yield f"{session.label}: its calls have other ids of {name} than the store"


def unreceived_turns_are_marked(case: Case) -> Iterator[str]:
    """Only a turn whose whole answer was written to an open connection counts as received."""
    for session in case.kept():
        known = case.sent(session) | _continued(session)
        for turn in session.turns:
            if turn.received and turn.response not in known:
                yield f"{session.label}: nobody was sent {turn.name}, and it counts as received"


def lost_turns_are_handed_out(case: Case) -> Iterator[str]:
    """Hand a stored turn out, whose answer was lost, if the same request is sent again later.

    If the request was sent twice, two turns may be stored and lost; either is an answer.
    """
    stored = case.history.stored
    for session in case.kept():
        attempts = case.attempts(session)
        names, sent = {turn.response for turn in session.turns}, case.sent(session)
        for turn in session.turns:
            if turn.received or turn.response in sent or turn.response not in stored:
                continue
            for later in _repeats(turn, attempts, stored[turn.response]):
                answer = later.answer
                if answer is None or not answer.taken or answer.name not in names:
                    continue
                if stored.get(answer.name, later.sent) >= later.sent:
                    yield (
                        f"{session.label}: {turn.name} was lost, and attempt {later.number}, the same "
                        f"request, got {answer.name}: both train"
                    )


def keys_name_one_turn(case: Case) -> Iterator[str]:
    """Equal requests with one idempotency key get one turn, which trains once."""
    for session in case.kept():
        stored = {turn.response: turn.asked for turn in session.turns if turn.key}
        for asked, count in Counter(stored.values()).items():
            if count > 1:
                yield f"{session.label}: {asked} has a key, and {count} answers of it are stored"
        named: defaultdict[str, set[str]] = defaultdict(set)
        for attempt in case.attempts(session):
            if attempt.key is not None and attempt.answer is not None and attempt.answer.taken:
                named[attempt.asked].add(attempt.answer.name)
        for asked, answers in named.items():
            if len(answers) > 1:
                yield f"{session.label}: {asked} has a key, and its client received {len(answers)} answers"


def answers_are_to_their_requests(case: Case) -> Iterator[str]:
    """Every answer belongs to one request and its retries, in one session."""
    owners: dict[str, tuple[str, str]] = {}
    for attempt in case.history.attempts:
        answer, owner = attempt.answer, (attempt.session, attempt.asked)
        if answer is not None and answer.name and owners.setdefault(answer.name, owner) != owner:
            yield f"attempt {attempt.number} for {attempt.asked} got {answer.name}, which is another's answer"


def sessions_do_not_mix(case: Case) -> Iterator[str]:
    """Keep apart what sessions say: no prompt and no row of one has another's words."""
    labels = {one.label for one in case.history.sessions.values()}
    for sampling in case.history.samplings:
        named = [label for label in labels if label in sampling.text]
        if len(named) > 1:
            yield f"the prompt of sampling {sampling.number} has words of {', '.join(sorted(named))}"
    for session in case.history.sessions.values():
        for turn in session.turns:
            found = case.samplings.get((turn.prompt, turn.ids), [])
            if found and session.label not in found[0].text:
                yield f"{session.label}: {turn.name} was sampled for another session"
        asked = {one.asked for one in case.attempts(session)}
        strangers = [turn.name for turn in session.turns if turn.asked not in asked]
        if strangers:
            yield f"{session.label}: nobody asked for {', '.join(strangers)} here"


def deleted_sessions_stay_away(case: Case) -> Iterator[str]:
    """Once a client knows that its session is deleted, nothing of it is stored, shown or sampled again."""
    gone = {one.name: one for one in case.history.sessions.values() if one.deleted is not None}
    for session in gone.values():
        if session.status != NOT_FOUND:
            yield f"{session.label}: it was deleted, and the last answer for its rows is {session.status}"
        if session.left:
            yield f"{session.label}: it was deleted, and the store has {', '.join(session.left)}"
    for sent, status, name in case.history.reads:
        if name in gone and sent > (gone[name].deleted or 0) and status == OK:
            yield f"{gone[name].label}: it was deleted, and was read later"
    for attempt in case.history.attempts:
        answer, deleted = attempt.answer, attempt.session in gone and gone[attempt.session].deleted
        if deleted and attempt.sent > deleted and answer is not None and answer.taken:
            yield f"attempt {attempt.number} got a turn in a session that was deleted before it was sent"


def _by_response(session: SessionHistory) -> dict[str, list[StoredTurn]]:
    found: dict[str, list[StoredTurn]] = {}
    for turn in session.turns:
        found.setdefault(turn.response, []).append(turn)
    return found


def _by_ids(session: SessionHistory) -> dict[Ids, list[StoredTurn]]:
    found: dict[Ids, list[StoredTurn]] = {}
    for turn in session.turns:
        found.setdefault((turn.prompt, turn.ids), []).append(turn)
    return found


def _trained(session: SessionHistory) -> Iterator[tuple[str, int]]:
    """Yield a text about each turn, and how many rows too few train it."""
    for (prompt, ids), turns in _by_ids(session).items():
        count = sum(_trains(row, turns[0]) for row in session.rows)
        names = ", ".join(turn.name for turn in turns)
        text = f"{session.label}: {names}, of {len(prompt) + len(ids)} ids: {count} rows train this"
        yield text, len(turns) - count


def _runs(mask: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield where the runs of trained ids begin and end."""
    start = 0
    for trained, run in groupby(mask):
        end = start + len(list(run))
        if trained:
            yield start, end
        start = end


def _continued(session: SessionHistory) -> set[str]:
    """Return the responses with a turn whose ids other turns repeat: who goes on has received all of them."""
    return {
        turn.response
        for turn in session.turns
        for other in session.turns
        if other is not turn and other.prompt[: len(turn.prompt + turn.ids)] == turn.prompt + turn.ids
    }


def _trains(row: TrainingRow, turn: StoredTurn) -> bool:
    """Return whether a row trains a turn, with its log-probabilities."""
    start, end = len(turn.prompt), len(turn.prompt) + len(turn.ids)
    same = row.tokens[:end] == turn.prompt + turn.ids and row.logprobs is not None
    trained = all(row.mask[start:end]) and not any(row.mask[end : end + 1])  # and not a part of a longer turn
    return same and trained and (row.logprobs or ())[start:end] == turn.logprobs


def _repeats(turn: StoredTurn, attempts: Sequence[Attempt], stored: float) -> Iterator[Attempt]:
    """Yield the attempts that ask for a turn again after all earlier work on it was over.

    Two of them at the same time may each get a turn: they may be samples that somebody wants two of.
    """
    same = [one for one in attempts if one.asked == turn.asked and (one.key is not None) == turn.key]
    for attempt in same:
        if attempt.began is None or attempt.sent <= stored:
            continue
        others = [one for one in same if one is not attempt and one.began is not None]
        if all(one.finished is not None and one.finished < attempt.sent for one in others):
            yield attempt

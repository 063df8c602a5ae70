"""The experiments: in which histories a tail is asked about, under which names."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import CALL, CALLING, RESULT
from tito_core import Message, Reason, Refusal, Step, Stitched, TemplateRefused, suffix_ids, try_stitch
from tito_core.bridge import ANYWHERE
from tito_core.media.ranges import Placeholders
from tito_core.message import Messages, texts_in
from tito_core.seams.experiments import (
    LOOP_GOES_ON,
    MANY_MEDIA,
    MEDIA,
    NO_ID,
    OTHER_WORDS,
    REAL_TEXTS,
    SAME_ID,
    SAME_TOOL,
    SWITCHED_ON,
    SWITCHES,
    Experiment,
    experiments,
)
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.history import ON, Context
from tito_core.seams.probe import probe
from tito_core.seams.turn import SampledTurn
from tito_core.seams.turn_form import calls_of

Plain = dict[str, Any]
KNOWN = SampledTurn(message=CALLING, history=(example.user("real"),))
UNKNOWN = attrs.evolve(KNOWN, history=(), history_known=False)
SAYING = Messages.of([example.user("failed: late, lost, gone, over")])
WORDS = ("failed:", "late", "lost", "gone", "over")


def rows(turn: SampledTurn, *environment: Plain) -> list[Experiment]:
    return list(experiments(turn, environment or (RESULT,)))


def names(turn: SampledTurn, *environment: Plain) -> list[str]:
    """Return the names, each once, in their order."""
    return list(dict.fromkeys(row.name for row in rows(turn, *environment)))


def histories(turn: SampledTurn, name: str, *environment: Plain) -> list[Context]:
    """Return the histories of the experiments of one name."""
    found = [row for row in rows(turn, *environment) if row.name == name]
    assert found
    return [history for row in found for history in row.histories if history is not None]


def called(context: Sequence[Plain]) -> list[list[Any]]:
    """Return the ids of the calls of each turn."""
    turns = (calls_of(message) for message in context)
    return [[call.get("id", "absent") for call in calls] for calls in turns if calls]


def says(context: Sequence[Message]) -> str:
    return " ".join(text for message in context for text in texts_in(message))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"reused": ("c",)}, [SAME_ID]),
        ({"reused": (None,)}, [NO_ID]),
        ({"reused": ("c", None)}, [SAME_ID, NO_ID]),
        ({"switched": frozenset(("user",))}, [SWITCHED_ON]),
        ({"placeholders": Placeholders.of({"image": [7]})}, [MEDIA]),
        ({"placeholders": Placeholders.of({"image": [7]}), "shown": 3}, [MEDIA, MANY_MEDIA]),
        ({"words": WORDS}, []),  # earlier messages say none of them
        ({"words": WORDS[:1], "earlier": SAYING}, ["earlier messages say 'failed:'"]),
    ],
)
def test_a_turn_with_a_known_history_stands_in_unlike_ones_and_in_one_akin_to_it(
    more: Plain, expected: list[str]
) -> None:
    turn = attrs.evolve(KNOWN, **more)
    assert names(turn) == [OTHER_WORDS, *expected, REAL_TEXTS]
    assert all(row.needed for row in rows(turn))
    (akin,) = histories(turn, REAL_TEXTS)
    assert akin == (example.user("real"),)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, []),
        ({"reused": ("c",), "switched": ANYWHERE}, [SAME_ID]),
        ({"placeholders": Placeholders.of({"image": [7]})}, [MEDIA]),
    ],
)
def test_a_turn_with_an_unknown_history_stands_in_every_kind_that_templates_tell_apart(
    more: Plain, expected: list[str]
) -> None:
    turn = attrs.evolve(UNKNOWN, **more)
    assert names(turn) == [OTHER_WORDS, *expected, SWITCHES]
    ends = {history[-1]["role"] for history in histories(turn, OTHER_WORDS)}
    assert ends == {"user", "tool", "system", "developer"}
    optional = {row.name for row in rows(turn) if not row.needed}
    assert optional == {OTHER_WORDS, SWITCHES, *expected} - {SAME_ID}


@pytest.mark.parametrize("turn", [KNOWN, UNKNOWN])
def test_an_experiment_has_a_name_in_plain_words_and_histories(turn: SampledTurn) -> None:
    asked = attrs.evolve(turn, reused=("c", None), placeholders=Placeholders.of({"image": [7]}), shown=2)
    for row in rows(asked, {"role": "tool", "name": "f", "content": "7"}):
        assert row.name == row.name.strip(" .").lower()
        assert any(row.histories)


def test_ids_that_earlier_calls_may_have_are_called_in_one_turn_or_in_one_each() -> None:
    """Those of the turn, and those that a result answers although the turn did not call them."""
    turn = attrs.evolve(KNOWN, reused=("c",))
    found = histories(turn, SAME_ID, {**RESULT, "tool_call_id": "x"})
    assert {str(called(history)) for history in found} == {"[['c', 'x']]", "[['c'], ['x']]"}


@pytest.mark.parametrize("known", [True, False])
def test_a_missing_id_is_none_or_has_no_key(known: bool) -> None:
    turn = attrs.evolve(KNOWN if known else UNKNOWN, reused=(None,))
    found = histories(turn, NO_ID)
    assert {one for history in found for ids in called(history) for one in ids} == {None, "absent"}
    assert [row.needed for row in rows(turn) if row.name == NO_ID] == [True] * (2 if known else 4)


def test_a_result_without_an_id_may_be_of_a_tool_that_an_earlier_call_named() -> None:
    environment = {"role": "tool", "name": "look", "content": "7"}
    found = histories(KNOWN, SAME_TOOL, environment)
    tools = {call["function"]["name"] for history in found for one in history for call in calls_of(one)}
    assert tools == {"look"}
    assert all(map(called, found))
    assert SAME_TOOL not in names(KNOWN, RESULT)


def test_what_follows_a_result_is_asked_about_in_a_loop() -> None:
    prompt = [example.user(), CALLING, RESULT, {"role": "system", "content": "s"}]
    turn = attrs.evolve(KNOWN, after="system", prompt=prompt, place=len(prompt))
    assert names(turn) == [OTHER_WORDS, LOOP_GOES_ON, REAL_TEXTS]
    assert {tuple(m["role"] for m in history[-3:]) for history in histories(turn, LOOP_GOES_ON)} == {
        ("assistant", "tool", "system")
    }
    reused = attrs.evolve(turn, reused=("c",))
    loops = [history for history in histories(reused, SAME_ID) if history[-2]["role"] == "tool"]
    assert loops
    assert all(called(history)[-1] == ["c"] for history in loops)


@pytest.mark.parametrize("shown", [0, 3])
def test_every_history_without_the_real_texts_has_its_switches_and_its_last_role(shown: int) -> None:
    media = Placeholders.of({"image": [7]})
    turn = attrs.evolve(KNOWN, reused=("c",), switched=frozenset(("user",)), placeholders=media, shown=shown)
    for row in rows(turn, {**RESULT, "tool_call_id": "x"}):
        for history in filter(None, row.histories if row.name != REAL_TEXTS else ()):
            assert history[-1]["role"] == "user"
            assert "think" in says(history)
    assert all(ON in says(history).split() for history in histories(turn, SWITCHED_ON))


def test_media_are_shown_by_all_messages_or_by_users_alone() -> None:
    media = Placeholders.of({"image": [7], "video": [8]})
    turn = attrs.evolve(KNOWN, after="tool", placeholders=media, shown=70)
    for name, most in ((MEDIA, 1), (MANY_MEDIA, 64)):
        shown = [
            (message["role"], part["type"], message["content"].count(part))
            for history in histories(turn, name)
            for message in history
            if isinstance(message["content"], list)
            for part in message["content"][:1]
        ]
        assert {kind for _, kind, _ in shown} == {"image", "video"}
        assert max(count for _, _, count in shown) == most
        assert {role for role, _, _ in shown} == ({"user", "tool"} if name == MEDIA else {"user"})


@pytest.mark.parametrize(
    ("count", "asked"), [(0, []), (1, ["failed:"]), (4, [*WORDS[:4]]), (5, [*WORDS[:3], "gone over"])]
)
def test_words_that_the_template_looks_for_are_asked_about_if_earlier_messages_say_them(
    count: int, asked: list[str]
) -> None:
    """One by one, and all that are left at once."""
    turn = attrs.evolve(KNOWN, words=("unsaid", *WORDS[:count]), earlier=SAYING)
    assert names(turn)[1:-1] == [f"earlier messages say {word!r}" for word in asked]
    for word in asked:
        found = histories(turn, f"earlier messages say {word!r}")
        assert all(word in says(history) for history in found)
        roles = {m["role"] for history in found for m in history if word in says((m,))}
        assert roles == {"system", "user", "assistant", "tool"}


def stitched(past: Sequence[Message], tokenize: Any, **more: Any) -> Stitched | Refusal:
    """Return the next prompt after a call that failed."""
    turn = {**CALLING, "tool_calls": [{**CALL, "id": "d"}]}
    prompt = example.tokenize(past, add_generation_prompt=True)
    step = Step(prompt=past, completion=[turn], prompt_ids=prompt, completion_ids=[900, example.CLOSE])
    new = {**RESULT, "tool_call_id": "d", "content": "failed: no bridge"}
    return try_stitch([step], [*past, turn, new], suffix_ids(tokenize), tokenize, **more)


def has_failed(message: Message) -> bool:
    return message["role"] == "tool" and str(message["content"]).startswith("failed:")


counting = example.each(
    lambda m, ids, past: [*ids, *[700 + sum(map(has_failed, (*past, m)))] * has_failed(m)]
)


class Counting:
    """A template that counts the results which say "failed:", and writes the count after each of them."""

    template_words: tuple[str, ...] = ("failed:",)

    def __call__(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> Collection[int]:
        return counting(messages, add_generation_prompt=add_generation_prompt)


FAILED = [example.user("Go."), CALLING, {**RESULT, "content": "failed: the path is flooded"}]
SECOND = (702, example.OPEN, example.ROLES["assistant"])


def knowing(tokenize: Any) -> GrowingProfile:
    """Return a profile with the words that the template looks for."""
    words: Any = ("failed:",)
    return GrowingProfile(attrs.evolve(probe(tokenize), words=words))


def test_a_template_that_counts_what_earlier_messages_say_is_refused() -> None:
    found = stitched(FAILED, Counting())
    assert found == Refusal(Reason.UNPROVEN_TAIL, "the tail differs where earlier messages say 'failed:'")


def test_with_a_profile_that_has_the_words_a_count_is_that_of_the_whole_history() -> None:
    for tokenize in (Counting(), Counting().__call__):
        profile = knowing(tokenize)
        found = stitched(FAILED, tokenize, profile=profile)
        assert isinstance(found, Stitched)
        assert found.added[-3:] == SECOND


@pytest.mark.parametrize("past", [[example.user("Go.")], [example.user("Go."), CALLING, RESULT]])
def test_words_that_no_earlier_message_says_change_nothing(past: list[Message]) -> None:
    profile = knowing(Counting())
    for given in (None, profile):
        found = stitched(past, Counting(), profile=given)
        assert isinstance(found, Stitched)
        assert found.added[-3] == SECOND[0] - 1
    recorder = example.Recorder(Counting())
    assert isinstance(stitched(past, recorder), Stitched)
    assert all(says(messages).count("failed:") <= 1 for messages in recorder.asked)


class Refusing:
    """A template that looks for a word, and refuses texts that end with another."""

    template_words = ("failed:",)

    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if any(text.endswith(self.word) for message in messages for text in texts_in(message)):
            raise TemplateRefused(f"no {self.word}")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


def test_of_the_experiments_of_a_name_one_must_be_taken() -> None:
    """Where the template takes none, it is not known what it does there."""
    past = [*FAILED, example.user("Go on.")]
    assert isinstance(stitched(past, Refusing("other")), Stitched)
    refusal = "the template takes no history where earlier messages say 'failed:'"
    assert stitched(past, Refusing("failed:")) == Refusal(Reason.UNPROVEN_TAIL, refusal)

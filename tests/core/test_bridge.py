"""The next prompt of a caller who has ids and new messages: what is not known is never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tests.core.example import CALL, CALLING, RESULT, Recorder, each, refusing, shown, speaking
from tito_core import (
    Bridge,
    Extension,
    InputError,
    Ledger,
    Message,
    Origin,
    Policy,
    Reason,
    Refusal,
    Rendered,
    TemplateRefused,
    Truncated,
    answer,
    suffix_ids,
)
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Profile
from tito_core.seams.spans import MessageSpan

Plain = dict[str, Any]
IMAGE: Plain = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
START = example.tokenize([example.user()], add_generation_prompt=True)
IDS = [*START, 900, 901, example.CLOSE]
MORE = example.tokenize([example.user("more")], add_generation_prompt=True)
NEW = [example.user("more")]


def unasked(*_: Any, **__: Any) -> list[int]:
    raise AssertionError("nothing is to be asked")


def extended(ids: Sequence[int] = IDS, new: Sequence[Message] = NEW, **more: Any) -> Extension:
    found = bridge().extend(ids, new, **more)
    assert isinstance(found, Extension)
    return found


def bridge(tokenize: Any = example.tokenize, stop_ids: Sequence[int] = (), **more: Any) -> Bridge:
    return Bridge(tokenize, stop_ids, **more)


KNOWN: list[Plain] = [
    {},
    {"turn": example.assistant()},
    {"history": [example.user()]},
    {"turn": example.assistant(), "history": [example.user()]},
]


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("sampled", [None, 1, 3])
def test_the_next_prompt_is_the_ids_and_what_the_template_writes_after_them(
    known: Plain, sampled: int | None
) -> None:
    found = extended(sampled=sampled, **known)
    assert found.ids == [*IDS, *MORE]
    assert found.added == tuple(MORE)
    assert (found.inserted_close, found.replaced_stop, found.kept_stop) == ((), None, None)
    assert found.generation_prompt == 2
    assert found.spans == (MessageSpan(0, 7, 2, 6),)
    assert [MORE[span.content_start : span.content_stop] for span in found.spans] == [example.text("more")]
    assert len(found.ids) == sum(span.stop - span.start for span in found.ledger.spans)


@pytest.mark.parametrize(
    ("new", "turn"),
    [
        ([RESULT], None),
        ([RESULT], CALLING),
        ([RESULT, example.user("so?")], None),
        ([RESULT, {**RESULT, "tool_call_id": "d"}], None),
        ([{"role": "system", "content": "s"}, example.user("so?")], None),
        ([{"role": "developer", "content": "d"}], None),
        ([example.user("a"), example.assistant("b"), example.user("c")], None),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], None),  # it is written as its text
    ],
)
def test_new_messages_of_any_role_are_written_by_the_template(new: list[Plain], turn: Plain | None) -> None:
    found = extended(new=new, turn=turn)
    texts = [{**one, "content": "a"} if isinstance(one["content"], list) else one for one in new]
    right = example.tokenize(texts, add_generation_prompt=True)
    assert found.ids == [*IDS, *right]
    assert isinstance(found.spans, tuple)
    assert [right[span.start] for span in found.spans] == [example.OPEN] * len(new)


def test_given_ids_are_the_prompts_unless_it_is_known_how_many_were_sampled() -> None:
    def runs(found: Extension) -> list[tuple[Origin, int]]:
        return [(span.origin, span.stop - span.start) for span in found.ledger.spans]

    rest = [(Origin.ENVIRONMENT, 7), (Origin.GENERATION_PROMPT, 2)]
    assert runs(extended()) == [(Origin.PROMPT, 10), *rest]
    assert runs(extended(sampled=3)) == [(Origin.PROMPT, 7), (Origin.SAMPLED, 3), *rest]
    cut = extended(IDS[:-1], sampled=2, truncated=True)
    assert runs(cut) == [(Origin.PROMPT, 7), (Origin.SAMPLED, 2), (Origin.INSERTED_CLOSE, 1), *rest]
    nothing = extended(START, sampled=0, truncated=True)
    assert runs(nothing) == [(Origin.PROMPT, 7), (Origin.INSERTED_CLOSE, 1), *rest]


def test_known_stops_tell_whether_a_turn_was_cut() -> None:
    known = bridge(stop_ids=[example.CLOSE, 99])
    cut = known.extend([*START, 900], NEW)
    whole = known.extend(IDS, NEW)
    assert isinstance(cut, Extension)
    assert isinstance(whole, Extension)
    assert (cut.inserted_close, whole.inserted_close) == ((example.CLOSE,), ())
    assert cut.ids == [*START, 900, example.CLOSE, *MORE]
    odd = known.extend([*START, 900, 99], NEW)
    assert odd == Refusal(Reason.ODD_STOP, f"the turn ended with 99, not ({example.CLOSE},)")
    refusal = known.extend([*START, 900], NEW, truncated=False)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.ODD_STOP


def test_without_known_stops_a_turn_that_ends_otherwise_is_refused() -> None:
    """It may have been cut, or the engine stopped at an id that the template does not write."""
    found = bridge().extend([*START, 900], NEW)
    assert found == Refusal(Reason.ODD_STOP, f"the turn ended with 900, not ({example.CLOSE},)")


def test_a_policy_that_refuses_cut_turns_goes_by_the_stops() -> None:
    refusing = bridge(stop_ids=[example.CLOSE], policy=Policy(truncated=Truncated.REFUSE))
    refusal = Refusal(Reason.TRUNCATED, "the policy refuses turns that were cut short")
    assert refusing.extend([*START, 900], NEW) == refusal
    assert refusing.extend(IDS, NEW, truncated=True) == refusal
    assert isinstance(refusing.extend(IDS, NEW), Extension)


@pytest.mark.parametrize(
    ("ids", "new", "more", "refusal"),
    [
        ([], NEW, {}, Refusal(Reason.NO_IDS, "there are no prompt ids")),
        (IDS, NEW, {"sampled": len(IDS)}, Refusal(Reason.NO_IDS, "there are no prompt ids")),
        (IDS, [], {}, Refusal(Reason.NOTHING_NEW, "there are no new messages")),
        (IDS, [IMAGE], {}, Refusal(Reason.MULTIMODAL, "the conversation has media")),
        (IDS, NEW, {"history": [IMAGE]}, Refusal(Reason.MULTIMODAL, "the conversation has media")),
        (
            IDS,
            NEW,
            {"turn": {"role": "assistant", "content": "x", "audio": {"id": "a"}}},
            Refusal(Reason.MULTIMODAL, "the conversation has media"),
        ),
        (
            IDS,
            NEW,
            {"turn": example.user()},
            Refusal(Reason.NOT_ASSISTANT, "the turn is a user message"),
        ),
    ],
)
def test_ids_that_cannot_be_extended_are_refused_before_anything_is_asked(
    ids: list[int], new: list[Plain], more: Plain, refusal: Refusal
) -> None:
    assert Bridge(unasked).extend(ids, new, **more) == refusal


hoisting = shown(lambda messages: sorted(messages, key=lambda message: message["role"] != "system"))
"""Writes all system messages first."""

thoughtful = each(lambda m, ids, _: [*ids, *[50] * bool(m.get("reasoning"))])
"""Writes something after a turn with reasoning."""

after_calls = each(lambda m, ids, _: [*ids, *[50] * bool(m.get("tool_calls"))])
"""Writes something after the close of a turn that calls."""

counting = each(lambda _, ids, past: [700 + len(past), *ids])
"""Writes the number of each message."""


@pytest.mark.parametrize(
    ("tokenize", "new", "more", "reason"),
    [
        (example.tokenize, [{"role": "critic", "content": "x"}], {}, Reason.TEMPLATE_REFUSED),
        (hoisting, [{"role": "system", "content": "x"}], {}, Reason.SWALLOWED),
        (counting, NEW, {}, Reason.UNPROVEN_TAIL),
        (thoughtful, NEW, {}, Reason.UNPROVEN_TAIL),
        (after_calls, NEW, {}, Reason.UNPROVEN_TAIL),
    ],
)
def test_a_tail_that_cannot_be_proven_is_a_refusal_with_its_reason(
    tokenize: Any, new: list[Plain], more: Plain, reason: Reason
) -> None:
    found = bridge(tokenize, suffix=(example.CLOSE,)).extend(IDS, new, **more)
    assert isinstance(found, Refusal)
    assert found.reason is reason


def test_a_given_suffix_that_the_template_does_not_write_is_a_refusal() -> None:
    found = bridge(suffix=(77,)).extend([*START, 900, 77], NEW)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.CLOSE_MISMATCH


def test_what_depends_on_the_turn_needs_the_turn() -> None:
    found = bridge(after_calls).extend(IDS, NEW)
    assert isinstance(found, Refusal)
    assert "turn" in found.detail
    for turn, extra in ((example.assistant(), []), (CALLING, [50])):
        known = bridge(after_calls).extend(IDS, NEW, turn=turn)
        assert isinstance(known, Extension)
        assert known.ids == [*IDS, *extra, *MORE]
    assert isinstance(bridge(after_calls).extend(IDS, [RESULT]), Extension)  # the result tells the call
    for turn, extra in ((example.assistant(), []), ({**example.assistant(), "reasoning": "why"}, [50])):
        known = bridge(thoughtful).extend(IDS, NEW, turn=turn)
        assert isinstance(known, Extension)
        assert known.ids == [*IDS, *extra, *MORE]


switching = speaking(
    lambda messages: [60] * (messages[0]["role"] != "system" or "/no_think" not in messages[0]["content"])
)
"""Opens a thought for the model unless the system text says `/no_think`."""


@pytest.mark.parametrize("turn", [None, example.assistant()])
def test_what_depends_on_the_history_needs_the_history(turn: Plain | None) -> None:
    found = bridge(switching).extend(IDS, NEW, turn=turn)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.UNPROVEN_TAIL
    for words, extra in (("Be kind.", [60]), ("Be kind. /no_think", None)):
        history = [{"role": "system", "content": words}, example.user()]
        known = bridge(switching).extend(IDS, NEW, turn=turn, history=history)
        if extra is None:  # an unlike history says nothing of the switch
            assert isinstance(known, Refusal)
        else:
            assert isinstance(known, Extension)
            assert known.ids == [*IDS, *MORE, *extra]


lonely = refusing(lambda messages: any(len(m.get("tool_calls") or ()) > 1 for m in messages))
"""Refuses two calls in one turn."""


@pytest.mark.parametrize("new", [NEW, [RESULT]])
def test_a_known_history_refuses_no_more_than_an_unknown_one(new: list[Plain]) -> None:
    """A turn that the template does not take cannot be the real one, in whatever history."""
    for history in (None, [example.user()], [{"role": "system", "content": "s"}, example.user()]):
        assert isinstance(bridge(lonely).extend(IDS, new, history=history), Extension)


silent = refusing(lambda messages: any(m.get("tool_calls") or m["role"] == "tool" for m in messages))
"""Refuses tool calls and results."""


def test_a_template_without_tools_has_no_turns_that_call() -> None:
    assert isinstance(bridge(silent).extend(IDS, NEW, history=[example.user()]), Extension)
    assert isinstance(bridge(silent, suffix=(example.CLOSE,)).extend(IDS, [RESULT]), Refusal)


WRONG: list[tuple[Plain, str]] = [
    ({"ids": [1, -1]}, r"^ids\[1\] is -1: "),
    ({"ids": "ab"}, r"^ids must be a sequence of ids, not str"),
    ({"new_messages": {"role": "user"}}, r"^new_messages must be a list of messages, not dict$"),
    ({"new_messages": [{"content": "x"}]}, r"^new_messages\[0\] has no role"),
    ({"turn": "hi"}, r"^turn must be a message"),
    ({"turn": [example.assistant()]}, r"^turn must be a message \(a mapping with a role\), not list$"),
    ({"turn": {"content": "x"}}, r"^turn has no role"),
    ({"history": "hi"}, r"^history must be a list of messages, not str$"),
    ({"history": [example.user(), {}]}, r"^history\[1\] has no role"),
    ({"sampled": -1}, r"^sampled is -1: give how many of 10 ids were sampled$"),
    ({"sampled": 11}, r"^sampled is 11: "),
    ({"sampled": True}, r"^sampled is True: "),
    ({"sampled": "3"}, r"^sampled is '3': "),
    ({"sampled": 3.0}, r"^sampled is 3\.0: "),
    ({"truncated": "no"}, r"^truncated is 'no': give True, False, or None if it is unknown$"),
    ({"truncated": 0}, r"^truncated is 0: "),
]


@pytest.mark.parametrize(("wrong", "words"), WRONG)
def test_a_malformed_argument_is_named_before_anything_is_asked(wrong: Plain, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Bridge(unasked).extend(**{"ids": IDS, "new_messages": NEW, **wrong})


@pytest.mark.parametrize("name", ["histroy", "spans", "stop_ids"])
def test_an_argument_that_does_not_exist_is_an_error(name: str) -> None:
    """What is not known is never guessed, so that nobody would see a misspelled name."""
    more: Any = {name: None}
    with pytest.raises(TypeError, match=name):
        bridge().extend(IDS, NEW, **more)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"stop_ids": [-1]}, r"^stop_ids\[0\] is -1"),
        ({"stop_ids": "ab"}, r"^stop_ids must be a sequence of ids, not str"),
        ({"suffix": [True]}, r"^suffix\[0\] is True"),
        ({"policy": "keep"}, r"^policy is 'keep': give a Policy"),
        ({"profile": {}}, r"^profile is a dict: give a Profile"),
        ({"profile": Profile}, r"^profile is .*: give a Profile"),
        ({"spans": "yes"}, r"^spans is 'yes': give True or False$"),
        ({"tokenize_fn": "tokenize"}, r"^tokenize_fn is 'tokenize': give a function from messages to ids$"),
    ],
)
def test_a_malformed_bridge_is_named_at_once(wrong: Plain, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Bridge(**{"tokenize_fn": unasked, **wrong})


def test_other_drivers_ask_the_same_questions() -> None:
    """An async driver awaits the answers of the same generator."""
    recorder, other = Recorder(), Recorder()
    one = Bridge(unasked, [example.CLOSE])
    found = answer(one.extend_questions(IDS, NEW, sampled=3), recorder)
    assert found == Bridge(other, [example.CLOSE]).extend(IDS, NEW, sampled=3)
    assert recorder.asked == other.asked
    assert one.suffix == (example.CLOSE,)


def test_the_suffix_is_asked_for_once_and_not_if_it_is_given() -> None:
    recorder, given = Recorder(), Recorder()
    asking, knowing = bridge(recorder), bridge(given, suffix=[example.CLOSE])
    assert (asking.suffix, knowing.suffix) == (None, (example.CLOSE,))
    counts = []
    for one, asked in ((asking, recorder.asked), (asking, recorder.asked), (knowing, given.asked)):
        before = len(asked)
        assert isinstance(one.extend(IDS, NEW), Extension)
        counts.append(len(asked) - before)
    assert counts[0] > counts[1] == counts[2]
    assert asking.suffix == suffix_ids(example.tokenize)


def test_an_extension_without_spans_asks_fewer_questions() -> None:
    new = [RESULT, example.user("so?")]
    counts = []
    for wanted in (True, False):
        recorder = Recorder()
        found = bridge(recorder, suffix=[example.CLOSE], spans=wanted).extend(IDS, new)
        assert isinstance(found, Extension)
        assert isinstance(found.spans, tuple) is wanted
        assert (found.spans is None) is not wanted
        counts.append(len(recorder.asked))
    assert counts[0] == counts[1] + 2 * len(new)


PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")


def known_profile(**more: Any) -> Profile:
    case = answer(certify_questions(PLAIN, ("user",), (example.CLOSE,)), example.tokenize)
    return Profile(suffix=(example.CLOSE,), cases=(case,), **more)


def test_the_stops_of_a_profile_are_the_bridges_too() -> None:
    profile = Profile(suffix=(example.CLOSE,), stop_ids=(example.CLOSE, 99))
    assert bridge(stop_ids=[5, 99], profile=profile).stop_ids == (5, 99, example.CLOSE)
    found = bridge(profile=profile).extend([*START, 900], NEW)
    assert isinstance(found, Extension)
    assert found.inserted_close == (example.CLOSE,)


@pytest.mark.parametrize("known", KNOWN)
def test_a_profile_that_knows_the_case_saves_questions_and_changes_no_answer(known: Plain) -> None:
    recorder, proving = Recorder(), Recorder()
    profile = known_profile()
    found = bridge(recorder, suffix=[example.CLOSE], profile=profile).extend(IDS, NEW, **known)
    assert isinstance(found, Extension)
    assert found == bridge(proving, suffix=[example.CLOSE]).extend(IDS, NEW, **known)
    assert len(recorder.asked) < len(proving.asked)
    if len(known) == 2:
        assert len(recorder.asked) == 3  # two for the tail, one for its span


class Cutting(Recorder):
    """A function that tokenizes no more than is asked for."""

    def rendered(
        self, messages: list[dict[str, Any]], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        del ids  # there is no text that would do
        return Rendered(None, example.cut(self(messages, add_generation_prompt=add_generation_prompt), since))


@pytest.mark.parametrize("known", KNOWN)
@pytest.mark.parametrize("words", ["more", "Zephyr", "a zephyr more", "4096", ""])
def test_an_answer_that_is_cut_gives_the_same_prompt_and_the_same_spans(known: Plain, words: str) -> None:
    new = [example.user(words), example.user("b")]
    case = answer(certify_questions(PLAIN, ("user+",), (example.CLOSE,)), Cutting())
    assert case.recipe is not None
    assert case.recipe.cut
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    found = bridge(Cutting(), suffix=[example.CLOSE], profile=profile).extend(IDS, new, **known)
    assert isinstance(found, Extension)
    assert not isinstance(found.spans, Refusal)
    assert found == bridge(suffix=[example.CLOSE]).extend(IDS, new, **known)


only_parts = refusing(
    lambda messages: any(isinstance(m.get("content"), str) for m in messages),
    template=shown(
        lambda messages: [
            {**m, "content": "".join(one["text"] for one in m.get("content") or ())} for m in messages
        ]
    ),
)
"""Takes no content but a list of parts."""


def test_a_template_that_takes_only_parts_needs_no_given_suffix() -> None:
    found = bridge(only_parts).extend(IDS, NEW)
    assert isinstance(found, Extension)
    assert found.ids == [*IDS, *MORE]


def test_editing_a_message_later_changes_no_answer() -> None:
    message, turn = example.user("more"), example.assistant()
    questions = bridge(unasked, suffix=[example.CLOSE]).extend_questions(IDS, [message], turn=turn)
    first: Any = next(questions)
    ids = example.tokenize(first.messages, add_generation_prompt=True)
    for one in (message, turn, *first.messages):
        one["content"] = "written"
    found = answer(resumed(questions, ids), example.tokenize)
    assert isinstance(found, Extension)
    assert found.ids == [*IDS, *MORE]


def resumed(questions: Any, ids: Sequence[int]) -> Any:
    """Go on with a generator that was asked for its first question already."""
    ids = yield questions.send(ids)
    while True:
        try:
            ids = yield questions.send(ids)
        except StopIteration as end:
            return end.value


def test_a_ledger_that_is_passed_on_keeps_what_earlier_turns_sampled() -> None:
    extend = Bridge(example.tokenize, [example.CLOSE]).extend
    first = extend([*IDS], [example.user("more")], sampled=2)
    assert isinstance(first, Extension)
    again = extend([*first.ids, 905, example.CLOSE], [example.user("on")], sampled=2, ledger=first.ledger)
    assert isinstance(again, Extension)
    assert again.ledger.mask()[: len(first.ids)] == first.ledger.mask()
    assert (sum(first.ledger.mask()), sum(again.ledger.mask())) == (2, 4)
    assert len(again.ledger) == len(again.ids)


def test_a_ledger_of_other_ids_is_an_error_that_says_so() -> None:
    extend = Bridge(example.tokenize, [example.CLOSE]).extend
    with pytest.raises(InputError, match=r"^ledger covers 3 ids, the prompt has"):
        extend([*IDS], [example.user("more")], sampled=2, ledger=Ledger.prompt(3))
    wrong: Any = [1]
    with pytest.raises(InputError, match=r"^ledger is a list: give the ledger"):
        extend([*IDS], [example.user("more")], sampled=2, ledger=wrong)


def test_a_template_that_does_not_even_close_a_turn_is_a_refusal() -> None:
    def refusing(*_: object, **__: object) -> list[int]:
        raise TemplateRefused("a system message comes first")

    found = Bridge(refusing, [example.CLOSE]).extend([*IDS], [example.user("more")])
    reason = "no close can be asked for: a system message comes first"
    assert found == Refusal(Reason.TEMPLATE_REFUSED, reason)


CALL_CLOSE = [7, 8, 2, 3]
"""Closes a turn with calls; 2 and 3 close every turn."""


def with_long_closes(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    ids: list[int] = []
    for message in messages:
        ids += [1, *example.text(message["role"]), *example.text(message.get("content") or "")]
        calls = message.get("tool_calls") or ()
        ids += example.text("".join(str(call["function"]["arguments"]) for call in calls))
        ids += CALL_CLOSE if calls else CALL_CLOSE[2:]
    return [*ids, 1, *example.text("assistant")] if add_generation_prompt else ids


def test_a_close_that_is_longer_than_the_suffix_is_not_written_twice() -> None:
    turn = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    history, new = [example.user()], [{"role": "tool", "tool_call_id": "c", "content": "7"}]
    ids = with_long_closes([*history, turn], add_generation_prompt=False)
    for stops in ([7], [7, 2]):
        found = Bridge(with_long_closes, stops).extend(ids, new, turn=turn, history=history)
        assert isinstance(found, Extension)
        assert list(found.added) == with_long_closes(new, add_generation_prompt=True)


def test_an_opener_that_two_roles_share_is_no_close() -> None:
    """Nothing closes a turn; the next role's marker stops it, as in GLM's templates."""
    markers = {"user": 4, "system": 4, "assistant": 5, "tool": 6}

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        parts = [[markers[one["role"]], *example.text(one["content"])] for one in messages]
        return [i for part in parts for i in part] + [5] * add_generation_prompt

    history = [example.user()]
    for new in (example.user("more"), {"role": "system", "content": "more"}):
        ids = tokenize([*history, example.assistant()], add_generation_prompt=False)
        found = Bridge(tokenize, [4, 5]).extend(
            ids, [new], turn=example.assistant(), history=history, truncated=True
        )
        assert isinstance(found, Extension)
        assert (list(found.added), found.inserted_close) == (tokenize([new], add_generation_prompt=True), ())
        assert isinstance(found.spans, tuple)
        assert found.spans[0].start == 0

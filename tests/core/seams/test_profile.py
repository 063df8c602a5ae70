"""Recipes: how they are made of several samples, and what they refuse to recognize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import (
    InputError,
    Message,
    Reason,
    Refusal,
    Rendered,
    Step,
    Stitched,
    TemplateRefused,
    answer,
    render_key,
    stitch,
    stitch_questions,
)
from tito_core.recheck import recheck_questions
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions, joined
from tito_core.seams.close import Cut
from tito_core.seams.profile import Case, Facts, Mode, Profile, Recipe, recognize
from tito_core.seams.prove import Proof
from tito_core.seams.turn import SampledTurn

RECIPE = Recipe(
    place=None,
    as_object=False,
    past=0,
    mark=(50, 51),
    rest=(7,),
    close=(2, 3),
    closed=2,
    speaks=(1, 9),
    cut=False,
)
TAIL = (7, 2, 3, 1, 8, 65, 2, 3, 1, 9)
ANSWER = (1, 8, 50, 51, *TAIL)
PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
ONE_CALL = TurnKind(before="user", reasoning=False, calls=1, content="text")


def test_a_tail_that_a_recipe_predicts_is_recognized() -> None:
    assert recognize(RECIPE, ANSWER) == TAIL[1:]
    assert recognize(attrs.evolve(RECIPE, rest=None), ANSWER) == TAIL[1:]
    assert recognize(attrs.evolve(RECIPE, rest=(7, 2, 3), close=(), speaks=()), ANSWER) == TAIL[3:]


@pytest.mark.parametrize(
    "answer",
    [
        (*ANSWER[:-1], 10),
        (*ANSWER[:-2], 2, 9),
        (1, 8, 50, 51, 6, *TAIL[1:]),
        (1, 8, 50, 51, 7, 2, 4, *TAIL[3:]),
        (1, 8, 50, 51, 7, 4, 3, *TAIL[3:]),
        (1, 8, 50, *TAIL),
        (1, 8, 50, 51, 50, 51, *TAIL),
        (1, 8, 50, 51, 7, 2, 3, 9),
        (1, 8, 50, 51, 7, 2),
        (),
    ],
    ids=[
        "speaks otherwise",
        "speaks otherwise, one before",
        "another rest",
        "another close",
        "a close that begins otherwise",
        "half a mark",
        "the mark twice",
        "the close runs into what makes the model speak",
        "half a close",
        "nothing",
    ],
)
def test_other_values_are_not_messages(answer: tuple[int, ...]) -> None:
    assert recognize(RECIPE, answer) is None


def test_a_close_is_required_where_nothing_follows() -> None:
    assert recognize(attrs.evolve(RECIPE, rest=None), (50, 51, 7, 2, 1, 9)) is None


def test_recipes_of_unlike_marks_share_their_ends() -> None:
    other = attrs.evolve(RECIPE, mark=(60, 51), cut=True)
    made = joined([RECIPE, other])
    assert made == attrs.evolve(RECIPE, mark=(51,))
    assert joined([other, other]) == other
    assert joined([RECIPE, attrs.evolve(RECIPE, mark=(51, 50))]) is None


def test_recipes_of_unlike_rests_go_by_the_close() -> None:
    other = attrs.evolve(RECIPE, rest=(8,))
    assert joined([RECIPE, other]) == attrs.evolve(RECIPE, rest=None)
    assert joined([attrs.evolve(one, close=()) for one in (RECIPE, other)]) is None


@pytest.mark.parametrize(
    "other", [{"close": (2, 4)}, {"closed": 1}, {"speaks": (1,)}, {"place": -1}, {"past": 1}]
)
def test_recipes_that_differ_in_anything_else_are_not_one(other: dict[str, Any]) -> None:
    assert joined([RECIPE, attrs.evolve(RECIPE, **other)]) is None


def naming(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a call's arguments first and its name after them."""
    text = ""
    for message in messages:
        text += f"<{message['role'][0]}>{message.get('content') or ''}"
        for call in message.get("tool_calls") or ():
            text += f"{call['function']['arguments']} {call['function']['name']}"
        text += "\x02"
    return [ord(letter) for letter in text + "<a>" * add_generation_prompt]


def test_a_recipe_has_no_text_that_depends_on_the_call() -> None:
    case = answer(certify_questions(ONE_CALL, ("tool",), (2,)), naming)
    assert case.mode is Mode.FREE
    assert case.recipe is not None
    assert (case.recipe.rest, case.recipe.close) == (None, (2,))
    assert case.renders > case.histories > 1


def test_a_profile_holds_a_case_once() -> None:
    case = Case(kind=ONE_CALL, shape=("tool",), mode=Mode.REFUSED)
    with pytest.raises(InputError, match=r"^cases has two entries for one kind and shape: keep one$"):
        Profile(suffix=(2,), cases=(case, case))
    later = attrs.evolve(case, renders=7)
    profile = Profile(suffix=(2,), cases=(case,)).then(later)
    assert profile.cases == (later,)
    assert repr(profile).count("Case(") == 1


def test_a_profile_of_another_form_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"^version is 1, and this library reads 2: probe the template again$"
    ):
        Profile(version=1, suffix=(2,))


def test_a_stop_that_opens_a_role_is_a_marker() -> None:
    facts = Facts(openers={"user": (5, 6), "tool": (), "system": (7,)})
    assert Profile(suffix=(), stop_ids=(5, 2, 7), facts=facts).markers == (5, 7)


class Cutting:
    """`example`, tokenizing no more than is asked for."""

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        del ids  # there is no text that would do
        return Rendered(None, example.cut(self(messages, add_generation_prompt=add_generation_prompt), since))


class WithText(Cutting):
    """`Cutting` that returns the text, too, unless it hides it. It counts the ids that it was asked for."""

    def __init__(self, *, hides: bool = False, drops: str | None = None) -> None:
        self.hides, self.drops = hides, drops
        self.asked: list[int] = []

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if self.drops is not None and messages[0] != example.user():
            messages = [one for one in messages if self.drops not in str(one.get("content"))]
        return super().__call__(messages, add_generation_prompt=add_generation_prompt)

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        whole = self(messages, add_generation_prompt=add_generation_prompt)
        text = "".join(chr(one - example.BASE if one >= example.BASE else 0xE000 + one) for one in whole)
        cut = example.cut(whole, since)
        self.asked.append(len(cut) * ids)
        return Rendered(None if self.hides else text, cut if ids else ())


def known(*shapes: tuple[str, ...], **more: Any) -> Profile:
    cases = [answer(certify_questions(PLAIN, shape, (example.CLOSE,)), Cutting()) for shape in shapes]
    return Profile(suffix=(example.CLOSE,), cases=tuple(cases), **more)


@pytest.mark.parametrize("words", ["What rhymes with Zephyr", "Zephyr", "zephyr more", "4096"])
def test_new_messages_may_have_the_stand_in_texts(words: str) -> None:
    step, profile = example.step(), known(("user",))
    prompt = example.prompt(step, words)
    assert profile.cases[0].recipe is not None
    assert profile.cases[0].recipe.cut
    found = answer(stitch_questions([step], prompt, profile.suffix, profile=profile), Cutting())
    assert isinstance(found, Stitched)
    assert list(found.added) == example.tokenize([example.user(words)], add_generation_prompt=True)
    assert answer(recheck_questions(found, prompt), Cutting()) is True


def test_a_check_against_a_full_render_finds_a_missing_message() -> None:
    step = example.step()
    prompt = [*example.prompt(step), example.user("Zephyr"), example.user("last")]
    found = answer(stitch_questions([step], prompt, (example.CLOSE,)), Cutting())
    assert isinstance(found, Stitched)
    assert answer(recheck_questions(found, prompt), Cutting()) is True
    for start in range(1, len(found.added)):
        assert (
            answer(recheck_questions(attrs.evolve(found, added=found.added[start:]), prompt), Cutting())
            is False
        )
    longer = attrs.evolve(found, added=(example.CLOSE,) * 200)
    assert answer(recheck_questions(longer, prompt), Cutting()) is False


def test_a_check_of_a_prompt_that_the_template_refuses_has_no_result() -> None:
    step = example.step()
    prompt = example.prompt(step)
    found = answer(stitch_questions([step], prompt, (example.CLOSE,)), example.tokenize)
    assert isinstance(found, Stitched)

    def refusing(*_: Any, **__: Any) -> list[int]:
        raise TemplateRefused("no")

    assert answer(recheck_questions(found, prompt), refusing) is None
    assert answer(recheck_questions(found, prompt), lambda *_, **__: [1, 2, 3]) is None


def test_another_role_is_not_taken_for_one_that_is_known() -> None:
    step, profile = example.step(), known(("system",))
    prompt = [*step.messages, {"role": "developer", "content": "be bad"}]
    found = answer(stitch_questions([step], prompt, profile.suffix, profile=profile), Cutting())
    assert isinstance(found, Stitched)
    assert list(found.added) == example.tokenize(prompt[len(step.messages) :], add_generation_prompt=True)
    changed = attrs.evolve(found, added=(example.OPEN, example.ROLES["system"], *found.added[2:]))
    assert answer(recheck_questions(changed, prompt), Cutting()) is False


def test_a_profile_of_another_key_is_not_used() -> None:
    key = render_key([{"f": 1}])
    step = example.step(key=key)
    calls: list[int] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        calls.append(1)
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    counts = []
    for profile in (known(("user",)), known(("user",), key=key), known(("user",), key=render_key())):
        calls.clear()
        assert stitch([step], example.prompt(step), (example.CLOSE,), counting, key=key, profile=profile)
        counts.append(len(calls))
    assert counts[0] == counts[1] == 2 < counts[2]


def numbering(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write numbers before the results of tools; refuse a call whose id was used before."""
    ids: list[int] = []
    names = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    if len(set(names)) < len(names):
        raise TemplateRefused("an id stands twice")
    for place, message in enumerate(messages):
        ids += [200 + place] if message["role"] == "tool" else []
        ids += example.tokenize([message], add_generation_prompt=False)
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def test_a_case_is_not_free_where_no_unlike_history_is_taken() -> None:
    kind = TurnKind(before="tool", reasoning=False, calls=1, content="text")
    case = answer(certify_questions(kind, ("tool",), (example.CLOSE,)), numbering)
    assert (case.mode is Mode.FREE, case.reason) in {(False, Reason.UNPROVEN_TAIL), (False, None)}


def quoting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Repeat a call's arguments in front of its result."""
    ids: list[int] = []
    assistant = ""
    for message in messages:
        ids += example.text(assistant) if message["role"] == "tool" else []
        ids += example.tokenize([message], add_generation_prompt=False)
        for call in message.get("tool_calls") or ():
            assistant = str(call["function"]["arguments"])
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write in front of a result which one it is."""
    ids: list[int] = []
    number = 0
    for message in messages:
        number += message["role"] == "tool"
        ids += [300 + number] if message["role"] == "tool" else []
        ids += example.tokenize([message], add_generation_prompt=False)
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def test_a_tail_that_repeats_the_turn_is_no_case() -> None:
    assert answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), quoting).mode is Mode.REFUSED


def test_a_tail_that_depends_on_the_history_is_asked_in_the_real_one() -> None:
    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), counting)
    assert case.mode is Mode.HISTORY

    def looking(name: str, words: str) -> list[dict[str, Any]]:
        function = {"name": "f", "arguments": '{"x": 1}'}
        call = {"id": name, "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": name, "content": words}
        return [{"role": "assistant", "content": "Look.", "tool_calls": [call]}, result]

    chat = [
        example.user("a"),
        *looking("c1", "7"),
        example.assistant("ok"),
        example.user("b"),
        *looking("c2", "8"),
    ]
    step = Step(prompt=chat[:5], completion=chat[5:6], prompt_ids=[1], completion_ids=[900, example.CLOSE])
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    found = stitch([step], chat, profile.suffix, counting, profile=profile)
    right = counting(chat, add_generation_prompt=True)
    assert found == [1, 900, example.CLOSE, *right[right.index(302) :]]


@pytest.mark.parametrize("past", [-1, 1, 5])
def test_a_recipe_with_an_unknown_history_is_not_used(past: int) -> None:
    """A profile is data, and somebody may have edited it."""
    step, profile = example.step(), known(("user",))
    case = profile.cases[0]
    assert case.recipe is not None
    assert case.recipe.past == 0
    edited = profile.then(attrs.evolve(case, recipe=attrs.evolve(case.recipe, past=past)))
    asked: list[int] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked.append(len(messages))
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    found = stitch([step], example.prompt(step), profile.suffix, counting, profile=edited)
    assert found == stitch([step], example.prompt(step), profile.suffix, example.tokenize)
    assert len(asked) > 1


def moving(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write the system text in front of the last user's, wherever that is; a line closes every turn."""
    system = [m["content"] for m in messages if m["role"] == "system"]
    asked = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    lines = [
        f"{m['role']}:{''.join(system) if i == asked else ''}{m['content']}\n"
        for i, m in enumerate(messages)
        if m["role"] != "system"
    ]
    return example.text("".join(lines) + "assistant:" * add_generation_prompt)


class Rewriting:
    """`moving`, cut where a text stands for the last time."""

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return moving(messages, add_generation_prompt=add_generation_prompt)

    def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        del ids
        whole, sought = self(messages, add_generation_prompt=add_generation_prompt), example.text(since or "")
        places = (i for i in range(len(whole)) if whole[i : i + len(sought)] == sought)
        return Rendered(None, whole[max(places) if since else 0 :])


def test_a_history_that_says_what_the_kernel_asks_with_is_not_cut_in_the_middle() -> None:
    """What came before may be written after the turn; the last place of a text is then another's."""
    suffix = tuple(example.text("\n"))
    case = answer(certify_questions(PLAIN, ("user",), suffix), Rewriting())
    assert (case.mode, case.recipe is not None and case.recipe.cut) == (Mode.HISTORY, True)
    profile = Profile(suffix=suffix, cases=(case,))
    assistant = [{"role": "system", "content": "You are Zephyr\nBe kind. "}, example.user("hi")]
    ids = moving(assistant, add_generation_prompt=True)
    sampled = [*example.text("hello"), *suffix]
    step = Step(prompt=assistant, completion=[example.assistant()], prompt_ids=ids, completion_ids=sampled)
    prompt = [*step.messages, example.user("why?")]
    found = answer(stitch_questions([step], prompt, suffix, profile=profile), Rewriting())
    right = moving([assistant[0], example.user("why?")], add_generation_prompt=True)
    assert not isinstance(found, Stitched) or list(found.added) == right
    assert stitch([step], prompt, suffix, moving, profile=profile) in (None, [*step.ids, *right])


@pytest.mark.parametrize("words", ["more", "a much longer text", "4096", "What rhymes with Zephyr", ""])
@pytest.mark.parametrize("hides", [False, True])
def test_where_there_are_texts_the_second_answer_needs_no_ids(words: str, *, hides: bool) -> None:
    step, profile, with_text = example.step(), known(("user",)), WithText(hides=hides)
    asking = stitch_questions([step], example.prompt(step, words), profile.suffix, profile=profile)
    found = answer(asking, with_text)
    assert isinstance(found, Stitched)
    assert list(found.added) == example.tokenize([example.user(words)], add_generation_prompt=True)
    if words and "Zephyr" not in words:  # an empty text has no name, and a stand-in's word is not cut at
        assert len(with_text.asked) == 2
        assert (with_text.asked[1] == 0) is not hides


@pytest.mark.parametrize("hides", [False, True])
def test_a_message_that_is_lost_in_another_history_is_seen_in_the_text(*, hides: bool) -> None:
    step, profile = example.step(), known(("user",))
    prompt = example.prompt(step, "secret")
    found = answer(
        stitch_questions([step], prompt, profile.suffix, profile=profile),
        WithText(hides=hides, drops="secret"),
    )
    assert found == answer(stitch_questions([step], prompt, profile.suffix), WithText(drops="secret"))
    assert isinstance(found, Refusal)


class Merging(WithText):
    """Ids that depend on what stands before them, of a text that does not."""

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = super().__call__(messages, add_generation_prompt=add_generation_prompt)
        other = messages[0] != example.user() and "secret" in str(messages[-1])
        return [*ids[:-3], ids[-3] + 1000, *ids[-2:]] if other else ids

    def rendered(self, *given: Any, **options: Any) -> Rendered:
        return attrs.evolve(super().rendered(*given, **options), text="Zephyr and a text")


def test_a_text_says_nothing_of_ids_that_may_depend_on_what_stands_before_them() -> None:
    step, profile = example.step(), known(("user",))
    (case,) = profile.cases
    assert case.recipe is not None
    uncut = attrs.evolve(profile, cases=(attrs.evolve(case, recipe=attrs.evolve(case.recipe, cut=False)),))
    merging = Merging()
    found = answer(
        stitch_questions([step], example.prompt(step, "secret"), profile.suffix, profile=uncut), merging
    )
    assert isinstance(found, Refusal)
    assert all(merging.asked)


def known_tail(profile: Profile, turn: SampledTurn, *environment: Any, tokenize: Any = None) -> Any:
    return answer(profile.known_tail_questions(turn, environment), tokenize or example.tokenize)


ASKED = SampledTurn(message=example.assistant(), stop=None, history=(example.user(),))


def test_a_known_tail_is_a_proof_that_others_can_go_on_with() -> None:
    proof = known_tail(known(("user",)), ASKED, example.user("more"))
    assert isinstance(proof, Proof)
    tail = (example.CLOSE, *example.tokenize([example.user("more")], add_generation_prompt=True))
    assert (proof.ids, proof.cut, proof.generation_prompt) == (tail, Cut(0, 1), 2)
    assert proof.located.messages(()) == (example.user(), example.assistant("Zephyr"))
    assert proof.located.seam.tail == tail
    assert proof.located.since == "Zephyr"


def test_a_known_tail_after_a_call_begins_where_the_call_is_over() -> None:
    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), example.tokenize)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    turn = attrs.evolve(ASKED, message={"role": "assistant", "content": "Look.", "tool_calls": [call]})
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    proof = known_tail(Profile(suffix=(example.CLOSE,), cases=(case,)), turn, result)
    assert isinstance(proof, Proof)
    assert proof.ids == (example.CLOSE, *example.tokenize([result], add_generation_prompt=True))
    assert proof.cut == Cut(2, 1)  # after `"}`


def closing_by_name(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a call's id after its arguments, and close a turn that calls `run` with 5."""
    ids: list[int] = []
    for message in messages:
        ids += example.tokenize([message], add_generation_prompt=False)[:-1]
        calls = message.get("tool_calls") or ()
        ids += [index for call in calls for index in example.text(str(call["id"]))]
        ids.append(5 if any(call["function"]["name"] == "run" for call in calls) else example.CLOSE)
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


@pytest.mark.parametrize("name", ["look", "run"])
@pytest.mark.parametrize("mode", [Mode.FREE, Mode.HISTORY])
def test_a_close_of_the_result_is_not_taken_for_the_close_of_the_call(name: str, mode: Mode) -> None:
    """Of calls whose end depends on them the close alone is known, and another turn may have another."""
    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), closing_by_name)
    assert case.recipe is not None
    assert case.recipe.rest is None
    profile = Profile(suffix=(example.CLOSE,), cases=(attrs.evolve(case, mode=mode),))
    call = {"id": "c7", "type": "function", "function": {"name": name, "arguments": "{}"}}
    turn = attrs.evolve(
        ASKED,
        message={"role": "assistant", "content": "Look.", "tool_calls": [call]},
        prompt=[example.user()],
        place=1,
    )
    result = {"role": "tool", "tool_call_id": "c7", "content": "7"}
    proof = known_tail(profile, turn, result, tokenize=closing_by_name)
    if name == "run":
        assert proof is None
    else:
        assert isinstance(proof, Proof)
        assert proof.ids == (example.CLOSE, *closing_by_name([result], add_generation_prompt=True))


def test_a_close_that_is_written_once_something_follows_is_known() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = closing_by_name(messages, add_generation_prompt=add_generation_prompt)
        return ids[:-1] if messages[-1].get("tool_calls") and not add_generation_prompt else ids

    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), tokenize)
    call = {"id": "c7", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turn = attrs.evolve(ASKED, message={"role": "assistant", "content": "Look.", "tool_calls": [call]})
    result = {"role": "tool", "tool_call_id": "c7", "content": "7"}
    proof = known_tail(Profile(suffix=(example.CLOSE,), cases=(case,)), turn, result, tokenize=tokenize)
    assert case.recipe is not None
    assert case.recipe.rest is None
    assert isinstance(proof, Proof)
    assert proof.ids == (example.CLOSE, *tokenize([result], add_generation_prompt=True))


def test_a_call_that_may_not_come_last_is_proven_anew_where_its_end_depends_on_it() -> None:
    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), closing_by_name)

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if messages[-1].get("tool_calls"):
            raise TemplateRefused("a call must be answered")
        return closing_by_name(messages, add_generation_prompt=add_generation_prompt)

    call = {"id": "c7", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    turn = attrs.evolve(ASKED, message={"role": "assistant", "content": "Look.", "tool_calls": [call]})
    result = {"role": "tool", "tool_call_id": "c7", "content": "7"}
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    assert known_tail(profile, turn, result, tokenize=tokenize) is None


def test_in_an_unknown_history_a_known_case_is_shown_in_all_kinds_of_histories() -> None:
    asked: list[Sequence[Message]] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked.append(messages)
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    unknown = attrs.evolve(ASKED, history=(), history_known=False)
    profile = known(("user",))
    proof = known_tail(profile, unknown, example.user("more"), tokenize=counting)
    assert isinstance(proof, Proof)
    assert proof.ids == known_tail(profile, ASKED, example.user("more")).ids
    assert {messages[-3]["role"] for messages in asked} == {"user", "tool", "system", "developer"}
    assert any("/no_think" in messages[0]["content"] for messages in asked)


def switching(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Open another thought for the model where the system text says `/no_think`."""
    ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
    off = messages[0]["role"] == "system" and "/no_think" in messages[0]["content"]
    return [
        61 if off and add_generation_prompt and place == len(ids) - 1 else index
        for place, index in enumerate(ids)
    ]


def test_a_switch_that_may_be_in_an_unknown_history_is_not_overlooked() -> None:
    case = answer(certify_questions(PLAIN, ("user",), (example.CLOSE,)), switching)
    assert case.mode is Mode.FREE
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    unknown = attrs.evolve(ASKED, history=(), history_known=False)
    assert isinstance(known_tail(profile, ASKED, example.user("more"), tokenize=switching), Proof)
    assert known_tail(profile, unknown, example.user("more"), tokenize=switching) is None
    switched = attrs.evolve(ASKED, history=({"role": "system", "content": "/no_think"}, example.user()))
    assert known_tail(profile, switched, example.user("more"), tokenize=switching) is None


def test_a_case_that_needs_the_whole_history_is_unknown_without_it() -> None:
    case = answer(certify_questions(ONE_CALL, ("tool",), (example.CLOSE,)), counting)
    assert case.mode is Mode.HISTORY
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    message = {"role": "assistant", "content": "Look.", "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    turn = attrs.evolve(ASKED, message=message, prompt=[example.user(), message], place=1)
    assert isinstance(known_tail(profile, turn, result, tokenize=counting), Proof)
    unknown = attrs.evolve(turn, history_known=False)
    assert known_tail(profile, unknown, result, tokenize=unasked) is None


def unasked(*_: Any, **__: Any) -> list[int]:
    raise AssertionError("nothing is to be asked")


def test_an_unknown_case_is_not_asked_about() -> None:
    profile = known(("system",))
    assert known_tail(profile, ASKED, example.user("more"), tokenize=unasked) is None
    assert known_tail(profile, ASKED, {"role": "critic", "content": "x"}, tokenize=unasked) is None


def test_a_template_that_refuses_a_known_case_is_asked_anew() -> None:
    def refusing(*_: Any, **__: Any) -> list[int]:
        raise TemplateRefused("no")

    assert known_tail(known(("user",)), ASKED, example.user("more"), tokenize=refusing) is None


def thoughtful(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write something after a turn with reasoning."""
    ids: list[int] = []
    for message in messages:
        ids += example.tokenize([message], add_generation_prompt=False)
        ids += [50] * bool(message.get("reasoning"))
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


@pytest.mark.parametrize("mode", [Mode.FREE, Mode.HISTORY])
def test_a_known_case_of_a_turn_that_may_be_another_is_that_of_all(mode: Mode) -> None:
    """Whoever gives no turn may have another than the one that is asked about."""
    case = attrs.evolve(answer(certify_questions(PLAIN, ("user",), (example.CLOSE,)), thoughtful), mode=mode)
    profile = Profile(suffix=(example.CLOSE,), cases=(case,))
    turn = attrs.evolve(ASKED, prompt=[example.user(), ASKED.message], place=1)
    assert isinstance(known_tail(profile, turn, example.user("more"), tokenize=thoughtful), Proof)
    alike = attrs.evolve(turn, others=(example.assistant("other"),))
    unlike = attrs.evolve(turn, others=({**example.assistant(), "reasoning": "why"},))
    assert known_tail(profile, unlike, example.user("more"), tokenize=thoughtful) is None
    proof = known_tail(profile, alike, example.user("more"), tokenize=thoughtful)
    assert (
        proof is None or proof.ids == known_tail(profile, turn, example.user("more"), tokenize=thoughtful).ids
    )

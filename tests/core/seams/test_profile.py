"""Recipes: how they are made of several samples, and what they refuse to recognize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import RESULT, Recorder, each, refusing, speaking
from tito_core import (
    InputError,
    Message,
    Reason,
    Refusal,
    Rendered,
    Step,
    Stitched,
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


def recipe(**more: Any) -> Recipe:
    usual: dict[str, Any] = {"place": None, "as_object": False, "past": 0, "mark": (50,), "rest": ()}
    return Recipe(**(usual | {"close": (2,), "closed": 1, "speaks": (1, 9), "cut": False} | more))


RECIPE = recipe(mark=(50, 51), rest=(7,), close=(2, 3), closed=2)
PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
ONE_CALL = TurnKind(before="user", reasoning=False, calls=1, content="text")


@pytest.mark.parametrize(
    ("known", "ids", "bridge"),
    [
        (recipe(), (50, 2, 1, 9), (2, 1, 9)),
        (recipe(), (50, 2, 1, 8), None),
        (recipe(), (50, 3, 1, 9), None),
        (recipe(), (50, 1, 9), None),  # the close must stand before the generation prompt
        (recipe(close=()), (50, 1, 9), (1, 9)),
        (recipe(speaks=()), (50, 2), (2,)),
        (recipe(speaks=(2, 1, 9)), (50, 2, 1, 9), None),  # nor may one be the other
        (recipe(rest=(7,)), (50, 7, 2, 1, 9), (2, 1, 9)),
        (recipe(rest=(7,)), (50, 8, 2, 1, 9), None),
        (recipe(rest=None), (50, 8, 8, 2, 5, 1, 9), (2, 5, 1, 9)),
        (recipe(rest=None, speaks=()), (50, 8, 2), (2,)),
        (recipe(rest=None), (50, 8, 8, 1, 9), None),
        (recipe(rest=None, close=(2, 3)), (50, 2, 8, 2, 3, 1, 9), (2, 3, 1, 9)),
        (recipe(mark=(50, 51)), (50, 51, 2, 1, 9), (2, 1, 9)),
        (recipe(mark=(50, 51)), (51, 50, 2, 1, 9), None),
        (recipe(mark=()), (2, 1, 9), None),
    ],
)
def test_a_tail_is_recognized_only_as_it_was_shown(
    known: Recipe, ids: tuple[int, ...], bridge: tuple[int, ...] | None
) -> None:
    assert recognize(known, ids) == bridge


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


SUFFIX = (example.CLOSE,)


def certified(kind: TurnKind, shape: str, tokenize: Any) -> Case:
    return answer(certify_questions(kind, (shape,), SUFFIX), tokenize)


naming = each(
    lambda m, ids, _: [
        *ids[:-1],
        *(i for c in example.calls([m]) for i in example.text(c["function"]["name"])),
        ids[-1],
    ]
)
"""Writes a call's name after its arguments."""


def test_a_recipe_has_no_text_that_depends_on_the_call() -> None:
    case = certified(ONE_CALL, "tool", naming)
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
    cases = [answer(certify_questions(PLAIN, shape, SUFFIX), Cutting()) for shape in shapes]
    return Profile(suffix=SUFFIX, cases=tuple(cases), **more)


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
    found = answer(stitch_questions([step], prompt, SUFFIX), Cutting())
    assert isinstance(found, Stitched)

    def checked(added: tuple[int, ...], tokenize: Any) -> bool | None:
        return answer(recheck_questions(attrs.evolve(found, added=added), prompt), tokenize)

    assert checked(found.added, Cutting()) is True
    for wrong in (*(found.added[start:] for start in range(1, len(found.added))), SUFFIX * 200):
        assert checked(wrong, Cutting()) is False
    for refused in (refusing(lambda _: True), lambda *_, **__: [1, 2, 3]):
        assert checked(found.added, refused) is None


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
    counts = []
    for profile in (known(("user",)), known(("user",), key=key), known(("user",), key=render_key())):
        recorder = Recorder()
        assert stitch([step], example.prompt(step), SUFFIX, recorder, key=key, profile=profile)
        counts.append(len(recorder.asked))
    assert counts[0] == counts[1] == 2 < counts[2]


numbering = refusing(
    lambda messages: len({c["id"] for c in example.calls(messages)}) < len(example.calls(messages)),
    template=each(lambda m, ids, past: [*[200 + len(past)] * (m["role"] == "tool"), *ids]),
)
"""Writes numbers before the results of tools; refuses a call whose id was used before."""


def test_a_case_is_not_free_where_no_unlike_history_is_taken() -> None:
    case = certified(TurnKind(before="tool", reasoning=False, calls=1, content="text"), "tool", numbering)
    assert (case.mode is Mode.FREE, case.reason) in {(False, Reason.UNPROVEN_TAIL), (False, None)}


quoting = each(
    lambda m, ids, past: [*example.text(str(example.calls(past)) if m["role"] == "tool" else ""), *ids]
)
"""Repeats calls in front of a result."""

counting = each(
    lambda m, ids, past: [*[301 + sum(one["role"] == "tool" for one in past)] * (m["role"] == "tool"), *ids]
)
"""Writes in front of a result which one it is."""


def looking(identity: str = "c7", name: str = "look") -> dict[str, Any]:
    return example.calling(identity, name, content="Look.")


def found_by(identity: str = "c7") -> dict[str, Any]:
    return {**RESULT, "tool_call_id": identity}


def test_a_tail_that_repeats_the_turn_is_no_case() -> None:
    assert certified(ONE_CALL, "tool", quoting).mode is Mode.REFUSED


def test_a_tail_that_depends_on_the_history_is_asked_in_the_real_one() -> None:
    case = certified(ONE_CALL, "tool", counting)
    assert case.mode is Mode.HISTORY
    first, last = [looking("c1"), found_by("c1")], [looking("c2"), found_by("c2")]
    chat = [example.user("a"), *first, example.assistant("ok"), example.user("b"), *last]
    step = Step(prompt=chat[:5], completion=chat[5:6], prompt_ids=[1], completion_ids=[900, example.CLOSE])
    found = stitch([step], chat, SUFFIX, counting, profile=Profile(suffix=SUFFIX, cases=(case,)))
    right = list(counting(chat, add_generation_prompt=True))
    assert found == [1, 900, example.CLOSE, *right[right.index(302) :]]


@pytest.mark.parametrize("past", [-1, 1, 5])
def test_a_recipe_with_an_unknown_history_is_not_used(past: int) -> None:
    """A profile is data, and somebody may have edited it."""
    step, profile = example.step(), known(("user",))
    case = profile.cases[0]
    assert case.recipe is not None
    assert case.recipe.past == 0
    edited = profile.then(attrs.evolve(case, recipe=attrs.evolve(case.recipe, past=past)))
    recorder = Recorder()
    found = stitch([step], example.prompt(step), SUFFIX, recorder, profile=edited)
    assert found == stitch([step], example.prompt(step), SUFFIX, example.tokenize)
    assert len(recorder.asked) > 1


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


USER, MORE = example.user(), example.user("more")
ASKED = SampledTurn(message=example.assistant(), stop=None, history=(USER,))
UNKNOWN = attrs.evolve(ASKED, history=(), history_known=False)


def test_a_known_tail_is_a_proof_that_others_can_go_on_with() -> None:
    proof = known_tail(known(("user",)), ASKED, MORE)
    assert isinstance(proof, Proof)
    tail = (example.CLOSE, *example.tokenize([example.user("more")], add_generation_prompt=True))
    assert (proof.ids, proof.cut, proof.generation_prompt) == (tail, Cut(0, 1), 2)
    assert proof.located.messages(()) == (example.user(), example.assistant("Zephyr"))
    assert proof.located.seam.tail == tail
    assert proof.located.since == "Zephyr"


def profiled(kind: TurnKind, shape: str, tokenize: Any, mode: Mode | None = None) -> Profile:
    """Return a profile with one case; it may be changed to another mode."""
    case = certified(kind, shape, tokenize)
    return Profile(suffix=SUFFIX, cases=(attrs.evolve(case, mode=mode or case.mode),))


LOOKED = attrs.evolve(ASKED, message=looking())


def test_a_known_tail_after_a_call_begins_where_the_call_is_over() -> None:
    proof = known_tail(profiled(ONE_CALL, "tool", example.tokenize), LOOKED, found_by())
    assert isinstance(proof, Proof)
    assert proof.ids == (example.CLOSE, *example.tokenize([found_by()], add_generation_prompt=True))
    assert proof.cut == Cut(2, 1)  # after `"}`


closing_by_name = each(
    lambda m, ids, _: [
        *ids[:-1],
        *(i for c in example.calls([m]) for i in example.text(str(c["id"]))),
        5 if any(c["function"]["name"] == "run" for c in example.calls([m])) else example.CLOSE,
    ]
)
"""Writes a call's id after its arguments, and closes a turn that calls `run` with 5."""


@pytest.mark.parametrize("mode", [Mode.FREE, Mode.HISTORY])
def test_a_close_of_the_result_is_not_taken_for_the_close_of_the_call(mode: Mode) -> None:
    """Of calls whose end depends on them the close alone is known, and another turn may have another."""
    profile = profiled(ONE_CALL, "tool", closing_by_name, mode)
    (recipe,) = (case.recipe for case in profile.cases)
    assert recipe is not None
    assert recipe.rest is None
    turns = (
        attrs.evolve(ASKED, message=looking(name=one), prompt=[USER], place=1) for one in ("look", "run")
    )
    look, run = (known_tail(profile, one, found_by(), tokenize=closing_by_name) for one in turns)
    assert run is None
    assert isinstance(look, Proof)
    assert look.ids == (example.CLOSE, *closing_by_name([found_by()], add_generation_prompt=True))


def closed_later(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
    """Close a turn that calls once something follows."""
    ids = list(closing_by_name(messages, add_generation_prompt=add_generation_prompt))
    return ids[:-1] if messages[-1].get("tool_calls") and not add_generation_prompt else ids


def test_a_close_that_is_written_once_something_follows_is_known() -> None:
    profile = profiled(ONE_CALL, "tool", closed_later)
    proof = known_tail(profile, LOOKED, found_by(), tokenize=closed_later)
    assert isinstance(proof, Proof)
    assert proof.ids == (example.CLOSE, *closed_later([found_by()], add_generation_prompt=True))


def test_a_call_that_may_not_come_last_is_proven_anew_where_its_end_depends_on_it() -> None:
    answered = refusing(lambda messages: bool(messages[-1].get("tool_calls")), template=closing_by_name)
    profile = profiled(ONE_CALL, "tool", closing_by_name)
    assert known_tail(profile, LOOKED, found_by(), tokenize=answered) is None


def test_in_an_unknown_history_a_known_case_is_shown_in_all_kinds_of_histories() -> None:
    recorder, profile = Recorder(), known(("user",))
    proof = known_tail(profile, UNKNOWN, MORE, tokenize=recorder)
    assert isinstance(proof, Proof)
    assert proof.ids == known_tail(profile, ASKED, MORE).ids
    assert {messages[-3]["role"] for messages in recorder.asked} == {"user", "tool", "system", "developer"}
    assert any("/no_think" in messages[0]["content"] for messages in recorder.asked)


switching = speaking(
    lambda messages: [61] * (messages[0]["role"] == "system" and "/no_think" in messages[0]["content"])
)
"""Opens a thought for the model where the system text says `/no_think`."""


def test_a_switch_that_may_be_in_an_unknown_history_is_not_overlooked() -> None:
    profile = profiled(PLAIN, "user", switching)
    assert profile.cases[0].mode is Mode.FREE
    assert isinstance(known_tail(profile, ASKED, MORE, tokenize=switching), Proof)
    switched = attrs.evolve(ASKED, history=({"role": "system", "content": "/no_think"}, USER))
    for turn in (UNKNOWN, switched):
        assert known_tail(profile, turn, MORE, tokenize=switching) is None


def unasked(*_: Any, **__: Any) -> list[int]:
    raise AssertionError("nothing is to be asked")


def test_a_case_that_needs_the_whole_history_is_unknown_without_it() -> None:
    profile = profiled(ONE_CALL, "tool", counting)
    turn = attrs.evolve(LOOKED, prompt=[USER, looking()], place=1)
    assert isinstance(known_tail(profile, turn, found_by(), tokenize=counting), Proof)
    unknown = attrs.evolve(turn, history_known=False)
    assert known_tail(profile, unknown, found_by(), tokenize=unasked) is None


def test_an_unknown_case_is_not_asked_about() -> None:
    for new in (MORE, {"role": "critic", "content": "x"}):
        assert known_tail(known(("system",)), ASKED, new, tokenize=unasked) is None


def test_a_template_that_refuses_a_known_case_is_asked_anew() -> None:
    assert known_tail(known(("user",)), ASKED, MORE, tokenize=refusing(lambda _: True)) is None


thoughtful = each(lambda m, ids, _: [*ids, *[50] * bool(m.get("reasoning"))])
"""Writes something after a turn with reasoning."""


@pytest.mark.parametrize("mode", [Mode.FREE, Mode.HISTORY])
def test_a_known_case_of_a_turn_that_may_be_another_is_that_of_all(mode: Mode) -> None:
    """Whoever gives no turn may have another than the one that is asked about."""
    profile = profiled(PLAIN, "user", thoughtful, mode)
    turn = attrs.evolve(ASKED, prompt=[USER, ASKED.message], place=1)
    alike = attrs.evolve(turn, others=(example.assistant("other"),))
    unlike = attrs.evolve(turn, others=({**example.assistant(), "reasoning": "why"},))
    known, same, other = (
        known_tail(profile, one, MORE, tokenize=thoughtful) for one in (turn, alike, unlike)
    )
    assert isinstance(known, Proof)
    assert same is None or same.ids == known.ids
    assert other is None

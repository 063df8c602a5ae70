"""Counts by example: what is followed, lost, cached, refused, and whose turn it was."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from tests.core.drift.drifting import END, TOY, Family, Talk, forgetful, found, letters, says, user
from tito_core import InputError, Message, Step
from tito_core.drift.audit import audit
from tito_core.drift.breaks import TurnPart
from tito_core.drift.cause import Evidence, all_texts, find_causes, part_at, reasoning_of
from tito_core.drift.diff import Hunk, packed
from tito_core.drift.predecessor import By, find_predecessors
from tito_core.drift.tally import Tally
from tito_core.drift.text import text_difference
from tito_core.samples import Forest, StoredCall

SPELLED = letters("abba" + END)


def turns(count: int, *, spelled: int) -> Talk:
    """Take turns, of which one is spelled as no tokenizer would."""
    talk = Talk()
    for number in range(count):
        ids = SPELLED if number == spelled else TOY.encode("abba" + END)
        talk.turn("abba", ids=ids, asked=[user(f"go on {number}")])
    return talk


def test_a_trainer_that_merges_afterwards_keeps_turns_up_to_the_first_break() -> None:
    """Turn 2 of four is respelled: its own ids and all later turns' prompts are not in the last rendering."""
    tally = turns(4, spelled=2).audit().tally
    assert (tally.lost_ids, tally.merged_ids) == (5 + 3, 3 + 3 + 5 + 3)
    assert tally.lost == 8 / 14


def test_the_last_turn_is_lost_where_the_last_conversation_respells_it() -> None:
    tally = turns(3, spelled=2).audit().tally
    assert tally.breaks == 0  # no prompt shows it
    assert (tally.lost_ids, tally.merged_ids) == (5, 11)


def test_a_turn_that_one_of_two_branches_keeps_is_not_lost() -> None:
    talk = turns(2, spelled=-1)
    side = Talk(calls=talk.calls[:1]).turn("", says("abba"), ids=SPELLED, asked=[user("else")])
    calls = [*talk.calls, attrs.evolve(side.calls[-1], name="side")]
    tally = audit(Forest.of(calls), TOY).tally
    assert (tally.lost_ids, tally.merged_ids) == (5, 3 + 3 + 5)
    assert tally.turns == 1


def test_a_prefix_cache_has_what_came_before_the_break_in_whole_blocks() -> None:
    talk = turns(3, spelled=0)
    for block in (1, 4, 16, 1000):
        tally = talk.audit(block=block).tally
        first, second, third = talk.calls
        rendered = TOY.ids(second.step.prompt, second.step.key, add_generation_prompt=True)
        assert tally.cached_by_ids == first.stop // block * block + second.stop // block * block
        assert tally.cached_by_messages == (
            first.start // block * block + (len(rendered) + 3) // block * block
        )
        assert tally.prompt_ids == len(rendered) + len(
            TOY.ids(third.step.prompt, third.step.key, add_generation_prompt=True)
        )
        assert tally.reuse_lost == tally.cached_by_ids - tally.cached_by_messages


def test_changed_ids_are_counted_once_however_many_prompts_show_them() -> None:
    talk = turns(6, spelled=0)
    retried = attrs.evolve(talk.calls[-1], name="again", order=9)
    tally = audit(Forest.of([*talk.calls, retried]), TOY).tally
    assert (tally.changed_ids, tally.followed_ids) == (4, 5 + 4 * 3)
    assert (tally.broken_turns, tally.turns) == (1, 5)
    assert (tally.by_turn, tally.by_rollout) == (0.2, 1.0)


def test_a_prompt_that_the_template_refuses_is_counted_and_its_turns_are_not_lost() -> None:
    talk = turns(1, spelled=-1)
    talk.turn("abba", prompt=[*talk.calls[0].step.messages, {"role": "critic", "content": "x"}])
    audited = talk.audit(Family(refuses=("critic",)))
    assert audited.breaks == ()
    assert (audited.tally.refused, audited.tally.compared, audited.tally.merged_ids) == (1, 1, 0)


def test_media_are_not_compared() -> None:
    talk = turns(1, spelled=0)
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    talk.turn("abba", prompt=[*talk.calls[0].step.messages, {"role": "user", "content": [picture]}])
    audited = talk.audit()
    assert (audited.breaks, audited.tally.media, audited.tally.merged_ids) == ((), 1, 0)


def test_calls_without_messages_are_counted() -> None:
    step = Step(prompt=[], completion=[], prompt_ids=[1, 2], completion_ids=[3])
    tally = audit(Forest.of([StoredCall(name="a", step=step)]), TOY).tally
    assert (tally.wordless, tally.compared, tally.breaks) == (1, 0, 0)


def test_no_calls_are_an_empty_conversation() -> None:
    assert audit(Forest.of([]), TOY).tally == Tally(conversations=1)


def test_each_prompt_is_rendered_once_where_nothing_differs() -> None:
    """And the last conversation once: five prompts and one whole."""
    family = Family()
    turns(5, spelled=-1).audit(family)
    assert family.count == [1, 3, 5, 7, 9, 10]


def test_what_the_renderer_raises_comes_out() -> None:
    class Broken(Family):
        def ids(self, *_: object, **__: object) -> list[int]:
            raise InputError("no such key")

    with pytest.raises(InputError, match="no such key"):
        turns(1, spelled=-1).audit(Broken())


def test_a_long_break_is_cut_for_showing_and_counted_whole() -> None:
    talk = Talk().turn("", says("ab" * 60), ids=letters("ab" * 60 + END)).turn("so")
    (one,) = talk.audit().breaks
    assert (one.used_ids, len(one.used), one.rendered_ids, len(one.rendered)) == (120, 48, 60, 48)


def test_a_retry_follows_what_the_first_one_did() -> None:
    talk = Talk(by_ids=False).turn("ab", ids=letters("ab" + END)).turn("so")
    again = attrs.evolve(talk.calls[1], name="again", order=5)
    follows = find_predecessors(Forest.of([*talk.calls, again]))
    assert {name: (one.name, one.by) for name, one in follows.items()} == {
        "t1": ("t0", By.MESSAGES),
        "again": ("t0", By.MESSAGES),
    }
    assert found(audit(Forest.of([*talk.calls, again]), TOY)) == [("t0", "CONTENT", "RETOKENIZED")]


def test_an_edited_history_needs_half_of_its_messages_where_they_were() -> None:
    talk = Talk(by_ids=False).turn("yes")
    talk.turn("so", prompt=[user("other"), says("no"), user("next")])
    assert find_predecessors(Forest.of(talk.calls)) == {}


def test_a_circle_of_ids_and_messages_is_cut() -> None:
    """By ids the first goes on from the second, by messages the second from the first."""
    one = Step(
        prompt=[user("x"), says("n"), user()],
        completion=[says("a")],
        prompt_ids=[5, 6, 7],
        completion_ids=[8],
    )
    prompt = [*one.messages, user("more")]
    two = Step(prompt=prompt, completion=[says("b")], prompt_ids=[5], completion_ids=[6])
    forest = Forest.of([StoredCall(name="one", step=one, order=1), StoredCall(name="two", step=two, order=2)])
    assert len(find_predecessors(forest)) < 2
    assert audit(forest, TOY).tally.calls == audit(forest, TOY).tally.compared == 2


def seen(part: TurnPart, used: str, rendered: str, **more: object) -> list[str]:
    evidence = Evidence(part=part, used=used, rendered=rendered, **more)  # type: ignore[arg-type]  # by name
    return [cause.name for cause, _ in find_causes(evidence)]


CALLED = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}],
}


@pytest.mark.parametrize(
    ("used", "rendered", "message", "cause"),
    [
        ('{"x":1}', '{"x":2}', CALLED, "REWRITTEN"),
        ("{'x':1}", '{"x": 1}', CALLED, "PARSE"),
        ("", '"x": 1', CALLED, "PARSE"),
        ("", "<|marker|>", CALLED, "REWRITTEN"),
        ("{x}", "", None, "UNKNOWN"),
    ],
)
def test_where_the_template_cannot_be_asked_the_message_is_evidence(
    used: str, rendered: str, message: dict[str, object] | None, cause: str
) -> None:
    assert seen(TurnPart.CALLS, used, rendered, message=message) == [cause]


def test_a_cut_turn_that_loses_its_text_is_no_truncation() -> None:
    assert seen(TurnPart.CONTENT, "gone", "", cut=True, message=says("gone"), verbatim=False) == ["REWRITTEN"]


def test_white_space_between_turns_is_the_templates() -> None:
    assert seen(TurnPart.ENVIRONMENT, "\n", "\n\n") == ["WHITESPACE"]


def test_marks_of_thinking_in_a_generation_prompt() -> None:
    assert seen(TurnPart.OPENER, "<think>\n", "") == ["THINKING"]


class Opening(Family):
    """Asks for thinking, and forgets that it did."""

    def write(self, messages: Sequence[Message], key: str | None, *, speak: bool) -> str:
        return super().write(messages, key, speak=speak) + "<think>" * speak


def test_the_generation_prompt_is_not_what_history_has() -> None:
    """What the model was prompted with to think is gone once its turn is history."""
    family = Opening()
    first = [user()]
    sent = list(family.ids(first, None, add_generation_prompt=True))
    talk = Talk().turn("hm</think>yes", says("yes", reasoning_content="hm"), prompt=first, prompt_ids=sent)
    tail = TOY.encode("\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n<think>")
    talk.turn("so", prompt_ids=[*talk.calls[0].ids, *tail])
    assert found(talk.audit(Opening(forgetful))) == [("t0", "REASONING", "THINKING")]
    assert found(talk.audit(family)) == []


def test_reading_a_message() -> None:
    assert reasoning_of(says("a", reasoning=" b c ")) == "bc"
    assert reasoning_of(says("</think>a")) == reasoning_of(says("a")) == reasoning_of(says(None)) == ""
    assert (
        all_texts(says(None, reasoning="r", tool_calls=["odd", {"name": "f", "arguments": "{}"}]))
        == "r\nf\n{}"
    )
    assert part_at(None, "text", 2) is TurnPart.CONTENT
    assert part_at(CALLED, "<tool_call>", 0) is TurnPart.CALLS


def test_the_last_id_of_a_prompt_is_never_cached() -> None:
    """A turn that is resumed is sent as it stands: an engine computes its last id again."""
    talk = Talk().turn("ye", truncated=True)
    first = talk.calls[0]
    talk.turn("s", prompt=first.step.messages, prompt_ids=[*first.ids])
    assert talk.audit(block=1).tally.cached_by_ids == first.stop - 1


def test_what_is_gone_is_not_cut_inside_its_first_id() -> None:
    """`<t` begins both sides, and yet the thinking is what is gone, not `hink></think><t`."""
    used, rendered = packed(TOY.encode("<think></think><tool_call>")), packed(letters("<tool_call"))
    rendered = packed([*rendered, 100 + ord(">")])
    seen_ = text_difference(TOY.text, used, rendered, Hunk(0, len(used), 0, len(rendered)))
    assert (seen_.used, seen_.rendered) == ("<think></think>", "")

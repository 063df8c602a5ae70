"""Each cause by a conversation that has exactly that one, and mixtures of several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.core.drift.drifting import (
    END,
    OTHER_END,
    TOY,
    Family,
    Talk,
    calls,
    closing,
    forgetful,
    found,
    letters,
    says,
    shouting,
    spoken,
    trimming,
    user,
)
from tito_core import Message, render_key

TOOLS = [{"type": "function", "function": {"name": "f"}}]


def thinks(reasoning: str = "hm", content: str = "yes") -> dict[str, object]:
    return says(content, reasoning_content=reasoning)


def test_a_conversation_that_is_restated_has_no_break() -> None:
    audited = Talk(TOOLS).turn("one").turn("two").turn("three").audit()
    assert audited.breaks == ()
    assert audited.tally.compared == 3


def test_retokenized() -> None:
    audited = Talk().turn("abba", ids=letters("abba" + END)).turn("yes").audit()
    assert found(audited) == [("t0", "CONTENT", "RETOKENIZED")]
    one = audited.breaks[0]
    assert [piece.text for piece in one.used] == ["a", "b", "b", "a"]
    assert [piece.text for piece in one.rendered] == ["ab", "ba"]
    assert (one.used_ids, one.rendered_ids, one.sampled_ids, one.call) == (4, 2, 4, "t1")
    assert one.before.endswith("<|im_start|>assistant\n")
    assert one.used_after == one.rendered_after == "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n"
    assert not one.happened


def test_the_template_drops_thinking() -> None:
    audited = Talk().turn("<think>hm</think>yes", thinks()).turn("so").audit(Family(forgetful))
    assert found(audited) == [("t0", "REASONING", "THINKING")]
    assert audited.breaks[0].rendered == ()


def test_thinking_that_stands_in_the_content_is_dropped_too() -> None:
    audited = Talk().turn("<think>hm</think>yes").turn("so").audit(Family(forgetful))
    assert found(audited) == [("t0", "REASONING", "THINKING")]


def test_marks_of_empty_thinking_are_dropped() -> None:
    audited = Talk().turn("<think></think>yes").turn("so").audit(Family(forgetful))
    assert found(audited) == [("t0", "REASONING", "THINKING")]
    assert "empty" in audited.breaks[0].detail


def test_white_space_that_the_template_trims() -> None:
    audited = Talk().turn("yes \n").turn("so").audit(Family(trimming))
    assert found(audited) == [("t0", "CONTENT", "WHITESPACE")]
    assert audited.breaks[0].detail.startswith("the template")


def test_white_space_that_the_parse_lost() -> None:
    audited = Talk().turn("yes \n", says("yes")).turn("so").audit()
    assert found(audited) == [("t0", "CONTENT", "WHITESPACE")]
    assert audited.breaks[0].detail.startswith("the parse")


def test_a_call_that_was_parsed_and_is_spelled_otherwise() -> None:
    text = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
    talk = Talk(TOOLS).turn(text, says(None, tool_calls=calls("f", '{"x": 1}')))
    assert found(talk.turn("so").audit()) == [("t0", "CALLS", "PARSE")]


def test_reasoning_that_was_lost_in_the_parse() -> None:
    audited = Talk().turn("<think>hm</think>yes", says("yes")).turn("so").audit()
    assert found(audited) == [("t0", "REASONING", "PARSE")]
    assert audited.breaks[0].detail == "the message lacks what was sampled"


def test_reasoning_that_was_lost_in_the_parse_and_would_be_dropped_as_well() -> None:
    audited = Talk().turn("<think>hm</think>yes", says("yes")).turn("so").audit(Family(forgetful))
    assert found(audited) == [("t0", "REASONING", "PARSE+REWRITTEN")]


def test_a_message_that_says_what_was_never_sampled() -> None:
    audited = Talk().turn("yes", says("yes indeed")).turn("so").audit()
    assert found(audited) == [("t0", "CONTENT", "PARSE")]


def test_the_template_writes_history_otherwise() -> None:
    audited = Talk().turn("yes").turn("so").audit(Family(shouting))
    assert found(audited) == [("t0", "CONTENT", "REWRITTEN")]


def test_the_template_renumbers() -> None:
    def renumbering(message: Message, history: bool) -> str:
        return spoken(message).replace("7", "0") if history else spoken(message)

    audited = Talk().turn("call 7 it").turn("so").audit(Family(renumbering))
    assert found(audited) == [("t0", "CONTENT", "REWRITTEN")]
    assert "renumbered" in audited.breaks[0].detail


@pytest.mark.parametrize("edit", [user("other"), user("go on ")])
def test_the_harness_edits_what_was_asked(edit: Message) -> None:
    talk = Talk().turn("yes")
    talk.turn("so", prompt=[edit, says("yes"), user("next")], asked=[user("next")])
    assert found(talk.audit()) == [("t0", "PROMPT", "EDITED")]
    assert talk.audit().breaks[0].detail == "message 0 (user) says something else"


def test_the_harness_edits_what_was_said_and_says_how() -> None:
    talk = Talk().turn("yes  ")
    talk.turn("so", prompt=[user(), says("yes"), user("next")], asked=[user("next")])
    assert found(talk.audit()) == [("t0", "CONTENT", "EDITED")]
    assert talk.audit().breaks[0].detail == "message 1 (assistant) differs: trailing whitespace"


def test_the_harness_drops_the_thinking_that_it_was_given() -> None:
    talk = Talk().turn("<think>hm</think>yes", thinks())
    talk.turn("so", prompt=[user(), says("yes"), user("next")], asked=[user("next")])
    assert found(talk.audit()) == [("t0", "REASONING", "EDITED")]


def test_an_edit_that_went_by_messages_is_found_by_its_roles() -> None:
    talk = Talk(by_ids=False).turn("yes")
    talk.turn("so", prompt=[user(), says("no"), user("next")])
    assert found(talk.audit()) == [("t0", "CONTENT", "EDITED")]
    assert talk.audit().breaks[0].happened


def test_a_cut_turn_is_closed_as_it_never_was() -> None:
    talk = Talk().turn("<think>hm", says("<think>hm"), truncated=True).turn("so")
    assert found(talk.audit(Family(closing))) == [("t0", "CLOSE", "TRUNCATED")]
    assert found(talk.audit()) == []


def test_a_cut_turn_that_went_on_without_a_close() -> None:
    talk = Talk().turn("ye", truncated=True)
    glued = [*talk.calls[0].ids, *TOY.encode("\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n")]
    talk.turn("so", prompt_ids=glued)
    assert found(talk.audit()) == [("t0", "CLOSE", "TRUNCATED")]


def test_other_tools() -> None:
    talk = Talk(TOOLS).turn("yes").turn("so", tools=[*TOOLS, *TOOLS])
    assert found(talk.audit()) == [("t0", "PROMPT", "TOOLS")]


def test_the_stop_is_not_the_close() -> None:
    talk = Talk().turn("yes", ids=TOY.encode("yes" + OTHER_END)).turn("so")
    assert found(talk.audit()) == [("t0", "CLOSE", "SEAM")]
    one = talk.audit().breaks[0]
    assert ([p.text for p in one.used], [p.text for p in one.rendered]) == ([OTHER_END], [END])


def test_a_newline_that_was_lost_after_the_close() -> None:
    talk = Talk().turn("yes")
    tail = TOY.encode("<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n")
    talk.turn("so", prompt_ids=[*talk.calls[0].ids, *tail])
    assert found(talk.audit()) == [("t0", "CLOSE", "SEAM")]


def test_another_family_rendered_the_first_prompt() -> None:
    audited = Talk().turn("yes").turn("so").audit(Family(opening="Today is Monday. "))
    assert found(audited) == [("t0", "PROMPT", "RENDERING")]


def test_the_first_prompt_may_be_spelled_otherwise() -> None:
    prompt = [
        *TOY.encode("<|im_start|>user\n"),
        *letters("ab"),
        *TOY.encode("<|im_end|>\n<|im_start|>assistant\n"),
    ]
    audited = Talk().turn("yes", asked=[user("ab")], prompt_ids=prompt).audit()
    assert found(audited) == [("t0", "PROMPT", "RETOKENIZED")]


def test_what_was_said_between_turns_is_written_otherwise_later() -> None:
    talk = Talk().turn("yes").turn("so").turn("then")

    audited = talk.audit(Hiding())
    assert found(audited) == [("t0", "PROMPT", "REWRITTEN"), ("t1", "ENVIRONMENT", "REWRITTEN")]


def test_a_tool_answer_that_is_spelled_otherwise() -> None:
    talk = Talk().turn("yes")
    tail = [
        *TOY.encode("\n<|im_start|>user\n"),
        *letters("ab"),
        *TOY.encode("<|im_end|>\n<|im_start|>assistant\n"),
    ]
    talk.turn("so", asked=[user("ab")], prompt_ids=[*talk.calls[0].ids, *tail])
    assert found(talk.audit()) == [("t1", "ENVIRONMENT", "RETOKENIZED")]


def test_a_turn_without_a_message_is_unknown() -> None:
    talk = Talk().turn("yes", silent=True)
    talk.turn("so", prompt=[user(), says("no"), user()])
    assert found(talk.audit()) == [("t0", "CONTENT", "UNKNOWN")]


def test_by_messages_it_happened() -> None:
    talk = Talk(by_ids=False).turn("ab", ids=letters("ab" + END)).turn("so")
    audited = talk.audit()
    assert found(audited) == [("t0", "CONTENT", "RETOKENIZED")]
    assert audited.breaks[0].happened
    assert audited.tally.happened == 1


class Hiding(Family):
    """Shows no question but the last."""

    def write(self, messages: Sequence[Message], key: str | None, *, speak: bool) -> str:
        last = len(messages) - 1
        hidden = [
            {**message, "content": "gone"} if message["role"] == "user" and place < last else message
            for place, message in enumerate(messages)
        ]
        return super().write(hidden, key, speak=speak)


class Together(Family):
    """Counts tools in the first message."""

    def write(self, messages: Sequence[Message], key: str | None, *, speak: bool) -> str:
        first = {**messages[0], "content": f"{str(key).count('function')}{messages[0]['content']}"}
        return super().write([first, *messages[1:]], None, speak=speak)


class Marked(Family):
    """Has marks of thinking among its special tokens."""

    @property
    def markers(self) -> frozenset[int]:
        return super().markers | set(TOY.encode("<think></think>"))


def test_by_messages_a_turn_ends_where_the_rendering_closes_it() -> None:
    """Though it has fewer markers than the turn had: the question after it is no part of the break."""
    talk = Talk(by_ids=False).turn("<think>hm</think>yes", thinks())
    prompt = [*talk.calls[0].step.messages, user("next")]
    family = Marked(forgetful)
    talk.turn("so", prompt=prompt, prompt_ids=family.ids(prompt, None, add_generation_prompt=True))
    audited = talk.audit(family)
    assert found(audited) == [("t0", "REASONING", "THINKING")]
    one = audited.breaks[0]
    assert ("".join(piece.text for piece in one.used), one.rendered_ids) == ("<think>hm</think>", 0)
    assert one.happened


# Mixtures.


def test_thinking_is_dropped_and_what_stays_is_respelled() -> None:
    ids = letters("<think>hm</think>ab" + END)
    audited = Talk().turn("", thinks(content="ab"), ids=ids).turn("so").audit(Family(forgetful))
    assert found(audited) == [("t0", "REASONING", "THINKING"), ("t0", "CONTENT", "RETOKENIZED")]


def test_thinking_is_dropped_and_white_space_trimmed() -> None:
    def both(message: Message, history: bool) -> str:
        return forgetful(message, history).strip()

    audited = (
        Talk().turn("<think>hm</think>\n\nyes", thinks(content="\n\nyes")).turn("so").audit(Family(both))
    )
    assert found(audited) == [("t0", "REASONING", "THINKING")]


def test_thinking_is_dropped_and_the_content_rewritten() -> None:
    def both(message: Message, history: bool) -> str:
        return forgetful(message, history).upper() if history else spoken(message)

    audited = Talk().turn("<think>hm</think>yes", thinks()).turn("so").audit(Family(both))
    assert found(audited) == [("t0", "REASONING", "THINKING+REWRITTEN")]


def test_white_space_and_other_ids() -> None:
    audited = Talk().turn("", says("ab "), ids=letters("ab " + END)).turn("so").audit(Family(trimming))
    assert found(audited) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CONTENT", "WHITESPACE")]


def test_another_stop_after_other_ids() -> None:
    audited = Talk().turn("", says("ab"), ids=letters("ab" + OTHER_END)).turn("so").audit()
    assert found(audited) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CLOSE", "SEAM")]


def test_an_edit_and_other_ids_in_one_turn() -> None:
    talk = Talk().turn("", says("ab, yes"), ids=letters("ab, yes" + END))
    talk.turn("so", prompt=[user(), says("ab, no"), user()])
    assert found(talk.audit()) == [("t0", "CONTENT", "RETOKENIZED"), ("t0", "CONTENT", "EDITED")]


def test_an_edit_in_one_place_and_other_ids_in_another() -> None:
    talk = Talk().turn("", says("ab"), ids=letters("ab" + END))
    talk.turn("so", prompt=[user("other"), says("ab"), user()])
    assert found(talk.audit()) == [("t0", "PROMPT", "EDITED"), ("t0", "CONTENT", "RETOKENIZED")]


def test_other_tools_and_other_ids() -> None:
    talk = Talk(TOOLS).turn("", says("ab"), ids=letters("ab" + END)).turn("so", tools=[*TOOLS, *TOOLS])
    assert found(talk.audit()) == [("t0", "PROMPT", "TOOLS"), ("t0", "CONTENT", "RETOKENIZED")]


def test_other_tools_and_an_edit_in_one_place() -> None:
    family = Together()
    talk = Talk(TOOLS)
    opening = [user("first")]
    sent = family.ids(opening, render_key(TOOLS), add_generation_prompt=True)
    talk.turn("yes", prompt=opening, prompt_ids=sent)
    talk.turn("so", prompt=[user("other"), says("yes"), user()], tools=[])
    assert found(talk.audit(family)) == [("t0", "PROMPT", "TOOLS+EDITED")]


def test_a_cut_turn_with_other_ids() -> None:
    talk = Talk().turn("", says("<think>ab"), ids=letters("<think>ab"), truncated=True).turn("so")
    assert found(talk.audit(Family(closing))) == [
        ("t0", "CONTENT", "RETOKENIZED"),
        ("t0", "CLOSE", "TRUNCATED"),
    ]


def test_every_turn_has_its_own_break_and_is_told_once() -> None:
    talk = Talk()
    for _ in range(5):
        talk.turn("", says("ab"), ids=letters("ab" + END))
    assert found(talk.audit()) == [(f"t{i}", "CONTENT", "RETOKENIZED") for i in range(4)]
    assert [one.call for one in talk.audit().breaks] == ["t1", "t2", "t3", "t4"]

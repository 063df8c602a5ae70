"""Each cause by a conversation that has exactly that one."""

from __future__ import annotations

import pytest

from tests.core.drift.conversations import (
    END,
    OTHER_END,
    TOOLS,
    TOY,
    Conversation,
    Family,
    assistant,
    causes_of,
    closing,
    forgetful,
    letters,
    shouting,
    thinks,
    tool_calls,
    trimming,
    user,
    whole,
)
from tito_core import Message


def test_a_conversation_that_is_restated_has_no_break() -> None:
    audited = Conversation(TOOLS).turn("one").turn("two").turn("three").audit()
    assert audited.breaks == ()
    assert audited.tally.compared_prompts == 3


def test_retokenized() -> None:
    audited = Conversation().turn("abba", ids=letters("abba" + END)).turn("yes").audit()
    assert causes_of(audited) == [("t0", "CONTENT", "RETOKENIZED")]
    one = audited.breaks[0]
    assert [piece.text for piece in one.used] == ["a", "b", "b", "a"]
    assert [piece.text for piece in one.rendered] == ["ab", "ba"]
    assert (one.used_ids, one.rendered_ids, one.sampled_ids, one.call) == (4, 2, 4, "t1")
    assert one.before.endswith("<|im_start|>assistant\n")
    assert one.used_after == one.rendered_after == "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n"
    assert not one.happened


def test_the_template_drops_thinking() -> None:
    audited = Conversation().turn("<think>hm</think>yes", thinks()).turn("so").audit(Family(forgetful))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING")]
    assert audited.breaks[0].rendered == ()


def test_thinking_that_stands_in_the_content_is_dropped_too() -> None:
    audited = Conversation().turn("<think>hm</think>yes").turn("so").audit(Family(forgetful))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING")]


def test_marks_of_empty_thinking_are_dropped() -> None:
    audited = Conversation().turn("<think></think>yes").turn("so").audit(Family(forgetful))
    assert causes_of(audited) == [("t0", "REASONING", "THINKING")]
    assert "empty" in audited.breaks[0].detail


def test_white_space_that_the_template_trims() -> None:
    audited = Conversation().turn("yes \n").turn("so").audit(Family(trimming))
    assert causes_of(audited) == [("t0", "CONTENT", "WHITESPACE")]
    assert audited.breaks[0].detail.startswith("the template")


def test_white_space_that_the_parse_lost() -> None:
    audited = Conversation().turn("yes \n", assistant("yes")).turn("so").audit()
    assert causes_of(audited) == [("t0", "CONTENT", "WHITESPACE")]
    assert audited.breaks[0].detail.startswith("the parse")


def test_a_call_that_was_parsed_and_is_spelled_differently() -> None:
    text = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
    conversation = Conversation(TOOLS).turn(text, assistant(None, tool_calls=tool_calls("f", '{"x": 1}')))
    assert causes_of(conversation.turn("so").audit()) == [("t0", "CALLS", "PARSE")]


def test_reasoning_that_was_lost_in_the_parse() -> None:
    audited = Conversation().turn("<think>hm</think>yes", assistant("yes")).turn("so").audit()
    assert causes_of(audited) == [("t0", "REASONING", "PARSE")]
    assert audited.breaks[0].detail == "the message lacks what was sampled"


def test_reasoning_that_was_lost_in_the_parse_and_would_be_dropped_as_well() -> None:
    audited = (
        Conversation().turn("<think>hm</think>yes", assistant("yes")).turn("so").audit(Family(forgetful))
    )
    assert causes_of(audited) == [("t0", "REASONING", "PARSE+REWRITTEN")]


def test_a_message_with_text_that_was_never_sampled() -> None:
    audited = Conversation().turn("yes", assistant("yes indeed")).turn("so").audit()
    assert causes_of(audited) == [("t0", "CONTENT", "PARSE")]
    assert audited.breaks[0].detail == "the message spells it differently"


def test_the_template_writes_history_differently() -> None:
    audited = Conversation().turn("yes").turn("so").audit(Family(shouting))
    assert causes_of(audited) == [("t0", "CONTENT", "REWRITTEN")]


def test_the_template_renumbers() -> None:
    def renumbering(message: Message, history: bool) -> str:
        return whole(message).replace("7", "0") if history else whole(message)

    audited = Conversation().turn("call 7 it").turn("so").audit(Family(renumbering))
    assert causes_of(audited) == [("t0", "CONTENT", "REWRITTEN")]
    assert "renumbered" in audited.breaks[0].detail


@pytest.mark.parametrize("edit", [user("other"), user("go on ")])
def test_the_harness_edits_what_was_asked(edit: Message) -> None:
    conversation = Conversation().turn("yes")
    conversation.turn("so", prompt=[edit, assistant("yes"), user("next")], new=[user("next")])
    assert causes_of(conversation.audit()) == [("t0", "PROMPT", "EDITED")]
    assert conversation.audit().breaks[0].detail == "message 0 (user) says something else"


def test_the_harness_edits_what_was_said_and_says_how() -> None:
    conversation = Conversation().turn("yes  ")
    conversation.turn("so", prompt=[user(), assistant("yes"), user("next")], new=[user("next")])
    assert causes_of(conversation.audit()) == [("t0", "CONTENT", "EDITED")]
    assert conversation.audit().breaks[0].detail == "message 1 (assistant) differs: outer whitespace"


def test_the_harness_drops_the_thinking_that_it_was_given() -> None:
    conversation = Conversation().turn("<think>hm</think>yes", thinks())
    conversation.turn("so", prompt=[user(), assistant("yes"), user("next")], new=[user("next")])
    assert causes_of(conversation.audit()) == [("t0", "REASONING", "EDITED")]


def test_an_edit_that_went_by_messages_is_found_by_its_roles() -> None:
    conversation = Conversation(by_ids=False).turn("yes")
    conversation.turn("so", prompt=[user(), assistant("no"), user("next")])
    assert causes_of(conversation.audit()) == [("t0", "CONTENT", "EDITED")]
    assert conversation.audit().breaks[0].happened


def test_a_cut_turn_is_closed() -> None:
    conversation = Conversation().turn("<think>hm", assistant("<think>hm"), truncated=True).turn("so")
    assert causes_of(conversation.audit(Family(closing))) == [("t0", "CLOSE", "TRUNCATED")]
    assert causes_of(conversation.audit()) == []


def test_a_cut_turn_that_went_on_without_a_close() -> None:
    conversation = Conversation().turn("ye", truncated=True)
    glued = [
        *conversation.calls[0].ids,
        *TOY.encode("\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"),
    ]
    conversation.turn("so", prompt_ids=glued)
    assert causes_of(conversation.audit()) == [("t0", "CLOSE", "TRUNCATED")]


def test_other_tools() -> None:
    conversation = Conversation(TOOLS).turn("yes").turn("so", tools=[*TOOLS, *TOOLS])
    assert causes_of(conversation.audit()) == [("t0", "PROMPT", "TOOLS")]


def test_the_stop_is_not_the_close() -> None:
    conversation = Conversation().turn("yes", ids=TOY.encode("yes" + OTHER_END)).turn("so")
    assert causes_of(conversation.audit()) == [("t0", "CLOSE", "SEAM")]
    one = conversation.audit().breaks[0]
    assert ([p.text for p in one.used], [p.text for p in one.rendered]) == ([OTHER_END], [END])


def test_a_newline_that_was_lost_after_the_close() -> None:
    conversation = Conversation().turn("yes")
    tail = TOY.encode("<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n")
    conversation.turn("so", prompt_ids=[*conversation.calls[0].ids, *tail])
    assert causes_of(conversation.audit()) == [("t0", "CLOSE", "SEAM")]


def test_another_family_rendered_the_first_prompt() -> None:
    audited = Conversation().turn("yes").turn("so").audit(Family(opening="Today is Monday. "))
    assert causes_of(audited) == [("t0", "PROMPT", "RENDERING")]


def test_a_turn_without_a_message_is_unknown() -> None:
    conversation = Conversation().turn("yes", without_message=True)
    conversation.turn("so", prompt=[user(), assistant("no"), user()])
    assert causes_of(conversation.audit()) == [("t0", "CONTENT", "UNKNOWN")]

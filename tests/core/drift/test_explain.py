"""Each cause by a conversation that has exactly that one, and several causes in one place or in several."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from tito_core import Message, render_key

THOUGHT = "<think>hm</think>yes"
NEXT = user("next")
FORGETS, TRIMS, CLOSES, SHOUTS, KEEPS = map(Family, (forgetful, trimming, closing, shouting, whole))
LACKS, SPELLS = "the message lacks what was sampled", "the message spells it differently"
ASKED = "message 0 (user) says something else"
SPACED = "message 1 (assistant) differs: outer whitespace"
CALL_TEXT = '<tool_call>{"name":"f","arguments":{"x":1}}</tool_call>'
CALLED = assistant(None, tool_calls=tool_calls("f", '{"x": 1}'))


def in_history(change: Callable[[str], str], write: Callable[[Message, bool], str] = whole) -> Family:
    """Return a family that writes earlier turns otherwise."""
    return Family(lambda message, history: change(write(message, history)) if history else whole(message))


class Together(Family):
    """Counts tools in the first message."""

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        first = {**messages[0], "content": f"{str(key).count('function')}{messages[0]['content']}"}
        return super().write([first, *messages[1:]], None, opener=opener)


class Late(Family):
    """Writes answers in capitals in a prompt of five messages."""

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        late = [{**one, "content": one["content"].upper()} for one in messages]
        return super().write(late if len(messages) == 5 else messages, key, opener=opener)


def one(text: str, message: Message | None = None) -> Conversation:
    return Conversation().turn(text, message)


def said(text: str, message: Message | None = None) -> Conversation:
    """Return a turn, and a second one after it."""
    return one(text, message).turn("so")


def cut(text: str) -> Conversation:
    return Conversation().turn(text, assistant(text), truncated=True)


def spelled(text: str, end: str = END, tools: Sequence[Message] = (), **message: object) -> Conversation:
    """Return a turn whose ids are no tokenizer's."""
    said = {**assistant(text), **message}
    return Conversation(tools).turn("", said, ids=letters(text + end), truncated=not end)


def edited(first: Conversation, *prompt: Message) -> Conversation:
    return first.turn("so", prompt=[*prompt, NEXT], new=[NEXT])


def glued(first: Conversation, between: str = "") -> Conversation:
    """Return a conversation that goes on right after the first turn's ids."""
    tail = TOY.encode(f"{between}<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n")
    return first.turn("so", prompt_ids=[*first.calls[0].ids, *tail])


def other_tools(first: Conversation) -> Conversation:
    return first.turn("so", tools=[*TOOLS, *TOOLS])


def fewer_tools() -> Conversation:
    opening = [user("first")]
    sent = Together().ids(opening, render_key(TOOLS), add_generation_prompt=True)
    conversation = Conversation(TOOLS).turn("yes", prompt=opening, prompt_ids=sent)
    return conversation.turn("so", prompt=[user("other"), assistant("yes"), user()], tools=[])


def without_message() -> Conversation:
    conversation = Conversation().turn("yes", without_message=True)
    return conversation.turn("so", prompt=[user(), assistant("no"), user()])


def by_messages() -> Conversation:
    return Conversation(by_ids=False).turn("yes").turn("so", prompt=[user(), assistant("no"), NEXT])


def ended(text: str, stop: str) -> Conversation:
    return Conversation().turn("", assistant(text.strip()), ids=TOY.encode(text + stop)).turn("so")


DATED = Family(opening="Today is Monday. ")
RENUMBERS = in_history(lambda text: text.replace("7", "0"))
LEAVES_OUT = in_history(lambda _: "")
RESPELLED = letters("<think>hm</think>ab" + END)
FORGOTTEN = Conversation().turn("", thinks(content="ab"), ids=RESPELLED).turn("so")
CASES: list[tuple[str, Conversation, Family, str, str]] = [
    # a name, a conversation, a family, part and cause of each break, words of the first one's detail
    ("all restated", Conversation(TOOLS).turn("one").turn("two").turn("three"), KEEPS, "", ""),
    ("thinking", said(THOUGHT, thinks()), FORGETS, "REASONING THINKING", ""),
    ("thinking in the content", said(THOUGHT), FORGETS, "REASONING THINKING", ""),
    ("empty thinking", said("<think></think>yes"), FORGETS, "REASONING THINKING", "empty"),
    ("trimmed", said("yes \n"), TRIMS, "CONTENT WHITESPACE", "the template"),
    ("trimmed by the parse", said("yes \n", assistant("yes")), KEEPS, "CONTENT WHITESPACE", "the parse"),
    ("a parsed call", Conversation(TOOLS).turn(CALL_TEXT, CALLED).turn("so"), KEEPS, "CALLS PARSE", ""),
    (
        "lost by the parse",
        said(THOUGHT, assistant("yes")),
        KEEPS,
        "REASONING PARSE",
        LACKS,
    ),
    ("lost twice", said(THOUGHT, assistant("yes")), FORGETS, "REASONING PARSE+REWRITTEN", ""),
    ("never sampled", said("yes", assistant("yes indeed")), KEEPS, "CONTENT PARSE", SPELLS),
    ("capitals", said("yes"), SHOUTS, "CONTENT REWRITTEN", ""),
    ("renumbered", said("call 7 it"), RENUMBERS, "CONTENT REWRITTEN", "renumbered"),
    (
        "a question",
        edited(one("yes"), user("other"), assistant("yes")),
        KEEPS,
        "PROMPT EDITED",
        ASKED,
    ),
    (
        "a space",
        edited(one("yes"), user("go on "), assistant("yes")),
        KEEPS,
        "PROMPT EDITED",
        ASKED,
    ),
    (
        "an answer",
        edited(one("yes  "), user(), assistant("yes")),
        KEEPS,
        "CONTENT EDITED",
        SPACED,
    ),
    ("a thought", edited(one(THOUGHT, thinks()), user(), assistant("yes")), KEEPS, "REASONING EDITED", ""),
    ("an edit by messages", by_messages(), KEEPS, "CONTENT EDITED", ""),
    ("a cut turn that is closed", cut("<think>hm").turn("so"), CLOSES, "CLOSE TRUNCATED", ""),
    ("a cut turn that stays open", cut("<think>hm").turn("so"), KEEPS, "", ""),
    ("a cut turn without a close", glued(cut("ye"), "\n"), KEEPS, "CLOSE TRUNCATED", ""),
    ("other tools", other_tools(Conversation(TOOLS).turn("yes")), KEEPS, "PROMPT TOOLS", ""),
    ("another stop", ended("yes", OTHER_END), KEEPS, "CLOSE SEAM", ""),
    ("a line break lost after the close", glued(one("yes")), KEEPS, "CLOSE SEAM", ""),
    ("another family", said("yes"), DATED, "PROMPT RENDERING", ""),
    ("no message", without_message(), KEEPS, "CONTENT UNKNOWN", ""),
    (
        "a respelled thought",
        FORGOTTEN,
        FORGETS,
        "REASONING THINKING, CONTENT RETOKENIZED",
        "",
    ),
    (
        "a thought and white space",
        said("<think>hm</think>\n\nyes", thinks(content="\n\nyes")),
        in_history(str.strip, forgetful),
        "REASONING THINKING",
        "",
    ),
    (
        "a thought and capitals",
        said(THOUGHT, thinks()),
        in_history(str.upper, forgetful),
        "REASONING THINKING+REWRITTEN",
        "",
    ),
    ("a thought and content", said(THOUGHT, thinks()), LEAVES_OUT, "REASONING THINKING+REWRITTEN", ""),
    ("all parsed away", said(f"{THOUGHT} no", thinks(content="")), FORGETS, "REASONING THINKING+PARSE", ""),
    ("half parsed away", said(f"{THOUGHT} no", thinks()), FORGETS, "REASONING THINKING+PARSE", ""),
    ("respelled space", spelled("ab ").turn("so"), TRIMS, "CONTENT RETOKENIZED, CONTENT WHITESPACE", ""),
    ("a respelled stop", spelled("ab", OTHER_END).turn("so"), KEEPS, "CONTENT RETOKENIZED, CLOSE SEAM", ""),
    ("a space and a stop", ended("ab ", OTHER_END), KEEPS, "CONTENT SEAM+WHITESPACE", ""),
    (
        "an edit of a respelled turn",
        edited(spelled("ab, yes"), user(), assistant("ab, no")),
        KEEPS,
        "CONTENT RETOKENIZED, CONTENT EDITED",
        "",
    ),
    (
        "an edit before a respelled turn",
        edited(spelled("ab"), user("other"), assistant("ab")),
        KEEPS,
        "PROMPT EDITED, CONTENT RETOKENIZED",
        "",
    ),
    (
        "other tools and a respelled turn",
        other_tools(spelled("ab", tools=TOOLS)),
        KEEPS,
        "PROMPT TOOLS, CONTENT RETOKENIZED",
        "",
    ),
    ("other tools and an edit", fewer_tools(), Together(), "PROMPT TOOLS+EDITED", ""),
    (
        "a respelled turn that was cut",
        spelled("<think>ab", "").turn("so"),
        CLOSES,
        "CONTENT RETOKENIZED, CLOSE TRUNCATED",
        "",
    ),
]


@pytest.mark.parametrize(
    ("conversation", "family", "causes", "detail"), [row[1:] for row in CASES], ids=[row[0] for row in CASES]
)
def test_a_difference_has_its_causes(
    conversation: Conversation, family: Family, causes: str, detail: str
) -> None:
    audited = conversation.audit(family)
    assert causes_of(audited) == [("t0", *pair.split()) for pair in causes.split(", ") if pair]
    assert detail == "" or detail in audited.breaks[0].detail
    assert audited.tally.compared_prompts == len(conversation.calls)
    assert all(one.happened is not conversation.by_ids for one in audited.breaks)


def test_a_break_shows_what_is_in_use_and_what_is_rendered() -> None:
    (found,) = spelled("abba").turn("yes").audit().breaks
    assert [piece.text for piece in found.used] == ["a", "b", "b", "a"]
    assert [piece.text for piece in found.rendered] == ["ab", "ba"]
    assert (found.used_ids, found.rendered_ids, found.sampled_ids, found.call) == (4, 2, 4, "t1")
    assert found.before.endswith("<|im_start|>assistant\n")
    assert found.used_after == found.rendered_after == "<|im_end|>\n<|im_start|>user\ngo on<|im_end|>\n"
    (stop,) = ended("yes", OTHER_END).audit().breaks
    assert [[piece.text for piece in side] for side in (stop.used, stop.rendered)] == [[OTHER_END], [END]]


def test_every_turn_has_its_own_break_and_is_reported_once() -> None:
    conversation = Conversation()
    for _ in range(5):
        conversation.turn("", assistant("ab"), ids=letters("ab" + END))
    assert causes_of(conversation.audit()) == [(f"t{i}", "CONTENT", "RETOKENIZED") for i in range(4)]
    assert [one.call for one in conversation.audit().breaks] == ["t1", "t2", "t3", "t4"]


def test_two_turns_that_one_prompt_shows_have_a_break_each() -> None:
    conversation = Conversation()
    for _ in range(3):
        conversation.turn("yes", new=[user("7")])
    assert causes_of(conversation.audit(Late())) == [(f"t{i}", "CONTENT", "REWRITTEN") for i in range(2)]

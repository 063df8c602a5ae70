"""Vectors of the set `valid`: the right ids can be had, so that a refusal is an over-refusal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .conversations import (
    ANSWER,
    CALL,
    HELLO,
    MORE,
    QUESTION,
    SPLIT,
    SYSTEM,
    TOOLS,
    answer,
    call,
    calling,
    parts,
    question,
    result,
)
from .scenario import Chat, Scenario, Turn

SPLIT_TURN = Turn(ANSWER, pieces=SPLIT)
CALLED = ("result", "two-results", "result-then-question", "second-call", "third-turn")
"""Conversations with tools."""
CHATS: dict[str, tuple[str, Chat]] = {
    "question": ("A question follows a plain turn.", (SYSTEM, HELLO, SPLIT_TURN, MORE)),
    "result": ("A tool result follows a call.", (SYSTEM, QUESTION, CALL, result())),
    "two-results": (
        "Two results follow two calls.",
        (QUESTION, Turn(calling(call(), call(number=2))), result(), result(2, "It is 80.")),
    ),
    "result-then-question": (
        "A result and a question follow a call.",
        (QUESTION, CALL, result(), MORE),
    ),
    "second-call": (
        "A result follows the second call of a loop.",
        (QUESTION, CALL, result(), Turn(calling(call(number=2))), result(2, "It is 80.")),
    ),
    "third-turn": (
        "A question follows the third turn; the ids of all turns are kept.",
        (
            SYSTEM,
            HELLO,
            SPLIT_TURN,
            QUESTION,
            CALL,
            result(),
            Turn(answer("However, 46"), pieces=SPLIT),
            MORE,
        ),
    ),
}
"""Conversations by name, each with what it shows."""
HABITS = {
    "chatml": "Every message is written alike.",
    "bos": "The template begins with a special token, which the new messages do not repeat.",
    "default-system": "The template begins with a system text that is in no message.",
    "drops-reasoning": "A re-render drops the reasoning before the last question.",
    "opens-thinking": "The generation prompt opens a reasoning block.",
    "empty-thought": "The template writes an empty reasoning block in the last turn only.",
    "grouped-results": "Neighbouring results share one message.",
    "two-closes": "A turn with calls ends with another token.",
    "close-of-text": "The close begins with a line break, before the stop.",
    "repeated-close": "The close begins and ends with the stop.",
    "late-close": "A turn is closed only when something follows.",
    "markers": "The marker of the next role ends a turn.",
    "trims": "White space around contents is trimmed.",
    "brackets": "There is no generation prompt.",
    "tools-with-question": "The tools stand in the last question, wherever that is.",
    "names-results": "A result is written with the name of the tool that was called.",
    "switch": "A switch in an earlier message changes the generation prompt.",
}
"""What is special in a template."""


def valid() -> Iterator[Scenario]:
    """Yield the scenarios of the set."""
    for template, habit in HABITS.items():
        for name, (title, chat) in CHATS.items():
            yield Scenario(
                name=f"valid/{template}/{name}",
                title=f"{habit} {title}",
                template=template,
                chat=chat,
                tools=TOOLS if name in CALLED or template == "tools-with-question" else None,
            )
    yield from _others()


def _others() -> Iterator[Scenario]:
    """Yield what only some templates can show."""
    of_tools: dict[str, Any] = {"tools": TOOLS}
    yield Scenario(
        name="valid/alternates/question",
        title="The template raises unless users and assistants alternate.",
        template="alternates",
        chat=[HELLO, SPLIT_TURN, MORE],
    )
    yield Scenario(
        name="valid/mapping-arguments/result",
        title="The template takes arguments as objects only.",
        template="mapping-arguments",
        chat=[QUESTION, CALL, result()],
        **of_tools,
    )
    yield Scenario(
        name="valid/parts/question",
        title="The template takes contents as lists of parts only.",
        template="parts",
        chat=[
            {"role": "user", "content": parts("Hello there")},
            Turn({"role": "assistant", "content": parts("However it is")}, pieces=SPLIT),
            {"role": "user", "content": parts("However", ", is it so?")},
        ],
    )
    for value in (True, False):
        yield Scenario(
            name=f"valid/argument/thinking-{value}".lower(),
            title="A template argument changes the generation prompt.",
            template="argument",
            chat=[HELLO, Turn(ANSWER, said=ANSWER["content"], pieces=SPLIT), MORE],
            arguments={"enable_thinking": value},
        )
    yield Scenario(
        name="valid/channels/result",
        title="A call ends with its own stop, as the template writes it.",
        template="channels",
        chat=[QUESTION, CALL, result()],
        **of_tools,
    )
    yield Scenario(
        name="valid/double-close/one-stop",
        title="The close is the stop twice. One was sampled, so that one is missing.",
        template="double-close",
        chat=[HELLO, SPLIT_TURN, MORE],
    )
    yield Scenario(
        name="valid/chatml/empty-turn",
        title="The model sampled its stop at once.",
        template="chatml",
        chat=[HELLO, Turn(answer("")), MORE],
    )
    yield Scenario(
        name="valid/chatml/no-known-stop",
        title="No stop is known. The sampled end of the turn begins the close.",
        template="chatml",
        chat=[HELLO, SPLIT_TURN, MORE],
        stops=(),
    )
    yield Scenario(
        name="valid/chatml/system-after-turn",
        title="A system message and a question follow a turn.",
        template="chatml",
        chat=[HELLO, SPLIT_TURN, {"role": "system", "content": "Be kind."}, MORE],
    )
    yield Scenario(
        name="valid/chatml/unicode",
        title="Texts beyond ASCII: ids below 256 are bytes.",
        template="chatml",
        chat=[question("Grüße, 世界 👋"), Turn(answer("Schön, 好 🙂")), question("¿Y ahora?")],
    )

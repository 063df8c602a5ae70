"""Vectors of the set `refused`: no ids are right, because nothing is continued or a new message is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import attrs

from .conversations import ANSWER, CALL, HELLO, MORE, QUESTION, SPLIT, SYSTEM, TOOLS, answer, question, result
from .oracle import Message
from .scenario import REQUIRED, Chat, Scenario, Turn

SPLIT_TURN = Turn(ANSWER, pieces=SPLIT)
CHAT: Chat = (SYSTEM, HELLO, SPLIT_TURN, MORE)
LATE: Message = {"role": "system", "content": "Be kind."}
IMAGE: Message = {
    "role": "user",
    "content": [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "data:,"}}],
}
_refused = partial(Scenario, template="chatml", refusal=REQUIRED)


def refused() -> Iterator[Scenario]:
    """Yield the scenarios of the set."""
    yield from _unmatched()
    yield from _lost()


def _unmatched() -> Iterator[Scenario]:
    """Yield requests that continue no turn of the trajectory."""
    yield _refused(
        name="refused/first-turn",
        title="There is no turn yet.",
        chat=[SYSTEM, HELLO],
        reason="no step is continued",
    )
    for name, title, request in (
        ("edited-question", "An earlier question was edited.", [SYSTEM, QUESTION, ANSWER, MORE]),
        ("edited-turn", "The sampled turn was edited.", [SYSTEM, HELLO, answer("However, 46"), MORE]),
        (
            "changed-role",
            "An earlier message has another role.",
            [{**SYSTEM, "role": "user"}, HELLO, ANSWER, MORE],
        ),
        ("shortened", "The conversation was shortened: its first messages are gone.", [ANSWER, MORE]),
        ("inserted", "A message was inserted before the turn.", [SYSTEM, HELLO, QUESTION, ANSWER, MORE]),
        (
            "other-letter-case",
            "The turn is restated in capital letters.",
            [SYSTEM, HELLO, answer("HOWEVER IT IS"), MORE],
        ),
    ):
        yield _refused(
            name=f"refused/{name}", title=title, chat=CHAT, request=request, reason="no step is continued"
        )
    yield _refused(
        name="refused/edited-arguments",
        title="The arguments of an earlier call were edited.",
        chat=[QUESTION, CALL, result()],
        tools=TOOLS,
        request=[QUESTION, _with_arguments({"a": 2}), result()],
        reason="no step is continued",
    )
    yield _refused(
        name="refused/arguments-of-another-type",
        title="A number in the arguments of an earlier call became a string.",
        chat=[QUESTION, CALL, result()],
        tools=TOOLS,
        request=[QUESTION, _with_arguments({"a": "1"}), result()],
        reason="no step is continued",
    )
    yield _refused(
        name="refused/nothing-new",
        title="The request ends with the sampled turn.",
        chat=CHAT[:-1],
        reason="there is no new message",
    )


def _with_arguments(arguments: dict[str, object]) -> Message:
    (call,) = CALL.message["tool_calls"]
    return {
        **CALL.message,
        "tool_calls": [{**call, "function": {**call["function"], "arguments": arguments}}],
    }


def _lost() -> Iterator[Scenario]:
    """Yield conversations that the template does not take, or of which it writes only some messages."""
    lost, raises = "the template drops a new message", "the template raises"
    late: Chat = [HELLO, SPLIT_TURN, LATE, MORE]
    yield _refused(
        name="refused/drops-late-system",
        title="The template drops system messages after the first message.",
        template="drops-late-system",
        chat=late,
        reason=lost,
    )
    yield _refused(
        name="refused/moving-system",
        title="The template knows no system message but the first.",
        template="moving-system",
        chat=late,
        reason=lost,
    )
    yield _refused(
        name="refused/drops-results/result",
        title="The template drops tool results: the model would speak without them.",
        template="drops-results",
        chat=[QUESTION, CALL, result()],
        tools=TOOLS,
        reason=lost,
    )
    yield _refused(
        name="refused/drops-results/result-then-question",
        title="The template drops the tool result before a question.",
        template="drops-results",
        chat=[QUESTION, CALL, result(), MORE],
        tools=TOOLS,
        reason=lost,
    )
    yield _refused(
        name="refused/window",
        title="The template shows the last two messages only, and the turn is no longer one of them.",
        template="window",
        chat=[HELLO, SPLIT_TURN, QUESTION, MORE],
        reason="the template drops the turn",
    )
    yield _refused(
        name="refused/alternates/two-questions",
        title="The template raises where two questions follow each other.",
        template="alternates",
        chat=[HELLO, SPLIT_TURN, QUESTION, MORE],
        reason=raises,
    )
    yield _refused(
        name="refused/alternates/late-system",
        title="The template raises at a system message.",
        template="alternates",
        chat=[HELLO, SPLIT_TURN, LATE],
        reason=raises,
    )
    yield _refused(
        name="refused/image",
        title="A new message has an image, of which the template writes nothing.",
        chat=[HELLO, SPLIT_TURN, IMAGE],
        reason=lost,
    )
    yield attrs.evolve(
        _refused(
            name="refused/image-in-history",
            title="An earlier message has an image, whose ids the template does not write.",
            chat=[IMAGE, SPLIT_TURN, question("And now?")],
            reason="the prompt has media",
        )
    )

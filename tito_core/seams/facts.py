"""Find facts about a template beyond its seams, by rendering the same messages in two ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..questions import Questions, ask, if_taken
from .case import FOLLOWING
from .history import ANSWER, SYSTEM, THOUGHTFUL, USER
from .profile import Facts
from .seam import Seam, common_prefix, seam_questions

Plain = dict[str, Any]
Answer = tuple[int, ...] | None
"""Ids, or None if the template rejected the messages."""
SAME, DIFFERS, REFUSED = "same", "differs", "refused"
CALL: Plain = {
    "id": "a1b2c3d4e",
    "type": "function",
    "function": {"name": "find", "arguments": '{"x": 25}'},
}


def facts_questions(suffix: tuple[int, ...]) -> Questions[Facts]:
    """Ask for all facts. Nothing else can be determined about a template with random output.

    `suffix` is the template's close.
    """
    if (yield from _random()):
        return Facts(random=True)
    openers = yield from _openers(suffix)
    return Facts(
        arguments=(yield from _arguments()),
        follows=tuple(openers),
        grouped_results=(yield from _grouped()),
        default_system=(yield from _default_system()),
        null_content=(yield from _content(None)),
        absent_content=(yield from _content(...)),
        parts_content=(yield from _parts()),
        opens_thought=(yield from _opens_thought()),
        drops_reasoning=(yield from _drops_reasoning()),
        trims=(yield from _trims()),
        opening=(yield from _opening()),
        openers=openers,
    )


def _try(*messages: Plain, speaking: bool = True) -> Questions[Answer]:
    """Return the ids, or None if the template rejects the messages."""
    return (yield from if_taken(ask(messages, add_generation_prompt=speaking), None))


def _compared(one: Answer, other: Answer) -> str:
    if one is None or other is None:
        return SAME if one is other else REFUSED
    return SAME if one == other else DIFFERS


def _calling(arguments: object) -> Plain:
    function = {"name": "find", "arguments": arguments}
    return {"role": "assistant", "content": "", "tool_calls": [{**CALL, "function": function}]}


def _result(key: str, text: str) -> Plain:
    return {"role": "tool", "tool_call_id": key, "name": "find", "content": text}


def _arguments() -> Questions[str | None]:
    """Return the form of arguments that the template takes: `object`, `text`, `either` or None."""
    rendered = {}
    for name, forms in (("object", ({"x": 25}, {"x": 26})), ("text", ('{"x": 25}', '{"x": 26}'))):
        one = yield from _try(USER, _calling(forms[0]))
        two = yield from _try(USER, _calling(forms[1]))
        rendered[name] = one if one != two else None  # equal renders: the arguments were not written
    written = [name for name, ids in rendered.items() if ids is not None]
    if len(written) < len(rendered):
        return written[0] if written else None
    # Where both are written differently, the text was quoted once more: the object is what is meant.
    return "either" if rendered["object"] == rendered["text"] else "object"


def _grouped() -> Questions[bool | None]:
    """Return whether two results rendered together differ from the first one followed by the second."""
    calls = {**ANSWER, "content": "", "tool_calls": [CALL, {**CALL, "id": "b2c3d4e5f"}]}
    # Qwen2.5 and Qwen3 put neighbouring results into one turn.
    both = yield from _try(USER, calls, _result("a1b2c3d4e", "7"), _result("b2c3d4e5f", "8"))
    first = yield from _try(USER, calls, _result("a1b2c3d4e", "7"))
    quiet = yield from _try(USER, calls, _result("a1b2c3d4e", "7"), speaking=False)
    if both is None or first is None or quiet is None:
        return None
    written = first[: common_prefix(first, quiet)]  # without the generation prompt or an end of text
    return both[: len(written)] != written


def _default_system() -> Questions[bool | None]:
    """Return whether a conversation without a system text gets a default one."""
    # Qwen2.5 writes "You are Qwen" without one, Llama 3 the dates of its knowledge.
    without = yield from _try(USER)
    empty = yield from _try({**SYSTEM, "content": ""}, USER)
    if without is None:
        return None
    given = yield from _try(SYSTEM, USER)
    # The tail's first id may have merged with what stands before it.
    tail = without[common_prefix(without, given) + 1 :] if given is not None else ()
    return given is not None and empty != without and given[len(given) - len(tail) :] != tail


def _opening() -> Questions[tuple[int, ...]]:
    """Return how a conversation begins; without a system text if the template takes none."""
    both = yield from _try(SYSTEM, USER)
    return ((yield from _try(USER)) or ()) if both is None else both


def _random() -> Questions[bool]:
    """Return whether the same question has two answers."""
    one = yield from _try(SYSTEM, USER)
    return one != (yield from _try(SYSTEM, USER))


def _content(content: object) -> Questions[str]:
    """Compare a null or missing content of a turn with calls to an empty one."""
    # DeepSeek-V3.1 and QwQ-32B take no content of None beside calls.
    calling = _calling({"x": 25})
    if (yield from _try(USER, calling)) is None:
        calling = _calling('{"x": 25}')
    other = {name: value for name, value in calling.items() if name != "content"}
    other |= {} if content is ... else {"content": content}
    result = _result("a1b2c3d4e", "7")
    return _compared((yield from _try(USER, calling, result)), (yield from _try(USER, other, result)))


def _parts() -> Questions[str]:
    parts = [{"type": "text", "text": USER["content"]}]
    return _compared((yield from _try(USER)), (yield from _try({**USER, "content": parts})))


def _opens_thought() -> Questions[bool | None]:
    """Return whether a plain answer, as history, does not begin as the generation prompt does."""
    # DeepSeek-R1 and Qwen3.5 end the prompt with `<think>`.
    prompt = yield from _try(USER)
    history = yield from _try(USER, ANSWER, USER)
    return None if prompt is None or history is None else history[: len(prompt)] != prompt


def _drops_reasoning() -> Questions[bool | None]:
    # Qwen3 and GLM-4.5 write it after the last user's message alone.
    history = yield from _try(USER, THOUGHTFUL, USER)
    return None if history is None else history == (yield from _try(USER, ANSWER, USER))


def _trims() -> Questions[bool | None]:
    # Llama 3, Gemma 3, Qwen3.5 and Nemotron 3 do.
    plain = yield from _try(USER, ANSWER, USER)
    spaced = yield from _try(USER, {**ANSWER, "content": f"{ANSWER['content']}\n "}, USER)
    return None if plain is None else plain == spaced


def _openers(suffix: tuple[int, ...]) -> Questions[dict[str, tuple[int, ...]]]:
    """Return what opens a message of each role that may follow an answer."""
    found: dict[str, tuple[int, ...]] = {}
    for role in FOLLOWING:
        opener = yield from _opener(role, suffix)
        if opener is not None:
            found[role] = opener
    return found


def _opener(role: str, suffix: tuple[int, ...]) -> Questions[tuple[int, ...] | None]:
    """Return the ids between a turn's close and the next message's text; None if it is rejected.

    After a tool call the rest of the call comes before the close. Without a close its end is unknown.
    """
    called = role == "tool"
    tails: list[Answer] = []
    for text in ("4096", "17"):
        result = _result(CALL["id"], text) if called else {"role": role, "content": text}
        tails.append((yield from _tail(_calling_with if called else _answering, result)))
    one, two = tails
    if one is None or two is None or one == two:
        return None
    opened = one[: common_prefix(one, two)]
    ends = [i + len(suffix) for i in range(len(opened)) if suffix and opened[i : i + len(suffix)] == suffix]
    if ends:
        return opened[ends[0] :]
    return None if called or suffix else opened


def _tail(turn: Callable[[str], Plain], following: Plain) -> Questions[Answer]:
    """Return what follows a turn's text, None if it cannot be located."""
    asking = seam_questions(lambda text: (USER, turn(text), following), speaking=False)
    seam = yield from if_taken(asking, None)
    return seam.tail if isinstance(seam, Seam) else None


def _calling_with(text: str) -> Plain:
    return _calling({"value": text})


def _answering(text: str) -> Plain:
    return {"role": "assistant", "content": text}

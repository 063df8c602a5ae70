"""Templates that look at earlier calls: what stands after a turn may depend on calls of the whole history.

Each conversation is asked about in six ways. An answer must be the real one; a refusal is right, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from tests.model.tokenizers import Tokenizer
from tito_core import Bridge, Message, Refusal, Step, TemplateRefused, suffix_ids, try_stitch
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe

Chat = list[dict[str, Any]]
TOKENIZER = Tokenizer(("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>", "<call>"))
ABSENT = object()
CALL_TEXT = "<call>weather {}<|end|>"
STOP = TOKENIZER.encode("<|end|>")[0]


def named_by_id(calls: Sequence[tuple[int, dict[str, Any]]], result: Message, _: int) -> list[str]:
    """Return the tools that were called by the id of a result; an id that is absent equals such a one."""
    wanted = result.get("tool_call_id", ABSENT)
    return [call["function"]["name"] for _, call in calls if call.get("id", ABSENT) == wanted]


def named_by_tool(calls: Sequence[tuple[int, dict[str, Any]]], result: Message, _: int) -> list[str]:
    """Return the ids of the calls of a result's tool."""
    return [str(call.get("id")) for _, call in calls if call["function"]["name"] == result.get("name")]


def named_by_last_turn(calls: Sequence[tuple[int, dict[str, Any]]], result: Message, place: int) -> list[str]:
    """Return what `named_by_id` does, for calls of the last turn with calls."""
    last = max((turn for turn, _ in calls), default=0)
    return named_by_id([one for one in calls if one[0] == last], result, place)


@attrs.frozen
class Template:
    """A chat template that writes a word before a result, and perhaps one before the model speaks.

    Attributes:
        words: Returns the words of which the first is written, from earlier calls, a result and its place.
        rejects: Returns why a message is rejected; an empty text if it is not.
        loop: Returns what is written where the model speaks next, for the messages before.
        since_user: Whether calls before the last user message do not count.
    """

    words: Callable[[Sequence[tuple[int, dict[str, Any]]], Message, int], list[str]] = lambda *_: []
    rejects: Callable[[Message], str] = lambda _: ""
    loop: Callable[[Sequence[Message]], str] = lambda _: ""
    since_user: bool = False

    def text(self, messages: Sequence[Message], *, speaking: bool) -> str:
        parts, calls = [], list[tuple[int, dict[str, Any]]]()
        for place, message in enumerate(messages):
            why = self.rejects(message)
            if why:
                raise TemplateRefused(why)
            role, content = message["role"], message.get("content") or ""
            calls = [] if role == "user" and self.since_user else calls
            written = [call["function"] for call in message.get("tool_calls") or ()]
            called = "".join(f"<call>{one['name']} {one['arguments']}" for one in written)
            calls += [(place, call) for call in message.get("tool_calls") or ()]
            word = next(iter(self.words(calls, message, place)), "") if role == "tool" else ""
            parts.append(f"<|{role}|>{word}{content}{called}<|end|>")
        return "".join(parts) + (f"<|assistant|>{self.loop(messages)}" if speaking else "")

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return TOKENIZER.encode(self.text(messages, speaking=add_generation_prompt))


USER = {"role": "user", "content": "Go on."}
DONE = {"role": "assistant", "content": "Done."}
SYSTEM = {"role": "system", "content": "Two calls left."}


def identified(key: str, value: Any) -> dict[str, Any]:
    return {} if value is ABSENT else {key: value}


def call(name: str, *ids: Any, **more: Any) -> dict[str, Any]:
    calls = [
        {**identified("id", one), "type": "function", "function": {"name": name, "arguments": "{}"}}
        for one in ids
    ]
    return {"role": "assistant", "content": "", **more, "tool_calls": calls}


def result(call_id: Any, text: str = "rain", **more: Any) -> dict[str, Any]:
    return {"role": "tool", **identified("tool_call_id", call_id), "content": text, **more}


def one_call(message: Message) -> str:
    return "one call at once" * (len(message.get("tool_calls") or ()) > 1)


def no_missing_key(message: Message) -> str:
    return "calls need an id" * any("id" not in one for one in message.get("tool_calls") or ())


def no_null(message: Message) -> str:
    return "an id is no text" * any(one.get("id", "") is None for one in message.get("tool_calls") or ())


def declared(message: Message) -> str:
    names = {one["function"]["name"] for one in message.get("tool_calls") or ()}
    return "not declared" * (not names <= {"find", "weather"})


def since_answer(messages: Sequence[Message]) -> str:
    """Return a word if tools were used since the last plain answer."""
    answers = [i for i, m in enumerate(messages) if m["role"] == "assistant" and not m.get("tool_calls")]
    return "[used]" * any(m["role"] == "tool" for m in messages[max(answers, default=0) :])


def since_question(messages: Sequence[Message]) -> str:
    """Return a word if tools were used since the last user message."""
    questions = [i for i, m in enumerate(messages) if m["role"] == "user"]
    return "[used]" * any(m["role"] == "tool" for m in messages[max(questions, default=0) :])


def thoughtful(messages: Sequence[Message]) -> str:
    """Return a word if there was reasoning since the last user message."""
    last = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=0)
    return "[thought]" * any(m.get("reasoning") for m in messages[last:-2])


def asked(template: Template, history: Chat, turn: dict[str, Any], new: Chat) -> dict[str, Any]:
    """Return what is answered in each way."""
    ids = TOKENIZER.encode(CALL_TEXT if turn.get("tool_calls") else f"{turn['content']}<|end|>")
    step = Step(
        prompt=history,
        completion=[turn],
        prompt_ids=template(history, add_generation_prompt=True),
        completion_ids=ids,
    )
    suffix, profile = suffix_ids(template), probe(template, [STOP])
    prompt = [*history, turn, *new]
    found: dict[str, Any] = {
        name: try_stitch([step], prompt, suffix, template, profile=known)
        for name, known in (("alone", None), ("profile", profile), ("growing", GrowingProfile(profile)))
    }
    bridge = Bridge(template, [STOP])
    return {
        **found,
        "known": bridge.extend(step.ids, new, turn=turn, history=history),
        "turn": bridge.extend(step.ids, new, turn=turn),
        "bare": bridge.extend(step.ids, new),
    }


def wrong(template: Template, history: Chat, turn: dict[str, Any], new: Chat) -> dict[str, str]:
    """Return the tails that are not the real one."""
    before = template.text([*history, turn], speaking=False)
    real = template.text([*history, turn, *new], speaking=True)[len(before) :]
    answers = asked(template, history, turn, new)
    tails = {
        name: TOKENIZER.decode(one.added) for name, one in answers.items() if not isinstance(one, Refusal)
    }
    return {name: tail for name, tail in tails.items() if tail != real}


FORMER = [USER, call("find", "call_0"), result("call_0", "1"), DONE, USER]
"""An earlier call with an id that is used again."""
BY_ID = Template(named_by_id)
CONVERSATIONS: dict[str, tuple[Template, Chat, dict[str, Any], Chat]] = {
    "an id is used again": (BY_ID, FORMER, call("weather", "call_0"), [result("call_0")]),
    "one call at once": (
        attrs.evolve(BY_ID, rejects=one_call),
        [USER, call("find", "a"), result("a"), call("find", "b"), result("b"), DONE, USER],
        call("weather", "a"),
        [result("a"), call("weather", "b"), result("b")],
    ),
    "declared tools alone": (
        attrs.evolve(BY_ID, rejects=declared),
        FORMER,
        call("weather", "call_0"),
        [result("call_0")],
    ),
    **{
        f"a missing id, {why.__name__}": (
            attrs.evolve(BY_ID, rejects=why),
            [USER, call("find", missing), result(missing, "1"), DONE, USER],
            call("weather", missing),
            [result(missing)],
        )
        for why, missing in ((no_missing_key, None), (no_null, ABSENT))
    },
    "ids are numbers": (
        BY_ID,
        [USER, call("find", 0), result(0, "1"), DONE, USER],
        call("weather", 0),
        [result(0)],
    ),
    "ids of a loop": (
        attrs.evolve(BY_ID, since_user=True),
        [USER, call("find", "call_0"), result("call_0", "1")],
        call("weather", "call_0"),
        [result("call_0")],
    ),
    "ids of a loop after an assistant": (
        attrs.evolve(BY_ID, since_user=True),
        [USER, call("find", "call_0"), result("call_0", "1"), DONE],
        call("weather", "call_0"),
        [result("call_0")],
    ),
    **{
        f"a late result, {missing}": (
            Template(named_by_last_turn),
            [USER, call("find", missing), result(missing, "1"), USER],
            {"role": "assistant", "content": "Started."},
            [result(missing, "late"), USER],
        )
        for missing in (None, "x")
    },
    "named by the tool": (
        Template(named_by_tool),
        [USER, call("weather", "a"), result("a", "1", name="weather"), DONE, USER],
        call("weather", "b"),
        [result(ABSENT, name="weather")],
    ),
    "no ids at all": (BY_ID, [USER], call("weather", ABSENT), [result(ABSENT)]),
    "no ids in the last turn": (
        Template(named_by_last_turn),
        [USER],
        call("weather", ABSENT),
        [result(ABSENT)],
    ),
    "a user in a loop": (
        Template(loop=since_answer),
        [USER, call("find", "a"), result("a", "1"), USER],
        call("weather", "b"),
        [USER],
    ),
    "an assistant in a loop": (
        Template(loop=since_question),
        [USER, call("find", "a"), result("a", "1"), DONE],
        {"role": "assistant", "content": "So."},
        [SYSTEM],
    ),
    "reasoning in a loop": (
        Template(loop=thoughtful),
        [USER, call("find", "a", reasoning="Look."), result("a", "1")],
        call("weather", "b"),
        [result("b")],
    ),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_no_answer_is_another_than_the_real_one(name: str) -> None:
    assert wrong(*CONVERSATIONS[name]) == {}


@pytest.mark.whole
def test_templates_that_do_not_look_back_are_answered() -> None:
    """In all conversations, whatever they reject."""
    for name, (template, history, turn, new) in CONVERSATIONS.items():
        plain = Template(rejects=template.rejects)
        assert wrong(plain, history, turn, new) == {}
        answers = asked(plain, history, turn, new)
        refused = [way for way in ("alone", "growing", "known") if isinstance(answers[way], Refusal)]
        assert refused == ([] if template.rejects is not declared else refused), name


def test_calls_of_an_earlier_message_of_the_completion_count() -> None:
    history, turn = [USER], call("weather", "call_0")
    said = [call("find", "call_0"), result("call_0", "1"), turn]
    step = Step(
        prompt=history,
        completion=said,
        prompt_ids=BY_ID(history, add_generation_prompt=True),
        completion_ids=TOKENIZER.encode(CALL_TEXT),
    )
    found = try_stitch([step], [*history, *said, result("call_0")], suffix_ids(BY_ID), BY_ID)
    assert isinstance(found, Refusal)

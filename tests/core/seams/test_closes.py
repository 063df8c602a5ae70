"""Where a turn is over: templates that close it in unusual places continue, finished or cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core.seams.test_adversaries import (
    CALLING,
    HELLO,
    OPENERS,
    TWO,
    Write,
    decode,
    encode,
    result,
    tokenizer,
)
from tito_core import (
    Bridge,
    Extension,
    Message,
    Reason,
    Refusal,
    Step,
    TemplateRefused,
    TokenizeFn,
    stitch,
    suffix_ids,
)
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_core.testing.toys import toy_named
from tito_core.testing.toys.tokenizer import Tokenizer

Plain = dict[str, Any]
SAID: Plain = {"role": "assistant", "content": "Fjord"}
BOTH: Plain = {**CALLING, "content": "Fjord"}
MORE: Plain = {"role": "user", "content": "more"}
ASIDE: Plain = {"role": "system", "content": "be brief"}


def called(message: Message) -> str:
    """Return the text of a message with its calls."""
    calls = [f"[{call['function']['arguments']}]" for call in message.get("tool_calls") or ()]
    return f"{message.get('content') or ''}{''.join(calls)}"


def plain(message: Message) -> str:
    """Return the text of a message without its calls."""
    return str(message.get("content") or "")


def written(close: Callable[[Message, bool], str], text: Callable[[Message], str]) -> Write:
    """Return a template that writes a close after each message; the last may have another."""

    def write(messages: Sequence[Message]) -> str:
        last = len(messages) - 1
        return "".join(OPENERS[m["role"]] + text(m) + close(m, i == last) for i, m in enumerate(messages))

    return write


def alternating(messages: Sequence[Message]) -> str:
    """Refuse an assistant's message that follows no user's, as templates do that want the roles in turns."""
    asked = ""
    for message in messages:
        if message["role"] == "assistant" and asked != "user":
            raise TemplateRefused("roles must alternate")
        asked = asked if message["role"] == "system" else message["role"]
    return "".join(f"{OPENERS[m['role']]}{plain(m)}<e>" for m in messages)


def thinking(messages: Sequence[Message]) -> str:
    """Begin the turns after the last user's message with an empty thought, as they were sampled."""
    asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
    shown = [{**m, "content": "<think>" * (i > asked) + plain(m)} for i, m in enumerate(messages)]
    return LATER([m if m["role"] == "user" else one for m, one in zip(messages, shown, strict=True)])


def opened_once(messages: Sequence[Message]) -> str:
    """Refuse a system text that is not the first message."""
    if any(message["role"] == "system" for message in messages[1:]):
        raise TemplateRefused("the system text must come first")
    return LATER(messages)


LATER = written(lambda _, last: "" if last else "\n<e>\n", plain)
EITHER = written(lambda _, last: "<e>" if last else "\n<e>\n", plain)
OPENED = written(lambda _, last: "\n", plain)  # noqa: ARG005  # the next role's marker is the stop
TWICE = written(lambda m, _: "<e><think><e>" if m.get("tool_calls") else "<e>", called)
BROKEN = written(lambda _, __: "\n<e>", called)
CASES: dict[str, tuple[Write, list[Plain], Plain, list[Plain], str]] = {
    "a stop only before more": (LATER, [HELLO], SAID, [MORE], "<e>"),
    "a stop only before more, after a thought": (thinking, [HELLO], SAID, [MORE], "<e>"),
    "a stop only before more, and no late system text": (opened_once, [HELLO], SAID, [MORE], "<e>"),
    "another close at the end": (EITHER, [HELLO], SAID, [MORE], "<e>"),
    "calls that are not written": (EITHER, [HELLO], BOTH, [result("7")], "<e>"),
    "the next marker after a line break": (OPENED, [HELLO], SAID, [MORE], "<u>"),
    "two stops after a call": (TWICE, [HELLO], CALLING, [result("7")], "<e>"),
    "two stops after two calls": (TWICE, [HELLO], TWO, [result("7"), result("8", "c2")], "<e>"),
    "text before the stop of a call": (BROKEN, [HELLO], CALLING, [result("7")], "<e>"),
    "a system text before the turn": (alternating, [HELLO, SAID, HELLO, ASIDE], SAID, [MORE], "<e>"),
}


def text_of(write: Write, turn: Plain) -> str:
    return called(turn) if write in (TWICE, BROKEN) else plain(turn)


def answered(  # each is one thing that a turn may differ in
    tokenize: Any,
    said: str,
    new: Sequence[Plain],
    stops: str = "<e>",
    *,
    profiled: bool = False,
    **known: Any,
) -> str | None:
    """Return what a bridge writes after a sampled text, or None if it refuses."""
    profile = GrowingProfile(probe(tokenize, encode(stops))) if profiled else None
    prompt = tokenize(known.get("history", [HELLO]), add_generation_prompt=True)
    ids = [*prompt, *encode(said)]
    found = Bridge(tokenize, encode(stops), profile=profile).extend(ids, new, **known)
    return None if isinstance(found, Refusal) else decode(found.added)


def after_turn(turn: Plain, history: Sequence[Plain] = (HELLO,)) -> dict[str, Any]:
    return {"turn": turn, "history": history}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_turn_is_continued_after_the_first_stop_that_follows_it(
    name: str, *, profiled: bool, cut: bool
) -> None:
    write, history, turn, new, mark = CASES[name]
    said = text_of(write, turn)
    whole = decode(tokenizer(write)([*history, turn, *new], add_generation_prompt=True))
    rest = whole[whole.rindex(said) + len(said) :]
    known = {"profiled": profiled, "truncated": cut, **after_turn(turn, history)}
    found = answered(tokenizer(write), f"{said}{'' if cut else mark}", new, mark, **known)
    assert found == (rest if cut else rest.partition(mark)[2])


CALLED_LATER = written(lambda _, last: "" if last else "\n<e>\n", called)
TWO_CLOSES = written(lambda m, _: "<e>\n" if m.get("tool_calls") else "\n\n<e>", called)


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("write", [CALLED_LATER, TWO_CLOSES], ids=["only before more", "another close"])
@pytest.mark.parametrize(("turn", "new"), [(CALLING, [result("7")]), (TWO, [result("7"), result("8", "c2")])])
def test_a_call_is_continued_after_the_only_stop_that_always_follows_it(
    write: Write, turn: Plain, new: list[Plain], *, profiled: bool
) -> None:
    found = answered(tokenizer(write), f"{called(turn)}<e>", new, profiled=profiled, **after_turn(turn))
    rest = f"{write([HELLO, turn, *new])}<a>".split(called(turn))[1]
    assert found == rest.partition("<e>")[2]


def told_later(messages: Sequence[Message]) -> str:
    """Write the ids of calls, and another close, once something follows."""
    text = ""
    for place, message in enumerate(messages):
        later = place < len(messages) - 1
        ids = "".join(call["id"] for call in message.get("tool_calls") or ()) if later else ""
        text += f"{OPENERS[message['role']]}{called(message)}{ids}{'' if later else chr(10)}\n<e>"
    return text


@pytest.mark.parametrize("call_id", ["c1", "<e>"])
def test_an_id_that_spells_the_stop_closes_no_call(call_id: str) -> None:
    """The template writes it once something follows, before the close."""
    turn = {**CALLING, "tool_calls": [{**CALLING["tool_calls"][0], "id": call_id}]}
    found = answered(tokenizer(told_later), "[{}]\n\n<e>", [result("7", call_id)], **after_turn(turn))
    assert found == "<t>7\n\n<e><a>" or (found is None and call_id == "<e>")


@pytest.mark.parametrize(("write", "rest"), [(CALLED_LATER, "\n<e>\n"), (told_later, "c1\n<e>")])
def test_a_call_that_was_cut_is_not_closed_with_a_part_of_what_the_template_writes(
    write: Write, rest: str
) -> None:
    """Text and the only stop follow it, once something follows."""
    found = answered(tokenizer(write), "[{}]", [result("7")], truncated=True, **after_turn(CALLING))
    assert found is None or found.startswith(rest)


UNCLOSED = written(lambda _, __: "", called)
LINES = written(lambda _, __: "\n", lambda m: f"{called(m)}\n)" if m.get("tool_calls") else plain(m))
CALLS_LATER = written(lambda m, last: "" if last and m.get("tool_calls") else "<e>", called)


@pytest.mark.parametrize("truncated", [True, None])
@pytest.mark.parametrize("known", [{}, after_turn(CALLING)])
def test_the_end_of_a_call_is_no_stop_where_stops_are_known(known: Any, *, truncated: bool | None) -> None:
    """The next role's marker is the stop, and nothing else closes a turn."""
    found = answered(tokenizer(UNCLOSED), "[{}]", [result("7")], "<u><t>", truncated=truncated, **known)
    assert found == "<t>7<a>"


def test_the_end_of_a_call_is_not_its_close_where_the_suffix_follows() -> None:
    """No stops are known, and the template closes a call only once something follows."""
    tokenize = tokenizer(CALLS_LATER)
    ids = [*tokenize([HELLO], add_generation_prompt=True), *encode("[{}]")]
    found = Bridge(tokenize).extend(ids, [result("7")], turn=CALLING, history=[HELLO])
    assert isinstance(found, Refusal)
    assert found.reason is Reason.ODD_STOP


@pytest.mark.parametrize("known", [{}, after_turn(CALLING)])
def test_a_close_that_stands_in_a_call_does_not_end_it(known: Any) -> None:
    """No stops are known, and calls have a line break, as their close is."""
    assert answered(tokenizer(LINES), "[{}]\n)\n", [result("7")], "", **known) == "<t>7\n<a>"


SPLITS = Tokenizer(specials=(), merges=("\n<",))


def writes_tags(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write tags as text: a close and the next opener begin alike, and an id reaches into each.

    Another one ends a conversation.
    """
    texts = [f"<|{m['role']}|>\n{called(m)}\n<|end|>\n" for m in messages]
    return SPLITS.encode("".join(texts) + ("<|assistant|>\n" if add_generation_prompt else "<|over|>\n"))


def test_the_beginning_of_the_next_opener_is_not_that_of_the_close() -> None:
    """No stops are known, nor whether the turn was cut: it may have ended with the close's first id."""
    ids = [*writes_tags([HELLO], add_generation_prompt=True), *SPLITS.encode("[{}]\n<")]
    bridge = Bridge(writes_tags, suffix=SPLITS.encode("\n<|end|>\n"))
    found = bridge.extend(ids, [result("7")], turn=CALLING, history=[HELLO])
    right = SPLITS.encode("|end|>\n<|tool|>\n7\n<|end|>\n<|assistant|>\n")
    assert isinstance(found, Refusal) or found.added == tuple(right)


def skips_last_call(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Leave out the calls of the last message if the model is to speak next: they might go on."""
    last = len(messages) - 1
    texts = [
        f"{OPENERS[m['role']]}{plain(m) if i == last and add_generation_prompt else called(m)}<e>"
        for i, m in enumerate(messages)
    ]
    return encode("".join(texts) + "<a>" * add_generation_prompt)


def never_last_call(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Leave out the calls of the last message."""
    *past, last = messages
    texts = [f"{OPENERS[m['role']]}{called(m)}<e>" for m in past]
    return encode("".join(texts) + f"{OPENERS[last['role']]}{plain(last)}<e>" + "<a>" * add_generation_prompt)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("tokenize", [skips_last_call, never_last_call])
def test_a_call_may_be_missing_where_it_is_the_last_message(tokenize: TokenizeFn, *, cut: bool) -> None:
    said, close = ("[{}]", "<e>") if cut else ("[{}]<e>", "")
    found = answered(tokenize, said, [result("7")], truncated=cut, **after_turn(CALLING))
    assert found == f"{close}<t>7<e><a>"


def reasons_in_loops(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Begin every message with the stop, and write reasoning only after the last user's message."""
    asked = max(i for i, message in enumerate(messages) if message["role"] == "user")
    texts = (
        f"<e>{OPENERS[m['role']]}{'<think>' * bool(m.get('reasoning_content') and i > asked)}{called(m)}"
        for i, m in enumerate(messages)
    )
    return encode("".join(texts) + "<e><a>" * add_generation_prompt)


THOUGHT: Plain = {**CALLING, "reasoning_content": "Hm."}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("known", [{}, after_turn(THOUGHT)])
def test_a_turn_that_is_written_otherwise_before_a_user_is_known_by_its_text(
    known: Any, *, cut: bool
) -> None:
    said, close = ("<think>[{}]", "<e>") if cut else ("<think>[{}]<e>", "")
    assert answered(reasons_in_loops, said, [result("7")], truncated=cut, **known) == f"{close}<t>7<e><a>"


def collects_system(messages: Sequence[Message]) -> str:
    """Write a system text in front of the next user's."""
    text, pending = "", ""
    for message in messages:
        if message["role"] == "system":
            pending = plain(message)
        else:
            asked = message["role"] == "user"
            text += f"{OPENERS[message['role']]}{pending * asked}{plain(message)}<e>"
            pending = "" if asked else pending
    return text


@pytest.mark.parametrize("known", [{}, {"turn": SAID}, {"turn": SAID, "history": [HELLO, ASIDE]}])
def test_a_system_text_that_waits_for_the_next_user_is_not_lost(known: Any) -> None:
    tokenize = tokenizer(collects_system)
    ids = [*tokenize([HELLO, ASIDE], add_generation_prompt=True), *encode("Fjord<e>")]
    assert isinstance(Bridge(tokenize, encode("<e>")).extend(ids, [MORE], **known), Refusal)


def demands_system(messages: Sequence[Message]) -> str:
    """Fail without a system text, as templates do that read a variable which only such a text sets."""
    if messages[0]["role"] != "system":
        raise TemplateRefused("'system_message' is undefined")
    return "".join(f"{OPENERS[m['role']]}{plain(m)}<e>" for m in messages)


@pytest.mark.parametrize("profiled", [False, True])
def test_a_template_that_demands_a_system_text_is_asked_with_one(*, profiled: bool) -> None:
    known = after_turn(SAID, [ASIDE, HELLO])
    found = answered(tokenizer(demands_system), "Fjord<e>", [MORE], profiled=profiled, **known)
    assert found == "<u>more<e><a>"


CLOSED_LAST = written(lambda m, last: "\n<e>\n" * last if m["role"] == "assistant" else "<e>", called)


@pytest.mark.parametrize("known", [{}, {"turn": CALLING, "history": [HELLO]}])
@pytest.mark.parametrize("stops", [[], encode("<e>")])
def test_the_stop_of_a_result_is_not_taken_for_that_of_the_call(
    known: dict[str, Any], stops: list[int]
) -> None:
    tokenize, sampled, right = tokenizer(CLOSED_LAST), encode("[{}]\n<e>"), encode("<t>7<e><a>")
    prompt = tokenize([HELLO], add_generation_prompt=True)
    step = Step(prompt=[HELLO], completion=[CALLING], prompt_ids=prompt, completion_ids=sampled)
    found = Bridge(tokenize, stops).extend(step.ids, [result("7")], **known)
    assert isinstance(found, Refusal) or found.ids[-len(right) :] == right
    stitched = stitch([step], [HELLO, CALLING, result("7")], suffix_ids(tokenize), tokenize)
    assert stitched is None or stitched[-len(right) :] == right


def leaves_out(messages: Sequence[Message]) -> str:
    """Leave out a turn that says nothing."""
    return "".join(f"{OPENERS[m['role']]}{called(m)}<e>" for m in messages if called(m).strip())


CLOSES_SILENCE = written(lambda m, _: "<e>" if called(m).strip() else "<end>", called)
ALIKE = written(lambda _, __: "<e>", called)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("content", ["", None, " "])
@pytest.mark.parametrize(("write", "answers"), [(leaves_out, False), (CLOSES_SILENCE, False), (ALIKE, True)])
def test_a_turn_that_says_nothing_is_followed_by_what_the_template_writes_after_it(
    write: Write, content: str | None, *, answers: bool, known: bool
) -> None:
    """Another text in its place does not show it."""
    turn = {"role": "assistant", "content": content}
    stops = "<e>" if known else ""
    found = answered(tokenizer(write), f"{content or ''}<e>", [MORE], stops, **after_turn(turn))
    assert found == ("<u>more<e><a>" if answers else None)


def rejects_null_later(messages: Sequence[Message]) -> str:
    """Fail at a call whose content is null, once there was another answer."""
    answers = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if any(messages[i].get("content", "") is None for i in answers[1:]):
        raise TemplateRefused("a null is no text")
    return ALIKE(messages)


def test_a_call_without_a_content_is_also_asked_about_with_an_empty_one() -> None:
    known = after_turn({**CALLING, "content": None})
    assert answered(tokenizer(rejects_null_later), "[{}]<e>", [result("7")], **known) == "<t>7<e><a>"


SIGNED = written(lambda _, __: "ab\n<e>", called)


@pytest.mark.parametrize("stops", ["", "<e>"])
@pytest.mark.parametrize(
    ("content", "rest"), [("Fjord ab", "ab\n<e>"), ("Fjord ", "\n<e>"), ("ab", "ab\n<e>")]
)
def test_a_turn_that_was_cut_in_its_close_is_told_from_a_text_that_ends_like_it(
    content: str, rest: str, stops: str
) -> None:
    """The close begins with the text `ab`; the turn's message says whether that was its own."""
    said = content if content.endswith("ab") else f"{content}ab"
    known = after_turn({"role": "assistant", "content": content})
    assert (
        answered(tokenizer(SIGNED), said, [MORE], stops, truncated=True, **known)
        == f"{rest}<u>moreab\n<e><a>"
    )


def closed_with_text(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write calls that end with a brace: it is one id with the line break that their close begins with."""
    toy, text = toy_named("text_close"), ""
    for message in messages:
        calls = "".join(f"{call['function']['arguments']})}}" for call in message.get("tool_calls") or ())
        close = toy.close if message["role"] == "assistant" else "<|endoftext|>"
        text += f"<|im_start|>{message['role']}\n{plain(message)}{calls}{close}"
    return toy.encode(f"{text}{'<|im_start|>assistant' * add_generation_prompt}")


@pytest.mark.parametrize(("said", "whole"), [('{"city": "Oslo"})}', True), ('{"city": "Oslo', False)])
def test_a_close_that_is_one_id_with_the_end_of_a_call_is_written_whole_after_it(
    said: str, *, whole: bool
) -> None:
    """What is shown of it after the call begins with the next id. A call that broke off is not ended."""
    toy = toy_named("text_close")
    ids = [*closed_with_text([HELLO], add_generation_prompt=True), *toy.encode(f"\n{said}")]
    bridge = Bridge(closed_with_text, toy.stop_ids[:1], suffix=toy.suffix)
    found = bridge.extend(ids, [result("7")], turn=CALLING, history=[HELLO], truncated=True)
    if whole:
        assert isinstance(found, Extension), found
        rest = f"{toy.close}<|im_start|>tool\n7<|endoftext|><|im_start|>assistant"
        assert found.added == tuple(toy.encode(rest))
    else:
        assert isinstance(found, Refusal)

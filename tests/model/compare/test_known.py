"""The smallest cases of what the model found wrong in the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.model.compare.quirks import Family, Quirky
from tests.model.messages import Message
from tests.model.templates import Page
from tests.model.tokenizers import Tokenizer
from tito_core import Bridge, Extension, OddStop, Policy, Reason, Refusal, Step, try_stitch
from tito_core.bridge import Known
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_core.testing.toys import toy_named

CALL: Message = {"id": "callaaaa1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN: Message = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT: Message = {"role": "tool", "tool_call_id": "callaaaa1", "content": "7"}


def test_a_call_that_was_cut_after_its_last_word_is_not_written_further() -> None:
    toy = toy_named("markers")
    question = [{"role": "user", "content": "a"}]
    prompt = toy(question, add_generation_prompt=True)
    words = toy.sample([*question, TURN])
    found = Bridge(toy, toy.stop_ids).extend([*prompt, *words], [RESULT], turn=TURN)
    assert isinstance(found, Extension)
    assert found.added[0] == toy.encode("<|observation|>")[0]


def test_a_longer_call_does_not_hide_that_another_text_is_dropped() -> None:
    """Five words more in a name are as many bytes more as four lost words and its own."""
    family = Family(Quirky(contents="strings"), Tokenizer(("<|im_start|>", "<|im_end|>")))
    question = [{"role": "user", "content": "a"}]
    dropped = {"role": "user", "content": [{"type": "text", "text": text} for text in "ab"]}
    user, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}
    prompt = family(question, add_generation_prompt=True)
    whole = family([*question, TURN], add_generation_prompt=False)
    bridge = Bridge(family, family.stop_ids, suffix=family.suffix)
    found = bridge.extend(
        whole[:-1], [RESULT, user, said, dropped, TURN, RESULT], turn=TURN, history=question
    )
    assert whole[: len(prompt)] == prompt
    assert isinstance(found, Refusal)
    assert found.reason is Reason.SWALLOWED


MARKS = ("<|user|>", "<|assistant|>", "<|tool|>", "<|eom|>", "<|endoftext|>")
USER: Message = {"role": "user", "content": "a"}
SAID: Message = {"role": "assistant", "content": "a"}
LOOKED_UP: list[Message] = [USER, TURN, RESULT, SAID, USER]


def kept(template: Quirky) -> tuple[Family, Bridge]:
    """Return a family, and a bridge that keeps odd stops."""
    family = Family(template, Tokenizer(MARKS))
    return family, Bridge(family, family.stop_ids, policy=Policy(odd_stop=OddStop.KEEP))


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("turn", "new", "aside"), [(SAID, USER, "[r"), (TURN, RESULT, "x]")])
def test_a_text_that_ends_like_the_turn_does_not_hide_that_it_depends_on_the_history(
    turn: Message, new: Message, aside: str, known: bool, profiled: bool
) -> None:
    """It stands before a close, in a conversation with results. The turn ends with `r`, or `]`."""
    family, bridge = kept(Quirky(aside=aside))
    words = family([*LOOKED_UP, turn], add_generation_prompt=False)
    closed = family.tokenizer.encode(aside + family.template.close)
    assert words[-len(closed) :] == closed
    bridge.profile = GrowingProfile(probe(family, family.stop_ids)) if profiled else None
    given: Known = {"truncated": True}
    given |= {"turn": turn, "history": LOOKED_UP} if known else {}
    found = bridge.extend(words[: -len(closed)], [new], **given)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.UNPROVEN_TAIL


class ClosesThoughts(Quirky):
    """A template that writes `x]` before the close of a turn with reasoning, if there were results."""

    def page(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Page:
        """Render a conversation."""
        thinks = any("reasoning_content" in one for one in messages[-2:])
        return Quirky(aside="x]" * thinks).page(messages, add_generation_prompt=add_generation_prompt)


def test_an_unknown_turn_has_one_rest_of_a_call_in_all_histories() -> None:
    family, bridge = kept(ClosesThoughts())
    words = family([*LOOKED_UP, {**TURN, "reasoning_content": "b"}], add_generation_prompt=False)
    closed = family.tokenizer.encode("x]<|im_end|>\n")
    assert words[-len(closed) :] == closed
    found = bridge.extend(words[: -len(closed)], [RESULT], truncated=True)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.UNPROVEN_TAIL


@pytest.mark.parametrize("stop", ["<|endoftext|>", "\n"])
@pytest.mark.parametrize("calls", ["lines", "json"])
def test_a_suffix_that_stands_in_a_call_is_not_the_close(calls: str, stop: str) -> None:
    """The template ends every other turn with a line break, and goes on after it in a call."""
    family, bridge = kept(Quirky(style="marks", close="\n", calls=calls, calls_close=True, called_close=""))
    words = family([USER, TURN], add_generation_prompt=False)
    found = bridge.extend([*words, *family.tokenizer.encode(stop)], [RESULT], turn=TURN, history=[USER])
    assert isinstance(found, Extension)
    assert list(found.added) == family.tokenizer.encode("<|tool|>\n7\n<|assistant|>\n")


@pytest.mark.parametrize("choice", OddStop)
@pytest.mark.parametrize("sampled", ["", "<|eom|>"])
@pytest.mark.parametrize("close", ["<|eom|>\n", "<|eom|>b\n", "b<|eom|>b\n"])
def test_a_known_stop_begins_the_close_of_a_call_that_ends_like_every_turn(
    close: str, sampled: str, choice: OddStop
) -> None:
    """The template ends every turn with a line break, and writes more before it after a call."""
    family, bridge = kept(Quirky(style="marks", close="\n", calls_close=True, called_close=close))
    bridge.policy = Policy(odd_stop=choice)
    text, _, rest = close.partition("<|eom|>")
    words = family([USER, TURN], add_generation_prompt=False)
    words = words[: len(words) - len(family.tokenizer.encode(close))]
    turn = [*words, *family.tokenizer.encode(text + sampled)]
    found = bridge.extend(turn, [RESULT], turn=TURN, history=[USER])
    assert isinstance(found, Extension)
    missing = rest if sampled else f"<|eom|>{rest}"
    assert list(found.added) == family.tokenizer.encode(f"{missing}<|tool|>\n7\n<|assistant|>\n")
    assert list(found.inserted_close) == family.tokenizer.encode(missing)


@pytest.mark.parametrize("stop", ["", "[", "<|tool|>", "<|endoftext|>"])
def test_a_text_that_ends_like_a_call_does_not_hide_that_it_depends_on_the_history(stop: str) -> None:
    """After a tool result the template writes `[after a tool]` before all; a call ends with `]`, too."""
    specials = ("<|user|>", "<|assistant|>", "<|tool|>", "<|endoftext|>")
    family = Family(Quirky(style="marks", close="", history="tool changes heads"), Tokenizer(specials))
    user, said = {"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}
    history = [user, TURN, RESULT, said, user]
    words = family([*history, TURN], add_generation_prompt=False)
    bridge = Bridge(family, family.stop_ids, policy=Policy(odd_stop=OddStop.KEEP), suffix=family.suffix)
    found = bridge.extend([*words, *family.tokenizer.encode(stop)], [RESULT], turn=TURN, history=history)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.UNPROVEN_TAIL


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("own", ["callaaaa1", None])
def test_a_result_without_an_id_may_be_named_by_an_earlier_call_without_one(
    own: str | None, known: bool
) -> None:
    """The template names a result by the first call with its id; earlier the tool `g` was called."""
    family, bridge = kept(Quirky(history="results by first name"))
    former: Message = {"type": "function", "function": {"name": "g", "arguments": "{}"}}
    history = [USER, {**TURN, "tool_calls": [former]}, {"role": "tool", "content": "7"}]
    turn = {**TURN, "tool_calls": [{**CALL, "id": own}]}
    given: Known = {"turn": turn, "history": history if known else None}
    words = family([*history, turn], add_generation_prompt=False)
    found = bridge.extend(words, [{"role": "tool", "content": "7"}], **given)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.UNPROVEN_TAIL


@pytest.mark.parametrize("named", ["<|eom|>", "a|b"])
@pytest.mark.parametrize("close", ["<|eom|>", "<|eom|>\n"])
def test_a_call_that_is_named_like_a_stop_is_refused_where_its_id_is_written_last(
    named: str, close: str
) -> None:
    family, bridge = kept(
        Quirky(style="marks", close="\n", calls="json, id last", calls_close=True, called_close=close)
    )
    turn = {**TURN, "tool_calls": [{**CALL, "id": named}]}
    words = family([USER, turn], add_generation_prompt=False)
    words = words[: len(words) - len(close.removeprefix("<|eom|>"))]
    found = bridge.extend(words, [{**RESULT, "tool_call_id": named}], turn=turn, history=[USER])
    if named == "a|b":
        assert isinstance(found, Extension)
        assert list(found.added) == family.tokenizer.encode(f"{close[7:]}<|tool|>\n7\n<|assistant|>\n")
    else:
        assert isinstance(found, Refusal)
        assert found.reason is Reason.UNPROVEN_TAIL


def test_an_unwritten_reasoning_does_not_move_where_a_message_ends() -> None:
    """As the last message it would have its reasoning, so that what follows it shows no end."""
    family, bridge = kept(Quirky(reasoning="dropped before the last user"))
    thought = {"role": "assistant", "content": "", "reasoning_content": "b"}
    words = family([USER, SAID], add_generation_prompt=False)
    plain = bridge.extend(words, [USER, SAID, USER], turn=SAID, history=[USER])
    with_thought = bridge.extend(words, [USER, thought, USER], turn=SAID, history=[USER])
    assert isinstance(plain, Extension)
    assert isinstance(plain.spans, tuple)
    assert isinstance(with_thought, Extension)
    assert isinstance(with_thought.spans, Refusal)


def test_an_unknown_turn_may_have_calls_of_which_the_template_writes_the_first_alone() -> None:
    toy = toy_named("chatml")

    def tokenize(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        first = [{**m, "tool_calls": (m.get("tool_calls") or [])[:1]} for m in messages]
        return toy(first, add_generation_prompt=add_generation_prompt)

    prompt = tokenize([USER], add_generation_prompt=True)
    found = Bridge(tokenize, toy.stop_ids).extend([*prompt, *toy.sample([USER, TURN])], [RESULT])
    assert isinstance(found, Extension)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("choice", [OddStop.KEEP, OddStop.REPLACE])
def test_a_last_id_that_may_hold_the_close_is_no_odd_stop(choice: OddStop, *, known: bool) -> None:
    r"""The close is a line break, `b\n` one id, and before it stand other ids than the template writes."""
    family = Family(Quirky(style="script", close="\n"), Tokenizer(("<|eom|>",), ("b\n",)))
    ids = [one for text in "a<|eom|>" for one in family.tokenizer.encode(text)] + family.tokenizer.encode(
        "b\n"
    )
    said: Message = {"role": "assistant", "content": "a<|eom|>b"}
    prompt = family([USER], add_generation_prompt=True)
    step = Step(prompt=[USER], prompt_ids=prompt, completion=[said], completion_ids=ids)
    stops = family.stop_ids if known else ()
    found = try_stitch(
        [step], [USER, said, USER], family.suffix, family, policy=Policy(odd_stop=choice), stops=stops
    )
    assert isinstance(found, Refusal)
    assert found.reason is Reason.ODD_STOP

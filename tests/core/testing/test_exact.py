"""`assert_token_exact`: what it takes, what it accepts, and how it says what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
import pytest

from tito_core import InputError, Message, TemplateRefused
from tito_core.testing import (
    CannotLocateError,
    Mistake,
    NotTokenExactError,
    SampledTurn,
    assert_token_exact,
    toy_named,
)
from tito_core.testing.mistakes import USUALLY

CHATML = toy_named("chatml")
Chat = list[dict[str, Any]]
HELLO: Chat = [{"role": "user", "content": "Hi"}]
ANSWER = {"role": "assistant", "content": "ab"}
MORE = {"role": "user", "content": "ab"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "7"}
PROMPT = CHATML(HELLO, add_generation_prompt=True)
SAMPLED = CHATML.encode("a") + CHATML.encode("b<|im_end|>")
"""Two ids for the text that the tokenizer writes as one."""
SEAM = CHATML.encode("\n<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n")


def plain(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as the toy does; the place of the texts is not known."""
    return CHATML(messages, add_generation_prompt=add_generation_prompt)


def check(
    ids: Any, messages: Sequence[Message], sampled: Any, render: Any = plain, **more: Any
) -> Callable[[], None]:
    return lambda: assert_token_exact(ids, messages, sampled, render, CHATML.decode, **more)


def failure(checked: Callable[[], None]) -> NotTokenExactError:
    with pytest.raises(NotTokenExactError) as raised:
        checked()
    return raised.value


@pytest.mark.parametrize("render", [CHATML, plain])
def test_a_prompt_and_a_row_of_what_was_sampled_pass(render: Any) -> None:
    check(PROMPT, HELLO, [], render)()
    check([*PROMPT, *SAMPLED, *SEAM], [*HELLO, ANSWER, MORE], [SAMPLED], render)()
    check([*PROMPT, *SAMPLED], [*HELLO, ANSWER], [SAMPLED], render)()


def test_the_failure_is_readable() -> None:
    error = failure(check([*PROMPT, *SAMPLED, 2, *SEAM], [*HELLO, ANSWER, MORE], [SAMPLED]))
    assert (error.mistake, error.turn, error.place) == (Mistake.STOP_TWICE, 1, 13)
    assert str(error).splitlines() == [
        "after turn 1 of 1, messages[1]: STOP_TWICE at place 13",
        "    place  expected          found",
        "       10  197 'a'           197 'a'",
        "       11  198 'b'           198 'b'",
        "       12  2 '<|im_end|>'    2 '<|im_end|>'",
        "     > 13  110 '\\n'          2 '<|im_end|>'",
        "       14  1 '<|im_start|>'  110 '\\n'",
        "       15  52 'user'         1 '<|im_start|>'",
        "       16  110 '\\n'          52 'user'",
        "       17  54 'ab'           110 '\\n'",
        "       18  2 '<|im_end|>'    54 'ab'",
        *fill(f"usually: {USUALLY[Mistake.STOP_TWICE]}", 100).splitlines(),
    ]


@pytest.mark.parametrize(
    ("kept", "mistake"),
    [
        ([*PROMPT, *SAMPLED], Mistake.MESSAGE_DROPPED),
        ([*PROMPT, *SAMPLED, *SEAM[:-1]], Mistake.WHITE_SPACE),
        ([*PROMPT, *SAMPLED, *SEAM[:-3]], Mistake.SEAM),
        ([*PROMPT, *SAMPLED, *SEAM, 7], Mistake.LONGER),
        ([*PROMPT, *CHATML.encode("ab<|im_end|>"), *SEAM], Mistake.RERENDERED),
        ([*PROMPT, *SAMPLED[1:], *SEAM], Mistake.TURN_CHANGED),
        ([*PROMPT, *SAMPLED[:-1], *SEAM], Mistake.TURN_CHANGED),
        ([*PROMPT, *SAMPLED, *SEAM[1:]], Mistake.WHITE_SPACE),
        ([*PROMPT, *SAMPLED, *SEAM[:4], *SEAM[5:]], Mistake.MESSAGE_DROPPED),
        ([*PROMPT[1:], *SAMPLED, *SEAM], Mistake.PROMPT),
        ([], Mistake.PROMPT),
        ([*PROMPT, -1, *SAMPLED, *SEAM], Mistake.TURN_CHANGED),
    ],
)
@pytest.mark.parametrize("render", [CHATML, plain])
def test_other_ids_fail(kept: list[int], mistake: Mistake, render: Any) -> None:
    assert failure(check(kept, [*HELLO, ANSWER, MORE], [SAMPLED], render)).mistake is mistake


def test_code_that_refused_has_no_ids() -> None:
    error = failure(check(None, [*HELLO, ANSWER, MORE], [SAMPLED]))
    assert (error.mistake, error.turn) == (Mistake.REFUSED, 1)
    assert str(error).startswith("after turn 1 of 1: REFUSED: ids is None\nusually: ")
    assert str(failure(check(None, HELLO, []))).startswith("the first prompt: REFUSED")


def test_a_stop_that_the_engine_did_not_return_and_an_odd_one_are_closed_whole() -> None:
    for sampled in (SAMPLED[:-1], [*SAMPLED[:-1], 3]):
        check([*PROMPT, *sampled, 2, *SEAM], [*HELLO, ANSWER, MORE], [sampled])()
        assert failure(check([*PROMPT, *sampled, *SEAM], [*HELLO, ANSWER, MORE], [sampled])).place > 10


def test_a_turn_that_was_cut_short_is_closed_whole_whatever_it_ends_with() -> None:
    """The cut text ends with the letter that begins the close of this template."""
    spaced = toy_named("spaced")
    cut = spaced.encode("b ")
    prompt = spaced(HELLO, add_generation_prompt=True)
    tail = spaced.encode(" <|im_end|><|im_start|>user ab <|im_end|><|im_start|>assistant ")
    for turn, added in ((SampledTurn(cut, truncated=True), tail), (SampledTurn(cut), tail)):
        ids = [*prompt, *cut, *added]
        assert_token_exact(ids, [*HELLO, ANSWER, MORE], [turn], spaced, spaced.decode)


def test_a_cut_call_may_be_closed_at_once_or_be_finished() -> None:
    turn = SampledTurn(CHATML.encode("<tool_call>{"), truncated=True)
    seam = CHATML.encode("<|im_end|>\n<|im_start|>tool\n7<|im_end|>\n<|im_start|>assistant\n")
    rest = CHATML.encode('"}}</tool_call>')  # what the template writes after the last argument
    messages = [*HELLO, CALLING, RESULT]
    for added in (seam, [*rest[1:], *seam]):
        check([*PROMPT, *turn.ids, *added], messages, [turn], stop_ids=CHATML.stop_ids)()
    with pytest.raises(CannotLocateError, match="give stop_ids"):
        check([*PROMPT, *turn.ids, *seam], messages, [turn])()


def test_the_mask_covers_what_was_sampled() -> None:
    ids, messages = [*PROMPT, *SAMPLED, *SEAM], [*HELLO, ANSWER, MORE]
    after = [1] * len(SAMPLED) + [0] * len(SEAM)
    right = [0] * len(PROMPT) + after
    for mask in (right, after, np.array(right, dtype=np.float32), [bool(value) for value in after]):
        check(ids, messages, [SAMPLED], mask=mask)()
    wrong = {
        Mistake.MASK_SHIFTED: ([0, *right[:-1]], [*right[1:], 0], [*after[1:], 0]),
        Mistake.MASK: ([0] * len(ids), [1] * len(ids), right[:-1], [*right, 0], []),
    }
    for mistake, masks in wrong.items():
        for mask in masks:
            assert failure(check(ids, messages, [SAMPLED], mask=mask)).mistake is mistake


def test_log_probabilities_are_those_of_the_engine() -> None:
    ids, messages = [*PROMPT, *SAMPLED, *SEAM], [*HELLO, ANSWER, MORE]
    turn = SampledTurn(SAMPLED, [-0.5, -0.25, 0.0])
    none = [None] * len(PROMPT)
    for empty in (None, 0.0, float("nan")):
        given = [*none, -0.5, -0.25, 0.0, *[empty] * len(SEAM)]
        check(ids, messages, [turn], logprobs=given)()
        check(ids, messages, [SAMPLED], logprobs=given)()
    check(ids, messages, [turn], logprobs=np.array([-0.5, -0.25, 0, *[0] * len(SEAM)], dtype=np.float32))()
    for given_turn, mistake in {
        (None, -0.5, -0.25): Mistake.LOGPROBS_SHIFTED,
        (-0.25, 0.0, None): Mistake.LOGPROBS_SHIFTED,
        (-0.5, None, 0.0): Mistake.LOGPROBS,
        (-0.5, -0.2, 0.0): Mistake.LOGPROBS,
    }.items():
        values = [*none, *given_turn, *[None] * len(SEAM)]
        assert failure(check(ids, messages, [turn], logprobs=values)).mistake is mistake
    spread = [*none, -0.5, -0.25, -0.1, -0.1, *[None] * (len(SEAM) - 1)]
    error = failure(check(ids, messages, [SAMPLED], logprobs=spread))
    assert (error.mistake, error.turn) == (Mistake.LOGPROBS, 1)


def test_an_assistant_message_that_no_engine_sampled_is_the_templates() -> None:
    history = [*HELLO, ANSWER, MORE]
    prompt = CHATML(history, add_generation_prompt=True)
    check([*prompt, *SAMPLED], [*history, ANSWER], [None, SAMPLED])()
    check([*prompt, *SAMPLED], [*history, ANSWER], [None, SAMPLED], prompt_ids=prompt)()
    check([9, 9, *SAMPLED], [*history, ANSWER], [None, SAMPLED], prompt_ids=[9, 9])()


def test_arrays_are_taken_and_nested_ones_are_rejected() -> None:
    ids = np.array([*PROMPT, *SAMPLED])
    check(ids, [*HELLO, ANSWER], [np.array(SAMPLED)])()
    with pytest.raises(InputError, match=r"^ids must be a flat sequence of integers.* not ndarray"):
        check(ids[None], [*HELLO, ANSWER], [SAMPLED])()
    with pytest.raises(InputError, match=r"^ids must be a flat sequence"):
        check("12", [*HELLO, ANSWER], [SAMPLED])()


def test_a_render_that_returns_a_dict_is_an_error() -> None:
    """As `apply_chat_template` of transformers 5 does, unless it is asked with `return_dict=False`."""
    with pytest.raises(InputError, match=r"^what render returns must be a flat sequence of .* not dict"):
        check(PROMPT, HELLO, [], lambda messages, **_: {"input_ids": PROMPT, "messages": messages})()


def test_sampled_has_an_entry_for_each_assistant_message() -> None:
    with pytest.raises(InputError, match=r"sampled has 1 entries for 2 assistant messages \(at \[1, 3\]\)"):
        check(PROMPT, [*HELLO, ANSWER, MORE, ANSWER], [SAMPLED])()
    with pytest.raises(InputError, match="SampledTurn has 1 logprobs for 2 ids"):
        SampledTurn([1, 2], [0.5])


def render_of(toy: str) -> Any:
    """Return a toy's render without its knowledge of where texts stand."""
    return toy_named(toy).__call__


@pytest.mark.parametrize(
    ("toy", "why"),
    [
        ("repeats_answer", "writes the text of messages\\[1\\] more than once"),
        ("prints_length", "depends on its text"),
        ("truncating", "drops the text of messages\\[1\\]"),
    ],
)
def test_what_cannot_be_seen_is_an_error_of_its_own(toy: str, why: str) -> None:
    with pytest.raises(CannotLocateError, match=why):
        check([1], [*HELLO, ANSWER, MORE], [SAMPLED], render_of(toy))()


def test_a_toy_that_drops_a_message_cannot_be_judged() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    with pytest.raises(CannotLocateError, match=r"<toy strings_only> drops messages\[1\], or"):
        check([1], [*HELLO, ANSWER, parts], [SAMPLED], toy_named("strings_only"))()


def test_a_template_that_rejects_the_conversation_says_so_itself() -> None:
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        check([1], [*HELLO, *HELLO], [], toy_named("alternating"))()


def test_one_token_over_the_end_of_every_text_cannot_be_judged() -> None:
    def merging(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return [
            ord(text) for text in CHATML.decode(plain(messages, add_generation_prompt=add_generation_prompt))
        ]

    def decode(ids: Sequence[int]) -> str:
        """Return texts of two characters each, so that half of all ends are inside of one."""
        return "".join(map(chr, ids[: len(ids) - len(ids) % 2]))

    with pytest.raises(CannotLocateError, match=r"messages\[1\].*(one token|depend)"):
        assert_token_exact([1], [*HELLO, ANSWER, MORE], [SAMPLED], merging, decode)

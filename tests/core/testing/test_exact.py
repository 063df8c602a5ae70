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
        ([*PROMPT, *SAMPLED, *SEAM[:-1]], Mistake.GENERATION_PROMPT),
        ([*PROMPT, *SAMPLED, *SEAM[:-3]], Mistake.GENERATION_PROMPT),
        ([*PROMPT, *SAMPLED, *SEAM[:-3], *SEAM[-2:]], Mistake.SEAM),
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


@pytest.mark.parametrize("before", [[], [ANSWER, MORE]])
def test_a_mistake_in_the_last_turn_of_a_row_is_no_new_render(before: Chat) -> None:
    start = CHATML([*HELLO, *before], add_generation_prompt=True)
    messages, sampled = [*HELLO, *before, ANSWER], [*[None] * (len(before) // 2), SAMPLED]
    for last, mistake in {
        tuple(SAMPLED[:-1]): Mistake.TURN_CHANGED,
        tuple(SAMPLED[1:]): Mistake.TURN_CHANGED,
        tuple(CHATML.encode("ab<|im_end|>")): Mistake.RERENDERED,
    }.items():
        assert failure(check([*start, *last], messages, sampled)).mistake is mistake


def test_a_prompt_that_ends_early_lacks_its_generation_prompt_and_not_a_message() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "ab"}]}
    for size, mistake in {0: Mistake.MESSAGE_DROPPED, -1: Mistake.GENERATION_PROMPT}.items():
        kept = [*PROMPT, *SAMPLED, *SEAM[:size]]
        assert failure(check(kept, [*HELLO, ANSWER, parts], [SAMPLED])).mistake is mistake


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


@pytest.mark.parametrize("name", ["mask", "logprobs"])
@pytest.mark.parametrize("size", [0, 1, 2, 4, 12, 14])
def test_the_number_of_values_is_told(name: str, size: int) -> None:
    ids = [*PROMPT, *SAMPLED]
    error = failure(check(ids, [*HELLO, ANSWER], [SAMPLED], **{name: [0.0] * size}))
    assert error.mistake is Mistake[name.upper()]
    said = (
        f"{name} has {size} value{'s' * (size != 1)} for 13 ids: give one for each, or one for each of the 3"
    )
    assert str(error).replace("\n", " ").endswith(f"{said} after the first prompt")


def test_pytest_shows_the_lines_of_the_test() -> None:
    """The file is the one that this test was compiled from, which a copy of the project keeps."""
    here = test_pytest_shows_the_lines_of_the_test.__code__.co_filename
    row = ([*PROMPT, *SAMPLED], [*HELLO, ANSWER], [SAMPLED])
    for wrong in (
        check([], *row[1:]),
        check(None, *row[1:]),
        check([*row[0], 1], *row[1:]),
        check(*row, mask=[]),
        check(*row, logprobs=[]),
        check(row[0], row[1], []),
    ):
        with pytest.raises((NotTokenExactError, InputError)) as raised:
            wrong()
        assert {str(entry.path) for entry in raised.traceback.filter(raised)} == {here}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"messages": []}, "messages is empty: give the conversation"),
        (
            {"messages": ["Hi"]},
            r"messages\[0\] is 'Hi': give a mapping such as .*\(the order is ids, messages",
        ),
        ({"messages": "Hi"}, r"messages\[0\] is 'H': give a mapping"),
        ({"messages": None}, "messages is None: give a list of messages"),
        ({"messages": [{"content": "Hi"}]}, r"messages\[0\] has no role: give a mapping such as"),
        (
            {"ids": HELLO, "messages": PROMPT},
            r"messages\[0\] is 1: give a mapping .*\(the order is ids, mess",
        ),
        ({"ids": HELLO}, "ids must be a flat sequence of integers"),
        ({"sampled": None}, "sampled is None: give a list with an entry for each assistant message"),
        ({"sampled": [5]}, r"sampled\[0\] must be a flat sequence of integers"),
        ({"render": None}, "render is None: give a function .* such as a toy"),
        ({"decode": "x"}, "decode is 'x': give a function .* such as toy.decode"),
        ({"stop_ids": 2}, "stop_ids must be a flat sequence of integers"),
        ({"mask": [[0, 1]]}, "mask is a list: give a flat list of numbers, one for each id"),
        ({"logprobs": 0.5}, "logprobs is 0.5: give a flat list of numbers"),
        ({"logprobs": ["no"]}, "logprobs is a list: give a flat list of numbers"),
    ],
)
def test_an_argument_of_another_kind_is_named(given: dict[str, Any], error: str) -> None:
    right: dict[str, Any] = {
        "ids": [*PROMPT, *SAMPLED],
        "messages": [*HELLO, ANSWER],
        "sampled": [SAMPLED],
        "render": plain,
        "decode": CHATML.decode,
    }
    with pytest.raises(InputError, match=f"^{error}"):
        assert_token_exact(**right | given)


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
    with pytest.raises(InputError, match="truncated is 'x': give True or False"):
        SampledTurn([1, 2], truncated="x")  # type: ignore[arg-type]  # as a caller without types may
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

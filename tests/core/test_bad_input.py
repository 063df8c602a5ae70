"""Every wrong input has a defined answer: a typed error for a mistake, a refusal for what cannot be."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from tests.core import example
from tito_core import (
    InputError,
    Message,
    Reason,
    Refusal,
    SamplingMask,
    Step,
    Stitched,
    TokenizeError,
    answer,
    render_key,
    stitch,
    stitch_questions,
    suffix_ids,
)
from tito_core.normalization.compare import same
from tito_core.seams.probe import probe
from tito_core.seams.profile import Profile

SUFFIX = (example.CLOSE,)


def refused(*args: Any, **more: Any) -> Refusal:
    found = answer(stitch_questions(*args, **more), example.tokenize)
    assert isinstance(found, Refusal)
    return found


@pytest.mark.parametrize(
    "outage", [ConnectionError("down"), StopIteration(3), KeyError("x"), GeneratorExit()]
)
def test_errors_of_tokenize_fn_are_raised_unchanged(outage: BaseException) -> None:
    step = example.step()

    def down(*_: object, **__: object) -> list[int]:
        raise outage

    with pytest.raises(type(outage)) as caught:
        stitch([step], example.prompt(step), SUFFIX, down)
    assert caught.value is outage


def test_an_empty_prompt_is_a_refusal() -> None:
    assert refused([example.step()], [], SUFFIX).reason is Reason.NO_PREFIX


def test_a_suffix_longer_than_the_text_makes_no_id() -> None:
    cut, long = example.step(truncated=True, sampled=[900]), [example.CLOSE] * 99
    assert refused([cut], example.prompt(cut), long).reason is Reason.CLOSE_MISMATCH
    step = example.step()  # it sampled its close, which is where the template goes on
    assert stitch([step], example.prompt(step), long, example.tokenize) == [
        *step.ids,
        *example.tokenize([example.user("more")], add_generation_prompt=True),
    ]


def test_other_tools_are_a_refusal() -> None:
    step = example.step(key=render_key([{"name": "a"}]))
    found = refused([step], example.prompt(step), SUFFIX, key=render_key([{"name": "b"}]))
    assert found == Refusal(Reason.RENDERED_DIFFERENTLY, "the step of 2 messages has another key")


def test_the_step_with_the_right_key_is_used_among_equals() -> None:
    ours, theirs = example.step(key="a", sampled=[900, 2]), example.step(key="b", sampled=[901, 2])
    for trajectory in ([ours, theirs], [theirs, ours]):
        found = answer(stitch_questions(trajectory, example.prompt(ours), SUFFIX, key="a"), example.tokenize)
        assert isinstance(found, Stitched)
        assert found.step is ours


def test_media_under_a_key_that_is_no_identity_are_seen() -> None:
    step = example.step()
    echoed = [{**step.messages[0], "audio": {"id": "x"}}, step.messages[1], example.user("more")]
    assert refused([step], echoed, SUFFIX).reason is Reason.MULTIMODAL


def test_a_step_that_does_not_end_with_the_assistant_is_a_refusal() -> None:
    step = Step(prompt=[example.user()], completion=[example.user("x")], prompt_ids=[1], completion_ids=[2])
    assert refused([step], [*step.messages, example.user()], SUFFIX).reason is Reason.NOT_ASSISTANT
    bare = Step(prompt=[example.user()], completion=[], prompt_ids=[1], completion_ids=[2])
    assert refused([bare], [*bare.messages, example.user()], SUFFIX).reason is Reason.NOT_ASSISTANT


class Elsewhere:
    """Compares as arrays do."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]  # never a key


def test_a_value_that_cannot_be_compared_is_named() -> None:
    step = example.step()
    for content in (Elsewhere(), [Elsewhere()]):
        wrong = example.user(content)  # type: ignore[arg-type]  # the error under test
        with pytest.raises(InputError, match=r"^prompt\[0\] holds a Elsewhere: convert it"):
            stitch([step], [wrong, example.assistant(), example.user("b")], SUFFIX, example.tokenize)


@pytest.mark.parametrize(
    "arguments",
    ['{"a":' * 5000 + "1" + "}" * 5000, "[" * 100_000, '{"a": NaN}', "9" * 9999],
)
def test_arguments_that_cannot_be_read_stay_text(arguments: str) -> None:
    def calling(text: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": text}
        return {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}

    assert same(calling(arguments), calling(arguments)) == frozenset()
    assert same(calling(arguments), calling(arguments + " ")) is None


@pytest.mark.whole
def test_ten_thousand_messages_and_ten_megabytes_do_not_hang() -> None:
    long = [example.user(f"question {i}") for i in range(10_000)]
    big = example.user("x" * 10_000_000)
    step = example.step([*long, big], prompt_ids=[1, 2, 3])
    near = [example.step([*long[:-1], example.user("other"), big], prompt_ids=[1, 2, i]) for i in range(20)]
    started = time.process_time()
    assert stitch([*near, step], example.prompt(step), SUFFIX, example.tokenize)
    assert stitch(near, example.prompt(step), SUFFIX, example.tokenize) is None
    assert time.process_time() - started < 20  # hanging is minutes; this is no measurement


async def awaited(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize(
    ("tokenize_fn", "kind", "expected"),
    [
        (None, InputError, r"^tokenize_fn is None: give a function from messages to ids$"),
        (awaited, TokenizeError, r"^tokenize_fn is async: await AsyncBridge"),
        (
            lambda *_, **__: {"input_ids": [1]},
            TokenizeError,
            r"a mapping: give the list in it, .* input_ids$",
        ),
        (lambda *_, **__: [[1, 2]], TokenizeError, r"a batch: give the list of one conversation's ids$"),
        (lambda *_, **__: np.array([[1, 2]]), TokenizeError, r"\[0\] is array\(\[1, 2\]\): an id is a whole"),
    ],
)
def test_an_invalid_tokenize_fn_is_named(tokenize_fn: Any, kind: type[Exception], expected: str) -> None:
    step = example.step()
    with pytest.raises(kind, match=expected):
        stitch([step], example.prompt(step), (example.CLOSE,), tokenize_fn)


class Knows:
    """Has one of the three things that the kernel needs of a profile."""

    known_tail_questions = print


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"key": 5}, r"^key is 5: give the string that render_key made"),
        ({"profile": {}}, r"^profile is a dict: "),
        ({"profile": Profile}, r"^profile is <class "),
        ({"profile": Knows()}, r"^profile is <tests"),
        ({"policy": 10**5000}, r"^policy is a number of thousands of digits: "),
    ],
)
def test_an_invalid_choice_is_named(given: dict[str, Any], expected: str) -> None:
    step = example.step()
    with pytest.raises(InputError, match=expected):
        stitch([step], example.prompt(step), (example.CLOSE,), example.tokenize, **given)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Profile(suffix=cast("Any", "ab")), r"^suffix must be a sequence of ids, not str: "),
        (
            lambda: Profile(suffix=cast("Any", suffix_ids)),
            r"^suffix must be a sequence of ids, not function: call it, as in suffix_ids\(tokenize\)$",
        ),
        (
            lambda: SamplingMask.of(cast("Any", [[7], 5])),
            r"^kept is .*7.*5.*: give a list of ids or None",
        ),
        (lambda: SamplingMask.of(cast("Any", [0])), r"^kept is \[0\]: give a list of ids or None"),
        (lambda: SamplingMask.of(cast("Any", 7)), r"^kept is 7: give a list of ids or None"),
        (lambda: Profile(suffix=(-1,)), r"^suffix\[0\] is -1: "),
        (lambda: Profile(suffix=(2,), stop_ids=cast("Any", "ab")), r"^stop_ids must be a sequence of ids"),
        (lambda: probe(unasked, cast("Any", "ab")), r"^stop_ids must be a sequence of ids"),
        (lambda: render_key(cast("Any", "find")), r"^tools is 'find': give a list of tools, or None$"),
        (lambda: render_key(cast("Any", {})), r"^tools is a dict: give a list of tools, or None$"),
        (lambda: render_key([], cast("Any", [])), r"^template_args is a list: give an object, or None$"),
    ],
)
def test_invalid_template_arguments_are_named(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make()


def unasked(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    pytest.fail(f"asked for {messages}, {add_generation_prompt=}")

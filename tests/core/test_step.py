"""A step is checked once and shares what it is made of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import example
from tito_core import (
    Ids,
    InputError,
    Ledger,
    Messages,
    Origin,
    Step,
)


def test_a_step_of_shared_parts_has_all_of_its_ids() -> None:
    """A completion may be a chain itself, of ids or of messages."""
    sampled, assistant = (
        Ids.of([900]).then((example.CLOSE,)),
        Messages.of([example.assistant()]).then([example.assistant("b")]),
    )
    step = example.step()
    made = Step(prompt=step.prompt, completion=assistant, prompt_ids=step.prompt_ids, completion_ids=sampled)
    assert made.ids == [*step.prompt_ids, 900, example.CLOSE]
    assert made.messages == [*step.prompt, example.assistant(), example.assistant("b")]


def test_a_step_is_shown_in_short() -> None:
    assert repr(example.step()) == "Step(1 + 1 messages, 7 + 3 ids)"
    assert repr(example.step(truncated=True)) == "Step(1 + 1 messages, 7 + 3 ids, truncated)"
    assert example.step().stop == example.CLOSE
    assert example.step(truncated=True).stop is None
    assert example.step(sampled=[]).stop is None
    assert example.step(logprobs=[-1.0, None, 0]).logprobs == (-1.0, None, 0)


def test_a_log_probability_that_was_rounded_up_is_zero() -> None:
    """Engines round: a certain id may come with slightly more than 0."""
    assert example.step(logprobs=[1e-7, -0.5, 1e-3]).logprobs == (0.0, -0.5, 0.0)
    assert example.step(logprobs=[None, 1e-7, float("-inf")]).logprobs == (None, 0.0, float("-inf"))


def made(**wrong: Any) -> Step:
    right: dict[str, Any] = {
        "prompt": [example.user()],
        "completion": [example.assistant()],
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4],
    }
    return Step(**(right | wrong))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"logprobs": [-0.5]}, "logprobs has length 1 for 2 completion_ids"),
        ({"logprobs": ["a", "b"]}, r"logprobs\[0\] is 'a'"),
        ({"logprobs": [True, 0.0]}, r"logprobs\[0\] is True"),
        ({"logprobs": [0.0, float("nan")]}, r"logprobs\[1\] is nan: give a number or None"),
        ({"logprobs": [-0.5, 7.5]}, r"logprobs\[1\] is 7.5, above 0: give the natural logarithms"),
        ({"logprobs": [None, 0.0011]}, r"logprobs\[1\] is 0.0011, above 0"),
        ({"logprobs": [1, 0.0]}, r"logprobs\[0\] is 1, above 0"),
        ({"logprobs": [0.0, float("inf")]}, r"logprobs\[1\] is inf, above 0"),
        ({"logprobs": 5}, "logprobs must be a list"),
        ({"prompt_ids": [1, -2]}, r"prompt_ids\[1\] is -2"),
        ({"completion_ids": "77"}, "completion_ids must be a sequence of ids, not str"),
        ({"prompt": "hi"}, "prompt must be a list of messages, not str"),
        ({"prompt": [{"content": "x"}]}, r"prompt\[0\] has no role"),
        ({"completion": [None]}, r"completion\[0\] must be a message"),
        ({"truncated": "yes"}, "truncated is 'yes': give bool"),
        ({"truncated": None}, "truncated is None: give bool"),
        ({"key": 5}, "key is 5: give str or NoneType"),
        ({"prompt_ids": [10**5000]}, r"prompt_ids\[0\] is a number of thousands of digits"),
        ({"prompt_ledger": None}, "prompt_ledger is None: give Ledger"),
        ({"prompt_ledger": [(Origin.PROMPT, 2)]}, r"prompt_ledger is a list: give Ledger"),
        ({"logprobs": "ab"}, "logprobs must be a list of numbers, not str"),
        ({"prompt_ledger": Ledger.prompt(3)}, "prompt_ledger covers 3 ids, prompt_ids has 2"),
        ({"prompt_ledger": Ledger.prompt(1 << 63)}, "prompt_ledger covers 9223372036854775808 ids"),
    ],
)
def test_a_step_names_what_is_wrong_with_it(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(**wrong)

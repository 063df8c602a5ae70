"""The judges are judged first: with lying toys, or an oracle that knows nothing, every law would pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import Policy
from tito_core.testing.readings import unwrapped
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.respelling import respelled
from tito_core.testing.strategies.sampled import sampled_words
from tito_core.testing.strategies.stitch_input import ANY_INPUT, StitchInput
from tito_core.testing.tails import true_tails
from tito_core.testing.toys import LOCAL_TOYS, TOYS, Toy, toy_named
from tito_core.testing.toys.tokenizer import Tokenizer

chatml, grouped, harmony, markers, plain_merged_header, strings_only, thinking = map(
    toy_named, ("chatml", "grouped", "harmony", "markers", "plain_merged_header", "strings_only", "thinking")
)

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
EACH_FAMILY = pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)


@EACH_FAMILY
@given(text=st.text(alphabet="ab\n<|im_end>🙂", max_size=12), mask=st.integers(0, 15))
@tries(1 / 3)
def test_a_toy_tokenizer_loses_no_text(toy: Toy, text: str, mask: int) -> None:
    tokenizer = toy.tokenizer
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode_split(text, mask)) == text
    assert tokenizer.encode_split(text, 0) == tokenizer.encode(text)


def test_a_model_may_sample_other_ids_for_the_same_text() -> None:
    """Otherwise re-rendering would do no harm, and nothing here would be needed."""
    chat = [USER, {"role": "assistant", "content": "ab"}]
    assert sampled_words(chatml, chat, 1) != sampled_words(chatml, chat, 0)


def test_a_special_string_in_a_message_becomes_the_special_id() -> None:
    tokenizer = Tokenizer(specials=("<|end|>",), merges=("ab",))
    assert tokenizer.encode("ab<|end|>") == [50, 1]


@pytest.mark.parametrize(
    "toy", [toy for toy in LOCAL_TOYS if toy is not plain_merged_header], ids=lambda toy: toy.name
)
def test_the_close_of_a_toy_is_what_it_writes(toy: Toy) -> None:
    tails = true_tails(toy, [USER, ANSWER, USER], 2)
    assert tails
    assert all(tail[: len(toy.suffix)] == toy.suffix for tail in tails)


def test_the_true_tail_is_read_off_the_full_render() -> None:
    prompt = [USER, ANSWER, USER]
    for toy, text in {
        chatml: "<|im_end|>\n<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n",
        markers: "<|user|>\nq<|assistant|>",
        harmony: "<|end|><|start|>user<|message|>q<|end|><|start|>assistant",
    }.items():
        assert true_tails(toy, prompt, 2) == [tuple(toy.tokenizer.encode(text))]


def test_a_dropped_message_has_no_true_tail_unless_another_form_is_rendered() -> None:
    """One part can be said as its string; an image cannot."""
    full_text = {"role": "user", "content": [{"type": "text", "text": "q"}]}
    assert true_tails(strings_only, [USER, ANSWER, full_text], 2) == true_tails(
        chatml, [USER, ANSWER, USER], 2
    )


def test_each_toy_has_its_quirk() -> None:
    """A template that drops thinking drops it, one that groups results groups them."""
    thought = ANSWER | {"reasoning_content": "t"}
    assert "t<" not in thinking.page([USER, thought, USER], add_generation_prompt=True).text
    results = [{"role": "tool", "tool_call_id": str(number), "content": "r"} for number in (1, 2)]
    assert (
        grouped.page([USER, ANSWER, *results], add_generation_prompt=True).text.count("<|im_start|>user") == 2
    )


@given(ANY_INPUT)
@tries(2)
def test_a_message_respelled_is_the_same_for_the_oracle(stitch_input: StitchInput) -> None:
    for number in (5, 1_234_567):
        assert all(
            oracle.same_message(one, respelled(Choices(number), unwrapped(one)))
            for one in stitch_input.prompt
        )


@given(CHOICES)
def test_choices_stay_within_their_options(choices: Choices) -> None:
    assert all(choices.pick(range(faces)) in range(faces) for faces in (1, 2, 3, 7, 50))


def test_enough_drawn_inputs_can_be_stitched() -> None:
    """Of the drawn questions a good part has a right answer, and a good part has none."""
    seen = {True: 0, False: 0}

    @given(ANY_INPUT)
    @tries(3)
    def count(stitch_input: StitchInput) -> None:
        right = oracle.answers(
            stitch_input.toy,
            stitch_input.steps,
            stitch_input.prompt,
            stitch_input.suffix,
            Policy(),
            stitch_input.key,
        )
        seen[bool(right)] += 1

    count()
    assert min(seen.values()) > 0.05 * sum(seen.values())

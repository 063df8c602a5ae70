"""The smallest cases of what the model found wrong in the kernel."""

from __future__ import annotations

from tests.model.compare.quirks import Family, Quirky
from tests.model.tokenizers import Tokenizer
from tito_core import Bridge, Extension, Reason, Refusal
from tito_core.testing.toys import toy_named

CALL = {"id": "callaaaa1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TURN = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "callaaaa1", "content": "7"}


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

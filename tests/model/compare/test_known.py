"""The smallest cases of what the model found wrong in the kernel."""

from __future__ import annotations

import pytest

from tests.model.compare.quirks import Family, Quirky
from tests.model.messages import Message
from tests.model.tokenizers import Tokenizer
from tito_core import Bridge, Extension, OddStop, Policy, Reason, Refusal
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

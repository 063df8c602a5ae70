"""Next prompts for frameworks: built from ids, refused and counted."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tito_core import Extension, InputError, Refusal
from tito_io.embedded import write_family
from tito_io.integrations.next_prompts import NextPrompts, RefusedError

HELLO = {"role": "user", "content": "Hello."}
AGAIN = {"role": "user", "content": "And in Rome?"}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}


def ids_of(prompts: NextPrompts, tools: Any = None) -> list[int]:
    """Return the ids of a prompt and of a sampled turn."""
    return [*prompts.family.ids([HELLO], tools=tools, add_generation_prompt=True), 57, 1517]


def test_ids_are_extended_and_counted(tokenizer: Any) -> None:
    prompts = NextPrompts.of(tokenizer)
    for tools in (None, [TOOL], []):
        ids = ids_of(prompts, tools)
        found = prompts.extend(ids, [AGAIN], tools=tools)
        assert isinstance(found, Extension)
        assert found.ids.tolist()[: len(ids)] == ids
    assert prompts.built["ids"] == 3
    assert not prompts.refused


@pytest.mark.parametrize("choice", ["rerender", "end"])
def test_a_refusal_is_returned_counted_and_logged(
    tokenizer: Any, choice: Any, caplog: pytest.LogCaptureFixture
) -> None:
    prompts = NextPrompts.of(tokenizer, on_refusal=choice)
    with caplog.at_level(logging.WARNING, "tito.integrations"):
        assert isinstance(prompts.extend(ids_of(prompts), []), Refusal)
    assert dict(prompts.refused) == {"NOTHING_NEW": 1}
    assert f"NOTHING_NEW: there are no new messages ({choice})" in caplog.text


def test_a_refusal_may_raise(tokenizer: Any) -> None:
    prompts = NextPrompts.of(tokenizer)
    with pytest.raises(RefusedError, match=r"NOTHING_NEW: .*: there are no new messages"):
        prompts.extend(ids_of(prompts), [])
    assert prompts.refused["NOTHING_NEW"] == 1


def test_a_template_that_rejects_everything_is_a_refusal(tokenizer: Any) -> None:
    prompts = NextPrompts.of(
        tokenizer, template="{{ raise_exception('no messages, please') }}", on_refusal="end"
    )
    found = prompts.extend([1, 2, 3], [AGAIN])
    assert isinstance(found, Refusal)
    assert "no messages, please" in found.detail


def test_images_are_refused(tokenizer: Any) -> None:
    prompts = NextPrompts.of(tokenizer, on_refusal="rerender")
    image = {"role": "user", "content": [{"type": "image", "image": "cat.png"}]}
    assert isinstance(prompts.extend(ids_of(prompts), [image]), Refusal)
    assert dict(prompts.refused) == {"MULTIMODAL": 1}


def test_a_tokenizer_without_a_template_is_named(tmp_path: Path) -> None:
    bare = AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))
    bare.chat_template = None
    with pytest.raises(InputError, match="has no chat template: set its chat_template"):
        NextPrompts.of(bare)


def test_another_choice_is_named(tokenizer: Any) -> None:
    with pytest.raises(InputError, match="on_refusal is 'ignore': give 'rerender' or 'end' or 'raise'"):
        NextPrompts.of(tokenizer, on_refusal="ignore")  # type: ignore[arg-type]  # what a caller may get wrong


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"policy": "keep"}, "policy is 'keep': give a Policy, such as"),
        ({"stop_ids": []}, "stop_ids is empty: give the ids that end a turn"),
        ({"template": "tool_use"}, "template is 'tool_use': give the text .* which has no names"),
    ],
)
def test_a_malformed_argument_is_named(tokenizer: Any, given: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        NextPrompts.of(tokenizer, **given)


def test_a_template_is_chosen_by_its_name(tmp_path: Path) -> None:
    several = AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))
    several.chat_template = {"default": several.chat_template, "plain": "{{ messages[0].content }}"}
    assert several.decode(NextPrompts.of(several, template="plain").render([HELLO])) == "Hello."
    with pytest.raises(InputError, match=r"template is 'plan': .* which has default, plain"):
        NextPrompts.of(several, template="plan")


def test_a_variable_without_effect_is_logged(tokenizer: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tito.integrations"):
        NextPrompts.of(tokenizer, template_args={"enable_thinking": False})
        assert not caplog.text
        NextPrompts.of(tokenizer, template_args={"thinking": False})  # a part of a name is no name
    assert "thinking: the chat template has no such variable, so that it has no effect" in caplog.text


def test_a_first_prompt_with_an_image_is_rejected(tokenizer: Any) -> None:
    image = {"role": "user", "content": [{"type": "image", "image": "cat.png"}]}
    with pytest.raises(InputError, match="messages: there are images or other media"):
        NextPrompts.of(tokenizer).render([HELLO, image])

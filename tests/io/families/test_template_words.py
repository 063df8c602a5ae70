"""The words that a template looks for in messages, of own templates and of real ones."""

from pathlib import Path

import pytest

from tests.io.families.family_folder import tiny_folder
from tests.io.families.template_texts import TEXTS
from tests.model_folders import FAMILIES, NAMES
from tito_core.questions import words_of
from tito_io.client import InThread
from tito_io.families import Family
from tito_io.families.template_words import words_in

COUNTS_FAILURES = (
    "{%- set seen = namespace(bad=0) -%}{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- if m.role == 'tool' and 'failed:' in m.content[:40] -%}"
    "{%- set seen.bad = seen.bad + 1 -%}{%- endif -%}"
    "{%- if seen.bad > 1 %} (again){% endif -%}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
LOOP = "{%% for m in messages %%}%s{%% endfor %%}"


@pytest.mark.parametrize(("inside", "words"), TEXTS["words"])
def test_words_that_a_template_looks_for(inside: str, words: list[str]) -> None:
    assert words_in([LOOP % inside]) == tuple(words)


def test_a_macro_looks_for_words_in_what_it_is_given() -> None:
    macro = "{% macro show(text, more='') %}{{ 'oh' in text }}{{ 'ah' in more }}{% endmacro %}"

    assert words_in([macro + LOOP % "{{ show(m.content) }}"]) == ("oh",)
    assert words_in([macro + LOOP % "{{ show('', more=m.content) }}"]) == ("ah",)
    assert words_in([macro + LOOP % "{{ show(tools) }}"]) == ()


def test_words_of_several_templates_are_each_named_once() -> None:
    one, two = (LOOP % f"{{{{ '{word}' in m.content }}}}" for word in ("a", "b"))

    assert words_in([one, two, one]) == ("a", "b")
    assert words_in([]) == ()
    assert words_in(["{% if %}"]) == ()


def test_functions_of_a_family_and_its_profiles_have_the_words(tmp_path: Path) -> None:
    family = Family.load(tiny_folder(tmp_path, COUNTS_FAILURES))
    words = ("failed:",)

    assert words_of(family.tokenize_fn()) == words
    assert words_of(InThread(family.tokenize_fn())) == words
    assert family.profile().words == words
    assert family.rendering().grown_profile().words == words


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("qwen3", ("</think>", "<tool_response>", "</tool_response>", "<think>")),
        ("deepseek-v3", ("</think>",)),
        ("smollm3", ("/system_override",)),
        ("llama3", ()),
        ("gemma3", ()),
        ("mistral-tekken", ()),
    ],
)
def test_words_of_real_templates(name: str, words: tuple[str, ...]) -> None:
    if name not in NAMES:
        pytest.skip("needs model folders: TITO_FAMILIES=DIR")
    family = Family.load(FAMILIES / name)

    assert family.tokenize_fn().template_words == words

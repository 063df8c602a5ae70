"""Which variable switches reasoning is found by rendering, whatever the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_folders import FAMILIES, needs_families
from tito_core import render_key
from tito_io.embedded import family
from tito_io.families.family import Family
from tito_io.families.folder import Source
from tito_io.families.thinking_switches import ThinkingSwitches
from tito_io.thinking import EFFORT, SWITCHES, switched, under_all_names, with_effort

HELLO = [{"role": "user", "content": "hi"}]
LOOP = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
OFF, ON = (under_all_names({"thinking": on}) for on in (False, True))


def templated(ending: str) -> Family:
    """Return a family whose prompts end so."""
    return family().with_templates({"default": Source(LOOP + ending, "chat_template.jinja")})


ENDINGS: dict[str, tuple[str, set[str], bool]] = {
    "Qwen3": (
        "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}",
        {"enable_thinking"},
        False,
    ),
    "Kimi K2.5": (
        "{{ '<think></think>' if thinking is defined and thinking is false }}",
        {"thinking"},
        False,
    ),
    "MiniMax M3": ("{{ '<mm:think>' if thinking_mode == 'enabled' }}", {"thinking_mode"}, False),
    "gpt-oss": ("Reasoning: {{ reasoning_effort | default('medium') }}", {EFFORT}, False),
    "Cohere 2": ("{{ '' if reasoning_effort | default('') == 'none' else '<think>' }}", {EFFORT}, True),
    "strict": (
        "{{ reasoning_effort if reasoning_effort in ['none', 'high'] else raise_exception('no') }}",
        {EFFORT},
        True,
    ),
    "names without use": (
        "{% if false %}{{ thinking }}{{ enable_thinking }}{% endif %}{# reasoning_effort #}",
        set(),
        False,
    ),
    "with tools alone": ("{{ '<think>' if tools and thinking }}", {"thinking"}, False),
}
"""Ends of templates, the names that they read, and whether the effort `none` switches."""


@pytest.mark.parametrize("name", ENDINGS)
def test_what_changes_a_prompt_is_read(name: str) -> None:
    ending, read, switches = ENDINGS[name]
    assert ThinkingSwitches.of(templated(ending)) == ThinkingSwitches(frozenset(read), switches)


@pytest.mark.parametrize(
    "name", [name for name in ENDINGS if ENDINGS[name][1] - {EFFORT} or ENDINGS[name][2]]
)
@pytest.mark.parametrize("spelled", [*SWITCHES, EFFORT])
def test_a_wish_under_any_name_reaches_the_variable_that_is_read(name: str, spelled: str) -> None:
    """A client of one vendor's API switches off the reasoning of another vendor's model."""
    template = templated(ENDINGS[name][0])
    switches = ThinkingSwitches.of(template)
    given = {spelled: "none"} if spelled == EFFORT else {spelled: SWITCHES[spelled][0]}
    asked = with_effort(under_all_names(given))
    (variable,) = ENDINGS[name][1]
    right = {variable: "none" if variable == EFFORT else SWITCHES[variable][0]}
    assert switches.reaching(asked) == right
    assert [*switches.unread(asked)] == []


@pytest.mark.parametrize(
    ("name", "args", "unread"),
    [
        ("gpt-oss", OFF, ["thinking"]),  # it has no word for none
        ("gpt-oss", with_effort({EFFORT: "low"}), []),
        ("Qwen3", with_effort({EFFORT: "low"}), [EFFORT]),  # reasoning is on, but not how much
        ("Qwen3", with_effort({EFFORT: "none"}), []),
        ("Qwen3", {**OFF, EFFORT: "low"}, [EFFORT]),
        ("names without use", OFF, ["thinking"]),
        ("names without use", with_effort({EFFORT: "none"}), [EFFORT]),
        ("names without use", {**OFF, EFFORT: "low"}, [EFFORT, "thinking"]),
        ("names without use", {"other": 1}, []),
    ],
)
def test_a_wish_of_which_nothing_is_read_is_named(name: str, args: dict[str, Any], unread: list[str]) -> None:
    assert [*ThinkingSwitches.of(templated(ENDINGS[name][0])).unread(args)] == unread


@given(
    st.dictionaries(
        st.sampled_from([*SWITCHES, EFFORT, "a"]),
        st.sampled_from([True, False, "none", "disabled", "enabled", 0]),
    )
)
def test_arguments_of_the_client_s_own_are_never_changed(args: dict[str, Any]) -> None:
    found = with_effort(under_all_names(args))
    assert {name: found[name] for name in args} == args
    assert under_all_names(found) == found
    effort_alone = switched(args) is None and EFFORT in args and not SWITCHES.keys() <= args.keys()
    assert switched(found) is (args[EFFORT] != "none" if effort_alone else switched(args))


def test_a_switch_that_is_read_changes_the_key_of_a_rendering_and_no_other_does() -> None:
    for name, changes in (("Qwen3", True), ("names without use", False)):
        switches = ThinkingSwitches.of(templated(ENDINGS[name][0]))
        keys = {render_key((), switches.reaching(args)) for args in (OFF, ON)}
        assert (len(keys) > 1) is changes


READ: dict[str, set[str]] = {
    "deepseek-v3/chat_template.v3.1.jinja": {"thinking"},
    "kimi-k2/chat_template.miles_k2.5_fixed.jinja": {"thinking"},
    "qwen3/chat_template.jinja": {"enable_thinking"},
    "glm4.5/chat_template.jinja": {"enable_thinking"},
    "gpt-oss/chat_template.jinja": {EFFORT},
    "smollm3/chat_template.jinja": {"enable_thinking"},
    "llama3/chat_template.jinja": set(),
    "nemotron3/chat_template.nano-v2.jinja": set(),  # its switch is a word of the system text
    "extra_templates/Cohere2MoE.jinja": {EFFORT},
    "extra_templates/ibm-granite-granite-3.3-2B-Instruct.jinja": {"thinking"},
}


@needs_families
@pytest.mark.parametrize("name", READ)
def test_what_real_templates_read(name: str) -> None:
    source = Source((FAMILIES / name).read_text(), name)
    assert ThinkingSwitches.of(family().with_templates({"default": source})).read == READ[name]

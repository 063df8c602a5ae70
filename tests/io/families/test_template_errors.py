"""An error is a template's refusal if the template's code raised it, and stays what it is otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tests.io.families.family_folder import reference, tiny_folder
from tests.io.families.template_texts import TEXTS
from tito_core import TemplateRefused, suffix_ids
from tito_io.families import Family
from tito_io.families.template_errors import template_refusal

USER = {"role": "user", "content": "hello"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("tokenizer"), "{{ messages[0].content }}")


@pytest.mark.parametrize("name", TEXTS["failing"])
def test_what_the_templates_code_raises_is_its_refusal(name: str, folder: Path) -> None:
    source, said = TEXTS["failing"][name]
    tokenize = Family.of(reference(folder), template="\n\n" + source).tokenize_fn()
    with pytest.raises(TemplateRefused, match=f"^chat template, line 3: {said}") as caught:
        tokenize([USER], add_generation_prompt=True)
    assert caught.value.__cause__ is not None


def test_a_template_that_rejects_everything_is_refused_and_not_an_error_of_jinja(folder: Path) -> None:
    family = Family.of(reference(folder), template="{{ raise_exception('never') }}")
    with pytest.raises(TemplateRefused, match="line 1: TemplateError: never"):
        suffix_ids(family.tokenize_fn())


def test_a_template_that_does_not_compile_rejects_nothing(folder: Path) -> None:
    family = Family.of(reference(folder), template="a\n{% if %}")
    with pytest.raises(jinja2.TemplateSyntaxError):
        family.ids([USER])


def test_arguments_that_transformers_rejects_stay_its_errors(folder: Path) -> None:
    family = Family.of(reference(folder))
    with pytest.raises(ValueError, match="empty conversation"):
        family.ids([])
    with pytest.raises(ValueError, match="not compatible"):
        family.ids([USER], add_generation_prompt=True, continue_final_message=True)


def test_a_tokenizer_without_a_template_is_not_refused_by_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="chat_template is not set"):
        Family.of(reference(tiny_folder(tmp_path))).ids([USER])


class OwnError(Exception):
    """An error of a renderer that has no template."""


class Renderer:
    """A duck-typed tokenizer whose `apply_chat_template` does what the test wants."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:  # noqa: ARG002  # called by these names
        return self.act()


def raising(error: BaseException) -> Callable[[], NoReturn]:
    def act() -> NoReturn:
        raise error

    return act


def in_a_template(act: Callable[[], Any]) -> Callable[[], str]:
    """Return a function that calls `act` from the code of a compiled template."""
    environment = ImmutableSandboxedEnvironment()
    environment.globals["act"] = act
    return environment.from_string("{{ act() }}").render


OUTSIDE = (TypeError("x"), KeyError("x"), ValueError("x"), RuntimeError("x"), OwnError("x"), OSError("x"))
PASSING = (MemoryError(), ConnectionError("gone"), TimeoutError("late"), FileNotFoundError("no file"))


OF_JINJA = jinja2.TemplateError("x")
INTERRUPTS = (KeyboardInterrupt(), SystemExit(3))


def asked(act: Callable[[], Any], **options: Any) -> list[int]:
    return Family.of(Renderer(act), **options).tokenize_fn()([USER], add_generation_prompt=True)


@pytest.mark.parametrize(
    ("act", "error"),
    [
        *((raising(error), error) for error in (*OUTSIDE, *PASSING, OF_JINJA)),
        *((in_a_template(raising(error)), error) for error in (*PASSING, *INTERRUPTS)),
    ],
    ids=lambda one: repr(one) if isinstance(one, BaseException) else "",  # the address of a function varies
)
def test_errors_outside_of_a_template_and_of_the_machine_pass_through(
    act: Callable[[], Any], error: BaseException
) -> None:
    with pytest.raises(type(error)) as caught:
        asked(act)
    assert caught.value is error


@pytest.mark.parametrize("error", [*OUTSIDE[:-1], OF_JINJA], ids=repr)
def test_the_same_errors_in_a_template_are_refusals(error: Exception) -> None:
    with pytest.raises(TemplateRefused, match="chat template, line 1"):
        asked(in_a_template(raising(error)))


def test_an_error_raised_from_a_refusal_is_one_and_a_later_error_is_not() -> None:
    """Servers wrap what a template raised; an error while handling a refusal is another matter."""

    def act(*, wrapped: bool) -> NoReturn:
        try:
            in_a_template(raising(KeyError("role")))()
        except KeyError as error:
            if wrapped:
                raise RuntimeError("cannot render") from error
            raise RuntimeError("the handler failed")  # noqa: B904  # that it has a context only is the point
        raise AssertionError

    with pytest.raises(TemplateRefused, match="KeyError: 'role'"):
        asked(lambda: act(wrapped=True))
    with pytest.raises(RuntimeError, match="the handler failed"):
        asked(lambda: act(wrapped=False))


def test_a_renderer_without_a_template_names_its_refusals() -> None:
    with pytest.raises(TemplateRefused, match=r"^OwnError: two users in a row$"):
        asked(raising(OwnError("two users in a row")), refusals=(OwnError,))
    refused = TemplateRefused("as it was said")
    with pytest.raises(TemplateRefused) as caught:
        asked(raising(refused))
    assert caught.value is refused


def test_causes_in_a_ring_end() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert template_refusal(one) is None


@given(st.text(max_size=3000))
def test_a_reason_is_short_and_says_what_was_raised(text: str) -> None:
    try:
        in_a_template(raising(ValueError(text)))()
    except ValueError as error:
        refused = template_refusal(error)
    assert refused is not None
    said = str(refused)
    assert said.startswith("chat template, line 1: ValueError: " + text[:900])
    assert len(said) < 1100

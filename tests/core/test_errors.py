"""Errors are separated by whose fault they are."""

from __future__ import annotations

import pytest

from tito_core import InputError, TemplateRefused, TitoError, TokenizeError


@pytest.mark.parametrize("kind", [InputError, TemplateRefused, TokenizeError])
def test_every_error_has_one_base(kind: type[TitoError]) -> None:
    assert issubclass(kind, TitoError)


def test_a_caller_s_mistake_is_a_value_error_and_no_other_is() -> None:
    assert issubclass(InputError, ValueError)
    assert not issubclass(TemplateRefused, ValueError)
    assert not issubclass(TokenizeError, ValueError)

"""How the integration is put into AReaL's client, and taken out."""

from __future__ import annotations

import pytest
from areal.experimental.openai import client

from tests.frameworks.areal.rollouts import installed
from tito_core import InputError
from tito_io.integrations.areal import SEAM, ConcatenatedPrompts


def test_prompts_of_another_type_are_named() -> None:
    with pytest.raises(InputError, match=r"prompts is 'raise': give SharedPrompts\(\)"):
        ConcatenatedPrompts("raise")  # type: ignore[arg-type]  # what a caller may get wrong


def test_it_can_be_installed_once_and_taken_out_again() -> None:
    own, prompts = getattr(client, SEAM), ConcatenatedPrompts()
    with installed(prompts):
        assert getattr(client, SEAM) is prompts
        with pytest.raises(
            InputError, match="another ConcatenatedPrompts is installed: call its `uninstall`"
        ):
            ConcatenatedPrompts().install()
        prompts.install()  # the same one
    assert getattr(client, SEAM) is own

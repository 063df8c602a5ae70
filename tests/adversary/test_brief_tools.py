"""Certificates that were made with the tools' names alone, for templates that repeat what the tools say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.io.client.test_certificates import ANSWER, SYSTEM, TOOLS, USER, Counted, sampled_step
from tests.io.serve.gateway import Scripted
from tito_core import OddStop, Policy, Trajectory
from tito_io.client import TokenClient
from tito_io.client import certificates as module
from tito_io.embedded import write_family
from tito_io.families import Family

pytestmark = pytest.mark.anyio
REMINDS = (
    "{% set called = messages | selectattr('role', 'equalto', 'tool') | list %}"
    "{% set said = messages | selectattr('role', 'equalto', 'assistant') | list %}"
    "{% if tools and not called and said | length > 1 %}{{ tools[0].function.description[:20] }}{% endif %}"
)
"""Remind a model that answered twice without any tool of what the first one does."""


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough: what is compared are ids."""
    return "asyncio"


def changed(folder: Path) -> Family:
    """Return the embedded family, whose template reminds before it lets the model speak."""
    template = write_family(folder) / "chat_template.jinja"
    before, prompt = template.read_text().rsplit("{%- if add_generation_prompt", 1)
    template.write_text(f"{before}{REMINDS}{{%- if add_generation_prompt{prompt}")
    return Family.load(folder)


@pytest.mark.whole
@pytest.mark.parametrize("long", [0, 1 << 40], ids=["names alone", "all of the tools"])
async def test_a_reminder_in_long_conversations_without_calls_is_not_lost(
    long: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONG", long)
    family, first = changed(tmp_path), [SYSTEM, USER, ANSWER, USER]
    step = sampled_step(family, first, ANSWER)
    client = TokenClient(
        Scripted(), Policy(odd_stop=OddStop.KEEP), lambda one: Counted(family, one, list[Any]())
    )
    prompt = [*first, ANSWER, USER]
    stitched = (await client.turn(Trajectory([step]), prompt, tools=TOOLS)).turn.stitched
    whole = family.ids(prompt, tools=TOOLS, add_generation_prompt=True)
    assert stitched is None or whole[-len(stitched.added) :] == list(stitched.added)

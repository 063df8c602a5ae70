"""A profile asked of a real server is that of the model's own folder, or the difference is named."""

from __future__ import annotations

from functools import partial

import pytest

from tests.engines.server import Server
from tests.engines.talk import PLAIN, TOOLED
from tito_core import answer as run
from tito_core.seams.certify import certify_questions
from tito_core.seams.probe import kinds, probe, probe_questions
from tito_core.seams.profile import Mode, Profile
from tito_core.seams.profile_differences import differences
from tito_io.client.driver import answer
from tito_io.engines.protocol import Engine, Rendering
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]

SOME_CASES = list(kinds())[::5]
PARTS = "parts_content: 'differs' and 'same'"
"""Servers make a string of a list of text parts before they render."""


async def remote(engine: Engine, rendering: Rendering, family: Family) -> Profile:
    """Return the profile as the server renders, with some cases."""
    render = partial(engine.render, rendering=rendering)
    try:
        profile = await answer(probe_questions(family.stop_ids), render)
        for kind, shape in SOME_CASES:
            certify = certify_questions(kind, shape, profile.suffix, profile.stop_ids)
            profile = profile.then(await answer(certify, render))
    finally:
        await engine.aclose()
    return profile


def local(family: Family, rendering: Rendering) -> Profile:
    """Return the profile as the folder renders, with the same cases."""
    tokenize = family.tokenize_fn(tools=rendering.tools or None)
    profile = probe(tokenize, family.stop_ids)
    questions = (certify_questions(*case, profile.suffix, profile.stop_ids) for case in SOME_CASES)
    return profile.then(*(run(asked, tokenize) for asked in questions))


async def test_vllm_renders_as_the_folder_does(vllm_server: Server) -> None:
    family = Family.load(vllm_server.family)
    found = await remote(VLLM(vllm_server.base_url), TOOLED, family)
    assert differences(local(family, TOOLED), found) == (PARTS,)
    assert [case.mode for case in found.cases].count(Mode.FREE) > len(SOME_CASES) / 2


async def test_sglang_renders_as_the_folder_does_without_tools(sglang_server: Server) -> None:
    family = Family.load(sglang_server.family)
    found = await remote(SGLang(sglang_server.base_url), PLAIN, family)
    assert differences(local(family, PLAIN), found) == (PARTS,)


async def test_sglang_writes_a_key_into_tools_that_the_folder_does_not(sglang_server: Server) -> None:
    """Each definition gets a `defer_loading`, so that the ids of every prompt with tools are others."""
    family = Family.load(sglang_server.family)
    found = await remote(SGLang(sglang_server.base_url), TOOLED, family)
    said = differences(local(family, TOOLED), found)
    assert [one.split(":")[0] for one in said] == ["parts_content", "opening"]
    assert "defer_loading" in family.decode(found.facts.opening)

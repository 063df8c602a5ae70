"""Certificates are made with the tools' names alone where their texts change nothing but the opening."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from tests.io.serve.gateway import Scripted
from tito_core import Message, OddStop, Policy, Step, Trajectory, render_key
from tito_core.seams.case import TurnKind
from tito_core.seams.profile import Case, Mode, Profile
from tito_io.client import Route, TokenClient
from tito_io.client import certificates as module
from tito_io.client.certificates import LONG, Certificates, KnownRendering, brief_rendering, tools_apart
from tito_io.embedded import write_family
from tito_io.engines.protocol import Rendering
from tito_io.families import Family

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """One event loop is enough: what is measured are renders."""
    return "asyncio"


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name} " * 400,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
    for name in ("look_up", "find", "read", "write")
]
SYSTEM: Message = {"role": "system", "content": "Be brief."}
USER: Message = {"role": "user", "content": "Where?"}
CALL = {"id": "call-1", "type": "function", "function": {"name": "find", "arguments": '{"city": "Bern"}'}}
CALLING: Message = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT: Message = {"role": "tool", "tool_call_id": "call-1", "content": "Here."}
ANSWER: Message = {"role": "assistant", "content": "Here it is."}

AT_THE_END = "{% if tools and add_generation_prompt %}{{ tools | tojson }}{% endif %}"
AT_RESULTS = (
    "{% if tools and messages[-1].role == 'tool' and messages | length > 5 %}"
    "{{ tools[0].function.description }}{% endif %}"
)
TYPED = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% for t in tools or [] %}"
    "{% if t.function.name == c.function.name %}{{ t.function.parameters.properties | list }}{% endif %}"
    "{% endfor %}{% endfor %}{% endfor %}"
)


def changed(folder: Path, more: str) -> Family:
    """Return the embedded family, whose template writes `more` before everything but its opening."""
    template = write_family(folder) / "chat_template.jinja"
    template.write_text(template.read_text() + more)
    return Family.load(folder)


@attrs.frozen
class Counted:
    """Renders, and notes which tools came with each render."""

    family: Family
    rendering: Rendering
    seen: list[int]

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.seen.append(sum(len(tool["function"]["description"]) for tool in self.rendering.tools))
        bound = self.family.tokenize_fn(tools=list(self.rendering.tools))
        return bound(messages, add_generation_prompt=add_generation_prompt)


def sampled_step(family: Family, prompt: list[Message], turn: Message) -> Step:
    """Return a step that sampled a turn after a prompt with all tools."""
    return Step(
        prompt=prompt,
        prompt_ids=family.ids(prompt, tools=TOOLS, add_generation_prompt=True),
        completion=[turn],
        completion_ids=[900, family.stop_ids[0]],
        key=render_key(TOOLS, {}),
    )


def conversation(family: Family) -> tuple[Step, list[list[Message]]]:
    """Return a first turn that calls a tool, and prompts that go on from it."""
    first = [SYSTEM, USER]
    return sampled_step(family, first, CALLING), [
        [*first, CALLING, RESULT],
        [*first, CALLING, RESULT, SYSTEM],
        [*first, CALLING, RESULT, USER],
    ]


async def stitched(family: Family) -> tuple[list[list[int] | None], list[int]]:
    """Return the ids of each prompt that could be continued, and how long each render's tools were."""
    seen: list[int] = []
    engine = Scripted()
    client = TokenClient(engine, Policy(odd_stop=OddStop.KEEP), lambda one: Counted(family, one, seen))
    step, prompts = conversation(family)
    turns = [await client.turn(Trajectory([step]), prompt, tools=TOOLS) for prompt in prompts]
    return [None if one.turn.stitched is None else list(one.turn.stitched.ids) for one in turns], seen


@pytest.mark.parametrize("more", ["", AT_THE_END, AT_RESULTS, TYPED], ids=range(4))
async def test_the_ids_are_those_that_all_tools_give(
    more: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = changed(tmp_path, more)
    found, _ = await stitched(family)
    monkeypatch.setattr(module, "LONG", 1 << 40)
    wanted, _ = await stitched(family)
    assert found == wanted


async def test_most_renders_have_the_names_alone(tmp_path: Path) -> None:
    found, seen = await stitched(changed(tmp_path, ""))
    assert None not in found
    assert (
        sum(size > 1000 for size in seen) <= 2 * 3 + 3 * 2
    )  # to see that the tools stand apart, and at each turn
    assert sum(size < 1000 for size in seen) > 60


@pytest.mark.parametrize("more", [AT_THE_END, AT_RESULTS, TYPED])
async def test_tools_that_stand_elsewhere_come_with_every_certificate(more: str, tmp_path: Path) -> None:
    _, seen = await stitched(changed(tmp_path, more))
    assert sum(size < 1000 for size in seen) <= 6


def test_short_and_odd_tools_are_left_as_they_are() -> None:
    assert brief_rendering(Rendering(tools=tuple(TOOLS))) is not None
    assert brief_rendering(Rendering(tools=tuple(TOOLS[:1]))) is None
    assert brief_rendering(Rendering(tools=(*TOOLS, {"type": "web_search"}))) is None
    assert len(str(TOOLS)) > LONG


async def test_a_template_that_refuses_tools_without_descriptions_gets_all(tmp_path: Path) -> None:
    refusing = (
        "{% if tools and tools[0].function.description | length < 50 %}{{ raise_exception('no') }}{% endif %}"
    )
    family, all_tools = changed(tmp_path, refusing), Rendering(tools=tuple(TOOLS))
    names_alone = brief_rendering(all_tools)
    assert names_alone is not None
    full, brief = (Counted(family, rendering, []) for rendering in (all_tools, names_alone))
    assert await tools_apart(full, full, TOOLS)
    assert not await tools_apart(full, brief, TOOLS)


PLAIN = TurnKind(before="user", reasoning=False, calls=0, content="text")
CASES = [Case(kind=PLAIN, shape=shape, mode=Mode.REFUSED) for shape in (("user",), ("tool",), ("system",))]


def test_cases_that_conversations_learn_at_once_are_all_kept_and_stored() -> None:
    """Each conversation grows the profile that it began with, and ends when it will."""
    stored: list[Profile] = []
    known = KnownRendering(store=stored.append)
    begun = Profile(suffix=(2,))
    for grown in (begun, *map(begun.then, CASES), begun):
        known.learn(grown)
    assert known.profile is not None
    assert set(known.profile.known) == {(case.kind, case.shape) for case in CASES}
    assert stored[-1] == known.profile
    known.learn(known.profile)
    assert len(stored) == 4, "nothing was learned, nothing is stored"


async def test_conversations_that_begin_at_once_share_what_they_learn() -> None:
    """The one whose profile is read last would else forget what the other learned."""
    release = anyio.Event()

    async def begin(_: Rendering) -> KnownRendering:
        await release.wait()
        return KnownRendering()

    certificates, found = Certificates(begin=begin), list[KnownRendering]()

    async def ask() -> None:
        found.append(await certificates.of(Rendering()))

    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        release.set()
    assert len({id(known) for known in found}) == 1


@attrs.frozen
class Slow(Counted):
    """Renders, and lets other conversations go on meanwhile."""

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        await anyio.lowlevel.checkpoint()
        return await Counted.__call__(self, messages, add_generation_prompt=add_generation_prompt)


async def test_a_case_is_certified_once_however_many_conversations_have_it(tmp_path: Path) -> None:
    family = changed(tmp_path, "")
    step, prompts = conversation(family)

    def client(seen: list[int]) -> TokenClient:
        return TokenClient(Scripted(), Policy(odd_stop=OddStop.KEEP), lambda one: Slow(family, one, seen))

    async def turn(client: TokenClient) -> None:
        taken = await client.turn(Trajectory([step]), prompts[0], tools=TOOLS)
        assert taken.turn.route is Route.TITO

    alone, many = list[int](), list[int]()
    one, others = client(alone), client(many)
    await turn(one)
    first = len(alone)
    await turn(one)
    async with anyio.create_task_group() as group:
        for _ in range(8):
            group.start_soon(turn, others)
    assert len(many) == first + 7 * (len(alone) - first)


async def test_the_oldest_rendering_is_forgotten() -> None:
    certificates = Certificates(most=2)
    a, b, c = (Rendering(template_args={"name": name}) for name in "abc")
    first = await certificates.of(a)
    await certificates.of(b)
    assert await certificates.of(a) is first
    await certificates.of(c)
    assert await certificates.of(a) is not first


@pytest.mark.anyio
async def test_what_is_known_of_an_answer_that_is_begun_is_kept_apart() -> None:
    """Other ids stand there in the place of the generation prompt than in what a file has."""
    asked: list[Rendering] = []

    async def begin(rendering: Rendering) -> KnownRendering:
        asked.append(rendering)
        return KnownRendering()

    certificates = Certificates(begin=begin)
    plain = await certificates.of(Rendering())
    first, again, other = [
        await certificates.of(Rendering(opening={"role": "assistant", "content": text}))
        for text in ("He", "He", "She")
    ]
    assert first is again
    assert len({id(plain), id(first), id(other)}) == 3
    assert asked == [Rendering()]

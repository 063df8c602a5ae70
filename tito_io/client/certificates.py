"""Certify the renderings that clients use, with shorter tools if the tools are long.

A certificate takes some twenty renders of short conversations, each with all tools. Where it is shown that
the tools' texts change nothing but a part of the opening, these renders have their names and few words of
each. What a certificate predicts is compared with the whole rendering at every turn all the same.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import eq
from typing import Any, TypeVar

import attrs

from tito_core import Located, Message, Rendered, TemplateRefused
from tito_core.questions import ask, words_of
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.growing import for_certificate
from tito_core.seams.keys import changed_kinds, read_key_questions
from tito_core.seams.profile import Profile
from tito_io.engines.one_asks import one_asks
from tito_io.engines.protocol import Rendering

from .driver import AsyncTokenizeFn, answer

LONG = 8_192
"""From how many characters of tools on their names alone are asked with: shorter ones cost little."""
ENOUGH = 3
"""How many conversations with one opening are compared."""
WORDS = 40
"""How many characters of a tool's description are kept."""
SYSTEM: Message = {"role": "system", "content": "Answer in one line."}
ASKED: Message = {"role": "user", "content": "How many?"}
ANSWERED: Message = {"role": "assistant", "content": "Seven."}


MOST_UNREAD = 1_024
"""How many kinds of messages are remembered; clients name their keys."""


T = TypeVar("T")
CaseName = tuple[TurnKind, tuple[str, ...]]


@attrs.define
class KnownRendering:
    """The known facts about one rendering; they grow.

    Attributes:
        profile: The template's profile; None until something was asked.
        apart: Whether the tools' texts change nothing but a part of the opening; None until it was asked.
        brief: The rendering with few words of its tools (see `brief_rendering`).
        unread: Digests of the kinds of messages that came back with other keys, none of which the template
            reads (see `changed_kinds`).
        store: Called with the profile when it has grown.
    """

    profile: Profile | None = None
    apart: bool | None = None
    brief: Rendering | None = None
    unread: set[bytes] = attrs.field(factory=set, repr=False)
    store: Callable[[Profile], None] | None = attrs.field(default=None, repr=False)

    def learn(self, profile: Profile) -> None:
        """Add the cases of a `profile` to those that other conversations may have added meanwhile."""
        known = self.profile
        if profile is known:  # as after most turns
            return
        new = [case for case in profile.cases if not self.knows((case.kind, case.shape))]
        if known is not None and not new:
            return
        self.profile = profile if known is None else known.then(*new)
        if self.store is not None:
            self.store(self.profile)

    def knows(self, case: CaseName) -> bool:
        """Return whether a case was certified or refused before."""
        return self.profile is not None and self.profile.case(*case) is not None

    async def reads_key(self, changed: Iterable[tuple[Message, Message]], render: AsyncTokenizeFn) -> bool:
        """Return whether the template reads a key in which the two messages of a pair differ.

        Args:
            changed: Stored messages, each with the one that came back.
            render: Renders messages.
        """
        kinds = {_digest(name): pair for name, pair in changed_kinds(changed).items()}
        asked = [pair for name, pair in kinds.items() if name not in self.unread]
        if asked and await answer(for_certificate(read_key_questions(asked)), render) is not None:
            return True
        self.unread = self.unread.union(kinds) if len(self.unread) < MOST_UNREAD else set(kinds)
        return False

    async def continued(self, located: Located, ask: Callable[[], Awaitable[T]]) -> T:
        """Return what `ask` returns; it certifies the case of a turn that is not known.

        Many conversations begin at once with the same tools: the others wait, and then know the case.
        """
        case = case_of(located.turn, located.environment)
        return await (ask() if case is None or self.knows(case) else self._certified(case, ask))

    @one_asks
    async def _certified(self, _: CaseName, ask: Callable[[], Awaitable[T]]) -> T:
        return await ask()


def _digest(name: str) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=16).digest()


@attrs.define
class Certificates:
    """The known facts about each rendering; beyond `most` the oldest are forgotten.

    Attributes:
        most: How many renderings are kept; a rendering is a set of tools and template arguments.
        begin: Returns what is known of a rendering that was not met before, such as what a file has; None
            where that is nothing.

    >>> import asyncio
    >>> certificates = Certificates()
    >>> first, again = (asyncio.run(certificates.of(Rendering())) for _ in range(2))
    >>> first is again
    True
    """

    most: int = 256
    begin: Callable[[Rendering], Awaitable[KnownRendering]] | None = None
    _known: dict[tuple[str, str], KnownRendering] = attrs.field(factory=dict, init=False, repr=False)

    async def of(self, rendering: Rendering) -> KnownRendering:
        """Return what is known of a `rendering`."""
        opening = rendering.opening
        key = (rendering.key, "" if opening is None else repr(opening))
        if key not in self._known:
            # Where a message begins the answer, other ids stand in the place of the generation prompt.
            stored = self.begin if opening is None else None
            begun = KnownRendering() if stored is None else await stored(rendering)
            begun.brief = brief_rendering(rendering)
            while len(self._known) >= self.most:
                del self._known[next(iter(self._known))]
            self._known.setdefault(key, begun)  # another conversation may have been faster
        return self._known[key]


def brief_rendering(rendering: Rendering) -> Rendering | None:
    """Return a `rendering` whose tools have their names alone; None where its tools are short or odd.

    >>> tool = {"type": "function", "function": {"name": "f", "description": "x" * LONG}}
    >>> len(brief_rendering(Rendering(tools=(tool,))).tools[0]["function"]["description"])
    40
    >>> brief_rendering(Rendering()) is None
    True
    """
    tools = [_brief_tool(tool) for tool in rendering.tools]
    if None in tools or len(json.dumps(rendering.tools, default=str)) < LONG:
        return None
    return attrs.evolve(rendering, tools=tuple(tool for tool in tools if tool is not None))


def _brief_tool(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    function = tool.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        return None
    # Some words stay: a template that writes them elsewhere is then seen to do so by the certificate itself.
    words = str(function.get("description") or "")[:WORDS]
    brief: Mapping[str, Any] = {"description": words, "parameters": {"type": "object", "properties": {}}}
    return {**tool, "function": {name: brief.get(name, value) for name, value in function.items()}}


@attrs.frozen(eq=False)
class CertifyingRender:
    """A tokenize function with another one for certificates (see `tito_core.Question.put`).

    That one renders with the tools' names and few words, once this was seen to change only the opening.

    Attributes:
        full: Renders messages with all tools.
        brief: Renders them with the tools' names and few words of each.
        tools: The tools.
        known: What is known of the rendering.
        certifies: Whether this one is for certificates.
    """

    full: AsyncTokenizeFn
    brief: AsyncTokenizeFn
    tools: Sequence[Mapping[str, Any]]
    known: KnownRendering
    certifies: bool = False

    @property
    def certifying(self) -> CertifyingRender:
        """The one for certificates."""
        return attrs.evolve(self, certifies=True)

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the template looks for in messages, as far as `full` knows them."""
        return words_of(self.full)

    @property
    def rendered(self) -> Callable[..., Awaitable[Rendered]] | None:
        """The method that returns the text, too; None if the functions have none."""
        return self._rendered if hasattr(self.full, "rendered") else None

    async def __call__(
        self, messages: list[dict[str, Any]], *, add_generation_prompt: bool
    ) -> Collection[int]:
        """Return the ids of messages."""
        return await (await self._chosen())(messages, add_generation_prompt=add_generation_prompt)

    async def _rendered(self, *asked: Any, **options: Any) -> Rendered:
        chosen: Any = await self._chosen()
        found: Rendered = await chosen.rendered(*asked, **options)
        return found

    async def _chosen(self) -> AsyncTokenizeFn:
        if not self.certifies:
            return self.full
        if self.known.apart is None:
            self.known.apart = await tools_apart(self.full, self.brief, self.tools)
        return self.brief if self.known.apart else self.full


async def tools_apart(
    full: AsyncTokenizeFn, brief: AsyncTokenizeFn, tools: Sequence[Mapping[str, Any]]
) -> bool:
    """Return whether two renderings differ in a part of the opening alone, the same in every conversation.

    The conversations have all kinds of messages, and call these tools by their names.

    Args:
        full: Renders messages with the tools.
        brief: Renders them with other texts of the tools.
        tools: The tools.
    """
    for opening in ((SYSTEM, ASKED), (ASKED,)):
        pairs: list[tuple[list[int] | None, list[int] | None]] = []
        for messages in _conversations(opening, tools):
            if len(pairs) < ENOUGH:
                pairs += [(await _taken(full, messages), await _taken(brief, messages))]
                pairs = [pair for pair in pairs if pair != (None, None)]
        if not _differ_in_opening(pairs):
            return False
    return True


def _conversations(
    opening: tuple[Message, ...], tools: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Message, ...]]:
    """Yield conversations, those first of which few tell most; templates refuse some of them."""
    calls = [_call(tool["function"], place) for place, tool in enumerate((tools[0], tools[-1]))]
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": "7"}
        for call in calls
    ]
    calling = {"role": "assistant", "content": "", "tool_calls": calls[:1]}
    thinking = {"role": "assistant", "content": "Both.", "reasoning": "Two.", "tool_calls": calls}
    yield opening
    yield (*opening, calling, results[0], ANSWERED, ASKED, thinking, *results)
    yield (*opening, calling, results[0], {"role": "system", "content": "Be brief."})
    yield (*opening, ANSWERED, ASKED)
    yield (*opening, calling, results[0])


def _call(function: Mapping[str, Any], place: int) -> dict[str, Any]:
    """Return a call with a value for each parameter: a template may write them by their types."""
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    arguments = dict.fromkeys(properties, "3") if isinstance(properties, Mapping) else {}
    identifier = f"a1b2c3d4{place}"
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


async def _taken(render: AsyncTokenizeFn, messages: tuple[Message, ...]) -> list[int] | None:
    """Return the ids of a conversation; None if the template does not take it."""
    try:
        return list(await answer(ask(messages), render))
    except TemplateRefused:
        return None


def _differ_in_opening(pairs: Sequence[tuple[list[int] | None, list[int] | None]]) -> bool:
    """Return whether in each pair the same ids stand in place of the same others, and all else is equal.

    >>> _differ_in_opening([([1, 5, 5, 2], [1, 6, 2]), ([1, 5, 5, 2, 3], [1, 6, 2, 3])])
    True
    >>> _differ_in_opening([([1, 5, 2], [1, 6, 2]), ([1, 2, 5, 3], [1, 2, 6, 3])])
    False
    """
    taken = [(full, brief) for full, brief in pairs if full is not None and brief is not None]
    if not pairs or len(taken) < len(pairs):  # of an opening that the template refuses nothing is asked later
        return not pairs
    full, brief = taken[0]
    same = len(list(takewhile(bool, map(eq, reversed(full), reversed(brief)))))  # what both end with alike
    heads = full[: len(full) - same], brief[: len(brief) - same]
    return len(taken) > 1 and all(
        full[: len(heads[0])] == heads[0]
        and brief[: len(heads[1])] == heads[1]
        and full[len(heads[0]) :] == brief[len(heads[1]) :]
        for full, brief in taken
    )

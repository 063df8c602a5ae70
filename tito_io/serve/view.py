"""Session page: the turns of a session as a tree, and the tokens of one path by who wrote them.

The page is complete in itself: no script, and no request to the network. An image is one block where it
stands.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from operator import attrgetter

import attrs

from tito_core import Reason, Refusal, Step, TemplateRefused, TitoError
from tito_core.ledger import Origin
from tito_core.media.first_prompt import first_prompt_questions
from tito_core.media.ranges import MediaRange
from tito_core.normalization.receipts import Forgiveness
from tito_core.samples import Forest
from tito_core.samples.node import EdgeKind, Node
from tito_io.client.driver import answer
from tito_io.client.turn import Route
from tito_io.engines.protocol import EngineError, Rendering
from tito_io.pages import render
from tito_io.pages.media import MediaBlock, picture_url

from .client_noise import NoiseRule, option_name
from .commit import Commit
from .gateway import Gateway
from .message_lines import FOLDED_CHARACTERS, MessageLines, Room
from .path_tokens import PathTokens, TokenRun, changed_prompt_ids
from .refusals import RequestRefused
from .session import Session
from .turn_tree import TurnTree

LEGEND = {
    Origin.PROMPT: ("prompt", "the messages of a prompt, rendered by the chat template"),
    Origin.SAMPLED: ("sampled", "written by the model; only these ids are trained on"),
    Origin.INSERTED_CLOSE: ("closed by tito", "the end of a turn, which the model did not sample itself"),
    Origin.ENVIRONMENT: ("tool result / user message", "new messages after a turn, rendered by the template"),
    Origin.MEDIA: ("image or other media", "what the engine made of a placeholder of the template"),
    Origin.GENERATION_PROMPT: ("generation prompt", "what the template writes before the model speaks"),
}
"""What the page calls each origin, and what that means."""
EDGES = {
    EdgeKind.RETRIES: "retry of turn {}: the same prompt",
    EdgeKind.REWRITES: "continues turn {}, but its ids were rendered again",
    EdgeKind.COMPACTS: "a shorter prompt, which restates turn {}",
}
"""What the page says of a turn that does not simply continue another."""
UNRECEIVED = (("not known to be received: a gateway ended while it sent the answer", True),)
ROUTES = {
    Route.TITO.name: "sent by ids",
    Route.MITO.name: "sent by messages",
    Route.KEPT.name: "kept ids",
    Route.RENDERED.name: "rendered here",
}
CLEANED = {option_name(rule): rule.value for rule in NoiseRule}
"""What the page says of each change that was made to a request before matching."""
IGNORED = {
    **{one.name: one.says for one in Forgiveness},
    NoiseRule.TEXT_ECHO.name: NoiseRule.TEXT_ECHO.value,
}
"""What it says of each difference that was ignored."""
NEW_MESSAGES = 6
"""How many new messages of a turn are not folded, the first and the last ones."""
PICTURES = 12_000_000
"""How many bytes of pictures a page shows, those of the newest turns."""
JUMP = 25
"""A page of many turns begins with a link to every turn whose number this divides."""


@attrs.frozen(kw_only=True)
class TurnCard:
    """The facts about a turn that the page shows.

    Attributes:
        number: The turn's number in the session.
        name: Its name, which the query parameter `leaf` takes.
        continues: The number of the turn that it continues.
        lines: Its new messages and the completion.
        notes: What is unusual about it, each with whether it needs attention.
        facts: How it was sent, how long it is, and how it ended.
        origin: Its worker and request, where they are known.
        sampled: How many ids the model sampled.
        runs: Its tokens; None where its ids are not on the path that the page shows.
    """

    number: int
    name: str
    continues: int | None
    lines: MessageLines
    notes: tuple[tuple[str, bool], ...]
    facts: str
    origin: tuple[str, ...]
    sampled: int
    runs: tuple[TokenRun, ...] | None

    @property
    def counts(self) -> list[tuple[Origin, int]]:
        """How many ids each origin wrote in `runs`."""
        runs = self.runs or ()
        counts = ((origin, sum(run.length for run in runs if run.origin is origin)) for origin in LEGEND)
        return [(origin, count) for origin, count in counts if count]

    @property
    def drift(self) -> int:
        """How many ids of `runs` a fresh render would change."""
        return sum(run.drift for run in self.runs or ())


async def page(gateway: Gateway, session: Session, leaf: str | None = None) -> str:
    """Return the page as HTML; it shows the tokens up to the turn named `leaf`, or those of the longest path.

    Raises `RequestRefused` if the session has no turn of that name, `LostError` if the store lost an image.
    """
    forest = session.forest
    tree = TurnTree.of(forest)
    commit = session.commits.get(_longest(forest, tree) if leaf is None else leaf)
    if commit is None and leaf is not None:
        raise RequestRefused(HTTPStatus.NOT_FOUND, "not_found", "leaf: this session has no turn of that name")
    drift = None if commit is None else await _drift(gateway, commit)
    runs, skipped = _runs(gateway, session, forest, commit, drift or b"")
    room = Room(FOLDED_CHARACTERS)  # of which the newest turns take first
    newest = [_card(session, tree, node, runs.get(node.name), room) for node in reversed(forest.nodes)]
    cards = {card.name: card for card in reversed(newest)}
    blocks = await _blocks(gateway, session, runs)
    return render(
        "serve/view.html.jinja",
        session=session,
        opened=datetime.fromtimestamp(session.head.created, UTC),
        cards=cards,
        chains=tree.chains(None if commit is None else commit.name),
        leaves=[(cards[name], turns, len(forest[name].call.ids)) for name, turns in tree.leaves().items()],
        shown=None if commit is None else cards[commit.name],
        counts=Counter() if commit is None else _counts(commit),
        legend=LEGEND,
        forgiven=_forgiven(cards, session),
        ignored=IGNORED,
        cleaned=CLEANED,
        drift=None if drift is None else sum(drift),
        newest=cards[session.newest.name] if session.newest is not None else None,
        skipped=skipped,
        left_out=room.left_out,
        vocabulary=gateway.decode is not None,
        blocks=blocks,
        has_pictures=any(block.picture for block in blocks.values()),
        jumps=[card for card in cards.values() if card.number % JUMP == 0],
    )


def _longest(forest: Forest, tree: TurnTree) -> str:
    """Return the last turn of the path with most turns, of equal ones that with most ids, then the newest.

    The newest turn may be a side request of an agent, such as one for a title. "" if there is no turn.
    """

    def size(leaf: tuple[str, int]) -> tuple[int, int, int]:
        name, turns = leaf
        return turns, len(forest[name].call.ids), tree.numbers[name]

    name, _ = max(tree.leaves().items(), key=size, default=("", 0))
    return name


def _counts(commit: Commit) -> Counter[Origin]:
    """Return how many ids of a path each origin wrote."""
    counts: Counter[Origin] = Counter()
    for origin, length in commit.step.ledger.runs:
        counts[origin] += length
    return counts


async def _drift(gateway: Gateway, commit: Commit) -> Sequence[int] | None:
    """Return which prompt ids a fresh render would change; None where the engine cannot render."""
    tools, args = json.loads(commit.step.key or "[[],{}]")
    rendering = Rendering(tools=tuple(tools), template_args=args)
    try:
        rendered = await _rendered(gateway, commit.step, rendering)
        close = await gateway.turns.close(rendering)
    except (EngineError, TitoError):
        return None
    marks = changed_prompt_ids(commit.step, list(rendered), close)
    gateway.metrics.drift_ids.inc(sum(marks))
    return marks


async def _rendered(gateway: Gateway, step: Step, rendering: Rendering) -> Sequence[int]:
    """Return the ids of a prompt, rendered afresh, with the placeholders of images."""
    placeholders, renderer = gateway.turns.sampler.media, gateway.turns.sampler.renderer
    if not step.media or placeholders is None or renderer is None:
        return await gateway.turns.rendered(list(step.prompt), rendering)
    found = await answer(first_prompt_questions(step.prompt, placeholders), renderer(rendering))
    if isinstance(found, Refusal):
        raise TemplateRefused(found.detail)
    return found.ids.tolist()


def _runs(
    gateway: Gateway, session: Session, forest: Forest, commit: Commit | None, drift: Sequence[int]
) -> tuple[dict[str, list[TokenRun]], int]:
    """Return the tokens of each turn of a path, and how many ids before them are left out."""
    if commit is None:
        return {}, 0
    path = forest.path(commit.name)
    tokens = PathTokens(
        ids=commit.step.ids.tolist(),
        spans=commit.step.ledger.spans,
        ends=[len(session.commits[name].step.ids) for name in path],
        drift=drift,
        spell=gateway.spell,
        decode=gateway.decode,
        media=list(commit.step.media),
    )
    runs, skipped = tokens.runs()
    return dict(zip(path, runs, strict=True)), skipped


async def _blocks(
    gateway: Gateway, session: Session, runs: Mapping[str, Sequence[TokenRun]]
) -> dict[int, MediaBlock]:
    """Return the block of each medium on a path, by its position; the newest ones have their pictures."""
    media = [run.medium for path in runs.values() for run in path if run.medium is not None]
    shown, left = list[MediaRange](), PICTURES
    for one in sorted(media, key=attrgetter("offset"), reverse=True):
        size = session.media.get(one.identity, PICTURES + 1)  # one that is not kept is not shown
        if size <= left:
            shown.append(one)
            left -= size
    urls = await session.media_urls({one.identity for one in shown})
    pictures = {one.offset: picture_url(urls[one.identity]) for one in shown}
    return {
        one.offset: MediaBlock(
            range=one,
            placeholder="".join(map(gateway.spell, one.collapsed)),
            picture=pictures.get(one.offset),
        )
        for one in media
    }


def _card(
    session: Session, tree: TurnTree, node: Node, runs: Sequence[TokenRun] | None, room: Room
) -> TurnCard:
    commit = session.commits[node.name]
    step, above = commit.step, tree.above[node.name]
    before = 0 if above is None else len(session.commits[above].step.messages)
    new = [*map(step.prompt.peek, range(before, len(step.prompt))), *step.completion]
    return TurnCard(
        number=tree.numbers[node.name],
        name=node.name,
        continues=None if above is None else tree.numbers[above],
        lines=MessageLines.of(new, NEW_MESSAGES, room),
        notes=(*_notes(commit, node, tree), *UNRECEIVED * (node.name in session.unreceived)),
        facts=" · ".join(_facts(commit)),
        origin=tuple(_origin(commit)),
        sampled=len(step.completion_ids),
        runs=None if runs is None else tuple(runs),
    )


def _notes(commit: Commit, node: Node, tree: TurnTree) -> Iterator[tuple[str, bool]]:
    """Yield what is unusual about a turn, and whether it needs attention."""
    origin = commit.origin
    if node.kind in EDGES and node.of is not None:
        yield EDGES[node.kind].format(tree.numbers[node.of]), False
    if origin.refusal is not None:
        reason = Reason.__members__.get(origin.refusal)
        yield f"went by messages: {origin.refusal if reason is None else reason.value}", True
    if commit.step.truncated:
        yield "cut short: no stop token was sampled", True


def _facts(commit: Commit) -> Iterator[str]:
    """Yield how a turn was sent, how long it is, and how it ended."""
    origin, step = commit.origin, commit.step
    yield ROUTES.get(origin.route, origin.route)
    yield f"prompt {len(step.prompt_ids):,} ids" + (
        "" if origin.cached is None else f", {origin.cached:,} from the engine's cache"
    )
    yield f"sampled {len(step.completion_ids):,} in {max(commit.at - origin.requested, 0):.1f} s"
    yield f"ended by {commit.call.finish_reason}"


def _origin(commit: Commit) -> Iterator[str]:
    """Yield a turn's worker and request, where they are known."""
    origin = commit.origin
    if origin.worker is not None:
        yield f"worker {origin.worker}"
    if origin.engine_request is not None:
        yield f"request {origin.engine_request}"


def _forgiven(cards: Mapping[str, TurnCard], session: Session) -> dict[str, list[TurnCard]]:
    """Return the turns of each difference that was ignored and of each change made before matching."""
    turns: dict[str, list[TurnCard]] = {}
    for name, card in cards.items():
        for difference in session.commits[name].origin.forgiven:
            turns.setdefault(difference, []).append(card)
    return turns

"""A session as a page: its forest, and the tokens of one path coloured by who wrote them.

The page stands alone. Whatever a conversation says is escaped, and the page's headers allow no script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from http import HTTPStatus

from tito_core import TitoError
from tito_core.ledger import Origin
from tito_core.samples import Forest
from tito_io.engines.protocol import EngineError, Rendering

from .commit import Commit
from .fresh_diff import drifted
from .gateway import Gateway
from .refusals import RequestRefused
from .session import Session

MOST = 50_000
"""How many ids of a path are shown, the last ones."""
COLOURS = {
    Origin.PROMPT: "#e8eaed",
    Origin.SAMPLED: "#c8e6c9",
    Origin.INSERTED_CLOSE: "#ffccbc",
    Origin.ENVIRONMENT: "#bbdefb",
    Origin.GENERATION_PROMPT: "#e1bee7",
}
STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:70em}"
    "pre{white-space:pre-wrap;word-break:break-word;border:1px solid #ccc;padding:1em}"
    "td,th{padding:0 .8em;text-align:left}"
    ".drift{outline:1px solid #d32f2f;text-decoration:underline wavy #d32f2f}"
    + "".join(f".{origin.name}{{background:{colour}}}" for origin, colour in COLOURS.items())
)


async def page(gateway: Gateway, session: Session, leaf: str | None = None) -> str:
    """Return the page; of a path's ids the last ones, and how many are left out.

    Raises `RequestRefused` where the session has no turn named `leaf`.
    """
    forest = session.forest
    commit = session.newest if leaf is None else session.commits.get(leaf)
    if commit is None and leaf is not None:
        raise RequestRefused(
            HTTPStatus.NOT_FOUND, "NotFoundError", "leaf: this session has no turn of that name"
        )
    title = f"Session {escape(session.name)}"
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"]
    parts.append(f"<h1>{title}</h1>{_legend()}<h2>Turns</h2>{''.join(_table(session, forest))}")
    if commit is not None:
        drift = await _drift(gateway, commit)
        parts.append(f"<h2>Tokens of {escape(commit.name)}</h2>{_told(drift)}")
        parts.append(f"<pre>{''.join(_tokens(gateway, commit, drift))}</pre>")
    return "".join(parts) + "</html>"


def _legend() -> str:
    spans = " ".join(f'<span class="{one.name}">{one.name.lower()}</span>' for one in COLOURS)
    return f"<p>{spans} <span class=drift>a fresh rendering would change it</span></p>"


def _table(session: Session, forest: Forest) -> Iterator[str]:
    """Yield the forest, a row a turn, indented by depth."""
    heads = ("turn", "kind", "route", "prompt", "sampled", "cached", "end", "forgiven")
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    depth: dict[str | None, int] = {None: -1}
    for node in forest.nodes:
        depth[node.name] = depth[node.parent] + 1
        commit = session.commits[node.name]
        origin, step = commit.origin, commit.step
        link = f'<a href="?leaf={escape(node.name)}">{escape(node.name)}</a>'
        cells = (
            "&nbsp;" * 2 * depth[node.name] + link,
            node.kind.name.lower(),
            escape(origin.route + (f" ({origin.refusal})" if origin.refusal else "")),
            f"{len(step.prompt_ids):,}",
            f"{len(step.completion_ids):,}",
            "-" if origin.cached is None else f"{origin.cached:,}",
            escape(str(commit.call.finish_reason)),
            escape(", ".join(origin.forgiven)),
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    yield "</table>"


async def _drift(gateway: Gateway, commit: Commit) -> Sequence[int] | None:
    """Return which prompt ids a fresh rendering would change; None where nothing can be rendered."""
    tools, args = json.loads(commit.step.key or "[[],{}]")
    rendering = Rendering(tools=tuple(tools), template_args=args)
    try:
        rendered = await gateway.turns.rendered(list(commit.step.prompt), rendering)
        close = await gateway.turns.close(rendering)
    except (EngineError, TitoError):
        return None
    marks = drifted(commit.step.prompt_ids.tolist(), list(rendered), close)
    gateway.metrics.drift_ids.inc(sum(marks))
    return marks


def _told(drift: Sequence[int] | None) -> str:
    if drift is None:
        return "<p>The engine renders nothing, so drift is not known.</p>"
    return f"<p>{sum(drift):,} prompt ids would be others had the messages been rendered again.</p>"


def _tokens(gateway: Gateway, commit: Commit, drift: Sequence[int] | None) -> Iterator[str]:
    """Yield the path's tokens."""
    ids, origins = commit.step.ids.tolist(), list(commit.step.ledger)
    skipped = max(len(ids) - MOST, 0)
    if skipped:
        yield f"<em>{skipped:,} ids before these</em>\n"
    for place in range(skipped, len(ids)):
        marked = drift is not None and place < len(drift) and drift[place]
        kind = origins[place].name + " drift" * bool(marked)
        text = escape(gateway.spell(ids[place]))
        yield f'<span class="{kind}" title="{ids[place]}">{text}</span>'

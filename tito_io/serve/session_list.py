"""List page: the sessions that a key may see, for a browser that asks for the gateway itself.

The id of a session is a key to it. With keys, a key sees the sessions that it opened. Without keys, sessions
are listed only to this machine: the gateway listens on a loopback address, and is called by a loopback name.
"""

from __future__ import annotations

from datetime import UTC, datetime

import attrs
from starlette.requests import Request

from tito_io.pages import render

from .gateway import Gateway
from .logs import short_id
from .origins import LOCAL
from .session import SessionHead
from .store import SessionSummary

LISTED = 200
"""How many sessions the page lists, those that were used last."""
HTML = "text/html"


@attrs.frozen(kw_only=True)
class ListedSession:
    """A line of the page.

    Attributes:
        name: The session's id.
        opened: When it was opened.
        used: When it was last written to, or taken by a gateway.
        turns: Number of turns.
        agent: The beginning of a digest of the session that its agent names itself; "" where it names none.
        evaluation: Whether it was opened for evaluation.
    """

    name: str
    opened: datetime
    used: datetime
    turns: int
    agent: str
    evaluation: bool

    @classmethod
    def of(cls, summary: SessionSummary, now: float) -> ListedSession:
        """Return the line of a session; `now` is in seconds since 1970."""
        head = SessionHead.of(summary.head)
        return cls(
            name=summary.name,
            opened=datetime.fromtimestamp(head.created, UTC),
            used=datetime.fromtimestamp(max(now - summary.idle, head.created), UTC),
            turns=summary.turns,
            agent=short_id(head.agent) if head.agent else "",
            evaluation=head.evaluation,
        )


def asks_for_page(request: Request) -> bool:
    """Return whether a request names HTML as a format that it takes, as browsers do."""
    return HTML in request.headers.get("accept", "").lower()


async def list_page(gateway: Gateway, request: Request) -> str:
    """Return the page as HTML; raises `RequestRefused` where the gateway has keys, and the request none."""
    gateway.keys.admit(request)
    listing = bool(gateway.keys.keys) or request.scope.get(LOCAL, False)
    sessions: list[SessionSummary] = []
    if listing:
        owner = gateway.keys.owner(request, await gateway.sessions.secret())
        sessions = await gateway.sessions.newest(owner, LISTED)
    return render(
        "serve/session_list.html.jinja",
        listing=listing,
        keyed=bool(gateway.keys.keys),
        sessions=[ListedSession.of(one, gateway.clock()) for one in sessions],
        most=LISTED,
        short_id=short_id,
    )

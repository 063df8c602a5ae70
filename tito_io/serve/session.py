"""A session: one conversation as a forest of committed turns, which only grows.

Each turn is matched against the turns that were committed when its request came, and committed after the turn
that it continues. So two requests at once become siblings, and neither waits for the other. A turn that fails
or is cancelled leaves no trace; one that no client received is taken back.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.to_thread
import attrs
import orjson

from tito_core import InputError, Message, Trajectory
from tito_core.samples import Forest

from .commit import Commit, decode, encode
from .logs import LOG, short_id
from .media import NO_MEDIA, MediumBytes, NamedMedia, addresses_in
from .prompt import AnsweredPrompt
from .refusals import MIB, GatewayLimits, limit_reached
from .store import LostError, Store, StoredSession, StoreError


@attrs.frozen(kw_only=True)
class SessionHead:
    """The options with which a session was opened.

    Attributes:
        created: In seconds since 1970.
        defaults: Sampling arguments for requests without them.
        evaluation: Whether requests may sample with another temperature than the defaults.
        owner: A digest of the gateway's key that opened it; None where the gateway had no keys.
        agent: A digest of the session that the first agent names itself; None where it names none.
    """

    created: float
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    evaluation: bool = False
    owner: str | None = None
    agent: str | None = None

    def encoded(self) -> bytes:
        """Return the head as a store keeps it."""
        return orjson.dumps(attrs.asdict(self))

    @classmethod
    def of(cls, data: bytes) -> SessionHead:
        """Read a head; raises `InputError` for what is not a head of this version."""
        try:
            return cls(**orjson.loads(data))
        except (TypeError, ValueError) as error:
            raise InputError(f"a stored session cannot be read: {type(error).__name__}") from error


@attrs.define(eq=False)
class Session:
    """A session in memory. Everything in it is committed, in its store too.

    Attributes:
        name: The session's id.
        head: What it was opened with.
        store: Where it is stored.
        limits: What it may use.
        epoch: The epoch of this gateway's ownership.
        trajectory: The steps of all turns. It is a value: a turn keeps the one that it began with.
        commits: All turns by name, in the order of their commits.
        ids: Number of ids in it, each shared id counted once.
        calls: Number of requests that use it now.
        used: When it was last used, by the monotonic clock.
        generation: How often it was used, so that a client can delete it only if unused since.
        must_reload: Whether a write failed, so that the store may have what is missing here.
        last_prompt: The prompt that was answered last.
        unreceived: Names of stored turns that no client is known to have: a gateway ended while it sent them.
        media: The sizes of its media by digest, in bytes. The store has the bytes.
        addresses: Digests of the media that were fetched, by address: each is fetched once.
    """

    name: str
    head: SessionHead
    store: Store
    limits: GatewayLimits
    epoch: int
    trajectory: Trajectory = attrs.field(factory=Trajectory, init=False)
    commits: dict[str, Commit] = attrs.field(factory=dict, init=False)
    ids: int = attrs.field(default=0, init=False)
    calls: int = attrs.field(default=0, init=False)
    used: float = attrs.field(factory=time.monotonic, init=False)
    generation: int = attrs.field(default=0, init=False)
    must_reload: bool = attrs.field(default=False, init=False)
    last_prompt: AnsweredPrompt | None = attrs.field(default=None, init=False)
    unreceived: set[str] = attrs.field(factory=set, init=False)
    media: dict[str, int] = attrs.field(factory=dict, init=False)
    addresses: dict[str, str] = attrs.field(factory=dict, init=False)
    _place: int = attrs.field(default=0, init=False)
    _by_messages: dict[int, str] = attrs.field(factory=dict, init=False)
    """Names of commits by the identity of their messages, which the commits that continue them share."""
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    @classmethod
    def restored(
        cls, name: str, stored: StoredSession, store: Store, limits: GatewayLimits, epoch: int
    ) -> Session:
        """Return a session as it was stored."""
        session = cls(name, SessionHead.of(stored.head), store, limits, epoch)
        session.media = dict(stored.media)
        for place, row in stored.rows.items():
            commit = decode(row, session.commits)
            # The step of the trajectory, not the decoded one: later steps share its messages and ids.
            session.trajectory, session._place = session.trajectory.append(commit.step), place + 1
            call = attrs.evolve(commit.call, step=session.trajectory[-1])
            session._show(attrs.evolve(commit, call=call))
            if place in stored.unreceived:
                session.unreceived.add(commit.name)
            session.addresses |= addresses_in(session.new_messages(commit))
        return session

    @property
    def forest(self) -> Forest:
        """The turns as a forest; linear in what is new in each."""
        return Forest.of(commit.call for commit in self.commits.values())

    @property
    def known_messages(self) -> Sequence[Message]:
        """The messages of the last answered prompt, as they came, where `==` compares them exactly."""
        last = None if self.last_prompt is None else self.last_prompt.prompt
        return last.received if last is not None and last.only_texts else ()

    @property
    def newest(self) -> Commit | None:
        """The turn that was committed last."""
        return next(reversed(self.commits.values()), None)

    def path(self, commit: Commit | None) -> list[Commit]:
        """Return a turn and the turns that it continues, oldest first."""
        turns = []
        while commit is not None:
            turns.append(commit)
            commit = None if commit.parent is None else self.commits[commit.parent]
        return turns[::-1]

    def new_messages(self, commit: Commit) -> Sequence[Message]:
        """Return the messages of a turn's prompt that its parent does not have."""
        parent = None if commit.parent is None else self.commits[commit.parent]
        return commit.step.prompt[0 if parent is None else parent.step.messages.length :]

    def response(self, name: str) -> Commit | None:
        """Return the first turn of a response."""
        return next((one for one in self.commits.values() if one.response == name), None)

    def check_limits(self, turns: int = 1) -> None:
        """Demand that there is room for so many more turns; raises `RequestRefused`."""
        count, limits = len(self.commits) + turns, self.limits
        if count > limits.nodes:
            what = "turns in this session" if turns == 1 else f"turns in this session with n={turns}"
            raise limit_reached(what, count, limits.nodes, "--max-nodes")
        if self.ids > limits.tokens:
            raise limit_reached("ids in this session", self.ids, limits.tokens, "--max-tokens")

    def check_media(self, media: Mapping[str, MediumBytes]) -> None:
        """Demand that there is room for new media; raises `RequestRefused`."""
        size = sum(self.media.values()) + sum(len(one.data) for one in media.values())
        if size > self.limits.media_bytes:
            what = "images in this session, in MiB"
            raise limit_reached(what, -(-size // MIB), self.limits.media_bytes // MIB, "--max-media")

    async def media_urls(self, digests: Collection[str]) -> dict[str, str]:
        """Return the data URLs of media of this session by digest; raises `LostError` for a missing one."""
        if not digests:
            return {}
        stored = await self.store.media(self.name, digests)
        lost = set(digests).difference(stored)
        if lost:
            self.media = {digest: size for digest, size in self.media.items() if digest not in lost}
            self.addresses = {where: one for where, one in self.addresses.items() if one not in lost}
            raise LostError("an image")  # the next request with its bytes or address puts it back
        # A thread: base64 of megabytes takes long.
        return await anyio.to_thread.run_sync(
            lambda: {digest: MediumBytes.decoded(data).url for digest, data in stored.items()}
        )

    async def commit(self, turns: Sequence[Commit], media: NamedMedia = NO_MEDIA) -> tuple[Commit, ...]:
        """Store turns and show them, with the parents and places that are found here.

        The images that they are the first to show are stored before them; they stay if the turns do not.

        Must not be cancelled. Raises the store's errors; then no turn was added.
        """
        async with self._lock:
            await self._add_media({name: one for name, one in media.new.items() if name not in self.media})
            self.addresses |= media.addresses
            added: list[Commit] = []
            try:
                for one in turns:
                    added.append(await self._add(one))  # noqa: PERF401  # those before a failure are undone
            except BaseException:
                await self._remove(added)
                raise
        return tuple(added)

    async def received(self, commits: Sequence[Commit]) -> None:
        """Note, in the store too, that a client has turns; must not be cancelled."""
        self.unreceived.difference_update(commit.name for commit in commits)
        try:
            await self.store.received(self.name, [commit.call.order for commit in commits])
        except StoreError:  # the client has its answer; at worst an equal request gets the same one
            LOG.warning("session %s: the store did not note that a turn was received", short_id(self.name))

    async def take_back(self, commits: Sequence[Commit]) -> None:
        """Undo commits that no client received; one that another turn continues was received, and stays."""
        async with self._lock:
            await self._remove(commits)

    async def _add_media(self, media: Mapping[str, MediumBytes]) -> None:
        if media:
            self.check_media(media)
            stored = {name: one.encoded() for name, one in media.items()}
            with self._writing():
                await self.store.put_media(self.name, self.epoch, stored)
            self.media |= {name: len(data) for name, data in stored.items()}

    async def _add(self, turn: Commit) -> Commit:
        self.check_limits()
        grown = self.trajectory.append(turn.step)
        step = grown[-1]
        call = attrs.evolve(turn.call, step=step, order=self._place)
        name = self._by_messages.get(id(step.prompt.parent))
        commit = attrs.evolve(turn, call=call, parent=name)
        parent = None if name is None else self.commits[name]
        after = None if parent is None else parent.call.order
        with self._writing():
            await self.store.put(self.name, self.epoch, self._place, encode(commit, parent), after=after)
        self.trajectory, self._place = grown, self._place + 1
        self._show(commit)
        return commit

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Note a failed write: whether it took place is unknown."""
        try:
            yield
        except StoreError:
            self.must_reload = True
            raise

    def _show(self, commit: Commit) -> None:
        if commit.name in self.commits:
            raise InputError(f"a session has two turns named {commit.name:.64}")
        self.commits[commit.name] = commit
        if commit.parent is not None and self.unreceived:  # who continues a turn has received its response
            response = self.commits[commit.parent].response
            self.unreceived -= {one for one in self.unreceived if self.commits[one].response == response}
        self._by_messages[id(commit.step.messages)] = commit.name
        self.ids += _new_ids(commit, self.commits)

    async def _remove(self, commits: Sequence[Commit]) -> None:
        """Remove turns, newest first, except those that another turn continues; some may be gone already."""
        for commit in reversed(commits):
            if commit.name not in self.commits:
                continue
            if any(other.parent == commit.name for other in self.commits.values()):
                continue
            with self._writing():
                await self.store.take_back(self.name, self.epoch, commit.call.order)
            self.ids -= _new_ids(commit, self.commits)
            self.unreceived.discard(commit.name)
            del self.commits[commit.name], self._by_messages[id(commit.step.messages)]
            self.trajectory = Trajectory(one.step for one in self.commits.values())


def _new_ids(commit: Commit, commits: Mapping[str, Commit]) -> int:
    """Return how many ids a turn has that its parent does not have."""
    whole = commit.step.ids.length
    if commit.parent is None:
        return whole
    base = commits[commit.parent].step
    return whole - (base.ids.length if commit.step.prompt_ids.extends(base.ids) else 0)

"""One conversation: a forest of committed turns that only grows, except by what nobody received.

A turn is matched against what was committed when its request came, and committed by what it continues, so two
at once become siblings and neither waits for the other. What fails or is cancelled was never here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
import attrs
import orjson

from tito_core import InputError, Step, Trajectory
from tito_core.samples import Forest

from .commit import Commit
from .limits import Caps
from .prompt import Heard
from .refusals import capped
from .rows import decode, encode
from .store import LostError, Store, StoredSession, StoreError


@attrs.frozen(kw_only=True)
class Head:
    """What a session was opened with."""

    created: float
    """In seconds since 1970."""
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    """Sampling arguments for requests without them."""
    evaluation: bool = False
    """Whether requests may sample otherwise than the defaults say."""

    def encoded(self) -> bytes:
        """Return the head as a store keeps it."""
        return orjson.dumps(attrs.asdict(self))

    @classmethod
    def of(cls, data: bytes) -> Head:
        """Read a head."""
        return cls(**orjson.loads(data))


@attrs.define(eq=False)
class Session:
    """A session in memory. What it shows is committed, in its store and here."""

    name: str
    head: Head
    store: Store
    caps: Caps
    epoch: int
    trajectory: Trajectory = attrs.field(factory=Trajectory, init=False)
    """A value: whoever took it before a commit keeps the one before."""
    commits: dict[str, Commit] = attrs.field(factory=dict, init=False)
    """By name, in the order of their commits."""
    ids: int = attrs.field(default=0, init=False)
    """How many ids are held, shared ones once."""
    calls: int = attrs.field(default=0, init=False)
    """Requests that use it now."""
    used: float = attrs.field(factory=time.monotonic, init=False)
    generation: int = attrs.field(default=0, init=False)
    """How often it was used, for those who delete only what nobody used since."""
    doubted: bool = attrs.field(default=False, init=False)
    """Whether a write failed, so that the store may have what is not here: it must be read again."""
    heard: Heard | None = attrs.field(default=None, init=False)
    """The prompt that was answered last."""
    _place: int = attrs.field(default=0, init=False)
    _told: dict[int, str] = attrs.field(factory=dict, init=False)
    """Commits by the identity of their messages, which those that go on from them share."""
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, init=False)

    @classmethod
    def restored(cls, name: str, stored: StoredSession, store: Store, caps: Caps, epoch: int) -> Session:
        """Return a session as it was stored."""
        made = cls(name, Head.of(stored.head), store, caps, epoch)
        for place, row in stored.rows.items():
            made._restore(place, decode(row, made._kept))
        return made

    @property
    def forest(self) -> Forest:
        """The turns as a forest; linear in what is new in each."""
        return Forest.of(commit.call for commit in self.commits.values())

    @property
    def newest(self) -> Commit | None:
        """The turn that was committed last."""
        return next(reversed(self.commits.values()), None)

    def path(self, commit: Commit | None) -> list[Commit]:
        """Return the turns that a turn goes on from, and itself, oldest first."""
        found = []
        while commit is not None:
            found.append(commit)
            commit = None if commit.parent is None else self.commits[commit.parent]
        return found[::-1]

    def response(self, name: str) -> Commit | None:
        """Return the first turn of a response."""
        return next((one for one in self.commits.values() if one.response == name), None)

    def room(self, new: int = 1) -> None:
        """Refuse turns that the session has no room for."""
        if len(self.commits) + new > self.caps.nodes:
            raise capped("turns in this session", len(self.commits) + new, self.caps.nodes, "--max-nodes")
        if self.ids > self.caps.tokens:
            raise capped("ids in this session", self.ids, self.caps.tokens, "--max-tokens")

    async def commit(self, made: Sequence[Commit]) -> tuple[Commit, ...]:
        """Store turns and show them; their parents and places are found here.

        Must not be cancelled. Raises the store's errors, and has changed nothing then.
        """
        async with self._lock:
            kept: list[Commit] = []
            try:
                for one in made:
                    kept.append(await self._add(one))  # noqa: PERF401  # those before a failure are undone
            except BaseException:
                await self._forget(kept)
                raise
        return tuple(kept)

    async def take_back(self, commits: Sequence[Commit]) -> None:
        """Undo commits that nobody received; what somebody went on from was received, and stays."""
        async with self._lock:
            await self._forget(commits)

    async def _add(self, made: Commit) -> Commit:
        self.room()
        commit, grown = self._placed(made)
        parent = None if commit.parent is None else self.commits[commit.parent]
        with self._doubting():
            after = None if parent is None else parent.call.order
            await self.store.put(self.name, self.epoch, self._place, encode(commit, parent), after=after)
        self.trajectory, self._place = grown, self._place + 1
        self._show(commit)
        return commit

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Take note of a write of which nobody knows whether it was made."""
        try:
            yield
        except StoreError:
            self.doubted = True
            raise

    def _kept(self, name: str) -> Commit:
        """Return a stored turn's parent."""
        if name not in self.commits:
            raise LostError
        return self.commits[name]

    def _restore(self, place: int, commit: Commit) -> None:
        """Show a stored turn; its step is the one that the trajectory holds, which others will share."""
        self.trajectory, self._place = self.trajectory.append(commit.step), place + 1
        call = attrs.evolve(commit.call, step=self.trajectory[-1])
        self._show(attrs.evolve(commit, call=call))

    def _placed(self, made: Commit) -> tuple[Commit, Trajectory]:
        """Return a commit with its parent, sharing what that has, and the trajectory with it."""
        grown = self.trajectory.append(made.step)
        step = grown[-1]
        call = attrs.evolve(made.call, step=step, order=self._place)
        return attrs.evolve(made, call=call, parent=self._parent_name(step)), grown

    def _parent_name(self, step: Step) -> str | None:
        return self._told.get(id(step.prompt.parent)) if step.prompt.parent is not None else None

    def _show(self, commit: Commit) -> None:
        if commit.name in self.commits:
            raise InputError(f"a session has two turns named {commit.name:.64}")
        self.commits[commit.name] = commit
        self._told[id(commit.step.messages)] = commit.name
        self.ids += _new_ids(commit, self.commits)

    async def _forget(self, commits: Sequence[Commit]) -> None:
        """Forget turns, newest first; one that another goes on from stays."""
        for commit in reversed(commits):
            if any(other.parent == commit.name for other in self.commits.values()):
                continue
            with self._doubting():
                await self.store.take_back(self.name, self.epoch, commit.call.order)
            self.ids -= _new_ids(commit, self.commits)
            del self.commits[commit.name], self._told[id(commit.step.messages)]
            self.trajectory = Trajectory(one.step for one in self.commits.values())


def _new_ids(commit: Commit, commits: Mapping[str, Commit]) -> int:
    """Return how many ids a turn holds that its parent does not."""
    whole = commit.step.ids.length
    if commit.parent is None:
        return whole
    base = commits[commit.parent].step
    return whole - (base.ids.length if commit.step.prompt_ids.extends(base.ids) else 0)

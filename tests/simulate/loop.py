"""An event loop with virtual time, on which several simulated processes run; a seed chooses their order.

Each simulated process has a queue of its own. Within a process, callbacks run in the order in which they were
scheduled, as asyncio promises. Which process runs next is drawn. Time stands still while anything can run,
and then jumps to the next timer. There are no threads, no sockets and no real clock.

A callback belongs to the process in whose context it was scheduled. A process that dies never runs again: no
`finally`, no cancellation, no timer, just as after `kill -9`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

import attrs

from tests.simulate.draws import Draws

START = 1_000_000_000.0
"""The time at which a simulation begins, in seconds: later than any machine's own monotonic clock."""
STEPS = 2_000_000
"""More callbacks than any simulation needs: one that runs longer goes round in circles."""


class StuckError(Exception):
    """Nothing can run any more, or without an end, before the simulation is over."""


@attrs.define(eq=False)
class SimulatedProcess:
    """A process: a queue of callbacks that runs, pauses and may die.

    Attributes:
        name: Its name in timelines.
        alive: Whether it runs; one that died never does again.
        paused: Until when it does not run, in seconds.
        steps: How many of its callbacks ran.
        dies_at: After how many callbacks it dies; None for never.
        died: Called when it dies.
    """

    name: str
    alive: bool = True
    paused: float = 0.0
    steps: int = 0
    dies_at: int | None = None
    died: Callable[[], None] | None = None
    queue: deque[asyncio.Handle] = attrs.field(factory=deque, repr=False)

    def context(self) -> Context:
        """Return a context in which callbacks belong to this process."""
        context = Context()
        context.run(_PROCESS.set, self)
        return context


_PROCESS: ContextVar[SimulatedProcess] = ContextVar("process")


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks have the same order in every run."""

    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.BaseEventLoop):
    """The event loop of one simulation."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self.draws = draws
        self.now = START
        self.steps = 0
        self.tasks: list[NumberedTask] = []
        self.outside = SimulatedProcess("outside")
        self.current = self.outside
        self.processes: list[SimulatedProcess] = [self.outside]
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = 0
        self.set_task_factory(self._new_task)

    # What asyncio asks of a loop.

    def time(self) -> float:
        """Return the virtual time."""
        return self.now

    def call_soon(  # type: ignore[override]  # arguments are not checked here
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule a callback in the process of its context."""
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._owner(context).queue.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_at(  # type: ignore[override]  # arguments are not checked here
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for a time."""
        context = copy_context() if context is None else context
        self._owner(context)
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, handle))
        return handle

    def call_later(  # type: ignore[override]  # arguments are not checked here
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Schedule a callback for later."""
        return self.call_at(self.now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped when its time comes."""

    def _run_once(self) -> None:
        """Run one callback of one process."""
        ready = [one for one in self.processes if one.queue and one.alive and one.paused <= self.now]
        if not ready:
            self._advance()
            return
        process = ready[0] if len(ready) == 1 else self.draws.pick(ready)
        handle = process.queue.popleft()
        if handle.cancelled():
            return
        self.steps += 1
        if self.steps > STEPS:
            raise StuckError(f"{STEPS} callbacks ran, and the simulation is not over")
        self.current = process
        handle._run()  # as asyncio's own loops do
        self.current = self.outside
        process.steps += 1
        if process.dies_at is not None and process.steps >= process.dies_at:
            self.kill(process)

    # What the simulation asks of it.

    def process(self, name: str) -> SimulatedProcess:
        """Add a process."""
        process = SimulatedProcess(name)
        self.processes.append(process)
        return process

    def kill(self, process: SimulatedProcess) -> None:
        """End a process at once: what it has scheduled never runs."""
        if process.alive and process is not self.outside:
            process.alive = False
            if process.died is not None:
                process.died()

    def spawn(self, process: SimulatedProcess, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task in a process."""
        return self.create_task(work, context=process.context())

    async def bury(self) -> None:
        """End all tasks, those of dead processes too, so that nothing of them is left to the interpreter."""
        for process in self.processes:
            process.alive, process.paused, process.dies_at, process.died = True, 0.0, None, None
        own = asyncio.current_task()
        for _ in range(20):
            pending = [task for task in self.tasks if not task.done() and task is not own]
            if not pending:
                break
            for task in pending:
                task.cancel()
            await asyncio.sleep(60)
        for task in self.tasks:
            if not task.done() and task is not own:
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # it waits for what is over

    def _owner(self, context: Context) -> SimulatedProcess:
        """Return the process of a context; an empty context, as uvicorn makes, gets the one that runs now."""
        process = context.get(_PROCESS)
        if process is None:
            context.run(_PROCESS.set, self.current)
            return self.current
        return process

    def _advance(self) -> None:
        """Let time jump to the next timer, or to the end of the next pause."""
        pauses = [one.paused for one in self.processes if one.queue and one.alive]
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers and not pauses:
            raise StuckError("nothing can run any more: every task waits for another one")
        times = [*pauses, *(when for when, _, _ in self._timers[:1])]
        self.now = max(self.now, min(times))
        while self._timers and self._timers[0][0] <= self.now:
            _, _, handle = heapq.heappop(self._timers)
            context = handle._context  # type: ignore[attr-defined]  # where it was scheduled
            if not handle.cancelled():
                self._owner(context).queue.append(handle)

    def _new_task(self, _: Any, work: Any, *, context: Context | None = None, **more: Any) -> NumberedTask:
        context = copy_context() if context is None else context
        self._owner(context)
        task = NumberedTask(len(self.tasks) + 1, work, loop=self, context=context, **more)
        self.tasks.append(task)
        return task

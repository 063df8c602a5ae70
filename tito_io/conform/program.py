"""Ask a program for answers: one JSON line in, one JSON line out, each within a time limit."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import attrs
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream

from .standard_error import StandardError
from .vector import ConformError, Vector

LONGEST_ANSWER = 1 << 24
"""Bytes. An answer has some hundred ids; a program that writes without line breaks is stopped here."""
PATIENCE = 5.0
"""Seconds that a program gets to end after its last answer, or after it closed its output."""
MOST_FAILURES = 3
"""After as many failures without an answer between them, the program is not started again."""


class ProgramError(Exception):
    """The program did not answer a question; it cannot be asked on."""


class NotAskedError(ProgramError):
    """The program was given up before."""


@attrs.define
class Program:
    """A running program.

    Attributes:
        process: The process, the leader of a process group of its own.
        output: Its standard output.
        stderr: Its standard error.
    """

    process: Process
    output: BufferedByteReceiveStream
    stderr: StandardError

    @classmethod
    async def start(cls, command: Sequence[str]) -> Program:
        """Start a command; raises `ConformError` if it cannot be started."""
        stderr = StandardError()
        try:
            process = await anyio.open_process(command, stderr=stderr.descriptor, start_new_session=True)
        except OSError as error:
            reason = f"{error.strerror}{_hint(command[0])}"
            raise ConformError(f"{command[0]}: cannot be started: {reason}") from error
        finally:
            stderr.follow()
        output: ByteReceiveStream | None = process.stdout
        assert output is not None  # noqa: S101  # for the type: it is a pipe
        return cls(process, BufferedByteReceiveStream(output), stderr)

    async def ask(self, question: Mapping[str, Any], seconds: float) -> Any:
        """Return the answer to a question; raises `ProgramError`."""
        try:
            with anyio.fail_after(seconds):
                return await self._answer(question)
        except TimeoutError:
            said = _said(await self.stderr.last_line())
            raise ProgramError(f"no answer within {seconds:g} s (see --timeout){said}") from None
        except anyio.DelimiterNotFound:
            raise ProgramError(f"wrote {LONGEST_ANSWER} bytes without a line break") from None
        except (
            anyio.IncompleteRead,
            anyio.EndOfStream,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
        ):
            raise ProgramError(await self._ending()) from None

    async def _answer(self, question: Mapping[str, Any]) -> Any:
        assert self.process.stdin is not None  # noqa: S101  # likewise
        await self.process.stdin.send(json.dumps(question).encode() + b"\n")
        line = await self.output.receive_until(b"\n", LONGEST_ANSWER)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            text = f"{line.decode(errors='replace')!r:.80}"
            raise ProgramError(
                f"wrote {text}, which is not JSON: standard output is for answers only"
            ) from None
        if isinstance(answer, dict) and "id" not in answer:
            raise ProgramError(f"its answer has no `id`: repeat the question's, {question['id']!r}")
        found = answer["id"] if isinstance(answer, dict) else question["id"]  # `judge` names other values
        if found != question["id"]:
            raise ProgramError(f"answered {found!r:.80} when {question['id']!r} was asked: answer in order")
        return answer

    async def _ending(self) -> str:
        """Return how a program ended that wrote no whole answer."""
        with anyio.move_on_after(PATIENCE):
            status = await self.process.wait()
            said = _said(await self.stderr.last_line(PATIENCE))
            return f"ended with status {status} before it answered{said}"
        return "closed its output before it answered"

    async def close(self) -> bool:
        """Let the program end, kill it if it stays, and return whether it wrote nothing more."""
        quiet = True
        with anyio.move_on_after(PATIENCE):
            if self.process.stdin is not None:
                with suppress(anyio.BrokenResourceError):
                    await self.process.stdin.aclose()
            quiet = not self.output.buffer
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                quiet = quiet and not (await self.output.receive(1)).strip()
        await self.kill()
        return quiet

    async def kill(self) -> None:
        """End the program and what it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        with anyio.CancelScope(shield=True):
            await self.process.wait()
            await self.process.aclose()


def _hint(program: str) -> str:
    """Return what to do about a program that cannot be started: perhaps it is a script."""
    return f"; give its interpreter, such as: python {program}" if Path(program).is_file() else ""


def _said(line: str) -> str:
    """Return the last line of a program's standard error as the end of a sentence."""
    return f"; the last line of its stderr: {line}" if line else ""


async def answers(
    command: Sequence[str], vectors: Iterable[Vector], seconds: float
) -> AsyncGenerator[tuple[Vector, Any]]:
    """Yield each vector with the program's answer, or with a `ProgramError`.

    A program that failed is started again for the next vector.
    """
    program: Program | None = None
    failures, before = 0, ""
    try:
        for one in vectors:
            if failures >= MOST_FAILURES:
                yield one, NotAskedError(f"not asked: the program failed {failures} times in a row; {before}")
                continue
            program = program or await Program.start(command)
            try:
                answer: Any = await program.ask(one.question, seconds)
                failures = 0
            except ProgramError as error:
                answer, before = error, f"the last time: {error}"
                failures += 1
                await program.kill()
                program = None
            yield one, answer
        if program is not None and not await program.close():
            raise ConformError(f"{command[0]}: wrote more lines than it was asked for")
        program = None
    finally:
        if program is not None:
            with anyio.CancelScope(shield=True):
                await program.kill()

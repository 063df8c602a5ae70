"""A pytest plugin: try mutants in forks of one process, which has loaded the tests.

`mutants.json` in the folder that `TITO_MUTANTS` names has the mutants, each with its tests. A fork gives the
functions of a file the code of the mutant, and runs the tests until one fails. `verdicts` gets a line for
each mutant that is judged so. A mutant is left out, to be tried in a process of its own, where

- something outside of functions changes, which has taken effect already,
- the fork ends without a word, because a test hangs or crashes it.

A test that fails counts only if it passes in a fork without a mutant.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from inspect import CO_NEWLOCALS
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import attrs
import pytest

from tests.faults.fault import Fault
from tests.mutants.plugin import FOLDER

COMPREHENSIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"))
"""The names of codes that are no functions."""
Named = dict[tuple[str, int], CodeType]
"""Codes by qualified name, and number among those of that name."""


def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try each mutant, in the place of running the tests."""
    faulthandler.cancel_dump_traceback_later()
    forks = Forks({item.nodeid: item for item in session.items}, session.config.rootpath)
    gc.collect()
    gc.freeze()  # forks then share what is loaded
    for number, one in enumerate(json.loads((FOLDER / "mutants.json").read_text())):
        killed = forks.killed(
            Fault("a mutant", one["file"], one["right"], one["wrong"], package=""), one["tests"]
        )
        if killed is not None:
            line = json.dumps({"number": number, "killed": bool(killed), "why": killed})
            with (FOLDER / "verdicts").open("a") as file:
                print(line, file=file)
    return True


@attrs.define
class Forks:
    """Tries mutants.

    Attributes:
        items: The tests by name.
        home: The copy of the project that they were loaded from.
        sound: Tests that pass in a fork without a mutant.
        unsound: Those that do not.
        functions: All functions by the file of their code.
    """

    items: dict[str, pytest.Item]
    home: Path
    sound: set[str] = attrs.field(factory=set, init=False)
    unsound: set[str] = attrs.field(factory=set, init=False)
    functions: dict[str, list[FunctionType]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.functions = functions_by_file()

    def killed(self, mutant: Fault, tests: Iterable[str]) -> str | None:
        """Return the test that kills a mutant, "" where none does; None where that cannot be told here."""
        while True:
            chosen = [name for name in tests if name in self.items and name not in self.unsound]
            with _planted(mutant, self.home):
                found = self._failing(chosen, mutant)
            if not found or self._is_sound(found):
                return found

    def _is_sound(self, name: str) -> bool:
        if name not in self.sound:
            (self.sound if self._failing([name]) == "" else self.unsound).add(name)
        return name in self.sound

    def _failing(self, names: list[str], mutant: Fault | None = None) -> str | None:
        """Run tests in a fork; return the one that fails, "" where all pass, None where the fork is lost."""
        ours, theirs = os.pipe()
        process = os.fork()
        if process == 0:
            os.setsid()
            with suppress(BaseException):
                if mutant is None or self._patch(mutant):
                    os.write(theirs, json.dumps(self._run(names)).encode())
            os._exit(0)
        os.close(theirs)
        os.waitpid(process, 0)
        with suppress(ProcessLookupError):  # what its tests have started
            os.killpg(process, signal.SIGKILL)
        with os.fdopen(ours, "rb") as said:
            words = said.read()
        return str(json.loads(words)) if words else None

    def _patch(self, mutant: Fault) -> bool:
        path = str(self.home / mutant.file)
        return patch(self.functions.get(path, []), path, mutant.right, mutant.wrong)

    def _run(self, names: list[str]) -> str:
        """Run tests until one fails, and return that one."""
        failed: list[str] = []

        class Watch:
            def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
                failed.extend([report.nodeid] if report.failed else [])

        items = [self.items[name] for name in names]
        for item, following in zip(items, [*items[1:], None], strict=True):
            watch = Watch()
            item.config.pluginmanager.register(watch)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item.config.pluginmanager.unregister(watch)
            if failed:
                return failed[0]
        return ""


@contextmanager
def _planted(mutant: Fault, home: Path) -> Iterator[None]:
    """Have a mutant in the files, too: tests may start processes, or load what nobody has loaded yet."""
    mutant.plant(home)
    try:
        yield
    finally:
        attrs.evolve(mutant, right=mutant.wrong, wrong=mutant.right).plant(home)


def functions_by_file() -> dict[str, list[FunctionType]]:
    """Return all functions that there are, by the file of their code."""
    found: dict[str, list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType):
            found.setdefault(one.__code__.co_filename, []).append(one)
    return found


def patch(functions: Iterable[FunctionType], path: str, right: str, wrong: str) -> bool:
    """Give functions of a file the code that they have in another text of it.

    Return False, and change nothing, where more than the code of functions changes, or nothing of these.
    """
    old, new = (compile(text, path, "exec", dont_inherit=True) for text in (right, wrong))
    if not _same_outside(old, new):
        return False
    before, after = _codes(old), _codes(new)
    names = {(code.co_qualname, code.co_firstlineno): name for name, code in before.items()}
    changes: list[tuple[FunctionType, CodeType]] = []
    for one in functions:
        name = names.get((one.__code__.co_qualname, one.__code__.co_firstlineno))
        code = None if name is None else after.get(name)
        if code is None or code.co_freevars != one.__code__.co_freevars:
            return False
        changes.append((one, code))
    for one, code in changes:
        one.__code__ = code
    return bool(changes)


def _codes(code: CodeType) -> Named:
    """Return the codes in a code, at any depth."""
    found: Named = {}

    def add(holder: CodeType) -> None:
        for one in holder.co_consts:
            if isinstance(one, CodeType):
                number = sum(name == one.co_qualname for name, _ in found)
                found[one.co_qualname, number] = one
                add(one)

    add(code)
    return found


def _same_outside(old: CodeType, new: CodeType) -> bool:
    """Return whether two codes are the same but for the bodies of functions in them."""
    if (old.co_code, old.co_names, len(old.co_consts)) != (new.co_code, new.co_names, len(new.co_consts)):
        return False
    return all(map(_same_constant, old.co_consts, new.co_consts))


def _same_constant(old: Any, new: Any) -> bool:
    if isinstance(old, CodeType) and isinstance(new, CodeType):
        # The body of a class, and before Python 3.12 a comprehension, run where they stand.
        inside = bool(old.co_flags & CO_NEWLOCALS) and old.co_name not in COMPREHENSIONS
        return old.co_qualname == new.co_qualname and (inside or _same_outside(old, new))
    return type(old) is type(new) and repr(old) == repr(new)

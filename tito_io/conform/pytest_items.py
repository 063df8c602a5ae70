"""The tests that the pytest plugin makes: one for each vector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from numbers import Integral
from pathlib import Path
from typing import Any

import pytest

from tito_core import TitoError

from .judge import Judged, Verdict, judge
from .run import selected
from .toy_tokenizer import ToyTokenizer
from .vector import Vector

NAME = "tito-conform"


class ConformanceTests:
    """Adds the tests of all vectors to a run.

    Args:
        target: The function to test, as MODULE:FUNCTION.
        folder: The folder of the vectors; None for those of this version.
    """

    def __init__(self, target: str, folder: str | None) -> None:
        """Keep what was given; the function is imported when tests are collected."""
        self.target = target
        self.folder = None if folder is None else Path(folder)

    @pytest.hookimpl(tryfirst=True)  # before -k and -m choose among the tests
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Append a test for each vector."""
        function = _function(self.target, session.config)
        try:
            vectors = selected(self.folder, "")
        except TitoError as error:
            raise pytest.UsageError(f"--tito-vectors: {error}") from error
        collector = VectorCollector.from_parent(session, name=NAME, nodeid=NAME)
        items.extend(VectorItem.of(collector, vector, function) for vector in vectors)


class VectorCollector(pytest.Collector):
    """The parent of the tests, by whose name -k finds them."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield nothing: the tests are appended to the run."""
        yield from ()


class FailedVector(Exception):  # noqa: N818  # no error of a program: a verdict
    """An answer that is neither exact nor rightly refused."""

    def __init__(self, judged: Judged) -> None:
        """Keep the verdict."""
        super().__init__(judged.detail)
        self.judged = judged


class VectorItem(pytest.Item):
    """The test of one vector."""

    vector: Vector
    function: Callable[[dict[str, Any]], Any]

    @classmethod
    def of(
        cls, parent: pytest.Collector, vector: Vector, function: Callable[[dict[str, Any]], Any]
    ) -> VectorItem:
        """Return the test of a vector."""
        item: VectorItem = cls.from_parent(parent, name=vector.id)
        item.vector, item.function = vector, function
        return item

    def runtest(self) -> None:
        """Ask the function, and judge what it returns."""
        returned = self.function(self.vector.question)
        answer = _answer(returned)
        if answer is not None:
            judged = judge(self.vector, answer)
        else:
            given = f"the function returned a value of type {type(returned).__name__}"
            detail = f"{given}: give a list of ids, None for a refusal, or a mapping with a whole answer"
            judged = Judged(self.vector, Verdict.ERROR, detail)
        if judged.verdict is Verdict.NOT_OFFERED:
            pytest.skip(judged.detail)
        if judged.verdict not in (Verdict.EXACT, Verdict.REFUSED):
            raise FailedVector(judged)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return a verdict as text; other exceptions as pytest shows them, from the function on."""
        if isinstance(excinfo.value, FailedVector):
            return _described(excinfo.value.judged)
        if not self.config.getoption("fulltrace"):
            frames = excinfo.traceback.cut(path=__file__)
            excinfo.traceback = frames[1:] or frames
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the vector as the test's place."""
        return self.path, None, f"{NAME}: {self.vector.id}"


def _answer(returned: Any) -> Mapping[str, Any] | None:
    """Return what a function returned as an answer of the protocol; None if it is of another type.

    Arrays and tensors are taken as their lists.

    >>> from array import array
    >>> _answer(array("i", [7])), _answer("7")
    ({'ids': [7]}, None)
    """
    if returned is None:
        return {"refusal": "None was returned"}
    if isinstance(returned, Mapping):
        return returned
    ids = returned.tolist() if hasattr(returned, "tolist") else returned
    return {"ids": [_id(one) for one in ids]} if isinstance(ids, list | tuple) else None


def _id(value: Any) -> Any:
    """Return a number of an array as Python's; other values as they are."""
    return value if isinstance(value, bool) or not isinstance(value, Integral) else int(value)


def _described(judged: Judged) -> str:
    """Return a verdict in lines, with the texts and the tokens where they differ."""
    lines = [f"{judged.vector.id}: {judged.vector.title}", f"{judged.verdict.value}: {judged.detail}"]
    difference = judged.difference
    if difference is not None:
        decode = ToyTokenizer.of(judged.vector.data["tokenizer"]).decode
        lines += [
            "",
            f"right text: {decode(difference.right)!r}",
            f"given text: {decode(difference.given)!r}",
        ]
        lines += ["", str(difference)]
    return "\n".join(lines)


def _function(target: str, config: pytest.Config) -> Callable[[dict[str, Any]], Any]:
    """Import a function; modules are looked for in the folder of the call, too."""
    module, colon, name = target.partition(":")
    if not colon or not module or not name.isidentifier():
        raise pytest.UsageError(f"--tito-conform={target}: give MODULE:FUNCTION, such as my_adapter:answer")
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        function = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise pytest.UsageError(f"--tito-conform {target}: no module {error.name!r}") from error
    except AttributeError as error:
        raise pytest.UsageError(f"--tito-conform {target}: {error}") from error
    if not callable(function):
        raise pytest.UsageError(
            f"--tito-conform {target}: {name} is a {type(function).__name__}: give a function"
        )
    found: Callable[[dict[str, Any]], Any] = function
    return found

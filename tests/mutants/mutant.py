"""Mutants of one file: small changes that its tests should notice.

Most operators are those of mutmut. Its own command changes functions alone, all of them in one file. Here a
mutant is a file with one change, so that what runs on import can change, and in any kind of process.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import attrs
import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

from tests.mutants.score import function_at

SPEAKS = ("Error", "Refused", "warn", "debug", "info", "warning", "error", "exception", "echo")
"""Names of calls end with these if their texts are for people."""
FOR_PEOPLE = {"help", "short_help", "metavar", "epilog", "description", "detail"}
"""Arguments that are texts for people, too."""
UNCHANGED = (cst.Annotation, cst.Import, cst.ImportFrom, cst.TypeAlias)
"""What is read by type checkers alone, or fails on import."""
TEXTS = (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString)
FOR_TYPES = (
    m.AnnAssign(annotation=m.Annotation(m.Name("TypeAlias")))
    | m.If(test=m.Name("TYPE_CHECKING"))
    | m.Assign(targets=[m.AssignTarget(m.Name("__all__"))])
    | m.Assign(value=m.Call(m.Name("TypeVar") | m.Name("ParamSpec")))
    | m.Assign(
        value=m.Subscript(
            m.Name("dict") | m.Name("frozenset") | m.Name("tuple") | m.Name("Callable") | m.Name("Generator")
        )
    )
)
JUMP = m.SimpleStatementLine([m.Continue() | m.Break()])
COARSE: tuple[Any, ...] = (
    mutators.operator_arg_removal,
    mutators.operator_assignment,
    mutators.operator_lambda,
)
"""These put None in the place of a value, or leave it out: nearly all tests that run the line see that."""


@attrs.frozen
class Mutant:
    """A file with one change.

    Attributes:
        file: Its path in the project.
        lines: The lines of the changed statement, or of its head.
        right: The text of the file.
        wrong: The same with the change.
    """

    file: str
    lines: range
    right: str = attrs.field(repr=False)
    wrong: str = attrs.field(repr=False)

    @property
    def diff(self) -> str:
        """The change, as a unified diff without context."""
        right, wrong = (text.splitlines(keepends=True) for text in (self.right, self.wrong))
        return "".join(difflib.unified_diff(right, wrong, self.file, self.file, n=0))

    @property
    def change(self) -> str:
        """The lines that change and what becomes of them, without their places: what names the mutant."""
        kept = [line for line in self.diff.splitlines()[2:] if not line.startswith("@@")]
        return "\n".join(line[0] + " ".join(line[1:].split()) for line in kept)

    @property
    def function(self) -> str:
        """The innermost function that the change is in; empty outside of all."""
        return function_at(self.right, self.lines.start)

    def is_reached(self, lines: Mapping[str, Iterable[int]]) -> bool:
        """Return whether lines of files, such as a test runs, are among those of the changed statement."""
        return any(line in self.lines for line in lines.get(self.file, ()))


@attrs.frozen
class Site:
    """A node that can change, and what it can become.

    Attributes:
        node: The node.
        others: What it can become.
        coarse: Whether each of them is a change that is easily seen.
        lines: The lines of its statement, or of the statement's head.
    """

    node: cst.CSTNode
    others: tuple[cst.CSTNode, ...]
    coarse: bool
    lines: range


def drawn(root: Path, files: Iterable[str], count: int, random: Random) -> list[Mutant]:
    """Draw lines at random, none twice, and one mutant of each: a coarse one only if there is no other."""
    modules = {file: MetadataWrapper(cst.parse_module((root / file).read_text())) for file in files}
    sites: dict[tuple[str, int], list[Site]] = {}
    for file, wrapper in modules.items():
        for line, site in sites_of(wrapper):
            sites.setdefault((file, line), []).append(site)
    chosen = random.sample(sorted(sites), min(count, len(sites)))
    return [_mutant(file, modules[file].module, sites[file, line], random) for file, line in chosen]


def _mutant(file: str, module: cst.Module, sites: Iterable[Site], random: Random) -> Mutant:
    least = min(site.coarse for site in sites)
    site = random.choice([site for site in sites if site.coarse == least])
    wrong = module.deep_replace(site.node, random.choice(site.others))
    return Mutant(file, site.lines, module.code, cst.ensure_type(wrong, cst.Module).code)


def sites_of(wrapper: MetadataWrapper) -> Iterator[tuple[int, Site]]:
    """Yield what can change in a module, with its line."""
    places: Any = wrapper.resolve(PositionProvider)

    def walk(node: cst.CSTNode, lines: range, *, spoken: bool) -> Iterator[tuple[int, Site]]:
        if isinstance(node, UNCHANGED) or _is_text(node, spoken=spoken) or _is_for_types(node):
            return
        here = places.get(node)
        if here is not None and isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            # Where a condition jumps, Python leaves a `continue` out, and coverage does not see its line.
            begin = lines.start if m.matches(node, JUMP) else here.start.line
            lines = range(begin, _end_of_head(node, places) + 1)
        spoken = spoken or _speaks(node)
        for others, coarse in ((_fine(node), False), (_coarse(node, spoken=spoken), True)):
            found = tuple(other for other in others if not other.deep_equals(node))
            if found and here is not None:
                yield here.start.line, Site(node, found, coarse, lines)
        for child in node.children:
            yield from walk(child, lines, spoken=spoken)

    return walk(wrapper.module, range(0), spoken=False)


def _end_of_head(node: Any, places: Any) -> int:
    """Return the last line of a statement, without what it holds."""
    if isinstance(node, cst.SimpleStatementLine):
        return int(places[node].end.line)
    body = node.cases[0] if isinstance(node, cst.Match) else node.body
    return max(int(places[node].start.line), int(places[body].start.line) - 1)


def _fine(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield what a node may become: mutmut's choices, a condition that always or never holds, nothing."""
    for kind, operator in mutators.mutation_operators:
        if isinstance(node, kind) and operator not in COARSE:
            # Of a text the first is another one; the rest change its case, which is rarely read.
            most = 1 if operator is mutators.operator_string else None
            yield from list(operator(node))[:most]
    if isinstance(node, cst.If | cst.CompIf):
        for name in ("True", "False"):
            yield node.with_changes(test=cst.Name(name, lpar=[cst.LeftParen()], rpar=[cst.RightParen()]))
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call | cst.Await):
        yield cst.Pass()


def _coarse(node: cst.CSTNode, *, spoken: bool) -> Iterator[cst.CSTNode]:
    for kind, operator in mutators.mutation_operators:
        if isinstance(node, kind) and operator in COARSE:
            for other in operator(node):
                lost = _lost(node, other)
                value = lost.value if isinstance(lost, cst.Arg) else lost
                read = isinstance(value, TEXTS) and (_is_text(value, spoken=spoken) or _speaks(lost))
                if not (read or _is_for_types(lost)):
                    yield other


def _lost(node: Any, other: Any) -> Any:
    """Return the value that is replaced or left out: of a call the first argument that differs."""
    if not isinstance(node, cst.Call):
        return getattr(node, "value", None)
    left = [*other.args]
    return next(arg for place, arg in enumerate(node.args) if place == len(left) or left[place] is not arg)


def _speaks(node: cst.CSTNode | None) -> bool:
    """Return whether the texts in a node are for people."""
    if isinstance(node, cst.Arg):
        return node.keyword is not None and node.keyword.value in FOR_PEOPLE
    return isinstance(node, cst.Raise) or _is_named(node, *SPEAKS)


def _is_named(node: cst.CSTNode | None, *ends: str) -> bool:
    if not isinstance(node, cst.Call):
        return False
    called = node.func.attr if isinstance(node.func, cst.Attribute) else node.func
    return isinstance(called, cst.Name) and called.value.endswith(ends)


def _is_text(node: cst.CSTNode, *, spoken: bool) -> bool:
    """Return whether a node is a docstring, or a text for people: code reads no text of three words."""
    if isinstance(node, cst.Expr):
        return isinstance(node.value, TEXTS)
    said = isinstance(node, cst.SimpleString) and node.value.count(" ") > 1
    return isinstance(node, TEXTS) and (spoken or said)


def _is_for_types(node: cst.CSTNode | None) -> bool:
    """Return whether a node says which type a value has, how a class of values is made, or what is public."""
    if isinstance(node, cst.Decorator):
        return _is_named(node.decorator, "frozen", "define")
    if isinstance(node, cst.Arg):  # a constructor may take more than anybody gives it
        return node.keyword is not None and node.keyword.value == "init"
    return _is_named(node, "cast") or (node is not None and m.matches(node, FOR_TYPES))

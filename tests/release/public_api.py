"""The stable API as a list of names and signatures:  python -m tests.release.public_api [--write].

`docs/reference/stable.toml` says which names are stable. Of a class, its public methods, properties and
fields are, too. Integrations are read and not imported: that works beside their framework alone.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import click

from tests.required import require
from tito_core.shared import Chain, Shared

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
FILE = REFERENCE / "public-api.txt"
WRITE = "python -m tests.release.public_api --write"
STABLE = tomllib.loads((REFERENCE / "stable.toml").read_text(encoding="utf-8"))
MEMBER = re.compile(r"""<(\w+\.\w+): (?:'[^']*'|"[^"]*"|\d+)>""")
"""How a member of an enumeration is shown; its value is a text for people."""


def public_api() -> dict[str, str]:
    """Return what follows each stable name: a signature, a type or nothing."""
    found: dict[str, str] = {}
    places: dict[int, str] = {}
    for name in sorted(stable_names()):
        if name.startswith("tito_io.integrations."):
            found.update(read(name))
            continue
        value = _object(name)
        first = places.setdefault(id(value), name) if callable(value) else name
        found.update(described(name, value) if first == name else {name: f" is {first}"})
    return found


def stable_names() -> set[str]:
    """Return each name that is stable, with its module."""
    listed = [(name, import_module(name).__all__) for name in STABLE["modules"]]
    listed += [*STABLE["names"].items(), *STABLE["integrations"].items()]
    return {f"{module}.{name}" for module, names in listed for name in names}


def _object(name: str) -> Any:
    holder, _, last = name.rpartition(".")
    return getattr(import_module(holder), last)


def read(name: str) -> Iterator[tuple[str, str]]:
    """Yield a function of a module that is not imported, or a class with its members, as they are written."""
    module, _, last = name.rpartition(".")
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    (node,) = (one for one in tree.body if getattr(one, "name", None) == last)
    yield from _written(name, node)


def _written(name: str, node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        arrow = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield name, f"({ast.unparse(node.args)}){arrow}"
    elif isinstance(node, ast.AnnAssign):
        yield name, f": {ast.unparse(node.annotation)}"
    elif isinstance(node, ast.ClassDef):
        yield name, f" is a {', '.join(map(ast.unparse, node.bases))}" if node.bases else ""
        for one in node.body:
            last = str(getattr(one, "name", getattr(getattr(one, "target", None), "id", "_")))
            if last == "__init__" or not last.startswith("_"):
                yield from _written(f"{name}.{last}", one)


def described(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if not inspect.isclass(value):
        yield name, _signature(value) if callable(value) else ""
    elif issubclass(value, Enum):
        yield name, " is an enumeration"
        yield from ((f"{name}.{member}", "") for member in value.__members__)
    else:
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield name, _signature(value) + (f" is a {bases}" if bases else "")
        yield from _members(name, value)


def _members(name: str, kind: type) -> Iterator[tuple[str, str]]:
    """Yield the fields, methods and properties of a class that the project defines.

    How sequences share their parts may change: no caller needs it.
    """
    # As the classes write them: what attrs keeps may have been resolved by whoever used the class before.
    written = [vars(base).get("__annotations__", {}) for base in reversed(kind.__mro__)]
    types = dict(chain.from_iterable(one.items() for one in written))
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
    fields = {one: f": {_text(types.get(one, Any))}" for one in names}
    private = {*vars(Shared), *vars(Chain)} if issubclass(kind, Chain) else set()
    yield from (
        (f"{name}.{one}", text)
        for one, text in fields.items()
        if not one.startswith("_") and one not in private
    )
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("tito_") or base is Chain or base is Shared:
            continue
        for one, value in vars(base).items():
            if one.startswith("_") or one in fields:
                continue
            if isinstance(value, property):
                yield f"{name}.{one}", f": {_text((value.fget or _text).__annotations__.get('return'))}"
            elif inspect.isroutine(value):
                yield f"{name}.{one}", _signature(getattr(kind, one))


def _text(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # of what is written in C
        return "(...)"
    parameters = []
    for one in signature.parameters.values():
        plain = one.replace(annotation=inspect.Parameter.empty, default=inspect.Parameter.empty)
        kind = "" if one.annotation is inspect.Parameter.empty else f": {_text(one.annotation)}"
        default = "" if one.default is inspect.Parameter.empty else f" = {_default(one.default)}"
        parameters.append((one.kind, f"{plain}{kind}{default}"))
    returned = signature.return_annotation
    arrow = "" if returned is inspect.Signature.empty or inspect.isclass(value) else f" -> {_text(returned)}"
    return f"({', '.join(_marked(parameters))}){arrow}"


def _default(value: Any) -> str:
    if isinstance(value, frozenset) and value:  # in an order that differs from process to process
        return f"{{{', '.join(sorted(map(_default, value)))}}}"
    text = MEMBER.sub(r"\1", repr(value))
    return f"{type(value).__name__}(...)" if " at 0x" in text else text


def _marked(parameters: list[tuple[Any, str]]) -> Iterator[str]:
    """Yield parameters with the marks `/` and `*` between their kinds."""
    kinds = [kind for kind, _ in parameters]
    for place, (kind, text) in enumerate(parameters):
        if kind is inspect.Parameter.KEYWORD_ONLY and not {kind, inspect.Parameter.VAR_POSITIONAL} & {
            *kinds[:place]
        }:
            yield "*"
        yield text
        last = place + 1 == len(kinds) or kinds[place + 1] is not kind
        if kind is inspect.Parameter.POSITIONAL_ONLY and last:
            yield "/"


def written(api: Mapping[str, str]) -> str:
    """Return the file's text: a line for each name."""
    return "".join(f"{name}{rest}\n" for name, rest in api.items())


def listed(text: str) -> dict[str, str]:
    r"""Return the names of a file's text, each with what follows it.

    >>> listed("a.b(c: int)\na.d: str\na.e\n")
    {'a.b': '(c: int)', 'a.d': ': str', 'a.e': ''}
    """
    pairs = [re.match(r"([\w.]+)(.*)", line) for line in text.splitlines() if line]
    return {pair[1]: pair[2] for pair in pairs if pair}


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return one line for each name that was removed, changed or added.

    >>> differences({"a": "()", "b": "()"}, {"b": "(c)", "d": ""})
    ['- a()', '! b() is now b(c)', '+ d']
    """
    gone = [f"- {name}{rest}" for name, rest in old.items() if name not in new]
    changed = [
        f"! {name}{old[name]} is now {name}{rest}"
        for name, rest in new.items()
        if old.get(name, rest) != rest
    ]
    return [*gone, *changed, *(f"+ {name}{rest}" for name, rest in new.items() if name not in old)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", is_flag=True, help="Write the list as it is now.")
@click.option(
    "--against",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The list of another version.",
)
def main(*, write: bool, against: Path | None) -> None:
    """Print what was removed (-), changed (!) and added (+) since the list of stable names was written.

    Exits with 1 if anything was, unless it is written.
    """
    new = public_api()
    file = against or FILE
    old = listed(file.read_text(encoding="utf-8", errors="replace")) if file.exists() else {}
    if against is not None and not old.keys() & new.keys():
        raise click.UsageError(f"{against} is no list that --write wrote")
    lines = differences(old, new)
    click.echo("\n".join(lines) or "the public API is as listed")
    if write:
        FILE.write_text(written(new), encoding="utf-8")
    sys.exit(bool(lines) and not write)


if __name__ == "__main__":
    require("test")
    main()

"""The public API as a list of names and signatures:  python -m tests.release.public_api [--write].

Public are the names in `__all__` of every package of `tito_core`, and each name that the reference documents.
Of a class, its public methods, properties and fields are, too. Integrations are left out: they can only be
imported beside their framework.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import click

import tito_core
from tests.required import require

ROOT = Path(__file__).parent.parent.parent
REFERENCE = ROOT / "docs" / "reference"
FILE = REFERENCE / "public-api.txt"
WRITE = "python -m tests.release.public_api --write"
DIRECTIVE = re.compile(r"\.\. auto(class|data|exception|function|module):: (tito_[\w.]+)")
MEMBER = re.compile(r"""<(\w+\.\w+): (?:'[^']*'|"[^"]*"|\d+)>""")
"""How a member of an enumeration is shown; its value is a text for people."""


def public_api() -> dict[str, str]:
    """Return what follows each public name: a signature, a type or nothing."""
    found: dict[str, str] = {}
    for name, value in sorted(dict(_public()).items()):
        found.update(described(name, value))
    return found


def _public() -> Iterator[tuple[str, Any]]:
    packages = [one for one in pkgutil.walk_packages(tito_core.__path__, "tito_core.") if one.ispkg]
    for package in ("tito_core", *(one.name for one in packages)):
        yield from _exported(import_module(package))
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted(REFERENCE.glob("*.md")))
    for kind, name in DIRECTIVE.findall(pages):
        yield from _defined(import_module(name)) if kind == "module" else [(name, _object(name))]


def _exported(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in getattr(module, "__all__", ()):
        yield f"{module.__name__}.{name}", getattr(module, name)


def _defined(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what a module defines under public names."""
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield f"{module.__name__}.{name}", value


def _object(name: str) -> Any:
    """Return the object of a dotted name, which may be inside a class.

    A function may have the name of its module, as `tito_core.locate` has: the function is meant.
    """
    holder, _, last = name.rpartition(".")
    try:
        return getattr(import_module(holder), last)
    except ModuleNotFoundError:
        return getattr(_object(holder), last)


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
    """Yield the fields, methods and properties of a class that the project defines."""
    # As the classes write them: what attrs keeps may have been resolved by whoever used the class before.
    written = [vars(base).get("__annotations__", {}) for base in reversed(kind.__mro__)]
    types = dict(chain.from_iterable(one.items() for one in written))
    names = [field.name for field in attrs.fields(kind)] if attrs.has(kind) else []
    fields = {one: f": {_text(types.get(one, Any))}" for one in names}
    yield from ((f"{name}.{one}", text) for one, text in fields.items() if not one.startswith("_"))
    for base in reversed(kind.__mro__):
        if not base.__module__.startswith("tito_"):
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
    """Print what was removed (-), changed (!) and added (+) since the list was written.

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

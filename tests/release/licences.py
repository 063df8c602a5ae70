"""The licences of all dependencies of all extras:  python -m tests.release.licences [--write].

It needs `pip` 25.1 or newer and a package index; nothing is installed. The versions are the newest that an
extra admits on this machine. `licences.toml` says which licences are allowed, and what was read by a person
where a package's metadata has no licence expression.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import attrs
import click

from .artefacts import ROOT, ReleaseError

FILE = ROOT / "docs" / "reference" / "licences.txt"
RULES = Path(__file__).with_name("licences.toml")
UNKNOWN = "UNKNOWN"
OPERATORS = frozenset(("AND", "OR", "WITH"))


@attrs.frozen
class LicenceRules:
    """What was decided about licences.

    Attributes:
        allowed: SPDX identifiers.
        classifiers: SPDX identifiers by the ends of trove classifiers.
        reviewed: Licences of packages, read by a person.
        excepted: Packages whose licence is not allowed, each with the reason why an extra may need it.
        unresolved: Extras of which pip can list the own packages alone, each with the reason.
    """

    allowed: frozenset[str]
    classifiers: Mapping[str, str]
    reviewed: Mapping[str, str]
    excepted: Mapping[str, str]
    unresolved: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def read(cls) -> LicenceRules:
        """Read `licences.toml`."""
        data = tomllib.loads(RULES.read_text(encoding="utf-8"))
        return cls(
            frozenset(data["allowed"]),
            data["classifiers"],
            data["reviewed"],
            data["excepted"],
            data["unresolved"],
        )

    def licence(self, metadata: Mapping[str, Any]) -> str:
        """Return a package's licence as an SPDX expression, or `UNKNOWN`."""
        name = normal(metadata["name"])
        if name in self.reviewed:
            return self.reviewed[name]
        if metadata.get("license_expression"):
            return str(metadata["license_expression"])
        ends = [
            one.rpartition(" :: ")[2] for one in metadata.get("classifier", ()) if one.startswith("License")
        ]
        found = sorted({self.classifiers[end] for end in ends if end in self.classifiers})
        if found:
            return " AND ".join(found)
        named = self.classifiers.get(text := str(metadata.get("license") or "").strip(), text)
        return named if text and self.admits("", named) else UNKNOWN

    def admits(self, name: str, licence: str) -> bool:
        """Return whether each licence that an expression names is allowed.

        >>> rules = LicenceRules(frozenset({"MIT"}), {}, {}, {"b": "why"})
        >>> rules.admits("a", "(MIT)"), rules.admits("a", "MIT OR GPL-3.0-only"), rules.admits("b", "UNKNOWN")
        (True, False, True)
        """
        names = set(re.findall(r"[\w.+-]+", licence)) - OPERATORS
        return names <= self.allowed or any(fnmatchcase(name, one) for one in self.excepted)


def normal(name: str) -> str:
    """Return a package's name as the index has it.

    >>> normal("Ruamel.Yaml_x")
    'ruamel-yaml-x'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def project() -> dict[str, Any]:
    """Return the table `project` of `pyproject.toml`."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def direct(extras: Collection[str] | None = None) -> set[str]:
    """Return the names of all direct dependencies of some extras, and of those that these need; or of all.

    >>> sorted(direct(["zst"]))[:4]
    ['anyio', 'attrs', 'cattrs', 'click']
    """
    table, names, own = project(), set[str](), re.compile(r"tito-kernel\[([\w,-]+)\]")
    groups = table["optional-dependencies"]
    texts = [
        *table["dependencies"],
        *(one for name in groups if extras is None or name in extras for one in groups[name]),
    ]
    for text in texts:
        needed = own.match(text)
        names |= direct(needed[1].split(",")) if needed else {normal(re.split(r"[\s\[<>=!~;]", text)[0])}
    return names


def listed() -> dict[str, str]:
    """Return the licences in the file by package."""
    lines = (line.split("  ") for line in FILE.read_text(encoding="utf-8").splitlines() if line)
    return {parts[0]: parts[1] for parts in lines}


def packages(extra: str) -> tuple[list[dict[str, Any]], str]:
    """Return the metadata of all packages that an extra would install, and "" or why not all were found.

    Where no versions go together, these are the extra's own packages alone. The extra "" is the core.
    """
    target = f".[{extra}]" if extra else "."
    try:
        return report(target), ""
    except ReleaseError as error:
        own = [one for one in project()["optional-dependencies"][extra] if not one.startswith("tito-kernel")]
        return report("--no-deps", *own), f"{extra}: {error}"


def report(*arguments: str) -> list[dict[str, Any]]:
    """Return the metadata of all packages that pip would install."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [*command, "--report", "-", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise ReleaseError(f"pip finds no versions for {arguments[-1]}: {' '.join(reasons)[-300:]}")
    return [one["metadata"] for one in json.loads(done.stdout)["install"]]


def checked() -> tuple[dict[str, str], list[str]]:
    """Return the list of all extras, and what is wrong: licences, and extras that cannot be installed."""
    rules = LicenceRules.read()
    found = {extra: packages(extra) for extra in ("", *project()["optional-dependencies"])}
    lines = licences(((extra, metadata) for extra, (metadata, _) in found.items()), rules)
    unresolved = {extra: why for extra, (_, why) in found.items() if why}
    return lines, [*refused(lines, rules), *unlisted(unresolved, rules)]


def unlisted(unresolved: Mapping[str, str], rules: LicenceRules) -> list[str]:
    """Return why extras cannot be installed, without those of which it is known."""
    return [why for extra, why in unresolved.items() if extra not in rules.unresolved]


def licences(found: Iterable[tuple[str, Iterable[Mapping[str, Any]]]], rules: LicenceRules) -> dict[str, str]:
    """Return a line's rest for each package: its licence, and the extras that need it."""
    known: dict[str, str] = {}
    extras: defaultdict[str, list[str]] = defaultdict(list)
    for extra, metadata in found:
        for one in metadata:
            name = normal(one["name"])
            known[name] = rules.licence(one)
            extras[name].append(extra or "core")
    known.pop("tito-kernel", None)
    return {name: f"{known[name]}  {' '.join(sorted(extras[name]))}" for name in sorted(known)}


def refused(lines: Mapping[str, str], rules: LicenceRules) -> list[str]:
    """Return the packages whose licence is not allowed."""
    return [
        f"{name}: {rest}" for name, rest in lines.items() if not rules.admits(name, rest.partition("  ")[0])
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", is_flag=True, help="Write the list.")
def main(*, write: bool) -> None:
    """Print the licences of what all extras install; exit with 1 for one that is not allowed."""
    lines, wrong = checked()
    text = "".join(f"{name}  {rest}\n" for name, rest in lines.items())
    click.echo(text, nl=False)
    if write:
        FILE.write_text(text, encoding="utf-8")
    if wrong:
        click.echo("not allowed, unknown or not installable:\n" + "\n".join(wrong), err=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

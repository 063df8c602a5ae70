"""Rooms of the project, and which tests reach which of their lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

import attrs
from coverage import CoverageData

from tests.environment import cache
from tests.faults.children import Children

PLUGINS = ("anyio.pytest_plugin", "xdist.plugin", "tests.mutants.plugin")
"""All that the tests need: to load each plugin that is installed takes longer than most tests."""
DEFAULTS = "tests/test_defaults.py"


@attrs.frozen
class Room:
    """Code that is mutated together, and its tests, as patterns of paths; those after "!" are left out.

    Attributes:
        code: The files that are mutated.
        tests: The files of their tests, beside their doctests.
        unseen: Those of which is not seen what they reach: they start processes, or look at what import made.
    """

    code: tuple[str, ...]
    tests: tuple[str, ...]
    unseen: tuple[str, ...] = (DEFAULTS,)

    def files(self, root: Path) -> list[str]:
        """Return the files that are mutated."""
        return _found(root, self.code)

    def test_files(self, root: Path) -> list[str]:
        """Return the files of tests: its own files have doctests."""
        own = [file for file in self.files(root) if ">>>" in (root / file).read_text()]
        return [*own, *_found(root, (*self.tests, *self.unseen))]


ROOMS = {
    "kernel": Room(
        ("tito_core/**/*.py", "!tito_core/samples/*.py", "!tito_core/testing/**/*.py"),
        (
            "tests/core/**/test_*.py",
            "tests/property/test_*.py",
            "tests/model/**/test_*.py",
            "tests/io/client/test_images.py",
            "tests/io/client/test_audio_and_video.py",
            # These read the code, or time it.
            *(f"!tests/core/test_{name}.py" for name in ("closure", "names", "purity", "history")),
        ),
    ),
    "samples": Room(
        # Ray is installed for few tests, in processes of their own.
        ("tito_core/samples/*.py", "tito_io/samples/**/*.py", "!tito_io/samples/ray.py"),
        (
            "tests/core/samples/test_*.py",
            "tests/property/test_forest*.py",
            "tests/property/test_samples*.py",
            "tests/model/**/test_*.py",
            "tests/io/samples/test_*.py",
        ),
        (DEFAULTS, *(f"tests/io/samples/test_{name}.py" for name in ("command", "progress", "read"))),
    ),
    "serve": Room(
        ("tito_io/serve/*.py",),
        ("tests/io/serve/test_*.py", "tests/simulate/test_*.py"),
        (DEFAULTS, "tests/io/serve/test_command.py"),
    ),
    "client": Room(
        ("tito_io/client/*.py",),
        (
            "tests/io/client/test_*.py",
            "tests/adversary/test_brief_tools.py",
            "tests/io/engines/test_*.py",
            "tests/io/integrations/test_*.py",
            "tests/io/rollout/test_*.py",
            "tests/io/serve/test_*.py",
        ),
        (DEFAULTS, "tests/io/serve/test_command.py"),
    ),
    "engines": Room(
        ("tito_io/engines/**/*.py",),
        ("tests/io/engines/**/test_*.py", "tests/io/client/test_*.py", "tests/io/serve/test_*.py"),
        (DEFAULTS, "tests/io/serve/test_command.py"),
    ),
}


def _found(root: Path, patterns: Iterable[str]) -> list[str]:
    out = {path for one in patterns if one[0] == "!" for path in root.glob(one[1:])}
    found = {path for one in patterns if one[0] != "!" for path in root.glob(one)} - out
    return sorted(str(path.relative_to(root)) for path in found)


@attrs.frozen
class ReachedLines:
    """What one test takes without a fault, and the lines of each file that it runs."""

    seconds: float
    lines: dict[str, list[int]]


def run_tests(
    home: Path, folder: Path, files: Iterable[str], children: Children, profile: str, *options: str
) -> tuple[int | None, list[list[str]]]:
    """Run files of tests in a copy of the project; return the exit status, and the plugin's log."""
    (folder / "log").write_text("")
    plugins = [word for name in PLUGINS for word in ("-p", name)]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugins, *options, *files]
    alone = {"PYTHONPATH": str(home), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    own = {"TITO_MUTANTS": str(folder), "HYPOTHESIS_PROFILE": profile}
    status = children.run(command, home, {**os.environ, **alone, **own})
    return status, [line.split(" ", 2) for line in (folder / "log").read_text().splitlines()]


def reached(room: str, home: Path, folder: Path, children: Children) -> dict[str, ReachedLines]:
    """Return the tests of a room that pass, and what they reach.

    It is kept in tito's cache folder. Files of tests that changed are run again; all are if the code changed,
    or what the environment says of the tests that it can run.
    """
    path = cache() / "mutants" / f"{room}.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    code = _digest(home, ROOMS[room].files(home)) + _environment()
    digests = {file: code + _digest(home, [file]) for file in ROOMS[room].test_files(home)}
    files = {file: known[file] for file, digest in digests.items() if known.get(file, {}).get("is") == digest}
    if new := [file for file in digests if file not in files]:
        files |= {file: {"is": digests[file], "tests": {}} for file in new}
        for test, found in _measured(home, folder, new, children).items():
            files[test.partition("::")[0]]["tests"][test] = attrs.asdict(found)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(files))
    return {test: ReachedLines(**one) for file in files.values() for test, one in file["tests"].items()}


def _measured(
    home: Path, folder: Path, files: Iterable[str], children: Children
) -> Mapping[str, ReachedLines]:
    (folder / "coveragerc").write_text(
        "[run]\nrelative_files = true\ndata_file = " + str(folder / "coverage")
    )
    options = ("-p", "pytest_cov.plugin", "--cov=tito_core", "--cov=tito_io", "--cov-context=test")
    rest = (f"--cov-config={folder / 'coveragerc'}", "--cov-report=")
    _, log = run_tests(home, folder, files, children, "brief", *options, *rest)
    failed = {test for outcome, _, test in log if outcome in {"failed", "skipped"}}
    found: dict[str, ReachedLines] = {}
    for _, seconds, test in log:
        if test not in failed:
            old = found.get(test, ReachedLines(0, {}))
            found[test] = attrs.evolve(old, seconds=old.seconds + float(seconds))
    data = CoverageData(str(folder / "coverage"))
    data.read()
    for file in data.measured_files():
        for line, contexts in data.contexts_by_lineno(file).items():
            for test in {context.rpartition("|")[0] for context in contexts} & set(found):
                found[test].lines.setdefault(file, []).append(line)
    return found


def _environment() -> str:
    """Return a digest of the variables that decide which tests are skipped."""
    said = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("TITO_"))
    return sha256("\0".join(said).encode()).hexdigest()[:8]


def _digest(home: Path, files: Iterable[str]) -> str:
    return sha256(b"\0".join((home / file).read_bytes() for file in files)).hexdigest()[:16]

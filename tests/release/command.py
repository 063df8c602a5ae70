"""The command that runs the checklist of a release."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import click

import tito_core
from benchmarks.command import interruptible

from . import licences, public_api
from .artefacts import ROOT, ReleaseError, written
from .environments import FOR_TESTS, NEWEST, OLDEST, Environment, uv

CONTAINER_PYTHON = "3.13"
"""The Python of the container in docs/howto/deploy.md."""


@attrs.define(slots=False)
class Release:
    """What is being released.

    Attributes:
        version: Its version, such as `1.0.0rc1`.
        folder: Where artefacts are written.
        place: A folder for environments.
    """

    version: str
    folder: Path
    place: Path

    @cached_property
    def artefacts(self) -> dict[str, bytes]:
        """Wheel and sdist, built and written once."""
        return written(self.folder)

    def tree(self) -> str:
        """Check that everything is committed."""
        changed = _git("status", "--porcelain")
        if changed:
            raise ReleaseError(f"commit or remove:\n{changed}")
        return _git("rev-parse", "--short", "HEAD")

    def changelog(self) -> str:
        """Check that the changelog has a date for the version."""
        heading = next((line for line in _read("CHANGELOG.md").splitlines() if line.startswith("## ")), "")
        if not re.fullmatch(rf"## {re.escape(self.version)} \(\d{{4}}-\d\d-\d\d\)", heading):
            raise ReleaseError(
                f"CHANGELOG.md begins with {heading!r}: write '## {self.version} (YYYY-MM-DD)'"
            )
        return heading.removeprefix("## ")

    def api(self) -> str:
        """Check that the public API is as listed."""
        api = public_api.public_api()
        lines = public_api.differences(public_api.listed(_read(public_api.FILE)), api)
        if lines:
            raise ReleaseError("\n".join([*lines, f"if that is meant: {public_api.WRITE}"]))
        return f"{len(api)} names"

    def build(self) -> str:
        """Build wheel and sdist twice, and compare them."""
        return ", ".join(f"{name} {len(content):,} bytes" for name, content in self.artefacts.items())

    def oldest_versions(self) -> str:
        """Run tests on the wheel with the oldest versions of its dependencies."""
        return self._tested(OLDEST)

    def newest_versions(self) -> str:
        """Run tests on the wheel with the newest versions."""
        return self._tested(NEWEST)

    def _tested(self, resolution: str) -> str:
        environment = Environment(self.place / resolution, resolution)
        versions = environment.install(self.artefacts, FOR_TESTS)
        return f"{environment.test(self.artefacts)}; {' '.join(versions)}"

    def allowed_licences(self) -> str:
        """Check the licences of all dependencies of all extras."""
        lines, wrong = licences.checked()
        if wrong:
            raise ReleaseError("\n".join(wrong))
        without = ", ".join(licences.LicenceRules.read().unresolved)
        return f"{len(lines)} packages; not what these install: {without}"

    def sbom(self) -> str:
        """Write what the wheel installs as a CycloneDX list."""
        environment = Environment(self.place / "sbom", NEWEST)
        environment.install(self.artefacts)
        path = self.folder / f"tito_kernel-{self.version}.cdx.json"
        command = [
            sys.executable,
            "-m",
            "cyclonedx_py",
            "environment",
            "--output-reproducible",
            "--sv",
            "1.6",
        ]
        command += ["--pyproject", str(ROOT / "pyproject.toml"), "--of", "JSON", "-o", str(path)]
        _run([*command, str(environment.interpreter)])
        return f"{path.name} {path.stat().st_size:,} bytes"

    def container(self) -> str:
        """Write the versions and hashes that the container installs."""
        path = self.folder / "requirements.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        uv(
            *("pip", "compile", "-q", "--no-header", "--no-annotate", "--generate-hashes", "--universal"),
            *("--python-version", CONTAINER_PYTHON, "--extra", "redis", "-o", str(path), "pyproject.toml"),
        )
        _run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-q",
                "--dry-run",
                "--no-deps",
                "--require-hashes",
                "-r",
                str(path),
            ]
        )
        return f"{path.name} {path.read_text(encoding='utf-8').count('==')} packages"


STEPS: Mapping[str, Callable[[Release], str]] = {
    "tree": Release.tree,
    "changelog": Release.changelog,
    "api": Release.api,
    "build": Release.build,
    "sbom": Release.sbom,
    "container": Release.container,
    "oldest": Release.oldest_versions,
    "newest": Release.newest_versions,
    "licences": Release.allowed_licences,
}


def _read(path: Path | str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _run(command: list[str]) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"{' '.join(command[:3])}: {(done.stderr or done.stdout).strip()[-1000:]}")
    return done.stdout.strip()


def _git(*arguments: str) -> str:
    return _run(["git", *arguments])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("steps", nargs=-1, metavar="[STEP]...", type=click.Choice(list(STEPS)))
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    default=ROOT / "dist",
    help="Where artefacts, checksums and the SBOM are written; default: dist.",
)
@interruptible
def main(*, steps: tuple[str, ...], output: Path) -> None:
    """Run the checklist of a release, or some STEPs of it.

    The steps are tree, changelog, api, build, sbom, container, oldest, newest and licences. Exits with 1 if
    one failed; the others are run all the same.
    """
    failed = 0
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"the folder {output} cannot be made: {error.strerror}") from None
    with TemporaryDirectory() as name:
        release = Release(tito_core.__version__, output, Path(name))
        for step in steps or STEPS:
            failed += not ok(step, release)
    sys.exit(bool(failed))


def ok(step: str, release: Release) -> bool:
    """Run a step and print what became of it."""
    began = time.monotonic()
    click.echo(f"{step} ...", err=True)
    try:
        said, passed = STEPS[step](release), True
    except (ReleaseError, OSError, subprocess.CalledProcessError) as error:
        said, passed = str(error), False
    verdict = "ok    " if passed else "failed"
    seconds = time.monotonic() - began
    click.echo(f"{verdict} {step} ({(STEPS[step].__doc__ or '').rstrip('.')}, {seconds:.0f} s): {said}")
    return passed

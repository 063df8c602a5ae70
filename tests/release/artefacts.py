"""Build wheel and sdist, twice, and compare them:  python -m tests.release.artefacts [FOLDER].

It needs `hatchling` and git. The tree of the last commit is built twice, in folders of different names, with
other times and another umask, and the wheel once more from the sdist.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("tito_core", "tito_io")
DAY = 86_400
MISSING = re.compile(r"No module named (hatchling|uv|cyclonedx_py|pip)\b")
"""What Python says where a package of the dependency group `release` is missing."""
INSTALL = "; run pip install --group release"


class ReleaseError(Exception):
    """A step of a release that failed; the message says what to do.

    >>> str(ReleaseError("hatchling failed: python: No module named hatchling"))
    'hatchling failed: python: No module named hatchling; run pip install --group release'
    """

    def __init__(self, message: str) -> None:
        """Add what installs a package that is missing."""
        super().__init__(message + INSTALL if MISSING.search(message) else message)


def committed_tree(place: Path, *, age: int) -> Path:
    """Unpack the last commit at `place`, with files that are `age` seconds old."""
    packed = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], capture_output=True, check=False)  # noqa: S607  # git stands on the path
    if packed.returncode:
        raise ReleaseError(f"git archive: {packed.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    then = time.time() - age
    for path in place.rglob("*"):
        os.utime(path, (then, then))
    return place


def build(tree: Path, folder: Path, *targets: str, umask: int = 0o022) -> dict[str, bytes]:
    """Build a tree into a folder; return the artefacts by name."""
    kinds = [part for target in targets for part in ("-t", target)]
    command = [sys.executable, "-m", "hatchling", "build", *kinds, "-d", str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, umask=umask)
    if done.returncode:
        raise ReleaseError(f"hatchling failed: {done.stderr.strip()}")
    return {
        path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.suffix in (".whl", ".gz")
    }


def built() -> dict[str, bytes]:
    """Return wheel and sdist; raises `ReleaseError` if two builds differ."""
    with TemporaryDirectory() as name:
        place = Path(name)
        first = build(committed_tree(place / "a", age=0), place / "first")
        other = build(committed_tree(place / "another", age=400 * DAY), place / "second", umask=0o077)
        require_equal(first, other)
        require_equal(
            first, build(sdist_tree(first, place / "sdist"), place / "third", "wheel") | _sdists(first)
        )
    return first


def _sdists(artefacts: Mapping[str, bytes]) -> dict[str, bytes]:
    return {name: content for name, content in artefacts.items() if name.endswith(".gz")}


def sdist_tree(artefacts: Mapping[str, bytes], place: Path) -> Path:
    """Unpack the sdist; return the folder in it."""
    ((_, content),) = _sdists(artefacts).items()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(place, filter="data")
    (tree,) = place.iterdir()
    return tree


def require_equal(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """Raise `ReleaseError` that names the artefacts that differ.

    >>> require_equal({"a.whl": b"1"}, {"a.whl": b"2"})
    Traceback (most recent call last):
    tests.release.artefacts.ReleaseError: two builds differ: a.whl
    """
    names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if names:
        raise ReleaseError(f"two builds differ: {', '.join(names)}")


def require_complete(artefacts: dict[str, bytes]) -> None:
    """Raise `ReleaseError` if the wheel has more or fewer files than the packages have in the last commit."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", *PACKAGES],  # noqa: S607  # git stands on the path
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    ((_, wheel),) = ((name, content) for name, content in artefacts.items() if name.endswith(".whl"))
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    differ = sorted(found ^ set(listed))
    if differ:
        raise ReleaseError(f"wheel and commit have different files: {', '.join(differ[:9])}")


def checksums(artefacts: dict[str, bytes]) -> str:
    """Return a line for each artefact, as `sha256sum --check` reads it."""
    return "".join(f"{sha256(content).hexdigest()}  {name}\n" for name, content in artefacts.items())


def require_alone(folder: Path, artefacts: dict[str, bytes]) -> None:
    """Raise `ReleaseError` where a folder has other artefacts: a container would take all of them."""
    others = sorted(
        path.name
        for path in folder.iterdir()
        if path.suffix in (".whl", ".gz") and path.name not in artefacts
    )
    if others:
        raise ReleaseError(f"{folder} has other artefacts: {', '.join(others)}; remove them")


def written(folder: Path) -> dict[str, bytes]:
    """Build and check both artefacts, and write them with their checksums into a folder."""
    artefacts = built()
    require_complete(artefacts)
    folder.mkdir(parents=True, exist_ok=True)
    require_alone(folder, artefacts)
    for name, content in artefacts.items():
        (folder / name).write_bytes(content)
    (folder / "SHA256SUMS").write_text(checksums(artefacts), encoding="utf-8")
    return artefacts


def main() -> None:
    """Write artefacts into the folder that the argument names; exit with 1 if two builds differ."""
    parser = argparse.ArgumentParser(
        description="Build wheel and sdist twice, and write them if they are equal."
    )
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "dist", help="default: dist")
    try:
        artefacts = written(parser.parse_args().folder)
    except ReleaseError as error:
        sys.exit(f"tests.release: {error}")
    sys.stdout.write(f"built twice, equal:\n{checksums(artefacts)}")


if __name__ == "__main__":
    main()

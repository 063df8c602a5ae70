"""Artefacts that differ, or lack a file, stop a release. They are built in `.ci/run`, twice."""

from __future__ import annotations

import io
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.release.artefacts import (
    ROOT,
    ReleaseError,
    checksums,
    require_alone,
    require_complete,
    require_equal,
)

PACKAGES = subprocess.run(
    ["git", "-C", ROOT, "ls-files", "tito_core", "tito_io"],  # noqa: S607  # git stands on the path
    capture_output=True,
    text=True,
    check=False,
).stdout.split()
COMMITTED = pytest.mark.skipif(not PACKAGES, reason="not in a checkout")


def wheel(names: list[str]) -> dict[str, bytes]:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in [*names, "tito_kernel-0.1.0.dist-info/METADATA"]:
            archive.writestr(name, b"")
    return {"tito_kernel-0.1.0-py3-none-any.whl": file.getvalue()}


@COMMITTED
def test_a_wheel_has_the_committed_files_and_no_others() -> None:
    require_complete(wheel(PACKAGES))
    with pytest.raises(ReleaseError, match=r"different files: tito_core/__init__\.py$"):
        require_complete(wheel([name for name in PACKAGES if name != "tito_core/__init__.py"]))
    with pytest.raises(ReleaseError, match=r"different files: tito_core/notes\.txt$"):
        require_complete(wheel([*PACKAGES, "tito_core/notes.txt"]))


def test_an_artefact_of_one_build_alone_is_a_difference() -> None:
    require_equal({"a": b"1"}, {"a": b"1"})
    with pytest.raises(ReleaseError, match="two builds differ: b"):
        require_equal({"a": b"1"}, {"a": b"1", "b": b""})


def test_checksums_are_those_that_sha256sum_reads() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert checksums({"a.whl": b""}) == f"{empty}  a.whl\n"


def test_a_folder_holds_the_artefacts_of_one_version(tmp_path: Path) -> None:
    for name in ("SHA256SUMS", "a-2.whl"):
        (tmp_path / name).write_bytes(b"")
    require_alone(tmp_path, {"a-2.whl": b"1", "a-2.tar.gz": b"1"})
    (tmp_path / "a-1.tar.gz").write_bytes(b"")
    with pytest.raises(ReleaseError, match=r"has other artefacts: a-1\.tar\.gz; remove them"):
        require_alone(tmp_path, {"a-2.whl": b"1", "a-2.tar.gz": b"1"})

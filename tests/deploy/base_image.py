"""Make a stand-in for the container's base image:  python -m tests.deploy.base_image.

It is for machines that reach no registry. The image has the name that the page's Containerfile begins with,
and holds Debian's smallest system and a Python that is installed here. The program needs root, buildah,
debootstrap and Debian's mirror.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.environment import newer_python, run

from .page import PAGE, shown

SUITE, MIRROR = "bookworm", "http://deb.debian.org/debian"
LIBRARIES = "ca-certificates,libbz2-1.0,libexpat1,libffi8,liblzma5,libsqlite3-0,libssl3,zlib1g"
"""What the standard library is linked with."""
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"


def name() -> str:
    """Return the name of the image, without its digest."""
    (found,) = re.findall(r"(?m)^FROM (\S+)@sha256:DIGEST$", shown(PAGE.read_text("utf-8"), "FROM"))
    return str(found)


def settings() -> None:
    """Let buildah run without namespaces and file systems of its own, unless its user has said otherwise."""
    os.environ.setdefault("STORAGE_DRIVER", "vfs")
    os.environ.setdefault("BUILDAH_ISOLATION", "chroot")


def install_python(root: Path, version: str) -> None:
    """Copy a Python of this machine into a system's /usr/local."""
    prefix = run(newer_python(version), "-c", "import sys; print(sys.base_prefix)").strip()
    place = root / "usr" / "local"
    unneeded = shutil.ignore_patterns("__pycache__", "test", "config-*", "*.a", "site-packages")
    for part in ("bin", "lib"):
        shutil.copytree(Path(prefix, part), place / part, symlinks=True, ignore=unneeded, dirs_exist_ok=True)
    run("chroot", str(root), "ldconfig")
    python = f"/usr/local/bin/python{version}"
    run("chroot", str(root), python, "-m", "ensurepip", "--default-pip")


def main() -> None:
    """Make the image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.parse_args()
    lacking = [program for program in ("debootstrap", "buildah") if shutil.which(program) is None]
    if lacking:
        parser.error(f"not installed: {', '.join(lacking)}")
    settings()
    version = re.findall(r"\d+\.\d+", name())[0]
    with TemporaryDirectory() as place:
        root = Path(place, "root")
        run("debootstrap", "--variant=minbase", f"--include={LIBRARIES}", SUITE, str(root), MIRROR)
        install_python(root, version)
        container = run("buildah", "from", "scratch").strip()
        run("buildah", "add", "-q", container, str(root), "/")
        run("buildah", "config", "--env", f"PATH={PATH}", container)
        run("buildah", "commit", "-q", "--rm", container, f"docker.io/library/{name()}")


if __name__ == "__main__":
    main()

"""The container: asked for with TITO_DEPLOY=container.

It needs buildah, the dependency group `release` and the base image. Where no registry can be reached,
`python -m tests.deploy.base_image` makes a stand-in for the base image.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.environment import run

from .base_image import name, settings
from .conftest import asked_for
from .page import ROOT, from_page
from .proxies import free_port

CERTIFICATES = "/etc/ssl/certs"
CHAT = {"messages": [{"role": "user", "content": "Where is the bridge?"}], "max_tokens": 30}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write what the page's command writes, and the Containerfile with the digest of the base image here."""
    asked_for("container")
    settings()
    folder = tmp_path_factory.mktemp("container")
    written = subprocess.run(
        [sys.executable, "-m", "tests.release", "build", "container", "--output", str(folder / "dist")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert written.returncode == 0, written.stdout + written.stderr
    digests = run("buildah", "images", "--format", "{{.Digest}}", name()).split()
    (folder / "Containerfile").write_text(from_page("FROM", {"sha256:DIGEST": digests[0]}))
    return folder


def build(context: Path, tag: str) -> subprocess.CompletedProcess[str]:
    """Build as the page says; a machine's own certificates and pip's settings for them go with it."""
    command = re.findall(r"(?m)^podman build (.*?) -t tito \.", from_page("podman build", {}))[0].split()
    own = []
    if os.environ.get("PIP_CERT"):
        (context / "pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}/ca-certificates.crt\n")
        own = ["-v", f"{CERTIFICATES}:{CERTIFICATES}:ro", "-v", f"{context}/pip.conf:/etc/pip.conf:ro"]
    return subprocess.run(
        ["buildah", "build", *command, "--pull-never", *own, "-t", tag, str(context)],  # noqa: S607  # the machine's own
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def image(context: Path) -> Iterator[str]:
    """Build the image; yield its name."""
    tag = "localhost/tito-deploy-test"
    done = build(context, tag)
    try:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "ignored" not in done.stderr, done.stderr  # a format that cannot hold an instruction
        yield tag
    finally:
        run("buildah", "rmi", "--force", tag)


@pytest.fixture
def container(image: str) -> Iterator[str]:
    """Make a container of the image."""
    made = run("buildah", "from", "--pull-never", image).strip()
    yield made
    run("buildah", "rm", made)


def configuration(image: str) -> Mapping[str, Any]:
    """Return what the image says of running it."""
    found: Mapping[str, Any] = json.loads(run("buildah", "inspect", "--type", "image", image))["Docker"][
        "config"
    ]
    return found


def inside(container: str, *command: str) -> str:
    """Run a command in a container, as the image's user."""
    return run("buildah", "run", container, "--", *command)


@contextmanager
def serving(container: str, *command: str) -> Iterator[int]:
    """Run a gateway in a container; yield its process id once it listens. It must end well on SIGTERM."""
    say_id = ["sh", "-c", 'echo $$; exec "$@"', "sh", *command]
    with subprocess.Popen(
        ["buildah", "run", container, "--", *say_id],  # noqa: S607  # the machine's own
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        number = int(process.stdout.readline())
        try:
            assert process.stdout.readline().startswith("http://0.0.0.0:")
            yield number
        finally:
            os.kill(number, signal.SIGTERM)
            process.stdout.read()
            assert process.wait(30) == 0


def test_the_gateway_answers_and_stops(image: str, container: str) -> None:
    config, port = configuration(image), str(free_port())
    url = f"http://127.0.0.1:{port}"
    with serving(container, *config["Entrypoint"], "--port", port) as number:
        assert Path(f"/proc/{number}").stat().st_uid == 10001
        named = {"host": "tito", "x-tito-session": "a"}
        assert httpx2.post(f"{url}/v1/chat/completions", json=CHAT, headers=named).status_code == 200
        check = [part.replace("8010", port) for part in config["Healthcheck"]["Test"]]
        assert check[0] == "CMD"
        inside(container, *check[1:])
    with pytest.raises(RuntimeError, match="ConnectError"):
        inside(container, *check[1:])
    assert inside(container, "find", "/data/sessions.db", "/data/cache", "-type", "f").count("\n") >= 2
    assert list(config["ExposedPorts"]) == ["8010/tcp"]


def test_its_user_owns_its_data_alone(container: str) -> None:
    assert inside(container, "id", "-u").strip() == "10001"
    inside(container, "touch", "/data/x")
    for path in ("/", "/usr/local", "/usr/local/bin/tito"):
        inside(container, "test", "!", "-w", path)
    inside(container, "python", "-m", "pip", "check")


@pytest.mark.parametrize("what", ["a pinned hash", "the wheel"])
def test_another_file_than_the_pinned_one_is_not_installed(context: Path, tmp_path: Path, what: str) -> None:
    copy = shutil.copytree(context, tmp_path / "context")
    if what == "the wheel":
        (wheel,) = (copy / "dist").glob("*.whl")
        wheel.write_bytes(wheel.read_bytes() + b" ")
    else:
        pins = copy / "dist" / "requirements.txt"
        first = re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{64 * '0'}", pins.read_text())
        pins.write_text(first)
    done = build(copy, "localhost/tito-deploy-wrong")
    assert done.returncode != 0
    wanted = "FAILED" if what == "the wheel" else "DO NOT MATCH THE HASHES"
    assert wanted in done.stdout + done.stderr

"""The unit for systemd: asked for with TITO_DEPLOY=systemd. It needs systemd-analyze, no running systemd."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from tests.environment import run
from tests.io.serve.gateway_process import started
from tito_io.embedded import write_family

from .conftest import asked_for
from .page import PAGE, from_page

SECCOMP = Path(__file__).with_name("seccomp.py")
CHAT = {"messages": [{"role": "user", "content": "Where is the bridge?"}], "max_tokens": 30}


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """Write the page's unit, for a program that is here."""
    asked_for("systemd")
    file = tmp_path / "tito.service"
    file.write_text(from_page("[Unit]", {"/opt/tito/bin/tito": str(shutil.which("true"))}))
    return file


def analyze(*command: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze."""
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *command],  # noqa: S607  # the machine's own
        capture_output=True,
        text=True,
        check=False,
    )


def test_systemd_accepts_the_unit(unit: Path) -> None:
    done = analyze("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("DynamicUser", "DynamicUsr"))
    assert "DynamicUsr" in analyze("verify", str(unit)).stderr


def test_the_exposure_is_what_the_page_says(unit: Path) -> None:
    said = re.findall(r"prints an exposure below (\d) of 10", PAGE.read_text())
    printed = analyze("security", "--offline=true", str(unit)).stdout
    (exposure,) = re.findall(r"exposure level for tito.service: (\d+\.\d)", printed)
    assert float(exposure) < float(*said)


def members(name: str) -> set[str]:
    """Return the calls of a systemd's set, with those of the sets in it."""
    lines = [line.strip() for line in run("systemd-analyze", "syscall-filter", name).splitlines()[1:]]
    names = [line for line in lines if line and not line.startswith("#")]
    return {one for name in names for one in (members(name) if name.startswith("@") else {name})}


def allowed(unit: str) -> set[str]:
    """Return the system calls that a unit allows."""
    calls: set[str] = set()
    for line in re.findall(r"(?m)^SystemCallFilter=(.*)$", unit):
        found = {call for name in line.strip("~").split() for call in members(name)}
        calls = calls - found if line.startswith("~") else calls | found
    return calls


def test_the_gateway_runs_with_the_unit_s_system_calls(unit: Path, tmp_path: Path) -> None:
    """With the rules of the filter and of `MemoryDenyWriteExecute` in force; systemd itself does not run."""
    calls = allowed(unit.read_text())
    assert "read" in calls
    assert not calls & {"mount", "ptrace", "setrlimit"}
    folder, log = write_family(tmp_path / "model"), tmp_path / "log"
    options = ("--store", f"sqlite:{tmp_path / 'sessions.db'}", "--durable", "--family", str(folder))
    more = {"ALLOWED": " ".join(calls), "TITO_CACHE": str(tmp_path / "cache")}
    with started(*options, first=SECCOMP.read_text(), environment=more, complaints=log) as gateway:
        session = f"{gateway.url}/sessions/" + httpx2.post(f"{gateway.url}/sessions").json()["session_id"]
        assert httpx2.post(f"{session}/v1/chat/completions", json=CHAT).status_code == 200
        assert httpx2.post(f"{session}/samples").status_code == 200
        assert httpx2.get(f"{session}/view").status_code == 200
        assert gateway.stop() == 0
    assert log.read_text() == ""
    assert list((tmp_path / "cache").rglob("*")), "what was learned of the template is kept"


def test_the_filter_is_in_force(unit: Path) -> None:
    code = SECCOMP.read_text() + (
        "import mmap\n"
        "for act in (lambda: os.chroot('/'), lambda: mmap.mmap(-1, 4096, prot=7)):\n"
        "    try: act()\n"
        "    except PermissionError: print('refused')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"ALLOWED": " ".join(allowed(unit.read_text()))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "refused\nrefused\n", done.stderr

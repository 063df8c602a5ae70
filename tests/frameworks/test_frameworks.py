"""Real frameworks, each in an environment of its own.

The environment variable TITO_FRAMEWORKS lists those to test, as in `TITO_FRAMEWORKS=renderers,verl`. Each is
installed once, outside the checkout.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environment import Environment, cache

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FRAMEWORKS = sorted(file.parent.name for file in HERE.glob("*/requirements.txt"))
OPTIONS = ("-q", "-ra", "--import-mode=importlib", "-p", "no:cacheprovider", "--override-ini=addopts=")
MOVED = "{name}: the seam is not where the integration goes in, or the versions are others\n{output}"


def inside(python: Path, name: str, *paths: str) -> subprocess.CompletedProcess[str]:
    """Run tests in a framework's environment, which finds this project by the checkout."""
    environment = {**os.environ, "TITO_INSIDE": name, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    for variable in [one for one in environment if one.startswith("PYTEST_XDIST")]:
        del environment[variable]
    return subprocess.run(
        [str(python), "-m", "pytest", *OPTIONS, *paths],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.xdist_group("frameworks")
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_integration_works_inside_the_framework(name: str, say: Callable[[str], None]) -> None:
    wanted = [one.strip() for one in os.environ.get("TITO_FRAMEWORKS", "").split(",")]
    if name not in wanted:
        pytest.skip(f"needs {name}: ask for it with TITO_FRAMEWORKS={name}")
    folder = f"tests/frameworks/{name}"
    environment = Environment(cache() / f"venv-{name}", HERE / name / "requirements.txt")
    environment.ready(say)
    seam = inside(environment.python, name, f"{folder}/test_seam.py")
    assert seam.returncode == 0, MOVED.format(name=name, output=seam.stdout[-4000:])
    done = inside(environment.python, name, folder, "tests/frameworks/laws", "tests/docs/test_pages.py")
    say(done.stdout.strip().rpartition("\n")[2].strip("= "))
    assert done.returncode == 0, done.stdout[-8000:]


def test_there_are_frameworks() -> None:
    assert FRAMEWORKS

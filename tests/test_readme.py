"""The README's program runs as it stands, and its figures are what the command prints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
SHOWN = re.compile(r"```text\n(.*?)```", re.DOTALL)


def test_the_embedding_example_prints_what_it_says() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    (promised,) = re.findall(r"print\(.*\)\s+# ([\w ]+):", program)
    assert done.stdout.strip() == promised


def test_the_rollout_prints_what_the_readme_shows() -> None:
    shown, _ = SHOWN.findall(README.read_text())
    command = [sys.executable, "-m", "tito_io", "rollout", "--turns", "50"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert shown in done.stdout


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120

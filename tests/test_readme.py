"""The README's program runs as it stands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_embedding_example_prints_what_it_says() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    (promised,) = re.findall(r"print\(.*\)\s+# ([\d ]+):", program)
    assert done.stdout.strip() == promised

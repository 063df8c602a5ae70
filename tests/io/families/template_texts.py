"""Templates that tests render, as `template_texts.toml` has them."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

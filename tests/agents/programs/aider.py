"""Aider, with one message after another: `URL WAY TASK`."""

from __future__ import annotations

import sys
from pathlib import Path

from aider.coders import Coder
from aider.io import InputOutput
from aider.models import Model

_, _, task = sys.argv[1:]
notes = sorted(Path.cwd().glob("note-*.txt"))
coder = Coder.create(
    main_model=Model("openai/any"),
    edit_format="diff",
    io=InputOutput(yes=True, pretty=False, chat_history_file=None),
    use_git=False,
    fnames=[],
    read_only_fnames=[str(one) for one in notes],
    stream=False,
    map_tokens=0,
    suggest_shell_commands=False,
)
for note in notes:
    coder.run(f"{task} Now: {note.name}")

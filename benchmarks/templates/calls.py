"""How many templates' tool calls are read back in the syntax that is learned from the template."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

from benchmarks.templates.corpus import Entry, bundled
from benchmarks.templates.stand_in import family_of
from tito_core import InputError, Message, TemplateRefused
from tito_io.engines.protocol import Rendering
from tito_io.engines.replies.call_syntax import ASKED, NAMES, around, calling, stand_in_tools
from tito_io.engines.replies.output_parser import LocalTokenizer
from tito_io.engines.replies.template_calls import LearnedCalls, TemplateCalls
from tito_io.families import Family

PROPERTIES = {
    "place": {"type": "string"},
    "count": {"type": "integer"},
    "flags": {"type": "array"},
    "deep": {"type": "object"},
    "sure": {"type": "boolean"},
}
SCHEMA = {"type": "object", "properties": PROPERTIES}
TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": SCHEMA}}]
ARGUMENTS: Sequence[dict[str, Any]] = (
    {"place": "Paris", "count": 3},
    {"place": 'a"b\nc', "count": -1},
    {},
    {"flags": [1, {"a": None}], "deep": {"k": "v"}, "sure": True},
)


IDS = ("a1b2c3d4", "functions.look_up:")
"""How ids of calls begin; some templates write the id in the place of the name."""


def turn(content: str, arguments: Sequence[Any], begin: str) -> Message:
    """Return a turn that calls a function with each of these arguments."""
    calls = [
        {"id": f"{begin}{place}", "type": "function", "function": {"name": "look_up", "arguments": one}}
        for place, one in enumerate(arguments)
    ]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def judged(entry: Entry) -> str:
    """Return what becomes of a template's calls, in words."""
    try:
        family = family_of(entry)
    except (InputError, TemplateRefused):
        return "cannot be loaded"

    async def render(messages: Sequence[Message], rendering: Rendering, **_: bool) -> Sequence[int]:
        return family.encode(family.text(messages, tools=list(rendering.tools)))

    found = asyncio.run(TemplateCalls(LocalTokenizer(family), render).learn(Rendering()))
    if found is None:
        return "writes calls, syntax unknown" if _writes(family) else "writes no calls"
    return "all read back" if _reads(family, found) else "some read back"


def _writes(family: Family) -> bool:
    """Return whether a template writes calls."""
    for as_text in (False, True):
        for count in (2, 1):
            try:
                text = family.text(around(calling(count, as_text=as_text)), tools=stand_in_tools())
            except (InputError, TemplateRefused):
                continue
            if NAMES[0] in text[text.rfind(ASKED) :]:
                return True
    return False


def _reads(family: Family, found: LearnedCalls) -> bool:
    """Return whether every call of the trial that the template takes is read back."""
    for content in ("", "Let me see."):
        for count in (1, 2):
            for arguments in ARGUMENTS:
                if not _is_read(family, found, content, [arguments] * count):
                    return False
    return True


def _is_read(family: Family, found: LearnedCalls, content: str, arguments: Sequence[Any]) -> bool:
    """Return whether calls are read from what the template makes of arguments as objects, or as text."""
    taken = False
    for form, begin in product((list(arguments), list(map(json.dumps, arguments))), IDS):
        try:
            asked = around(turn(content, form, begin))
            whole = family.text(asked, tools=TOOLS)
            start = family.text(asked[:1], tools=TOOLS, add_generation_prompt=True)
        except (InputError, TemplateRefused):
            continue
        text = whole[len(start) :] if whole.startswith(start) else whole[whole.rfind(ASKED) + len(ASKED) :]
        calls = found.syntax.read(text, TOOLS)[1]
        if [(one.name, json.loads(one.arguments)) for one in calls] == [
            ("look_up", one) for one in arguments
        ]:
            return True
        taken = True
    return not taken


def main() -> int:
    """Print how many templates' calls are read back."""
    argparse.ArgumentParser(prog="python -m benchmarks.templates.calls", description=__doc__).parse_args()
    entries, counts = bundled(), Counter[str]()
    for place, entry in enumerate(entries, 1):
        counts[judged(entry)] += 1
        print(f"\r{place} of {len(entries)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    for verdict, count in counts.most_common():
        print(f"{count:4}  {verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Faults of what engines do to messages before a chat template sees them."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

PREPARED = partial(
    Fault,
    package="tito_io",
    suites=(
        "tests/io/families/preprocessing/test_preparation.py",
        "tests/io/families/preprocessing/test_recorded.py",
        "tests/io/audit/test_engines.py",
    ),
)
ROOM = "families/preprocessing"

FAULTS = (
    PREPARED(
        "an absent tool result is a list where the template takes lists",
        f"{ROOM}/preparation.py",
        'lists = self.lists and (role != "tool" or rules.result_separator is None)',
        "lists = self.lists",
    ),
    PREPARED(
        "a tool result in parts stays a list where the template takes lists",
        f"{ROOM}/preparation.py",
        "if texts and (results is not None or not self.lists):",
        "if texts and not self.lists:",
    ),
    PREPARED(
        "what a developer says stays in its place",
        f"{ROOM}/preparation.py",
        "return _with_one_system_text(messages) if rule is Developer.MERGED and not named else messages",
        "return messages",
    ),
    PREPARED(
        "all system texts are moved, also without a developer's",
        f"{ROOM}/preparation.py",
        'if any(one.get("role") == "developer" for one in messages):',
        "if True:",
    ),
    PREPARED(
        "a last assistant's message becomes a user's, also where the model does not speak next",
        f"{ROOM}/preparation.py",
        "if self.rules.last_turn is LastTurn.USER and speaking and found:",
        "if self.rules.last_turn is LastTurn.USER and found:",
    ),
    PREPARED(
        "late system texts become the user's for every template",
        f"{ROOM}/preparation.py",
        "if self.rules.moves_systems and refuses_late_systems(self.source):",
        "if self.rules.moves_systems:",
    ),
    PREPARED(
        "null in a list of system texts is passed over",
        f"{ROOM}/parts.py",
        "        yield part\n    elif",
        "        yield from () if part is None else (part,)\n    elif",
    ),
    PREPARED(
        "a refusal has its text under `text`, too",
        f"{ROOM}/parts.py",
        'return part.get(kind if kind in NAMED_TEXTS else "text")',
        'return part.get(kind if kind in part else "text")',
        suites=("tests/io/families/preprocessing/test_preparation.py",),
    ),
    PREPARED(
        "keys of a call are in the order in which they came",
        f"{ROOM}/parts.py",
        "    first: Iterable[str] = [key for key in values if key in found] if keys.as_given else ()",
        "    first: Iterable[str] = [key for key in values if key in found]",
    ),
    PREPARED(
        "a loop in a macro is no loop over parts",
        f"{ROOM}/template_traits.py",
        '            if loop.iter.name in (known or ()) or (known is None and loop.iter.name == "content"):',
        '            if known is None and loop.iter.name == "content":',
    ),
    PREPARED(
        "cut arguments go to the template of vLLM as they came",
        f"{ROOM}/engines.py",
        "arguments=Arguments.OBJECT_OR_EMPTY,",
        "arguments=Arguments.OBJECT_OR_TEXT,",
    ),
    PREPARED(
        "the calls that the gateway gives out name no engine",
        "serve/records.py",
        "yield line(session, call, written.get(parent), engine)",
        "yield line(session, call, written.get(parent))",
        suites=("tests/io/serve/test_records.py",),
        plugins=("anyio.pytest_plugin",),
    ),
)

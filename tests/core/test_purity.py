"""The kernel touches nothing: no IO, no clock, no randomness, no globals that change."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tito_core
from tests.core import example
from tito_core import Step, stitch, suffix_ids

SOURCE = Path(tito_core.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
FOR_TESTS = SOURCE / "testing"
ALLOWED = {
    "__future__",
    "array",
    "attrs",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "decimal",
    "difflib",
    "enum",
    "functools",
    "itertools",
    "json",
    "math",
    "operator",
    "re",
    "types",
    "typing",
}
MORE = {
    "data.py": {"binascii", "cattrs", "cattrs.errors", "cattrs.gen", "struct"},
    "media.py": {"binascii", "hashlib"},  # an image is known by the digest of its bytes
}
IN_TESTING = {"copy", "string", "textwrap", "hypothesis", "hypothesis.strategies"}
"""What `tito_core.testing` imports beside; nothing in the kernel imports that."""
BANNED_CALLS = {"open", "print", "exec", "eval", "input", "__import__", "compile", "breakpoint"}


def _imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module or "")
    return found


def _offences(tree: ast.AST) -> list[str]:
    """Return every construct that has no place in a pure kernel."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith | ast.Global):
            found.append(type(node).__name__)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(node.func.id)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_kernel_file_imports_only_what_is_pure(path: Path) -> None:
    allowed = ALLOWED | MORE.get(path.name, set()) | (IN_TESTING if path.is_relative_to(FOR_TESTS) else set())
    assert _imports(ast.parse(path.read_text())) <= allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_kernel_file_has_no_async_no_global_and_no_io(path: Path) -> None:
    assert _offences(ast.parse(path.read_text())) == []


def test_the_purity_check_finds_planted_offences() -> None:
    assert _offences(ast.parse("async def f():\n    global x\n    open('x')")) != []


def test_importing_the_kernel_loads_no_io_module() -> None:
    code = (
        "import attrs, cattrs, sys; before = set(sys.modules); import tito_core; "
        "print(*sorted(set(sys.modules) - before)); "
        "print(*sorted({'asyncio', 'socket', 'logging', 'ssl', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    added, worldly = done.stdout.split("\n")[:2]
    assert worldly == ""
    assert {name.split(".")[0].strip("_") for name in added.split()} <= {
        "tito_core",
        "numbers",
        "binascii",
        "heapq",
    } | ALLOWED


HOOKED = """
import sys
from tests.core import example
from tito_core import Step, stitch, suffix_ids

step = example.step()
suffix = suffix_ids(example.tokenize)
stitch([step], example.prompt(step), suffix, example.tokenize)   # whatever is imported lazily is imported now
seen = []
sys.addaudithook(lambda event, args: seen.append(event) if armed and event != 'array.__new__' else None)
armed = True
stitch([step], example.prompt(step), suffix, example.tokenize)
suffix_ids(example.tokenize)
armed = False
quiet = list(seen)
armed = True
{bite}
armed = False
print(len(quiet), len(seen))
"""


@pytest.mark.parametrize(("bite", "events"), [("pass", 0), ("open('/dev/null').close()", 1)])
def test_the_kernel_raises_no_audit_event_and_the_hook_works(bite: str, events: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOOKED.replace("{bite}", bite)], check=True, capture_output=True, text=True
    )
    quiet, total = map(int, done.stdout.split())
    assert quiet == 0
    assert (total > 0) == bool(events)


def test_the_kernel_works_as_a_vendored_copy(tmp_path: Path) -> None:
    vendored = tmp_path / "host" / "_vendor" / "kernel"
    shutil.copytree(
        SOURCE, vendored, ignore=shutil.ignore_patterns("samples", "drift", "testing", "__pycache__")
    )
    for package in (tmp_path / "host", tmp_path / "host" / "_vendor"):
        (package / "__init__.py").touch()
    code = (
        "import sys; from host._vendor.kernel import Step, stitch\n"
        "assert 'tito_core' not in sys.modules\n"
        "user, reply = {'role': 'user', 'content': 'A'}, {'role': 'assistant', 'content': 'B'}\n"
        "def tokenize(messages, *, add_generation_prompt):\n"
        "    ids = [i for m in messages for i in (1, len(m['role']), *m['content'].encode(), 2)]\n"
        "    return ids + [1, 9] * add_generation_prompt\n"
        "ids = [1, 4, 65, 2, 1, 9]\n"
        "step = Step(prompt=[user], completion=[reply], prompt_ids=ids, completion_ids=[7, 2])\n"
        "assert stitch([step], [user, reply, user], [2], tokenize) == [*ids, 7, 2, *ids]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_the_tools_for_tests_work_in_a_vendored_copy(tmp_path: Path) -> None:
    shutil.copytree(SOURCE, tmp_path / "kernel", ignore=shutil.ignore_patterns("__pycache__"))
    code = (
        "import sys; from kernel.testing import TOYS; from kernel.testing.strategies import rollouts\n"
        "assert rollouts() and TOYS and 'tito_core' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_step_made_in_one_process_is_the_same_in_another() -> None:
    step = example.step()
    assert isinstance(step, Step)
    code = "import pickle, sys; s = pickle.load(sys.stdin.buffer); sys.stdout.buffer.write(pickle.dumps(s))"
    import pickle  # noqa: PLC0415  # only this test moves values between processes

    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, input=pickle.dumps(step)
    )
    assert pickle.loads(done.stdout) == step  # noqa: S301  # our own bytes
    assert stitch([step], example.prompt(step), suffix_ids(example.tokenize), example.tokenize)

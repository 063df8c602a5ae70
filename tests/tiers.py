"""Which tests run: `pytest` alone leaves out those that take long, `--all` none.

`--rest` runs those that were left out, and each law again with more examples.
"""

from __future__ import annotations

import os
from fnmatch import fnmatch
from functools import cache

import pytest

BRIEF, ALL, REST = "brief", "all", "rest"

LEFT_OUT = {
    # real programs, each in an environment of its own
    "tests/agents": "real agents",
    "tests/deploy": "real proxies, and a container",
    "tests/engines": "real engines",
    "tests/frameworks": "real training frameworks",
    "tests/processors": "real image processors",
    # real templates and tokenizers: the sample of the public corpus stands for them
    "tests/families": "each family in each rendering",
    "tests/io/engines/replies/test_recorded_parsers.py": "recorded replies of real parsers",
    "tests/io/engines/replies/test_spelling.py": "real tokenizers",
    "tests/io/engines/replies/test_template_calls.py": "calls as real templates write them",
    "tests/io/families/fast": "a second tokenizer library",
    "tests/io/families/preprocessing": "recorded prompts of real engines",
    "tests/io/families/test_real.py": "real folders",
    "tests/io/lint": "a template is linted in thousands of renders",
    "tests/io/serve/test_special_tokens.py": "real tokenizers",
    # processes that are started, killed and interrupted
    "tests/attack": "attacks on real gateways",
    "tests/io/audit": "commands over files of thousands of turns",
    "tests/io/cli/test_cli.py": "commands in processes of their own",
    "tests/io/cli/test_console.py": "commands at a terminal",
    "tests/io/rollout/test_rollout.py": "commands in processes of their own",
    "tests/io/samples/test_bytes.py": "replies of whole rollouts, byte for byte",
    "tests/io/samples/test_command.py": "commands in processes of their own",
    "tests/io/samples/test_progress.py": "commands that are interrupted",
    "tests/io/serve/test_command.py": "gateways that are started as commands",
    "tests/io/serve/test_connections.py": "clients that leave at each moment",
    "tests/io/serve/test_load.py": "many sessions at once",
    "tests/io/serve/test_recovery.py": "gateways that are killed",
    "tests/io/serve/test_server.py": "gateways that are started as commands",
    "tests/io/serve/test_spans.py": "a collector of OpenTelemetry",
    "tests/io/test_atomic_write.py": "commands that are interrupted",
    "tests/kill": "hundreds of kills",
    # memory and time of hostile inputs
    "tests/io/families/test_bombs.py": "hostile templates",
    "tests/io/samples/test_bombs.py": "hostile files",
    # what is tried for each pair of an interface with something else
    "tests/io/client/test_certificates.py": "long tools of each kind",
    "tests/io/dialects/test_constraints.py": "each constraint in each dialect",
    "tests/io/dialects/test_sdks.py": "each program of each vendor",
    "tests/io/integrations/test_shared_prompts.py": "threads",
    # how the code is written, pages, benchmarks and tools of this project
    "tests/test_defaults.py": "each class's defaults",
    "tests/test_faults.py": "each planted fault's text",
    "tests/test_help.py": "each public docstring",
    "tests/test_words.py": "the words of each file",
    "tests/core/test_purity.py": "what each file of the kernel imports",
    "tests/core/testing/test_planted.py": "mistakes that the tools for tests find",
    "tests/io/serve/test_logs.py": "what is written to logs",
    "tests/io/embedded/test_sampler.py": "processes that sample the same",
    "tests/docs/test_pages.py": "the programs of the documentation",
    "tests/docs/test_pictures.py": "its pictures",
    "tests/io/pages": "pages in a browser",
    "tests/io/serve/test_browser.py": "pages in a browser",
    # each form of a request, of a program and of a message: laws and real clients stand for them
    "tests/io/conform": "programs that answer vectors",
    "tests/io/families/test_images.py": "processors of images",
    "tests/io/families/test_recorded_reads.py": "what templates read of each value",
    "tests/io/families/test_rendering.py": "families that several processes share",
    "tests/io/serve/test_agent_sizes.py": "requests of 160 KB",
    "tests/io/serve/test_auth.py": "keys in each place",
    "tests/io/serve/test_fast.py": "a second tokenizer library",
    "tests/io/serve/test_media.py": "images in each API",
    "tests/io/serve/test_miles.py": "each field of Miles' protocol",
    "tests/io/serve/test_requests.py": "each wrong request",
    "tests/io/serve/test_text_check.py": "texts of each engine",
    "tests/io/serve/test_view.py": "the session page",
    "tests/fuzz": "seeds of the fuzz targets",
    "tests/everything": "the tool that tries real programs",
    "tests/mutants": "the tool that plants faults",
    "tests/release": "the artefacts of a release",
    "tests/test_benchmarks*.py": "the benchmarks",
}
"""What a plain run leaves out, beside tests marked `whole`: patterns of paths, and what each tries."""


@cache  # asked once a test, and a file has hundreds
def is_left_out(path: str) -> bool:
    """Return whether a plain run leaves out a file or folder.

    >>> is_left_out("tests/kill/test_kill.py"), is_left_out("tests/core/test_ids.py")
    (True, False)
    """
    return any(fnmatch(path, one) or fnmatch(path, f"{one}/*") for one in LEFT_OUT)


def choose(config: pytest.Config) -> None:
    """Choose what runs: without a path the brief tests, on all cores; with one all that it names, on one."""
    chosen = config.option
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist, which has parsed the arguments alone
        chosen.tier, chosen.loadgroup = config.workerinput["tier"], config.workerinput["loadgroup"]
        return
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    chosen.tier = chosen.tier or (ALL if named else BRIEF)
    alone = named or chosen.collectonly or chosen.usepdb
    # It is None where pytest-xdist is there, and `-n` was not given.
    if not alone and getattr(chosen, "numprocesses", 0) is None:
        # The tests that are left out of a brief run wait for processes and sockets a third of their time.
        cores, brief = os.cpu_count() or 1, chosen.tier == BRIEF
        chosen.numprocesses = cores if brief else cores * 3 // 2
        chosen.dist = "worksteal" if brief else "loadgroup"  # groups of tests cost a message for each test


def runs(item: pytest.Item, tier: str) -> bool:
    """Return whether a test belongs to a tier."""
    path = item.path.relative_to(item.config.rootpath).as_posix()
    marked = item.get_closest_marker("whole") is not None
    brief = not (marked or is_left_out(path) or _event_loop(item) == "trio")
    again = tier == REST and getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    return tier == ALL or again or brief == (tier == BRIEF)


def _event_loop(item: pytest.Item) -> str | None:
    """Return the event loop of a test that runs on several: a brief run tries asyncio alone."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("anyio_backend") if callspec else None


class FailuresAtOnce:
    """Prints each failure when it happens: a run takes minutes."""

    def __init__(self, config: pytest.Config) -> None:
        """Find the terminal of the run."""
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print a test that failed."""
        terminal = self.config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid}", red=True)
            terminal.write_line(report.longreprtext)

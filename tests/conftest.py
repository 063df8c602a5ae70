"""Which tests run, how hard hypothesis tries (HYPOTHESIS_PROFILE), and a heap that is light."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from tests.tiers import ALL, BRIEF, REST, FailuresAtOnce, choose, is_left_out, runs

# No deadline: the machines that run this are shared, and a slow example is no wrong one.
settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("brief", max_examples=10, deadline=None, derandomize=True)
settings.register_profile(
    "faults", max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)
settings.register_profile("soak", max_examples=5_000, deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose tests."""
    group = parser.getgroup("tito", "what runs where no path is given: the tests that take little time, or")
    tier = {"dest": "tier", "action": "store_const", "default": None}
    group.addoption("--all", const=ALL, help="all tests", **tier)
    group.addoption(
        "--rest",
        const=REST,
        help="those that are left out without `--all`, and each law with more examples",
        **tier,
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose what runs, before pytest-xdist looks how many processes it starts."""
    choose(config)


def pytest_configure(config: pytest.Config) -> None:
    """Let hypothesis try as hard as the tier says, and show failures at once."""
    profile = "brief" if config.option.tier == BRIEF else "dev"
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", profile))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of pytest-xdist which tests it has."""
    node.workerinput["tier"] = node.config.option.tier
    node.workerinput["loadgroup"] = node.config.option.dist == "loadgroup"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even read what is left out: reading all tests takes long."""
    brief = config.option.tier == BRIEF and collection_path.is_relative_to(config.rootpath)
    return (brief and is_left_out(collection_path.relative_to(config.rootpath).as_posix())) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of other tiers."""
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (chosen if runs(item, config.option.tier) else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


@pytest.fixture(scope="module")
def light_heap() -> Iterator[None]:
    """Spare the collector what earlier tests have left: benchmarks collect before each of their calls."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep profiles in a folder of the test run: no test may depend on what an earlier run learned."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TITO_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Write a line to the terminal, past the capture: installations and engines take their time."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    return lambda line: reporter.write_line(f"[tests] {line}") if reporter else None

"""How hard hypothesis tries, by HYPOTHESIS_PROFILE (dev, ci or soak), and a heap that is light."""

import gc
import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import Phase, settings

# No deadline: the machines that run this are shared, and a slow example is no wrong one.
settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=40, deadline=None, derandomize=True)
settings.register_profile("brief", max_examples=15, deadline=None, derandomize=True)
settings.register_profile(
    "faults", max_examples=40, deadline=None, derandomize=True, phases=[Phase.explicit, Phase.generate]
)
settings.register_profile("soak", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


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

"""What is rendered here for generated conversations, and what the code of vLLM and SGLang makes of them.

    TITO_ENGINES=vllm,sglang TITO_FAMILIES=DIR HYPOTHESIS_PROFILE=soak pytest tests/engines/preprocessing

tries 5,000 conversations with each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engines.conftest import asked_for
from tests.engines.preprocessing.compare import Template, probes, real_templates, undated
from tests.engines.preprocessing.generated import CONVERSATIONS
from tests.engines.preprocessing.oracle import ENVIRONMENTS, Ask, oracle
from tests.engines.preprocessing.shapes import Conversation
from tests.model_folders import FAMILIES, NAMES
from tito_io.embedded import write_family

REFUSED_AT_MOST = 0.02
"""Of what an engine renders: vLLM takes malformed parts beside some keys, and not beside others."""


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> list[Template]:
    """Return templates of our own, and those of model folders where they are there."""
    own = list(probes(write_family(tmp_path_factory.mktemp("probes") / "family")))
    return [*own, *(real_templates(FAMILIES) if NAMES else ())]


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def engine(request: pytest.FixtureRequest) -> str:
    """Return each engine that was asked for."""
    name: str = request.param
    asked_for(name)
    return name


@pytest.fixture(scope="module")
def ask(engine: str, say: Callable[[str], None]) -> Iterator[Ask]:
    """Lend the engine's code."""
    with oracle(engine, say) as asked:
        yield asked


def test_no_generated_conversation_is_rendered_otherwise(
    engine: str, ask: Ask, templates: list[Template]
) -> None:
    """What an engine rejects is not compared: it is never sent an id of it."""
    verdicts = Counter[str]()

    @settings(suppress_health_check=list(HealthCheck))
    @given(CONVERSATIONS, st.integers(0, len(templates) - 1))
    def check(one: Conversation, number: int) -> None:
        template = templates[number]
        said = ask(template.source, one, template.variables).get("text")
        theirs = None if said is None else undated(said)
        ours = None if theirs is None else template.text(one, engine)
        assert ours in {theirs, None}
        verdicts["rejected" if theirs is None else "refused here" if ours is None else "equal"] += 1

    check()
    assert verdicts["equal"] > sum(verdicts.values()) / 3
    assert verdicts["refused here"] <= REFUSED_AT_MOST * verdicts["equal"] + 1, verdicts

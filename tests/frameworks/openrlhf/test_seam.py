"""Where the integration goes into OpenRLHF."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import openrlhf
from openrlhf.utils.agent import AgentExecutorBase, AgentInstanceBase, MultiTurnAgentExecutor

from tito_io.integrations.openrlhf import TAKES, MessageAgentExecutor


def test_the_executor_is_what_openrlhf_loads() -> None:
    assert issubclass(MessageAgentExecutor, MultiTurnAgentExecutor)
    assert issubclass(MessageAgentExecutor, AgentExecutorBase)
    assert tuple(signature(MessageAgentExecutor.execute).parameters) == ("self", *TAKES)
    assert list(signature(AgentInstanceBase.step).parameters)[:2] == ["self", "state_dict"]


def test_the_engine_asks_for_a_class_of_this_name() -> None:
    """Its module imports ray and vLLM, so that only its text can be read here."""
    (folder,) = openrlhf.__path__
    text = (Path(folder) / "trainer" / "ray" / "vllm_engine.py").read_text()
    assert 'hasattr(agent_module, "AgentExecutor")' in text
    assert "issubclass(agent_executor_cls, AgentExecutorBase)" in text

"""Where the integration goes into the Tinker cookbook."""

from __future__ import annotations

from inspect import getsource

from tinker_cookbook.rl.message_env import EnvFromMessageEnv


def test_every_observation_is_rendered_in_one_place() -> None:
    source = getsource(EnvFromMessageEnv)
    assert source.count("self._render_in_thread(") == 4
    assert source.count("build_generation_prompt") == 2  # its own code, and its docstring

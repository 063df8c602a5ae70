"""torchtitan's RL rollouts with the renderer."""

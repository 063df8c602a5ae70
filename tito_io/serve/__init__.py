"""A gateway for agents that know only messages: they get a base URL, and their rollout is token-exact."""

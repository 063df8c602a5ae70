"""`tito rollout`: run a conversation with an engine and account for every sampled id."""

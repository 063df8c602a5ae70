"""Read what engines answer: ids, log-probabilities, messages and routed experts, for every adapter."""

"""What holds in every framework of a kind. An adapter in its folder says how to start, feed and read it.

| a folder with | is tested by |
|---|---|
| `sdk.py` | `test_sdks.py`: agents of an SDK run by ids, and what a caller asks for is done or refused |
| `rollouts.py` | `test_rollouts.py`: what is trained was sampled, all else is what the template writes |
| `merges.py` | `test_merges.py`: next prompts over real families |
"""

"""Hypothesis strategies: messages, conversations, sampled ids, rollouts and stored calls.

They need hypothesis, which `pip install 'tito-kernel[testing]'` installs.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401  # only to say what to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hypothesis is missing: tito_core.testing.strategies needs it;"
        " install it with `pip install 'tito-kernel[testing]'` or `pip install hypothesis`",
        name="hypothesis",
    ) from error

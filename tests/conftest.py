"""How hard hypothesis tries, by the environment variable HYPOTHESIS_PROFILE: dev (default), ci or soak."""

import os

from hypothesis import Phase, settings

# No deadline: the machines that run this are shared, and a slow example is no wrong one.
settings.register_profile("dev", max_examples=60, deadline=None)
settings.register_profile("ci", max_examples=60, deadline=None, derandomize=True)
settings.register_profile("faults", max_examples=40, deadline=None, phases=[Phase.explicit, Phase.generate])
settings.register_profile("soak", max_examples=5_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

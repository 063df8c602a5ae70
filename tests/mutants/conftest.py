"""What makes mutants is in the dependency group `mutation` alone."""

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("mutmut")
    else ["command.py", "mutant.py", "test_forks.py", "test_mutant.py", "test_trial.py", "trial.py"]
)

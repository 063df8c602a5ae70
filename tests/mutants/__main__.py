"""Draw mutants and see which survive the tests:  python -m tests.mutants kernel --sample 100 --seed 0.

It needs the dependency group `mutation`.
"""

import sys
from importlib.util import find_spec

if __name__ == "__main__":
    if find_spec("libcst") is None:  # the command itself imports it
        sys.exit("libcst is missing: install it with pip install --group mutation")
    from tests.mutants.command import main

    main()

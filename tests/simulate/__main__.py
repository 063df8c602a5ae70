"""Simulate the gateway under faults:  python -m tests.simulate --seed 7 | --seeds 10000."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.simulate.command import main

    main()

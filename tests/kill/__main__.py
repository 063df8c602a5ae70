"""Kill gateways and Redis while clients take turns:  python -m tests.kill --kills 300."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.kill.command import main

    main()

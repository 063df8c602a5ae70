"""Run the tests of every real program that this machine can run:  python -m tests.everything."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.everything.command import main

    main()

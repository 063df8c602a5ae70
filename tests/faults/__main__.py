"""Plant every fault and check that the tests fail:  python -m tests.faults [WORDS OF A DESCRIPTION]."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.faults.command import main

    main()

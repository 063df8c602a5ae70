"""Fuzz the parsers of bytes:  python -m tests.fuzz TARGET... --minutes 5."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.fuzz.command import main

    main()

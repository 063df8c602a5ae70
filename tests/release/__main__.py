"""The checklist of a release:  python -m tests.release [STEP...].  See docs/releasing.md."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.release.command import main

    main()

"""Draw mutants and see which survive the tests:  python -m tests.mutants kernel --sample 100 --seed 0."""

from tests.required import require

if __name__ == "__main__":
    require("test", "mutation")
    from tests.mutants.command import main

    main()

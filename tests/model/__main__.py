"""Compare kernel and model on many cases:  python -m tests.model --cases 100000 --seed 1 --workers 1."""

from tests.required import require

if __name__ == "__main__":
    require("test")
    from tests.model.compare.run import main

    main()

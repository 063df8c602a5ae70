"""Compare kernel and model on many cases:  python -m tests.model --cases 100000 --seed 1 --workers 1."""

from tests.model.compare.run import main

if __name__ == "__main__":
    main()

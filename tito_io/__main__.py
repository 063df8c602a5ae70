"""Run the `tito` command with `python -m tito_io`."""

from .cli.main import main

if __name__ == "__main__":
    main()

"""Run the `tito` command with `python -m tito_io`."""

from tito_io.cli.main import main

if __name__ == "__main__":
    main()

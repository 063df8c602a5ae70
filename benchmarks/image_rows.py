"""Compare log-probabilities in training rows with images to a forward pass of transformers, in float64.

`benchmarks.images --logprobs` runs `python -m benchmarks.image_rows FOLDER ROWS` in an environment that has
torch and transformers. It does what a trainer does: it finds an image's bytes by the identity in a row, lets
the processor make pixel values of them, and gives those to the model beside the row's ids.
"""

from __future__ import annotations

import base64
import inspect
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
IMAGE = 1
"""What processors call the ids of images; 0 are those of texts."""


def write_rows(file: Path, conversations: Iterable[Sequence[Any]]) -> None:
    """Write the training rows of conversations as `tito samples` does, each with its images' bytes."""
    from tito_core.samples import Forest, StoredCall, make_rows  # noqa: PLC0415  # not where transformers runs
    from tito_io.client.media import images_in  # noqa: PLC0415
    from tito_io.samples.entry import Entry, to_columns  # noqa: PLC0415

    with file.open("w") as out:
        for number, steps in enumerate(conversations):
            calls = [StoredCall(name=str(place), step=step, order=place) for place, step in enumerate(steps)]
            shown = images_in(message for step in steps for message in step.prompt)
            urls = {medium.identity: url for medium, url in shown if url is not None}
            for place, row in enumerate(make_rows(Forest.of(calls)).rows):
                columns = to_columns(Entry(conversation=str(number), line=number, place=place, row=row))
                images = {one.identity: urls[one.identity] for one in row.media}
                out.write(json.dumps({**columns, "images": images}) + "\n")


def compared(python: Path, folder: Path, rows: Path) -> dict[str, Any]:
    """Return the differences that this module prints when it is run by another interpreter."""
    command = [str(python), "-m", "benchmarks.image_rows", str(folder), str(rows)]
    environment = {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(  # noqa: S603  # an interpreter that the caller names
        command, capture_output=True, text=True, check=False, env=environment
    )
    if done.returncode:
        raise RuntimeError(f"transformers gave no log-probabilities:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def line(found: Mapping[str, Any]) -> str:
    """Return the differences as a line."""
    return (
        f"log-probabilities beside transformers: {found['ids']} of {found['sampled']} sampled ids of "
        f"{found['rows']} rows with {found['images']} images; the largest difference is "
        f"{found['largest']:.1e}, {found['above']} are above 1e-5"
    )


def usable(processor: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row up to the first id of images that was sampled.

    An engine takes such an id for text; transformers would look for its pixels.
    """
    ranges = [range(one["offset"], one["offset"] + one["length"]) for one in row["media"]]
    (kinds,) = processor.create_mm_token_type_ids([row["ids"]])
    inside = {place for one in ranges for place in one}
    stray = [place for place, kind in enumerate(kinds) if kind == IMAGE and place not in inside]
    stop = min(stray, default=len(kinds))
    return {
        **row,
        "ids": row["ids"][:stop],
        "logprobs": row["logprobs"][: stop + 1],
        "last": row["ids"][stop : stop + 1],
        "media": [one for one in row["media"] if one["offset"] < stop],
        "kinds": [kind if place in inside else 0 for place, kind in enumerate(kinds)][:stop],
    }


def model_inputs(processor: Any, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row's ids, the pixel values of its images, and which ids are those of images."""
    pillow: Any = import_module("PIL.Image")
    torch: Any = import_module("torch")
    urls = [row["images"][one["identity"]] for one in row["media"]]
    images = [pillow.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]
    # In a batch of one, which processors expect that take several images of a text.
    found = dict(processor.image_processor(images=[images], return_tensors="pt")) if images else {}
    ids = {"input_ids": torch.tensor([row["ids"]]), "mm_token_type_ids": torch.tensor([row["kinds"]])}
    return {**found, **ids}


def differences(folder: str, rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, list[float]]]:
    """Yield for each row how many images it has, and how far each log-probability is from transformers'."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    processor = transformers.AutoProcessor.from_pretrained(folder)
    # Twice the engine's precision, so that what is left is the engine's own rounding.
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float64).eval()
    taken = inspect.signature(model.forward).parameters
    for row in (usable(processor, one) for one in rows):
        inputs = model_inputs(processor, row)
        given = {
            name: value.double() if value.is_floating_point() else value
            for name, value in inputs.items()
            if name in taken
        }
        with torch.no_grad():
            logprobs = model(**given).logits[0].log_softmax(-1)
        ids = [*row["ids"], *row["last"]]
        sampled = [(place, value) for place, value in enumerate(row["logprobs"]) if value is not None]
        yield len(row["media"]), [abs(value - float(logprobs[at - 1, ids[at]])) for at, value in sampled]


def main(folder: str, file: str) -> None:
    """Print how far the log-probabilities of the rows in a file are from transformers'."""
    rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
    found = list(differences(folder, rows))
    values = [one for _, row in found for one in row]
    counts = {"rows": len(found), "images": sum(images for images, _ in found), "ids": len(values)}
    counts["sampled"] = sum(value is not None for row in rows for value in row["logprobs"])
    counts["above"] = sum(value > 1e-5 for value in values)  # noqa: PLR2004  # the bound that the page names
    print(json.dumps({**counts, "largest": max(values, default=0.0)}))


if __name__ == "__main__":
    main(*sys.argv[1:])

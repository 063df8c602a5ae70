"""Write a GGUF file as a model folder of `transformers`, with float32 weights: `real_folder.py FILE FOLDER`.

Run by an interpreter that has transformers and gguf.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(file: Path, folder: Path) -> None:
    """Write weights, tokenizer, chat template and configuration."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    given = {"gguf_file": file.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **given)
    model.hf_quantizer = None  # the weights are whole numbers no more, and a quantized model is not saved
    del model.config.quantization_config
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(file.parent, **given).save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

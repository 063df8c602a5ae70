"""A real language model, SmolLM2-135M-Instruct: that its file is read exactly."""

from __future__ import annotations

from tests.environment import Say
from tests.real_models import real_model
from tito_io.families import Family


def test_its_tokenizer_and_template_are_read_from_the_file(say: Say) -> None:
    family = Family.of_gguf(real_model("smollm2", say))
    ids = family.ids([{"role": "user", "content": "Hello."}], add_generation_prompt=True)
    assert family.decode(ids).endswith("<|im_start|>user\nHello.<|im_end|>\n<|im_start|>assistant\n")
    assert family.vocab_size == 49_152

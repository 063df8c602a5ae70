"""Real training steps of a tiny random model with images, on rollouts whose prompts are built from ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
from trl.data_utils import prepare_multimodal_messages

from tests.processors.kinds import KINDS, processor_of
from tests.processors.shapes import SIZES, drawn
from tito_core import InputError, Reason, Refusal
from tito_io.families import TokenizerFamily
from tito_io.integrations.next_prompts import NextPrompts, RefusedError
from tito_io.integrations.trl import ToolRollout
from tito_io.integrations.trl_images import ImagePrompts

from .families import own
from .training import Engine, Trained, multiply, spelled, trainer_of
from .training import made as of_text
from .training import trained as train_on

TOOLS = "{% for tool in tools or [] %}<tool>{{ tool.function.name }}</tool>{% endfor %}"
CALL = "\n<call>multiply</call><|im_end|>"


@cache
def processor() -> Any:
    """Return a processor of Qwen2.5-VL whose template writes the tools' names."""
    found = processor_of(KINDS["qwen2.5-vl"], pil=True)
    found.chat_template = found.chat_template.replace("{{- bos_token }}", TOOLS, 1)
    return found


def ids_of(text: str) -> list[int]:
    return spelled(processor().tokenizer, text)


def parse(ids: list[int], _: list[int]) -> dict[str, Any]:
    text, _, call = processor().tokenizer.decode(ids).removesuffix("<|im_end|>").partition("\n<call>")
    found: dict[str, Any] = {"role": "assistant", "content": text}
    if call:
        found["tool_calls"] = [
            {"function": {"name": call.removesuffix("</call>"), "arguments": {"a": 3, "b": 4}}}
        ]
    return found


def network() -> Any:
    """Return a tiny random model."""
    tokenizer = processor().tokenizer
    vision = {"depth": 1, "hidden_size": 16, "num_heads": 2, "intermediate_size": 16, "out_hidden_size": 16}
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]},
    }
    names = {
        f"{name}_token_id": tokenizer.convert_tokens_to_ids(f"<|{token}|>")
        for name, token in (
            ("image", "image_pad"),
            ("video", "video_pad"),
            ("vision_start", "vision_start"),
            ("vision_end", "vision_end"),
        )
    }
    config = Qwen2_5_VLConfig(
        text_config=text,
        vision_config={**vision, "fullatt_block_indexes": [0]},
        **names,
    )
    made = Qwen2_5_VLForConditionalGeneration(config)
    made.generation_config.eos_token_id = [tokenizer.eos_token_id]
    made.generation_config.pad_token_id = tokenizer.pad_token_id
    return made


class Watching(Engine):
    """An engine that keeps what the model got beside ids."""

    def __call__(self, input_ids: Any, attention_mask: Any, **fields: Any) -> Any:
        seen = {name: value for name, value in fields.items() if isinstance(value, torch.Tensor)}
        self.__dict__.setdefault("fields", []).append((input_ids, seen))
        return super().__call__(input_ids, attention_mask)


def rows(*names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows of a data set with these images."""
    question = {"role": "user", "content": "What is it?"}
    return [{"prompt": [question], "images": [drawn(one) for one in row]} for row in names]


def made(folder: Path, data: list[dict[str, Any]], rollout: Any, **given: Any) -> Trained:
    options = {"shuffle_dataset": False, **given}
    return trainer_of(network(), processor(), data, folder, rollout_func=rollout, **options)


def trained(folder: Path, data: list[dict[str, Any]], replies: Any, **given: Any) -> Any:
    """Train a step on what an engine samples; return what was seen, the engine and the rollout function."""
    engine = Watching(replies, processor().tokenizer.pad_token_id)
    rollout = ToolRollout(given.pop("functions", [multiply]), parse=parse, **given.pop("options", {}))
    scored = given.pop("scored", [])
    seen = made(folder, data, rollout, **given)
    _keep(seen.trainer.model, scored)
    return train_on(seen, engine), engine, rollout


def _keep(model: Any, scored: list[dict[str, Any]]) -> None:
    """Keep what the model gets in forward passes."""

    def keep(_model: Any, _args: Any, fields: dict[str, Any]) -> None:
        scored.append(dict(fields))

    model.register_forward_pre_hook(keep, with_kwargs=True)


def test_a_training_step_with_images_uses_exactly_the_sampled_ids(tmp_path: Path) -> None:
    replies = [
        [ids_of(CALL), ids_of("So" + CALL), ids_of("12.<|im_end|>")],
        [ids_of(CALL), ids_of("No.<|im_end|>")],
    ]
    seen, engine, rollout = trained(tmp_path, rows(["wide"]), replies)
    assert [math.isfinite(loss) for loss in seen.losses] == [True]
    assert seen.changed > 10
    assert seen.sampled() == [list(chain(*one)) for one in replies]
    assert [len(prompts) for prompts in engine.prompts] == [3, 2]
    assert (rollout.built, rollout.refused) == (3, {})


def test_the_first_prompt_is_what_the_trainer_would_render(tmp_path: Path) -> None:
    data = rows(["wide"], ["small", "tall"])
    replies = [[ids_of("Yes.<|im_end|>")] for _ in range(4)]
    _, engine, _ = trained(tmp_path, data, replies, per_device_train_batch_size=4)
    expected = []
    for row in data:
        messages = prepare_multimodal_messages(row["prompt"], images=row["images"])
        given = processor().apply_chat_template(
            [messages], tools=[multiply], add_generation_prompt=True, tokenize=True, return_dict=True
        )
        expected += [[given["input_ids"][0]]] * 2
    assert sorted(engine.prompts) == sorted(expected)


def test_the_model_gets_the_images_of_its_rows_in_every_turn(tmp_path: Path) -> None:
    """Two prompts, two generations each; the first one's rollouts call a tool."""
    data = rows(["wide"], ["small", "tall"])
    replies = [[ids_of(CALL), ids_of("12.<|im_end|>")]] * 2 + [[ids_of("Yes.<|im_end|>")]] * 2
    scored: list[dict[str, Any]] = []
    seen, engine, _ = trained(
        tmp_path, data, replies, scored=scored, per_device_train_batch_size=4, gradient_accumulation_steps=1
    )
    image, grids = processor().image_token_id, {"wide": 10, "small": 4, "tall": 18}
    (_, first), (_, second) = engine.fields
    assert len(first["image_grid_thw"]) == 2 + 4
    for ids, fields in engine.fields:
        assert torch.equal(fields["mm_token_type_ids"], (ids == image).to(fields["mm_token_type_ids"].dtype))
    assert len(second["image_grid_thw"]) == 2
    assert torch.equal(second["pixel_values"], first["pixel_values"][: len(second["pixel_values"])])
    assert grids.keys() == SIZES.keys()
    assert scored
    for one in scored:
        marks = one["mm_token_type_ids"]
        assert torch.equal(marks, (one["input_ids"] == image).to(marks.dtype))
        assert marks.sum() * 4 == len(one["pixel_values"])
    assert seen.sampled() == [list(chain(*one)) for one in replies]


def test_images_of_equal_prompts_are_processed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, counts = type(processor().image_processor), []
    call = kind.__call__

    def watched(self: Any, images: Any, *rest: Any, **more: Any) -> Any:
        counts.append(len(list(chain(*images))))
        return call(self, images, *rest, **more)

    seen = made(tmp_path, rows(["wide"]), ToolRollout([multiply], parse=parse))
    trainer, replies = seen.trainer, iter([ids_of(CALL)] * 2 + [ids_of("12.<|im_end|>")] * 2)
    trainer._generate_single_turn = lambda asked, *_: ([next(replies) for _ in asked], None)
    prompt = prepare_multimodal_messages(rows(["wide"])[0]["prompt"], images=[drawn("wide")])
    monkeypatch.setattr(kind, "__call__", watched)
    found = trainer.rollout_func([prompt, prompt], trainer)
    assert found["rollout_end"] == ["answer"] * 2
    assert counts == [1]


def test_an_engine_gets_all_images_in_one_call(tmp_path: Path) -> None:
    trainer = made(tmp_path, rows(["wide"]), ToolRollout([multiply], parse=parse)).trainer
    calls: list[Any] = []

    def generate(asked: Any, images: Any, fields: Any, _: int) -> Any:
        calls.append((len(asked), images, fields))
        return [ids_of("Yes.<|im_end|>")] * len(asked), None

    trainer._generate_single_turn, trainer.use_vllm = generate, True
    prompts = [
        prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in rows(["wide"], ["tall"])
    ]
    trainer.rollout_func([*prompts, [{"role": "user", "content": "Hello."}]], trainer)
    ((count, images, fields),) = calls
    assert (count, fields) == (3, {})
    assert [one and [image.size for image in one] for one in images] == [[(150, 60)], [(40, 120)], None]


def look(a: int, b: int) -> Any:
    """Look at something.

    Args:
        a: A number.
        b: Another one.
    """
    found: list[Any] = [{"type": "image", "image": drawn("tall")}, {"type": "text", "text": f"{a} {b}"}]
    return found


def test_images_in_tool_results_are_refused(tmp_path: Path) -> None:
    replies = [[ids_of("\n<call>look</call><|im_end|>")], [ids_of("Yes.<|im_end|>")]]
    seen, _, rollout = trained(tmp_path, rows(["wide"]), replies, functions=[look])
    assert seen.rewarded[0]["rollout_end"] == ["refused", "answer"]
    assert [len(one) for one in seen.rewarded[0]["rollout_messages"]] == [1, 1]
    assert seen.sampled() == [list(chain(*one)) for one in replies]
    assert rollout.refused == {"MULTIMODAL": 1}


@pytest.mark.parametrize("choice", ["end", "raise"])
def test_a_first_prompt_whose_images_are_not_clear_is_trls_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: Any
) -> None:
    """No tiny model has a processor that is refused here, so that the refusal is written beforehand."""
    refusal = Refusal(Reason.MULTIMODAL, "the processor changes ids outside of the images")
    monkeypatch.setattr(TokenizerFamily, "first_prompt", lambda *_, **__: refusal)
    replies = [[ids_of(CALL)], [ids_of("Yes.<|im_end|>")]]
    if choice == "raise":
        with pytest.raises(RefusedError, match="changes ids outside of the images"):
            trained(tmp_path, rows(["wide"]), replies, options={"on_refusal": "raise"})
        return
    seen, engine, rollout = trained(tmp_path, rows(["wide"]), replies)
    assert seen.rewarded[0]["rollout_end"] == ["refused", "answer"]
    assert rollout.refused == {"MULTIMODAL": 1}
    assert engine.prompts[0][0].count(processor().image_token_id) == 10
    assert seen.sampled() == [list(chain(*one)) for one in replies]


def test_a_processor_that_is_refused_gives_its_own_ids() -> None:
    given = processor_of(KINDS["gemma3"], pil=True)
    prompts = NextPrompts.of(given, on_refusal="end")
    content = [{"type": "image", "image": drawn(one)} for one in ("wide", "tall")]
    messages = [{"role": "user", "content": content}]
    found = ImagePrompts(prompts).first(messages, [])
    own = given.apply_chat_template([messages], add_generation_prompt=True, tokenize=True, return_dict=True)
    assert isinstance(found.media, Refusal)
    assert found.ids == own["input_ids"][0]
    assert found.inputs.keys() == own.keys() - {"input_ids", "attention_mask"}


def test_text_with_the_line_ends_of_images_is_no_image() -> None:
    given = processor_of(KINDS["gemma3"], pil=True)
    images = ImagePrompts(NextPrompts.of(given))
    image = {"type": "image", "image": drawn("wide")}
    images.first([{"role": "user", "content": [image, {"type": "text", "text": "?"}]}], [])
    assert images.ids == {given.tokenizer.convert_tokens_to_ids("<image_soft_token>")}
    scored = images.watch(lambda _model, ids, **fields: (ids, fields))
    text = torch.tensor([given.tokenizer.encode("a\n\nb")])
    assert scored(None, text, pixel_values=None)[0] is text


def test_images_must_be_in_a_column_of_the_data_set(tmp_path: Path) -> None:
    seen = made(tmp_path, rows(["wide"]), ToolRollout([multiply], parse=parse))
    trainer = seen.trainer
    replies = iter([ids_of("Yes.<|im_end|>")] * 2)
    trainer._generate_single_turn = lambda asked, *_: ([next(replies) for _ in asked], None)
    content = [{"type": "image", "image": drawn("wide")}, {"type": "text", "text": "?"}]
    row = {"prompt": [{"role": "user", "content": content}]}
    batch = trainer._generate_and_score_completions([row, dict(row)])
    with pytest.raises(InputError, match="put them into that column"):
        trainer._compute_loss(trainer.model, batch)


def test_a_tokenizer_takes_no_images(tmp_path: Path) -> None:
    trainer = of_text(own(tmp_path), tmp_path).trainer
    prompt = [{"role": "user", "content": [{"type": "image", "image": drawn("wide")}]}]
    with pytest.raises(InputError, match="processing_class takes none"):
        ToolRollout([multiply], parse=parse)([prompt], trainer)


def test_conversations_of_text_go_as_without_a_processor(tmp_path: Path) -> None:
    trainer = made(tmp_path, rows(["wide"]), ToolRollout([multiply], parse=parse)).trainer
    replies = iter([ids_of(CALL), ids_of("12.<|im_end|>")])
    trainer._generate_single_turn = lambda *_: ([next(replies)], None)
    found = trainer.rollout_func([[{"role": "user", "content": "3 * 4?"}]], trainer)
    assert found["rollout_end"] == ["answer"]
    text = processor().tokenizer.decode(found["completion_ids"][0])
    assert "<result>12</result>" in text
    assert sum(found["env_mask"][0]) == len(ids_of(CALL)) + len(ids_of("12.<|im_end|>"))

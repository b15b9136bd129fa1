"""Generation with values read at every step is plain transformers' generation, bit for bit: ids, scores and logits."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel

from cutaway import StandardizedTransformer
from cutaway.errors import UnavailableValueError
from tests import tiny
from tests.families import models

ROWS = torch.tensor([[5, 9, 33, 2, 61, 17, 40], [7, 7, 1, 40, 8, 3, 9], [50, 4, 12, 29, 6, 11, 5]])


def _masked(*rows: list[int]) -> dict[str, Tensor]:
    mask = torch.tensor(rows)
    return {"input_ids": torch.where(mask != 0, ROWS, 0), "attention_mask": mask}


PROMPTS: dict[str, dict[str, Tensor]] = {
    "no padding": {"input_ids": ROWS},
    "left": _masked([0, 0, 0, 1, 1, 1, 1], [1] * 7, [0, 1, 1, 1, 1, 1, 1]),
    "right": _masked([1, 1, 1, 1, 0, 0, 0], [1] * 7, [1, 1, 1, 1, 1, 1, 0]),
    "hole": _masked([1, 1, 0, 0, 1, 1, 1], [1] * 7, [1, 0, 1, 1, 0, 1, 1]),
    "padded ids, no mask": {"input_ids": ROWS * torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7, [0, 1, 1, 1, 1, 1, 1]])},
    "one row": {"input_ids": ROWS[:1]},
}
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "temperature": 1.2, "top_k": 12},
    "beams": {"num_beams": 3},
    "several samples": {"do_sample": True, "num_return_sequences": 2},
    "static cache": {"cache_implementation": "static"},
    "chunked prefill": {"prefill_chunk_size": 3},
    "no cache": {"use_cache": False},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
    "assistant": {},
    "guided": {"guidance_scale": 2.0},
}
ALONE = {"prompt lookup", "assistant"}
"""Ways that take one row."""


def everything(model: StandardizedTransformer) -> None:
    """Reads every value of a pass, in order."""
    for path in model._subject.value_paths:
        host: Any = model if path.layer is None else model.layers[path.layer]
        host = getattr(host, {"attention": "self_attn", "mlp": "mlp"}.get(path.value.host, ""), host)
        if path.name == "next_token_probs":
            with contextlib.suppress(UnavailableValueError):  # padded on the right, its logits are not asked for
                getattr(host, path.name)
            continue
        getattr(host, path.name)


def streams(model: StandardizedTransformer) -> None:
    for layer in model.layers:
        layer.layer_output


def family(kind: str, attention: str, dtype: torch.dtype) -> StandardizedTransformer:
    return tiny.shared("P-gqa", attention, dtype) if kind == "phi" else models.wrapped(kind, attention, dtype)


def arguments_of(way: str, kind: str, attention: str, dtype: torch.dtype) -> dict[str, Any]:
    arguments = {
        "max_new_tokens": 5,
        "do_sample": False,
        "pad_token_id": 0,
        "return_dict_in_generate": True,
        "output_logits": True,
        "output_scores": True,
        **WAYS[way],
    }
    if way == "assistant":
        arguments["assistant_model"] = tiny.fresh(attention=attention, dtype=dtype, seed=5)
    return arguments


def generated(hf: PreTrainedModel, prompt: dict[str, Tensor], arguments: dict[str, Any]) -> Any:
    torch.manual_seed(3)
    return hf.generate(**prompt, **arguments)


def read(
    model: StandardizedTransformer,
    prompt: dict[str, Tensor],
    arguments: dict[str, Any],
    what: Callable[[Any], None] = everything,
    from_step: int = 0,
) -> Any:
    torch.manual_seed(3)
    with model.generate(prompt, **arguments) as run:
        for step in run:
            if step.index >= from_step:
                what(model)
    return run.output


def must_be_equal(found: Any, expected: Any) -> None:
    assert torch.equal(found.sequences, expected.sequences)
    for name in ("logits", "scores"):
        for one, other in zip(found[name], expected[name], strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_however_the_prompt_is_masked(kind: str, attention: str, dtype: torch.dtype, prompt: str) -> None:
    model, arguments = family(kind, attention, dtype), arguments_of("greedy", kind, attention, dtype)
    expected = generated(model.hf, PROMPTS[prompt], arguments)
    must_be_equal(read(model, PROMPTS[prompt], arguments), expected)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
def test_in_every_way_of_generating(kind: str, attention: str, way: str) -> None:
    dtype = torch.bfloat16 if way in ("beams", "static cache") else torch.float32
    model, arguments = family(kind, attention, dtype), arguments_of(way, kind, attention, dtype)
    prompt = PROMPTS["one row" if way in ALONE else "left" if attention == "eager" else "padded ids, no mask"]
    must_be_equal(read(model, prompt, arguments), generated(model.hf, prompt, arguments))


@pytest.mark.parametrize("from_step", [0, 2])
@pytest.mark.parametrize("way", ["greedy", "sampled", "beams"])
def test_whichever_steps_are_read(way: str, from_step: int) -> None:
    model = family("phi", "sdpa", torch.bfloat16)
    prompt, arguments = PROMPTS["left"], arguments_of(way, "phi", "sdpa", torch.bfloat16)
    expected = generated(model.hf, prompt, arguments)
    must_be_equal(read(model, prompt, arguments, streams, from_step), expected)
    must_be_equal(read(model, prompt, arguments, everything, from_step), expected)


@pytest.mark.parametrize("prompt", ["left", "hole", "padded ids, no mask"])
def test_a_plain_generate_in_the_body_or_in_another_thread_meanwhile(prompt: str) -> None:
    model, arguments = family("llama", "sdpa", torch.bfloat16), arguments_of("greedy", "llama", "sdpa", torch.bfloat16)
    expected = generated(model.hf, PROMPTS[prompt], arguments)
    found: list[Any] = []

    def plainly() -> None:
        found.append(model.hf.generate(**PROMPTS[prompt], **arguments))

    with model.generate(PROMPTS[prompt], **arguments) as run:
        for _ in run:
            model.input_ids
            plainly()
            model.layers[1].self_attn.attention_probabilities
            thread = threading.Thread(target=plainly)
            thread.start()
            thread.join()
            plainly()
    must_be_equal(run.output, expected)
    assert len(found) == 15
    for one in found:
        must_be_equal(one, expected)


def test_ids_without_a_mask_are_masked_as_transformers_masks_them() -> None:
    model = family("llama", "sdpa", torch.float32)
    ids = PROMPTS["padded ids, no mask"]["input_ids"]
    for given in (ids, ids.tolist(), ids.numpy()):
        with model.generate(given, max_new_tokens=2, do_sample=False, pad_token_id=0) as run:
            assert model.attention_mask.tolist() == (ids != 0).long().tolist()
            assert [step.positions[0].tolist() for step in run] == [[-1, -1, 0, 1, 2, 3, 4], [5]]
    with model.generate([[5, 9, 33], [61, 17]], max_new_tokens=2, do_sample=False, pad_token_id=0) as run:
        assert model.attention_mask.tolist() == [[1, 1, 1], [0, 1, 1]]
    seen = []
    with model.hooks({"layers.1.layer_output": lambda value: seen.append(value.shape)}, positions="new"):
        with model.generate(ids, max_new_tokens=2, do_sample=False, pad_token_id=0):
            pass
    assert len(seen) == 2


def test_the_callers_generation_config_decides_on_padding() -> None:
    hf = tiny.fresh()
    hf.generation_config.eos_token_id = 2
    model = StandardizedTransformer(hf, check=False)
    config = GenerationConfig(pad_token_id=9, eos_token_id=2, max_new_tokens=6, do_sample=False)
    expected = hf.generate(ROWS, generation_config=config)
    with model.generate(ROWS, generation_config=config) as run:
        for _ in run:
            model.layers[0].layer_output
    assert torch.equal(run.output, expected)

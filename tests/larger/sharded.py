"""Run under torchrun by `test_tensor_parallel.py`: a model spread over processes, against the same one whole.

Every process checks the values that stay whole, and that a spread one is refused with the reason.
"""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.distributed import DistributedConfig

from cutaway import StandardizedTransformer
from cutaway.errors import UnavailableValueError

IDS = torch.tensor([[5, 9, 33, 2, 61, 17], [7, 7, 1, 40, 8, 3], [50, 4, 12, 29, 6, 11]])
PLAN = DistributedConfig(tp_plan="auto")
SPREAD = (
    "queries_before_rotary",
    "keys_before_rotary",
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_probabilities",
    "attention_head_outputs",
    "attention_premix",
    "mlp_activation",
    "mlp_neurons",
)


def close(one: Tensor, other: Tensor, what: str) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4, msg=lambda text: f"{what}: {text}")


def compare(folder: str) -> None:
    sharded = StandardizedTransformer(AutoModelForCausalLM.from_pretrained(folder, distributed_config=PLAN).eval())
    whole = StandardizedTransformer(AutoModelForCausalLM.from_pretrained(folder).eval())
    assert torch.distributed.get_world_size() == 2
    assert sharded._subject.processes == 2

    expected = whole.read(IDS)
    names = {row.value: row for row in sharded.support()}
    for name in SPREAD:
        assert not names[name].available, name
        assert "2 processes" in names[name].where, name
        with pytest.raises(UnavailableValueError, match="without a tensor parallel plan"):
            sharded.read(IDS, name)
    found = sharded.read(IDS)
    assert {path for path in expected if path.rpartition(".")[2] not in SPREAD} == set(found)
    for path, value in found.items():
        if path != "input_size":
            close(value, expected[path], path)

    def edited(model: StandardizedTransformer) -> list[Tensor]:
        change = torch.linspace(-1, 1, 32)
        with model.trace(IDS):
            model.layers[0].mlp.mlp_output += change
            model.layers[1].layer_output = model.layers[1].layer_output * 1.5
            model.layers[2].mlp.skip()
            logits = model.logits
        with model.steer(1, change, positions="new"):
            with model.generate(IDS, max_new_tokens=4, do_sample=False) as run:
                for step in run:
                    if step.index == 1:
                        model.layers[2].self_attn.attention_output *= 2
        with model.trace(IDS, grad=True):
            stream = model.layers[1].layer_output
            model.logits[:, -1, 3].sum().backward()
        return [logits, run.output, stream.grad]

    for one, other in zip(edited(sharded), edited(whole), strict=True):
        close(one, other, "edits")
    assert "tensor parallelism" in str(sharded).lower()
    with sharded.scan(IDS):
        assert sharded.layers[1].layer_output.shape == (3, 6, 32)
    torch.distributed.barrier()


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        compare(folder)
    torch.distributed.destroy_process_group()
    print("all values agree")

"""Memory is freed when the last name of it goes, without a garbage collection."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from cutaway import StandardizedTransformer, save
from cutaway.errors import CutawayError
from tests import tiny


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def traced(model: StandardizedTransformer) -> tuple[dict[str, torch.Tensor], weakref.ref[torch.Tensor]]:
    with model.trace(tiny.IDS):
        unsaved = weakref.ref(model.layers[0].layer_output)
        kept = {
            "pattern": model.layers[1].self_attn.attention_probabilities,
            "stream": model.layers[1].layer_output,
            "saved": model.layers[2].mlp.mlp_output.save(),
            "logits": model.logits,
        }
    return kept, unsaved


def edited(model: StandardizedTransformer) -> tuple[dict[str, torch.Tensor], weakref.ref[torch.Tensor]]:
    with model.trace(tiny.IDS):
        unsaved = weakref.ref(model.layers[0].layer_output)
        model.layers[1].self_attn.attention_scores += 1
        model.layers[1].mlp.mlp_output = model.layers[1].mlp.mlp_output + 1
        kept = {"stream": model.layers[1].layer_output}
    return kept, unsaved


def hooked(model: StandardizedTransformer) -> tuple[dict[str, torch.Tensor], weakref.ref[torch.Tensor]]:
    refs: list[weakref.ref[torch.Tensor]] = []
    with model.hooks({"layers.0.layer_output": lambda value: refs.append(weakref.ref(value))}):
        kept = model.read(tiny.IDS, "layers.2.*", "logits")
    return kept, refs[0]


def failed(model: StandardizedTransformer) -> tuple[dict[str, torch.Tensor], weakref.ref[torch.Tensor]]:
    kept = {}
    try:
        with model.trace(tiny.IDS):
            unsaved = weakref.ref(model.layers[0].mlp.mlp_output)
            kept["stream"] = model.layers[1].layer_output
            model.layers[0].layer_output
    except CutawayError:
        pass
    return kept, unsaved


@pytest.mark.parametrize("run", [traced, edited, hooked, failed])
def test_results_and_intermediates_are_freed_at_once(run) -> None:
    model = tiny.shared()
    kept, unsaved = run(model)
    assert unsaved() is None
    refs = [weakref.ref(tensor) for tensor in kept.values()]
    assert all(ref() is not None for ref in refs)
    del kept
    assert all(ref() is None for ref in refs)


def test_read_keeps_only_what_was_selected() -> None:
    refs: list[weakref.ref[torch.Tensor]] = []
    hf = tiny.fresh()
    for block in hf.model.layers:
        block.mlp.register_forward_hook(lambda _m, _a, out: refs.append(weakref.ref(out)))
    kept = StandardizedTransformer(hf, check=False).read(tiny.IDS, "layers.1.mlp.mlp_output", "logits")
    assert [ref() is not None for ref in refs[-3:]] == [False, True, False]
    assert len(kept) == 2


@pytest.mark.parametrize("used", [False, True])
def test_deleting_the_model_frees_its_weights(used: bool) -> None:
    model = StandardizedTransformer(tiny.fresh())
    if used:
        traced(model)
        model.support()
        with model.hooks({"mlp_output": lambda value: value + 1}):
            model.read(tiny.IDS)
    weight = weakref.ref(model.lm_head.weight)
    gc.collect()  # what transformers leaves in cycles while it builds a model
    del model
    assert weight() is None


def test_save_copies_tensors_in_containers_and_leaves_the_rest() -> None:
    tensor = torch.arange(3.0)
    kept = save({"a": (tensor, [tensor, 2]), "b": "text"})
    tensor += 1
    assert kept["b"] == "text"
    assert kept["a"][1][1] == 2
    assert torch.equal(kept["a"][0], torch.arange(3.0))
    assert torch.equal(kept["a"][1][0].save(), torch.arange(3.0))

"""What a trace costs beyond raw torch hooks: `python -m benchmarks.overhead`.

The same work in both: all layers' outputs and the logits; one early layer's output; and, for the cost a value, the same
values asked one by one.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from transformers import PhiConfig, PhiForCausalLM, PreTrainedModel

from benchmarks.timing import interleave, ratio
from cutaway import StandardizedTransformer


def wide_phi() -> PreTrainedModel:
    """A Phi of 12 layers and width 768, with random weights."""
    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=8192, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
    )
    return PhiForCausalLM(config).eval()


class _Reached(Exception):
    pass


def raw_all_layers(hf: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """All layers' outputs and the logits, by torch's own hooks."""
    found: list[torch.Tensor] = []
    handles = [
        layer.register_forward_hook(lambda _module, _args, output: found.append(output)) for layer in hf.model.layers
    ]
    try:
        with torch.no_grad():
            found.append(hf(**inputs).logits)
    finally:
        for handle in handles:
            handle.remove()
    return found


def traced_all_layers(model: StandardizedTransformer, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    with model.trace(inputs):
        found = [layer.layer_output for layer in model.layers]
        found.append(model.logits)
    return found


def read_all_layers(model: StandardizedTransformer, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    return list(model.read(inputs, "layer_output", "logits").values())


def raw_forward(hf: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.no_grad():
        return hf(**inputs).logits


def traced_layer(model: StandardizedTransformer, inputs: dict[str, torch.Tensor], layer: int) -> torch.Tensor:
    with model.trace(inputs):
        return model.layers[layer].layer_output


def measure(name: str, hf: PreTrainedModel, tokens: int, rounds: int, table: Table) -> None:
    model = StandardizedTransformer(hf, check=False)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, hf.config.vocab_size, (1, tokens), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    raw, traced, at_once = raw_all_layers(hf, inputs), traced_all_layers(model, inputs), read_all_layers(model, inputs)
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(raw, traced, at_once, strict=True))

    layers = model.num_layers
    early = layers // 4
    ways: dict[str, Callable[[], object]] = {
        "forward": partial(raw_forward, hf, inputs),
        "raw": partial(raw_all_layers, hf, inputs),
        "trace": partial(traced_all_layers, model, inputs),
        "read": partial(read_all_layers, model, inputs),
        "early": partial(traced_layer, model, inputs, early),
    }
    seconds = interleave(ways, rounds)
    raw_ms = statistics.median(seconds["raw"]) * 1e3
    extra = statistics.median(a - b for a, b in zip(seconds["trace"], seconds["raw"], strict=True))
    table.add_row(
        name,
        f"{raw_ms:.2f} ms",
        f"{ratio(seconds, 'trace', 'raw'):.3f}",
        f"{ratio(seconds, 'read', 'raw'):.3f}",
        f"{extra / (layers + 1) * 1e6:.0f} µs",
        f"{ratio(seconds, 'early', 'forward'):.3f} (layer {early} of {layers}; share {(early + 1) / layers:.3f})",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="phi-mini", help="the small model: a built-in name or a folder")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    table = Table("model", "raw hooks", "trace / raw", "read / raw", "extra a value", "early layer / forward")
    table.title = f"All layers' outputs and the logits, {arguments.tokens} tokens, {arguments.rounds} rounds"
    small = StandardizedTransformer(arguments.model, check=False).hf
    measure(arguments.model, small, arguments.tokens, arguments.rounds, table)
    measure("12 layers, 768 wide", wide_phi(), arguments.tokens, arguments.rounds, table)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()

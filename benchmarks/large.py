"""A Phi of phi-2's size with random bfloat16 weights: 2.8 billion parameters, 5.6 GB."""

from __future__ import annotations

import torch
from transformers import PhiConfig, PhiForCausalLM

from benchmarks.cases import Case, mini_case
from benchmarks.machine import memory_available

NEEDED = 8 * 2**30


def large_case(tokens: int = 16) -> Case:
    """The case; every library shares its weights.

    Raises:
        MemoryError: less than 8 GiB are free.
    """
    free = memory_available()
    if free < NEEDED:
        raise MemoryError(
            f"a Phi of phi-2's size wants {NEEDED / 2**30:.0f} GiB of free memory, and there are {free / 2**30:.1f}. "
            "Leave --large out, or end what else runs."
        )
    config = PhiConfig(
        vocab_size=51200,
        hidden_size=2560,
        intermediate_size=10240,
        num_hidden_layers=32,
        num_attention_heads=32,
        partial_rotary_factor=0.4,
        dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        hf = PhiForCausalLM(config).to(torch.bfloat16)
    hf = hf.to_empty(device="cpu").eval()
    _fill(hf)
    return Case("phi-2's size, bfloat16", hf, tokens, mini_case().tokenizer)


def _fill(hf: PhiForCausalLM) -> None:
    """Random weights, drawn once and repeated: to draw 2.8 billion numbers takes a minute."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2**24 + 7, generator=generator).mul_(0.02).to(torch.bfloat16)
    with torch.no_grad():
        for name, parameter in hf.named_parameters():
            flat = parameter.view(-1)
            for start in range(0, flat.numel(), drawn.numel()):
                part = flat[start : start + drawn.numel()]
                part.copy_(drawn[: part.numel()])
            if "layernorm" in name:
                parameter.fill_(1.0 if name.endswith("weight") else 0.0)
    rotary = hf.model.rotary_emb
    fresh = type(rotary)(config=hf.config)
    rotary.inv_freq, rotary.original_inv_freq = fresh.inv_freq, fresh.original_inv_freq

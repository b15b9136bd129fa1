"""The oracle of these tests: the unmodified transformers Phi, with raw torch hooks and its own attention function.

The attention function is plain eager attention in the model's own dtype (transformers' eager one takes its softmax in
float32 also in a float64 model) which remembers what it is called with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PhiConfig, PhiForCausalLM
from transformers.masking_utils import eager_mask

from cutaway.reference import Phi, RotaryTables

ORACLE = "reference_test_oracle"


@dataclass
class Run:
    """What transformers computed: values by standard path, and the rotary tables it used."""

    values: dict[str, np.ndarray]
    tables: RotaryTables


@pytest.fixture(scope="session", autouse=True)
def _few_threads() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def _oracle_attention() -> Iterator[dict[str, torch.Tensor]]:
    seen: dict[str, torch.Tensor] = {}

    def attend(module, query, key, value, attention_mask, scaling, dropout=0.0, **_):
        groups = query.shape[1] // key.shape[1]
        scores = query @ key.repeat_interleave(groups, 1).transpose(2, 3) * scaling
        if attention_mask is not None:
            scores = scores + attention_mask
        probabilities = scores.softmax(-1)
        heads = (probabilities @ value.repeat_interleave(groups, 1)).transpose(1, 2).contiguous()
        place = f"layers.{module.layer_idx}.self_attn."
        seen[place + "attention_queries"] = query
        seen[place + "attention_keys"] = key
        seen[place + "attention_values"] = value
        seen[place + "attention_scores"] = scores
        seen[place + "attention_probabilities"] = probabilities
        seen[place + "attention_head_outputs"] = heads
        return heads, probabilities

    AttentionInterface.register(ORACLE, attend)
    AttentionMaskInterface.register(ORACLE, eager_mask)
    yield seen
    AttentionInterface._global_mapping.pop(ORACLE)
    AttentionMaskInterface._global_mapping.pop(ORACLE)


@pytest.fixture
def run_torch(_oracle_attention: dict[str, torch.Tensor]) -> Callable[..., Run]:
    """Run a transformers Phi and give every value of every layer by its standard path."""

    def run(model: PhiForCausalLM, ids, mask=None, positions=None) -> Run:
        seen = _oracle_attention
        seen.clear()
        config = model.config

        def output(name: str, *more: str) -> Callable[..., None]:
            def hook(module, args, result):
                seen.update(dict.fromkeys((name, *more), result[0] if isinstance(result, tuple) else result))

            return hook

        def given(name: str, *more: str) -> Callable[..., None]:
            def hook(module, args, kwargs):
                seen.update(dict.fromkeys((name, *more), args[0] if args else kwargs["hidden_states"]))

            return hook

        tables: list[tuple[torch.Tensor, torch.Tensor]] = []
        body = model.model
        handles = [
            body.rotary_emb.register_forward_hook(lambda module, args, result: tables.append(result)),
            body.embed_tokens.register_forward_hook(output("token_embeddings")),
            body.final_layernorm.register_forward_hook(output("final_norm_output")),
            model.lm_head.register_forward_hook(output("lm_head_output")),
        ]
        for i, layer in enumerate(body.layers):
            at, attention, mlp = f"layers.{i}.", f"layers.{i}.self_attn.", f"layers.{i}.mlp."
            norm = output(at + "attention_norm_output", at + "mlp_norm_output")
            handles += [
                layer.register_forward_pre_hook(given(at + "layer_input"), with_kwargs=True),
                layer.register_forward_hook(output(at + "layer_output")),
                layer.input_layernorm.register_forward_hook(norm),
                layer.self_attn.dense.register_forward_pre_hook(
                    given(attention + "attention_premix"), with_kwargs=True
                ),
                layer.self_attn.register_forward_hook(output(attention + "attention_output")),
                layer.mlp.register_forward_pre_hook(given(at + "mlp_input"), with_kwargs=True),
                layer.mlp.activation_fn.register_forward_hook(output(mlp + "mlp_activation")),
                layer.mlp.fc2.register_forward_pre_hook(given(mlp + "mlp_neurons"), with_kwargs=True),
                layer.mlp.register_forward_hook(output(mlp + "mlp_output")),
            ]
        before = config._attn_implementation
        model.set_attn_implementation(ORACLE)
        try:
            with torch.no_grad():
                seen["logits"] = model(
                    torch.as_tensor(ids),
                    attention_mask=None if mask is None else torch.as_tensor(mask),
                    position_ids=None if positions is None else torch.as_tensor(positions),
                    use_cache=False,
                ).logits
        finally:
            model.set_attn_implementation(before)
            for handle in handles:
                handle.remove()
        values = {name: tensor.detach().numpy().copy() for name, tensor in seen.items()}
        for name, premix in values.items():
            if name.endswith("attention_premix"):
                values[name] = premix.reshape(*premix.shape[:2], config.num_attention_heads, -1)
        pairs = tables[0][0].shape[-1] // 2
        cos, sin = (table.numpy()[..., :pairs] for table in tables[0])
        return Run(values, RotaryTables(cos, sin))

    return run


@pytest.fixture
def make_torch() -> Callable[..., PhiForCausalLM]:
    """A tiny random transformers Phi whose every weight matters: wide initialization, biases and norms included."""

    def make(dtype: torch.dtype = torch.float64, seed: int = 0, **changes: Any) -> PhiForCausalLM:
        settings: dict[str, Any] = {
            "vocab_size": 61,
            "hidden_size": 32,
            "intermediate_size": 80,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "initializer_range": 0.3,
            "bos_token_id": None,
            "eos_token_id": None,
        }
        torch.manual_seed(seed)
        model = PhiForCausalLM(PhiConfig(**{**settings, **changes})).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "norm" in name or name.endswith("bias"):
                    parameter.add_(0.3 * torch.randn(parameter.shape))
        return model.to(dtype)

    return make


@pytest.fixture
def as_reference() -> Callable[..., Phi]:
    """The NumPy Phi with a transformers Phi's weights."""

    def convert(model: PhiForCausalLM, **settings: Any) -> Phi:
        tensors = {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}
        dtype = np.float64 if model.dtype == torch.float64 else np.float32
        return Phi.from_tensors(model.config.to_dict(), tensors, **{"dtype": dtype, **settings})

    return convert

"""The vocabulary is the specification's, word for word; and paths are picked as they are written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cutaway.errors import UnknownValueError
from cutaway.vocabulary import (
    COMMON,
    CONFIG_NAMES,
    LAYOUTS,
    MODULES,
    VALUES,
    ValuePath,
    all_paths,
    select_paths,
    values_of,
)

ROWS = """
model logits Logits
model token_embeddings Residual
model final_norm_output Residual
model lm_head_output Logits
model next_token_probs NextTokenProbs
model input_ids Tokens
model attention_mask Tokens
model input_size Scalar
layer layer_input Residual
layer attention_norm_output Residual
layer layer_mid Residual
layer mlp_norm_output Residual
layer mlp_input Residual
layer layer_output Residual
attention attention_queries Queries
attention attention_keys Keys
attention attention_values Values
attention attention_scores Pattern
attention attention_probabilities Pattern
attention attention_head_outputs HeadOutputs
attention attention_premix HeadOutputs
attention head_contributions HeadContributions
attention attention_output Residual
mlp mlp_activation Neurons
mlp mlp_neurons Neurons
mlp mlp_output Residual
"""
RARE = """
attention latent_kv LatentKv
attention queries_before_rotary Queries
attention keys_before_rotary Keys
attention attention_sinks Sinks
attention attention_gate HeadOutputs
layer mixer_norm_output Residual
mixer conv_output Conv
mixer ssm_output Mixed
mixer mixer_output Residual
mlp router_logits Router
mlp expert_weights Chosen
mlp expert_indices Chosen
mlp routed_output Residual
mlp shared_expert_output Residual
"""
AXES = {
    "Residual": "[batch seq hidden_size]",
    "Logits": "[batch seq vocab_size]",
    "NextTokenProbs": "[batch vocab_size]",
    "Tokens": "[batch seq]",
    "Scalar": "[]",
    "Queries": "[batch num_heads seq qk_head_dim]",
    "Keys": "[batch num_kv_heads seq qk_head_dim]",
    "Values": "[batch num_kv_heads seq head_dim]",
    "Pattern": "[batch num_heads query key]",
    "HeadOutputs": "[batch seq num_heads head_dim]",
    "HeadContributions": "[batch seq num_heads hidden_size]",
    "Neurons": "[batch seq intermediate_size]",
    "Sinks": "[batch num_heads query]",
    "LatentKv": "[batch seq kv_latent_size]",
    "Router": "[batch seq num_experts]",
    "Chosen": "[batch seq experts_per_token]",
    "Conv": "[batch seq conv_size]",
    "Mixed": "[batch seq mixer_size]",
}


def test_values_hosts_and_layouts_are_those_of_the_specification() -> None:
    for table, values in ((ROWS, COMMON), (RARE, {name: VALUES[name] for name in set(VALUES) - set(COMMON)})):
        rows = {tuple(line.split()) for line in table.strip().splitlines()}
        assert {(value.host, name, value.layout.name) for name, value in values.items()} == rows
    assert {name: str(layout) for name, layout in LAYOUTS.items()} == AXES
    assert {name for name, value in VALUES.items() if value.read_only} == {
        "input_size",
        "next_token_probs",
        "attention_sinks",
        "router_logits",
        "head_contributions",
    }


def test_modules_and_sizes_are_those_of_the_specification() -> None:
    assert list(CONFIG_NAMES) == [
        "num_layers",
        "hidden_size",
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "qk_head_dim",
        "vocab_size",
        "intermediate_size",
        "num_experts",
        "experts_per_token",
        "kv_latent_size",
        "mixer_size",
        "conv_size",
    ]
    on = {
        host: {name for name, module in MODULES.items() if module.host == host}
        for host in ("model", "layer", "attention", "mixer", "mlp")
    }
    assert on == {
        "model": {"embed_tokens", "layers", "norm", "lm_head"},
        "layer": {"self_attn", "mixer", "mlp", "input_layernorm", "post_attention_layernorm"},
        "attention": {"q_proj", "k_proj", "v_proj", "q_norm", "k_norm", "o_proj"},
        "mixer": {"in_proj", "conv1d", "out_proj"},
        "mlp": {"act_fn", "down_proj", "gate_proj", "up_proj", "router", "experts", "shared_expert"},
    }


@pytest.mark.parametrize(
    ("path", "written"),
    [
        (ValuePath("logits", None), "logits"),
        (ValuePath("layer_output", 3), "layers.3.layer_output"),
        (ValuePath("attention_queries", 3), "layers.3.self_attn.attention_queries"),
        (ValuePath("mlp_output", 11), "layers.11.mlp.mlp_output"),
    ],
)
def test_a_path_is_its_hosts_path_and_its_name(path: ValuePath, written: str) -> None:
    assert str(path) == written
    assert select_paths(written, all_paths(12)) == [path]


@pytest.mark.parametrize(
    ("selector", "written"),
    [
        ("layers.1.layer_output", ["layers.1.layer_output"]),
        ("layers.-1.layer_output", ["layers.11.layer_output"]),
        ("layers.*.mlp.mlp_output", [f"layers.{i}.mlp.mlp_output" for i in range(12)]),
        ("mlp_output", [f"layers.{i}.mlp.mlp_output" for i in range(12)]),
        ("layers.1*.layer_output", ["layers.1.layer_output", "layers.10.layer_output", "layers.11.layer_output"]),
        (lambda path: path.endswith("head_output"), ["lm_head_output"]),
        (["logits", "logits", "layers.0.layer_input"], ["layers.0.layer_input", "logits"]),
    ],
)
def test_selecting(selector, written: list[str]) -> None:
    assert [str(path) for path in select_paths(selector, all_paths(12))] == written


def test_selecting_nothing_is_an_error_that_offers_near_names() -> None:
    for selector, near in {
        "layer_outputs": "'layer_output'",
        "layers.*.self_atn.attention_scores": "'layers.*.self_attn.attention_scores'",
        "layers.12.layer_output": "'layers.11.layer_output'",
    }.items():
        with pytest.raises(UnknownValueError) as caught:
            select_paths(selector, all_paths(12))
        assert near in str(caught.value)


def test_values_of_a_host_come_in_the_order_of_a_pass() -> None:
    common = [value.name for value in values_of("mlp") if not value.rare]
    assert common == ["mlp_activation", "mlp_neurons", "mlp_output"]


def test_importing_cutaway_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, cutaway; sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode
        == 0
    )


def test_the_public_names_are_there() -> None:
    import cutaway

    for name in cutaway.__all__:
        assert getattr(cutaway, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        cutaway.nothing


def test_a_value_under_the_wrong_host_is_offered_under_its_own() -> None:
    with pytest.raises(UnknownValueError, match=r"Did you mean 'layers\.1\.self_attn\.attention_output'\?"):
        select_paths("layers.1.attention_output", all_paths(3))

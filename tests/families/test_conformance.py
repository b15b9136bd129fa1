"""What every family keeps, on tiny random models of each kind, against raw hooks and plain transformers.

A new family is one more line in `models.CONFIGS` and one in `native.NATIVE`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import LateEditError
from cutaway.model.inputs import prompt_inputs
from cutaway.vocabulary import COMMON, VALUES
from tests.families import native
from tests.families.models import CONFIGS, IDS, PROMPTS, kernels, left_padded, plain, wrapped
from tests.families.native import path_of

KINDS = pytest.mark.parametrize("kind", CONFIGS)
KERNELS = pytest.mark.parametrize(("kind", "attention"), [(kind, one) for kind in CONFIGS for one in kernels(kind)])
DIRECT = [name for name, row in COMMON.items() if not row.derived]
WRITABLE = [name for name in DIRECT if not COMMON[name].read_only]
LAYER = 1

ROTATED = ("attention_queries", "attention_keys")
INPUTS = {"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}


def has(kind: str, name: str) -> bool:
    row = native.native(kind)
    return name not in row.lacks and (name != "layer_mid" or row.sequential)


def exact(name: str, attention: str) -> bool:
    """Whether our arithmetic is the oracle's: asked for its pattern, a layer leaves the fused kernel."""
    return attention == "eager" or name not in native.STEPS


@KERNELS
def test_every_value_is_what_a_raw_hook_sees(kind: str, attention: str) -> None:
    hf, model = plain(kind, attention), wrapped(kind, attention)
    for name in filter(lambda name: has(kind, name), DIRECT):
        path = path_of(name, LAYER)
        found, expected = model.read(IDS, path)[path], native.value(hf, kind, INPUTS, name, LAYER)
        assert found.shape == expected.shape, name
        if exact(name, attention):
            assert torch.equal(found, expected), name
        else:
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5, msg=name)


@KERNELS
@pytest.mark.parametrize("way", ["in place", "assigned", "by a function"])
def test_an_edit_does_what_the_same_edit_by_a_raw_hook_does(kind: str, attention: str, way: str) -> None:
    hf, model = plain(kind, attention), wrapped(kind, attention)
    untouched = native.edited_logits(hf, kind, INPUTS, "logits", LAYER, lambda value: None)
    for name in filter(lambda name: has(kind, name), WRITABLE):
        expected = native.edited_logits(hf, kind, INPUTS, name, LAYER, _edit(name))
        found = _edited(model, name, way)
        assert not torch.equal(found, untouched), name
        if exact(name, attention):
            assert torch.equal(found, expected), name
        else:
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, msg=name)


def _edit(name: str) -> native.Edit:
    """An edit that is not idempotent, and another one at each place of the value."""

    def edit(value: Tensor) -> Tensor:
        if name == "attention_mask":
            return value * torch.tensor([[1, 1, 0, 1, 1, 1]])
        if name == "input_ids":
            return (value + 1) % 64
        return value + torch.linspace(-1, 1, value[0].numel()).view(value[0].shape).to(value.dtype)

    return edit


def _edited(model: Any, name: str, way: str) -> Tensor:
    edit, path = _edit(name), path_of(name, LAYER)
    if way == "by a function":
        with model.hooks({path: edit}):
            return model.read(IDS, "logits")["logits"]
    with model.trace(IDS):
        host = model
        for part in path.split(".")[:-1]:
            host = host[int(part)] if part.isdigit() else getattr(host, part)
        before = getattr(host, name)
        kept = before.clone()
        if way == "in place":
            before[:] = edit(before)
        else:
            setattr(host, name, edit(before))
            assert torch.equal(before, kept), f"{name} as it was read before is another after an assignment"
        return model.logits


@KERNELS
def test_the_block_is_the_sum_of_its_terms_in_the_familys_own_order(kind: str, attention: str) -> None:
    values = wrapped(kind, attention).read(left_padded())
    for layer in range(3):
        x, attn, mlp = (values[path_of(name, layer)] for name in ("layer_input", "attention_output", "mlp_output"))
        assert torch.equal(native.native(kind).sums(x, attn, mlp), values[f"layers.{layer}.layer_output"])
        if native.native(kind).sequential:
            assert torch.equal(native.native(kind).middle(x, attn), values[f"layers.{layer}.layer_mid"])


@KINDS
def test_each_name_means_what_the_vocabulary_says(kind: str) -> None:
    hf, values = plain(kind), wrapped(kind).read(IDS)
    with torch.no_grad():
        for layer in range(3):
            v = {name: values.get(path_of(name, layer)) for name in DIRECT}
            parts = native.Parts(hf, kind, layer)
            entering_mlp = v["layer_mid"] if native.native(kind).sequential else v["layer_input"]
            if has(kind, "mlp_norm_output"):
                assert torch.equal(v["attention_norm_output"], parts.norm_1(v["layer_input"]))
                assert torch.equal(v["mlp_norm_output"], parts.norm_2(entering_mlp))
            assert torch.equal(v["mlp_input"], v["mlp_norm_output"] if has(kind, "mlp_norm_output") else entering_mlp)
            after_mlp, after_attention = (
                part or torch.nn.Identity() for part in (parts.after_mlp, parts.after_attention)
            )
            assert torch.equal(v["mlp_output"], after_mlp(parts.mlp(v["mlp_input"])))
            if has(kind, "mlp_neurons"):
                assert torch.equal(v["mlp_output"], after_mlp(parts.down(v["mlp_neurons"])))
                name = native.native(kind).gate
                columns = v["mlp_neurons"].shape[-1]
                gate = parts.mlp.get_submodule(name)(v["mlp_input"])[..., -columns:] if name else 1
                assert torch.equal(v["mlp_neurons"], v["mlp_activation"] * gate)
            assert torch.equal(v["attention_premix"], v["attention_head_outputs"])
            assert torch.equal(v["attention_output"], after_attention(parts.o_proj(v["attention_premix"].flatten(-2))))
            _attention_follows_from_its_arguments(v, parts.attention)
    assert torch.equal(values["final_norm_output"], parts.norm(values["layers.2.layer_output"]))
    assert torch.equal(values["lm_head_output"], parts.head(values["final_norm_output"]))
    assert torch.equal(values["logits"], native.native(kind).logits(values["lm_head_output"], hf.config))
    assert torch.equal(values["token_embeddings"], native.native(kind).embedded(parts.embed.weight[IDS]))
    torch.testing.assert_close(values["next_token_probs"], values["logits"][:, -1].softmax(-1))


def _attention_follows_from_its_arguments(v: dict[str, Tensor], attention: Any) -> None:
    queries, keys, heads = (v[f"attention_{name}"].double() for name in ("queries", "keys", "values"))
    groups = queries.shape[1] // keys.shape[1]
    keys, heads = keys.repeat_interleave(groups, dim=1), heads.repeat_interleave(groups, dim=1)
    seen = _seen(attention)
    scores = queries @ keys.transpose(-1, -2) * attention.scaling
    cap = getattr(attention, "attn_logit_softcapping", None)
    scores = (scores if cap is None else cap * (scores / cap).tanh()).masked_fill(~seen, float("-inf"))
    torch.testing.assert_close(v["attention_scores"][..., seen].double(), scores[..., seen], rtol=1e-5, atol=1e-5)
    pattern = scores.softmax(dim=-1)
    torch.testing.assert_close(v["attention_probabilities"].double(), pattern, rtol=1e-5, atol=1e-6)
    mixed = (pattern @ heads).transpose(1, 2)
    torch.testing.assert_close(v["attention_head_outputs"].double(), mixed, rtol=1e-5, atol=1e-5)


def _seen(attention: Any) -> Tensor:
    """Which of six keys each query sees, by the causal order and the layer's window."""
    order = torch.ones(6, 6, dtype=torch.bool).tril()
    window = getattr(attention, "sliding_window", getattr(attention.config, "sliding_window", None))
    return order if window is None else order.triu(1 - window)


@KERNELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_traced_pass_is_the_plain_one_bit_for_bit(kind: str, attention: str, dtype: torch.dtype) -> None:
    hf: Any = plain(kind, attention, dtype)
    model = wrapped(kind, attention, dtype)
    for prompt in (IDS, left_padded()):
        inputs = prompt_inputs(model._subject, prompt, None)
        with torch.no_grad():
            expected = hf(**inputs).logits
        with model.trace(prompt):
            for layer in model.layers:
                layer.layer_output
            logits = model.logits
        assert torch.equal(logits, expected)


@KERNELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_it_passes_its_own_check(kind: str, attention: str, dtype: torch.dtype) -> None:
    report = wrapped(kind, attention, dtype).check()
    assert sum(result.cases for result in report) > 60


@KINDS
def test_without_weights_its_shapes_are_checked(kind: str) -> None:
    from cutaway import StandardizedTransformer

    model = StandardizedTransformer(CONFIGS[kind](), dispatch=False)
    assert not model._subject.has_weights
    assert [result.promise for result in model.check()] == ["every value has the shape of its layout"]


@KINDS
def test_support_names_a_place_or_a_reason_for_every_value(kind: str) -> None:
    rows = {row.value: row for row in wrapped(kind).support()}
    assert set(rows) == set(VALUES)
    rare = {name for name in rows if name not in COMMON}
    assert {name for name in rare if rows[name].available} == native.native(kind).adds
    assert all(rows[name].where.endswith(".") for name in rare - native.native(kind).adds)
    for name, row in rows.items():
        if name not in COMMON:
            continue
        assert row.available == has(kind, name), name
        assert row.where, name
        if row.available and row.host != "model":
            assert row.layers == (0, 1, 2), name


@KINDS
def test_the_printout_shows_native_modules_under_standard_names(kind: str) -> None:
    text = str(wrapped(kind))
    for part in _PRINTED[kind.partition("-")[0]]:
        assert part in text, part


_PRINTED = {
    "llama": (
        *("(embed_tokens): Embedding", "(0-2): 3 x LlamaDecoderLayer", "(self_attn): LlamaAttention", "(q_proj)"),
        *("(post_attention_layernorm): LlamaRMSNorm", "(gate_proj)", "(up_proj)", "(act_fn)", "(norm): LlamaRMSNorm"),
    ),
    "qwen2": ("(self_attn): Qwen2Attention", "(post_attention_layernorm): Qwen2RMSNorm", "(down_proj)"),
    "qwen3": ("(self_attn): Qwen3Attention", "(q_norm): Qwen3RMSNorm", "(k_norm): Qwen3RMSNorm", "(act_fn)"),
    "mistral": ("(self_attn): MistralAttention", "(input_layernorm): MistralRMSNorm", "(o_proj)", "(up_proj)"),
    "phi3": ("(self_attn): Phi3Attention", "(qkv_proj): Linear", "(gate_up_proj)", "(act_fn/activation_fn)"),
    "gemma2": ("(self_attn): Gemma2Attention", "(pre_feedforward_layernorm): Gemma2RMSNorm", "(down_proj)"),
    "gemma3": (
        "(self_attn): Gemma3Attention",
        "(q_norm): Gemma3RMSNorm",
        "(post_feedforward_layernorm): Gemma3RMSNorm",
    ),
    "olmo2": ("(self_attn): Olmo2Attention", "(k_norm): Olmo2RMSNorm", "(post_feedforward_layernorm): Olmo2RMSNorm"),
    "granite": ("(self_attn): GraniteAttention", "(input_layernorm): GraniteRMSNorm", "(gate_proj)", "(down_proj)"),
    "smollm3": ("(self_attn): SmolLM3Attention", "(post_attention_layernorm): SmolLM3RMSNorm", "(up_proj)"),
    "gptj": ("(embed_tokens/wte)", "(self_attn/attn): GPTJAttention", "(o_proj/out_proj)", "(down_proj/fc_out)"),
    "stablelm": ("(self_attn): StableLmAttention", "(input_layernorm): LayerNorm", "(gate_proj)", "(norm): LayerNorm"),
    "mixtral": ("(self_attn): MixtralAttention", "(router/gate): MixtralTopKRouter", "(experts): MixtralExperts"),
    "qwen3_moe": ("(q_norm): Qwen3MoeRMSNorm", "(router/gate): Qwen3MoeTopKRouter", "(experts): Qwen3MoeExperts"),
    "gpt2": (
        *("(embed_tokens/wte)", "(layers/h)", "GPT2Block", "(input_layernorm/ln_1)", "(norm/ln_f)"),
        *("(self_attn/attn)", "(post_attention_layernorm/ln_2)", "(o_proj/c_proj)", "(act_fn/act)"),
        *("(down_proj/c_proj)", "(c_attn): Conv1D", "(wpe)", "(lm_head)"),
    ),
    "neox": (
        *("(embed_tokens/embed_in)", "(0-2): 3 x GPTNeoXLayer", "(self_attn/attention)", "(o_proj/dense)"),
        *("(query_key_value)", "(act_fn/act)", "(down_proj/dense_4h_to_h)", "(norm/final_layer_norm)", "(lm_head)"),
    ),
}


@KINDS
def test_a_padded_rows_values_are_the_single_prompts(kind: str) -> None:
    """Queries and keys of a rotary family are turned by where they stand in the row, unless positions are given."""
    model = wrapped(kind)
    mask = left_padded()["attention_mask"]
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    batched, placed = model.read(PROMPTS), model.read(PROMPTS, position_ids=positions)
    for row, prompt in enumerate(PROMPTS):
        for path, alone in model.read([prompt]).items():
            name = path.rpartition(".")[2]
            if name == "input_size":
                continue
            found = (placed if name in ROTATED else batched)[path][row]
            found, alone = _real(name, found, len(prompt)), _real(name, alone[0], len(prompt))
            atol = 1e-5 * max(1.0, float(alone.abs().masked_fill(alone < -1e29, 0).max()))
            torch.testing.assert_close(found, alone, rtol=1e-5, atol=atol, msg=lambda m, path=path: f"{path}: {m}")


def _real(name: str, value: Tensor, length: int) -> Tensor:
    """The part of one row's value that belongs to its last `length` tokens."""
    axes = VALUES[name].layout.axes[1:]
    for axis, word in enumerate(axes):
        if word in ("seq", "query", "key"):
            value = value.narrow(axis, value.shape[axis] - length, length)
    return value.masked_fill(value < -1e30, -1e30) if name == "attention_scores" else value


@KINDS
def test_every_values_gradient_is_the_slope_of_the_plain_model(kind: str) -> None:
    """`layer_mid` among them, which goes on in two places."""
    model = wrapped(kind)
    names = [
        n for n in WRITABLE if has(kind, n) and n not in ("input_ids", "attention_mask") and n not in native.INTERIOR
    ]
    for name in names:
        path = path_of(name, LAYER)
        with model.trace(IDS, grad=True):
            host = model
            for part in path.split(".")[:-1]:
                host = host[int(part)] if part.isdigit() else getattr(host, part)
            value = getattr(host, name)
            model.logits[:, -1, 3].sum().backward()
            found = value.grad
        slope = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
        up, down = (_last_logit(kind, name, step * slope) for step in (1e-3, -1e-3))
        torch.testing.assert_close((found * slope).sum(), (up - down) / 2e-3, rtol=3e-2, atol=3e-2, msg=name)


def _last_logit(kind: str, name: str, change: Tensor) -> Tensor:
    logits = native.edited_logits(plain(kind), kind, INPUTS, name, LAYER, lambda value: value + change)
    return logits[:, -1, 3].sum()


@KINDS
def test_the_stream_between_is_edited_in_inference_mode_too_and_not_too_late(kind: str) -> None:
    if not has(kind, "layer_mid"):
        pytest.skip("this kind has no stream between attention and MLP")
    model = wrapped(kind)
    with model.trace(IDS):
        model.layers[LAYER].layer_mid += 1
        expected = model.logits
    with torch.inference_mode(), model.trace(IDS):
        model.layers[LAYER].layer_mid += 1
        assert torch.equal(model.logits, expected)
    with pytest.raises(LateEditError, match="layer_mid"), model.trace(IDS):
        middle = model.layers[LAYER].layer_mid
        model.layers[LAYER].layer_output
        middle += 1
        model.logits

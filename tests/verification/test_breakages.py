"""Each break, made on purpose in a transformers model, is named: the value, the layer and the reason.

What is broken is the running code of a plain `PhiForCausalLM`, by module or by function, while the reference keeps the
weights. Only the second of three blocks is broken where a break can be confined to one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import PhiForCausalLM
from transformers.models.phi import modeling_phi

from cutaway import StandardizedTransformer
from cutaway.errors import UnsupportedModelError
from cutaway.verification import Verification, verify
from tests import tiny

IDS = torch.tensor([[5, 9, 33, 2, 61, 17, 4, 4], [7, 7, 1, 40, 8, 3, 50, 2], [50, 4, 12, 29, 6, 11, 0, 1]])
ATTENTION, MLP, LAYER = "layers.1.self_attn.", "layers.1.mlp.", "layers.1."


def verified(hf: PhiForCausalLM, **options: Any) -> Verification:
    return verify(StandardizedTransformer(hf, check=False), IDS, **options)


def without_bias(linear: nn.Linear) -> None:
    linear.forward = lambda x: functional.linear(x, linear.weight)


def in_block_1(hf: PhiForCausalLM, name: str) -> Any:
    return hf.get_submodule(f"model.layers.1.{name}".rstrip("."))


def set_eps(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "input_layernorm").eps = 1e-2


def set_odd_eps(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "input_layernorm").eps = 0.0371


def rms_norm(hf: PhiForCausalLM) -> None:
    norm = in_block_1(hf, "input_layernorm")
    norm.forward = lambda x: x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * norm.weight + norm.bias


def unscaled(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "self_attn").scaling = 1.0


def scaled_by_another(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "self_attn").scaling = 0.5


def gelu(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "mlp").activation_fn = nn.GELU()


def relu(hf: PhiForCausalLM) -> None:
    in_block_1(hf, "mlp").activation_fn = nn.ReLU()


def bias_of(name: str) -> Callable[[PhiForCausalLM], None]:
    return lambda hf: without_bias(in_block_1(hf, name))


def head_without_bias(hf: PhiForCausalLM) -> None:
    without_bias(hf.lm_head)


def final_eps(hf: PhiForCausalLM) -> None:
    hf.model.final_layernorm.eps = 0.3


def doubled_attention(hf: PhiForCausalLM) -> None:
    """The block adds its MLP's output twice."""
    block = in_block_1(hf, "")

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        normed = block.input_layernorm(hidden_states)
        attention, _ = block.self_attn(hidden_states=normed, **kwargs)
        return attention + 2 * block.mlp(normed) + hidden_states

    block.forward = forward


def no_stream(hf: PhiForCausalLM) -> None:
    block = in_block_1(hf, "")

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        normed = block.input_layernorm(hidden_states)
        return block.self_attn(hidden_states=normed, **kwargs)[0] + block.mlp(normed)

    block.forward = forward


def one_after_the_other(hf: PhiForCausalLM) -> None:
    block = in_block_1(hf, "")

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        attention, _ = block.self_attn(hidden_states=block.input_layernorm(hidden_states), **kwargs)
        between = attention + hidden_states
        return between + block.mlp(between * 1.0)

    block.forward = forward


BREAKS = {
    "eps": (set_eps, LAYER + "attention_norm_output", "the norm's eps is about 0.01, not 1e-05"),
    "another eps": (set_odd_eps, LAYER + "attention_norm_output", "the norm's eps is about 0.037, not 1e-05"),
    "RMS norm": (rms_norm, LAYER + "attention_norm_output", "root mean square"),
    "q bias": (bias_of("self_attn.q_proj"), ATTENTION + "attention_queries", "the bias of q_proj is missing"),
    "k bias": (bias_of("self_attn.k_proj"), ATTENTION + "attention_keys", "the bias of k_proj is missing"),
    "v bias": (bias_of("self_attn.v_proj"), ATTENTION + "attention_values", "the bias of v_proj is missing"),
    "dense bias": (bias_of("self_attn.dense"), ATTENTION + "attention_output", "the bias of dense is missing"),
    "fc1 bias": (bias_of("mlp.fc1"), MLP + "mlp_activation", "the bias of fc1 is missing"),
    "fc2 bias": (bias_of("mlp.fc2"), MLP + "mlp_output", "the bias of fc2 is missing"),
    "head bias": (head_without_bias, "lm_head_output", "the bias of lm_head is missing"),
    "final eps": (final_eps, "final_norm_output", "the norm's eps is about 0.3, not 1e-05"),
    "no scale": (unscaled, ATTENTION + "attention_scores", "scores are not scaled"),
    "another scale": (scaled_by_another, ATTENTION + "attention_scores", "scores are scaled by 0.5, not 0.3536"),
    "gelu": (gelu, MLP + "mlp_activation", "the activation is gelu, with erf, and not gelu_new, with tanh"),
    "relu": (relu, MLP + "mlp_activation", "the activation is relu, not gelu_new"),
    "MLP twice": (doubled_attention, LAYER + "layer_output", "with 2 × MLP"),
    "no stream": (no_stream, LAYER + "layer_output", "stream left out"),
    "serial": (one_after_the_other, LAYER + "mlp_input", "it reads stream + attention"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", BREAKS)
def test_a_break_in_one_block(name: str, dtype: torch.dtype) -> None:
    spoil, path, reason = BREAKS[name]
    hf = tiny.fresh(dtype=dtype)
    assert verified(hf).agrees
    spoil(hf)
    found = verified(hf)
    assert not found.agrees
    assert found.first is not None
    assert (found.first.path, found.first.verdict) == (path, "parts")
    assert reason in found.first.reason
    before = found.compared[: found.compared.index(found.first)]
    assert all(one.verdict == "agrees" for one in before)
    assert {one.verdict for one in found.compared if one.layer == 2} <= {"agrees", "follows"}


def rotated(change: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch, PhiForCausalLM], None]:
    def spoil(patch: pytest.MonkeyPatch, hf: PhiForCausalLM) -> None:
        patch.setattr(modeling_phi, "apply_rotary_pos_emb", change)

    return spoil


def interleaved(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **_: Any) -> Any:
    """Pairs 2i with 2i + 1, as in GPT-J."""
    half = cos.shape[-1] // 2
    cos, sin = (table[:, None, :, :half] for table in (cos, sin))

    def turn(x: torch.Tensor) -> torch.Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * cos - b * sin, b * cos + a * sin], dim=-1).flatten(-2)

    return turn(q), turn(k)


def unrotated(q: torch.Tensor, k: torch.Tensor, *_: Any, **__: Any) -> Any:
    return q, k


def backwards(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, **_: Any) -> Any:
    return _apply(q, k, cos, -sin)


_apply = modeling_phi.apply_rotary_pos_emb


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (interleaved, "the rotary pairs dimensions 2i with 2i + 1 (interleaved), not i with i + 2 (half)"),
        (unrotated, "the rotary is missing"),
        (backwards, "the rotary turns the other way"),
    ],
)
def test_a_break_of_the_rotary(monkeypatch: pytest.MonkeyPatch, change: Callable[..., Any], reason: str) -> None:
    monkeypatch.setattr(modeling_phi, "apply_rotary_pos_emb", change)
    found = verified(tiny.fresh())
    assert found.first is not None
    assert found.first.path == "layers.0.self_attn.attention_queries"
    assert found.first.reason == reason
    told = {one.path: one.reason for one in found.parted}
    assert told == {f"layers.{i}.self_attn.attention_{what}": reason for i in range(3) for what in ("queries", "keys")}


@pytest.mark.parametrize("base", [1e4, 500.0, 1234.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_another_base_of_the_rotary(base: float, dtype: torch.dtype) -> None:
    right = {"rope_type": "default", "rope_theta": 777.0, "partial_rotary_factor": 0.5}
    hf = tiny.fresh(dtype=dtype, num_attention_heads=2, rope_parameters=right)
    assert verified(hf).agrees
    dims = 8
    hf.model.rotary_emb.inv_freq = base ** -(torch.arange(0, dims, 2) / dims)
    found = verified(hf)
    assert found.first is not None
    assert found.first.path == "layers.0.self_attn.attention_queries"
    assert found.first.reason == f"the rotary's base is {base:g}, not 777"


def wider(hf: PhiForCausalLM, dims: int) -> None:
    """Turns another number of dimensions: both tables and slices."""
    hf.model.rotary_emb.inv_freq = 10000 ** -(torch.arange(0, dims, 2) / dims)
    for layer in hf.model.layers:
        layer.self_attn.rotary_ndims = dims


@pytest.mark.parametrize("dims", [2, 8])
def test_another_number_of_rotary_dimensions(dims: int) -> None:
    hf = tiny.fresh()
    wider(hf, dims)
    found = verified(hf)
    assert found.first is not None
    assert found.first.path == "layers.0.self_attn.attention_queries"
    assert found.first.reason == f"the rotary turns {dims} of the head's 8 dimensions, not 4"


def test_the_common_teaching_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interleaved pairs over the whole head."""
    monkeypatch.setattr(modeling_phi, "apply_rotary_pos_emb", interleaved)
    hf = tiny.fresh()
    wider(hf, 8)
    found = verified(hf)
    assert found.first is not None
    assert "turns 8 of the head's 8 dimensions, not 4, in pairs of 2i with 2i + 1" in found.first.reason


def test_two_breaks_are_both_named() -> None:
    hf = tiny.fresh()
    in_block_1(hf, "self_attn").scaling = 1.0
    hf.model.layers[2].mlp.activation_fn = nn.GELU()
    assert [one.path for one in verified(hf).parted] == [
        "layers.1.self_attn.attention_scores",
        "layers.2.mlp.mlp_activation",
    ]


def test_grouped_heads_shared_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_phi, "repeat_kv", lambda states, groups: states.repeat(1, groups, 1, 1))
    found = verified(tiny.fresh("P-gqa"))
    assert found.first is not None
    assert found.first.path == "layers.0.self_attn.attention_scores"
    assert found.first.reason == "query heads share key heads in turn, not in groups"


def test_a_norm_over_heads_left_out() -> None:
    hf = tiny.fresh("P-qk-norm")
    assert verified(hf).agrees
    in_block_1(hf, "self_attn").k_layernorm.forward = lambda x: x
    found = verified(hf)
    assert found.first is not None
    assert found.first.path == "layers.1.self_attn.attention_keys"
    assert found.first.reason == "the norm over each head of k_proj is missing"


def test_another_order_of_the_sum_is_remarked_and_no_difference() -> None:
    hf = tiny.fresh()
    block = in_block_1(hf, "")

    def forward(hidden_states: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        normed = block.input_layernorm(hidden_states)
        return hidden_states + block.self_attn(hidden_states=normed, **kwargs)[0] + block.mlp(normed)

    block.forward = forward
    found = verified(hf)
    assert found.agrees
    (remark,) = found.remarks
    assert remark.startswith("layers.1.layer_output is stream + attention + MLP")


def test_what_no_reason_explains_has_none() -> None:
    hf = tiny.fresh()
    in_block_1(hf, "mlp.fc2").forward = lambda x: functional.linear(x, hf.model.layers[1].mlp.fc2.weight).sin()
    found = verified(hf)
    assert found.first is not None
    assert (found.first.path, found.first.reason) == ("layers.1.mlp.mlp_output", "")
    assert "None of the reasons" in str(found)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["q bias", "fc2 bias", "relu", "no scale", "no stream", "head bias"])
def test_a_break_shows_in_half_precision_too(name: str, dtype: torch.dtype) -> None:
    spoil, path, reason = BREAKS[name]
    hf = tiny.fresh(dtype=dtype)
    assert not verified(hf).parted
    spoil(hf)
    found = verified(hf)
    assert found.first is not None
    assert found.first.path == path
    assert reason in found.first.reason


@pytest.mark.filterwarnings("ignore::cutaway.errors.NonFiniteWarning")
def test_an_overflow_is_named() -> None:
    """float16 under eager attention, which multiplies first and scales after."""
    hf = tiny.fresh(attention="eager")
    with torch.no_grad():
        for projection in ("q_proj", "k_proj"):
            in_block_1(hf, f"self_attn.{projection}").weight.mul_(60)
    found = verified(hf.half())
    assert found.first is not None
    assert found.first.path == ATTENTION + "attention_scores"
    assert "overflows before it is scaled" in found.first.reason
    assert "float16 ends at 6.6e+04" in found.first.reason
    assert {one.verdict for one in found.compared if one.layer == 2} == {"follows"}


def test_another_family_is_refused() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    llama = LlamaForCausalLM(
        LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    )
    with pytest.raises(UnsupportedModelError, match="the reference is Phi alone"):
        verified(llama.eval())

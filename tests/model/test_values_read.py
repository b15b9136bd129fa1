"""Every value is what raw hooks see at its place."""

from __future__ import annotations

import pytest
import torch

from cutaway.vocabulary import LAYOUTS, VALUES
from tests import raw, tiny

DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_every_value_is_what_a_raw_hook_sees(kind: str, attention: str, dtype: torch.dtype) -> None:
    hf, model = tiny.plain(kind, attention, dtype), tiny.shared(kind, attention, dtype)
    found = model.read(tiny.LEFT_PADDED)
    for name in raw.WRITABLE:
        for layer in range(tiny.LAYERS):
            expected = raw.value(hf, tiny.LEFT_PADDED, name, layer)
            ours = found[raw.path_of(name, layer)]
            if attention == "eager":
                assert torch.equal(ours, expected), (name, layer)
            else:
                # Scores are asked too, which takes their layers off the kernel: equal to rounding.
                assert closeness(ours, expected) <= 16 * torch.finfo(dtype).eps, (name, layer)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", raw.WRITABLE)
def test_a_value_asked_alone_is_bit_for_bit_what_a_raw_hook_sees(name: str, attention: str, dtype: torch.dtype) -> None:
    hf, model = tiny.plain("P-gqa", attention, dtype), tiny.shared("P-gqa", attention, dtype)
    expected = raw.value(hf, tiny.LEFT_PADDED, name, 1)
    path = raw.path_of(name, 1)
    ours = model.read(tiny.LEFT_PADDED, path)[path]
    if attention == "sdpa" and name in raw.INTERIOR[3:5]:
        assert closeness(ours, expected) <= 4 * torch.finfo(dtype).eps
    else:
        assert ours.dtype == expected.dtype
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("name", raw.WRITABLE)
def test_shapes_are_those_of_the_layout(name: str) -> None:
    model = tiny.shared("P-gqa")
    axes = {**model.sizes, "batch": 3, "seq": 6, "query": 6, "key": 6}
    path = raw.path_of(name, 2)
    assert tuple(model.read(tiny.IDS, path)[path].shape) == LAYOUTS[VALUES[name].layout.name].shape(axes)


def test_token_embeddings_are_rows_of_the_embedding_matrix() -> None:
    hf, model = tiny.plain(), tiny.shared()
    assert torch.equal(
        model.read(tiny.IDS, "token_embeddings")["token_embeddings"], hf.model.embed_tokens.weight[tiny.IDS]
    )


def test_one_norm_feeds_both_attention_and_mlp() -> None:
    hf, model = tiny.plain(), tiny.shared()
    found = model.read(tiny.IDS, "layers.1.*")
    normed = hf.model.layers[1].input_layernorm(found["layers.1.layer_input"])
    for name in ("attention_norm_output", "mlp_norm_output", "mlp_input"):
        assert torch.equal(found[f"layers.1.{name}"], normed)


@pytest.mark.parametrize("kind", tiny.KINDS)
def test_queries_and_keys_are_after_norm_and_rotary_and_values_are_the_projection(kind: str) -> None:
    hf, model = tiny.plain(kind), tiny.shared(kind)
    found = model.read(tiny.IDS, "layers.1.*")
    normed, attention = found["layers.1.attention_norm_output"].double(), hf.model.layers[1].self_attn
    at = "layers.1.self_attn.attention_"

    def heads(projection: torch.nn.Linear) -> torch.Tensor:
        out = normed @ projection.weight.double().T + projection.bias.double()
        return out.unflatten(-1, (-1, 8)).transpose(1, 2)

    queries, keys = heads(attention.q_proj), heads(attention.k_proj)
    if kind == "P-qk-norm":
        queries, keys = in_float64(attention.q_layernorm, queries), in_float64(attention.k_layernorm, keys)
    torch.testing.assert_close(found[at + "queries"].double(), rotate(queries), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[at + "keys"].double(), rotate(keys), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[at + "values"].double(), heads(attention.v_proj), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", tiny.KINDS)
def test_scores_pattern_and_heads_follow_from_queries_keys_and_values(kind: str, attention: str) -> None:
    hf, model = tiny.plain(kind, attention), tiny.shared(kind, attention)
    found = model.read(tiny.IDS, "layers.2.self_attn.*")
    queries, keys, values, scores, pattern, heads, premix, output = (
        found[f"layers.2.self_attn.attention_{name}"].double()
        for name in ("queries", "keys", "values", "scores", "probabilities", "head_outputs", "premix", "output")
    )
    groups = tiny.HEADS // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    expected = queries @ keys.mT * 8**-0.5
    causal = torch.ones(6, 6).tril().bool()
    torch.testing.assert_close(scores[..., causal], expected[..., causal], atol=1e-4, rtol=1e-5)
    assert (scores[..., ~causal] < -1e30).all()
    expected = expected.masked_fill(~causal, float("-inf")).softmax(-1)
    torch.testing.assert_close(pattern, expected, atol=1e-5, rtol=0)
    assert (pattern[..., ~causal] == 0).all()
    torch.testing.assert_close(heads, (pattern @ values).transpose(1, 2), atol=1e-5, rtol=1e-5)
    assert torch.equal(heads, premix)
    dense = hf.model.layers[2].self_attn.dense
    torch.testing.assert_close(
        output, premix.flatten(-2) @ dense.weight.double().T + dense.bias.double(), atol=1e-4, rtol=1e-5
    )


def test_mlp_values_follow_from_one_another() -> None:
    hf, model = tiny.plain(), tiny.shared()
    found, mlp = model.read(tiny.IDS, "layers.0.*"), hf.model.layers[0].mlp
    hidden = found["layers.0.mlp_input"].double() @ mlp.fc1.weight.double().T + mlp.fc1.bias.double()
    inner = (2 / torch.pi) ** 0.5 * (hidden + 0.044715 * hidden**3)
    activation = 0.5 * hidden * (1 + inner.tanh())
    torch.testing.assert_close(found["layers.0.mlp.mlp_activation"].double(), activation, atol=1e-5, rtol=1e-5)
    assert torch.equal(found["layers.0.mlp.mlp_neurons"], found["layers.0.mlp.mlp_activation"])
    expected = activation @ mlp.fc2.weight.double().T + mlp.fc2.bias.double()
    torch.testing.assert_close(found["layers.0.mlp.mlp_output"].double(), expected, atol=1e-4, rtol=1e-5)


def closeness(ours: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference over the largest entry, masked scores left out."""
    assert ours.shape == expected.shape
    ours, expected = ours.float(), expected.float()
    reached = expected > -1e4
    return ((ours - expected)[reached].abs().max() / expected[reached].abs().max()).item()


def in_float64(norm: torch.nn.LayerNorm, heads: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(
        heads, norm.normalized_shape, norm.weight.double(), norm.bias.double(), norm.eps
    )


def rotate(heads: torch.Tensor) -> torch.Tensor:
    """The first 4 of 8 dimensions in pairs (0, 2) and (1, 3), by 1 and 0.01 radian a position; the rest as it is."""
    position = torch.arange(heads.shape[2], dtype=torch.float64)
    turned = heads.clone()
    for i, speed in enumerate((1.0, 0.01)):
        cos, sin = (position * speed).cos()[:, None], (position * speed).sin()[:, None]
        a, b = heads[..., i : i + 1], heads[..., i + 2 : i + 3]
        turned[..., i : i + 1], turned[..., i + 2 : i + 3] = a * cos - b * sin, b * cos + a * sin
    return turned

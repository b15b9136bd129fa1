"""Drawings, cards and identities of layers that are wired in every way, without building a site."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import combinations

import pytest

from cutaway.encyclopedia import identity
from cutaway.encyclopedia.diagram import stack
from cutaway.encyclopedia.kinds import LayerKind, layer_kinds
from cutaway.encyclopedia.parts import Parts, parts_of
from cutaway.encyclopedia.traits import traits_of
from tests.encyclopedia.layers import CONFIGS, model_of

IN_THE_LIST_BELOW = {"attention_mask", "input_size"}
"""Values that a page tells in its list alone."""


@lru_cache(maxsize=32)
def drawn(kind: str) -> tuple[list[LayerKind], Parts, str, set[str]]:
    model = model_of(kind)
    kinds = layer_kinds(model._subject)
    parts = parts_of(model._subject, kinds, model.support())
    return kinds, parts, *stack(model._subject, kinds, parts)


def plain(kind: str) -> list[str]:
    """The equations of each kind of layer, without marks."""
    return [re.sub("<[^>]+>", "", line) for one in drawn(kind)[0] for line in identity.in_symbols(one)]


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_part_drawn_has_a_card_and_each_module_and_operation_is_drawn(kind) -> None:
    _, parts, svg, keys = drawn(kind)
    assert set(re.findall(r'data-part="([^"]+)"', svg)) == keys <= set(parts)
    assert {key for key, part in parts.items() if part.kind != "value"} <= keys
    assert all(part.meaning for part in parts.values())


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_module_named_is_drawn(kind) -> None:
    subject, keys = model_of(kind)._subject, {key.partition("@")[0] for key in drawn(kind)[3]}
    for layer in (None, *range(subject.sizes["num_layers"])):
        for host, names in subject.family_at(layer).modules.items():
            if (host == "model") == (layer is None):
                assert {f"{host}.{name}" for name, own in names.items() if own} <= keys


@pytest.mark.parametrize("kind", CONFIGS)
def test_each_value_that_there_is_is_drawn_and_no_other(kind) -> None:
    _, parts, _, keys = drawn(kind)
    there = {row.value for row in model_of(kind).support() if row.available}
    values = {key for key in keys if parts[key].kind == "value"}
    assert there - values == IN_THE_LIST_BELOW
    assert values <= there


@pytest.mark.parametrize("kind", CONFIGS)
def test_nothing_in_a_drawing_covers_another_or_leaves_the_sheet(kind) -> None:
    _, _, svg, _ = drawn(kind)
    width, height = (float(size) for size in re.search(r'viewBox="0 0 (\S+) (\S+)"', svg).groups())
    shape = r'<rect class="(box|pill|bubble)" x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)"'
    rects = [(found[0], *map(float, found[1:])) for found in re.findall(shape, svg)]
    for _, x, y, w, h in rects:
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    for (one, x, y, w, h), (other, a, b, c, d) in combinations(rects, 2):
        apart = x + w <= a + 0.5 or a + c <= x + 0.5 or y + h <= b + 0.5 or b + d <= y + 0.5
        assert apart, f"{one} at {x}, {y} and {other} at {a}, {b}"


@pytest.mark.parametrize(
    ("kind", "equations"),
    [
        ("llama", ["m = x + Attn(N1(x))", "y = m + MLP(N2(m))"]),
        ("gemma2", ["m = x + N2(Attn(N1(x)))", "y = m + N4(MLP(N3(m)))"]),
        ("olmo2", ["m = x + N1(Attn(x))", "y = m + N2(MLP(m))"]),
        ("granite", ["m = x + 0.22 · Attn(N1(x))", "y = m + 0.22 · MLP(N2(m))"]),
        ("stablelm", ["y = x + Attn(N(x)) + MLP(N(x))"]),
        ("gptj", ["y = Attn(N(x)) + MLP(N(x)) + x"]),
        ("opt", ["m = x + Attn(N1(x))", "y = m + MLP(N2(m))"]),
        ("openai-gpt", ["m = N1(x + Attn(x))", "y = N2(m + MLP(m))"]),
        ("falcon", ["y = MLP(N(x)) + Attn(N(x)) + x"]),
        ("mixtral", ["m = x + Attn(N1(x))", "y = m + Experts(N2(m))"]),
        (
            "deepseek_v3",
            ["m = x + Attn(N1(x))", "y = m + MLP(N2(m))", "m = x + Attn(N1(x))", "y = m + Experts(N2(m))"],
        ),
        (
            "qwen3_next",
            ["m = x + Mix(N1(x))", "y = m + Experts(N2(m))", "m = x + Attn(N1(x))", "y = m + Experts(N2(m))"],
        ),
        ("mamba2", ["y = x + Mix(N(x))"]),
    ],
)
def test_the_identity_is_told_in_its_true_order_with_norms_and_factors(kind, equations) -> None:
    assert plain(kind) == equations


@pytest.mark.parametrize(
    ("kind", "layers"),
    [
        ("deepseek_v3", ["layer 0", "layers 1-3"]),
        ("qwen3_next", ["layers 0-2", "layer 3"]),
        ("gemma2", ["layers 0-3"]),
    ],
)
def test_layers_of_several_kinds_are_drawn_each(kind, layers) -> None:
    kinds, _, svg, _ = drawn(kind)
    assert [one.told for one in kinds] == layers
    for one in kinds if len(kinds) > 1 else ():
        assert f">{one.told}</text>" in svg
        assert f">{one.words}</text>" in svg


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("gemma2", {"layer.post_feedforward_layernorm", "attention.softcap", "model.softcap"}),
        ("qwen3", {"attention.q_norm", "attention.k_norm"}),
        ("granite", {"layer.factor-attention_output", "layer.factor-mlp_output", "model.scale", "model.divided"}),
        ("phi3", {"attention.qkv_proj", "mlp.gate_up_proj", "mlp.product"}),
        ("opt", {"model.positions"}),
        ("bloom", {"attention.alibi", "model.word_embeddings_layernorm", "attention.query_key_value"}),
        ("falcon", {"attention.alibi"}),
        ("gptj", {"attention.rotary"}),
        ("gpt_oss", {"attention_sinks", "mlp.router", "mlp.experts", "mlp.choice", "router_logits"}),
        ("deepseek_v3", {"attention.kv_b_proj", "latent_kv", "layer.mlp@2", "mlp.shared_expert", "mlp.sum"}),
        ("qwen3_next", {"layer.mixer", "mixer.recurrence", "mlp.shared_expert_gate", "mlp.gate"}),
        ("mamba2", {"mixer.in_proj", "mixer.conv1d", "mixer.recurrence", "mixer.out_proj", "mixer_output"}),
    ],
)
def test_what_is_special_is_drawn(kind, keys) -> None:
    assert keys <= drawn(kind)[3]


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("mamba2", {"attention_scores", "attention.softmax", "mlp_output", "layer_mid"}),
        ("falcon", {"attention.rotary"}),
        ("bloom", {"attention.rotary", "model.positions"}),
        ("llama", {"attention.softcap", "router_logits", "mlp.choice", "attention_sinks"}),
    ],
)
def test_what_is_not_there_is_not_drawn(kind, keys) -> None:
    assert not keys & drawn(kind)[3]


def test_a_norm_after_a_sublayer_says_so() -> None:
    parts = drawn("gemma2")[1]
    assert parts["layer.post_attention_layernorm"].meaning == (
        "the norm of what the attention returns, before it is added to the stream"
    )
    assert parts["layer.pre_feedforward_layernorm"].meaning == "the norm before the MLP"
    assert "scaled by 0.25" in parts["attention.product"].meaning
    assert "On layers 0, 2 each query sees the 4 latest keys alone" in parts["attention.product"].meaning


def test_a_learned_position_that_begins_further_down_says_so() -> None:
    assert drawn("opt")[1]["model.positions"].meaning.endswith("position 0 is in row 2")


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("olmo2", "norms", "RMSNorm"),
        ("falcon", "positions", "ALiBi"),
        ("gptj", "positions", "partial rotary"),
        ("deepseek_v3", "heads", "latent"),
        ("deepseek_v3", "mlp", "experts"),
        ("phi3", "mlp", "gated"),
        ("qwen3_next", "attention", "hybrid"),
        ("gemma2", "attention", "windows"),
        ("mamba2", "attention", "none"),
        ("mamba2", "heads", "none"),
    ],
)
def test_traits(kind, name, value) -> None:
    traits = {trait.name: trait for trait in traits_of(model_of(kind)._subject, drawn(kind)[0])}
    assert traits[name].value == value

"""The structure of a printout: names, folding, and what is missing."""

from __future__ import annotations

import pytest
from torch import nn
from transformers import PhiConfig, PhiForCausalLM

from cutaway import StandardizedTransformer
from cutaway.inspection.numbers import ranges
from cutaway.inspection.printout.tree import ModuleNode, brief, count_parameters, tree_of
from cutaway.vocabulary import COMMON


def tiny(layers: int = 4) -> PhiForCausalLM:
    config = PhiConfig(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=layers,
        num_attention_heads=3,
        max_position_embeddings=32,
    )
    return PhiForCausalLM(config).eval()


def layers_of(hf: PhiForCausalLM) -> ModuleNode:
    root = tree_of(StandardizedTransformer(hf, check=False)._subject).root
    return next(node for child in root.children for node in child.children if node.key == "layers")


def walk(node: ModuleNode) -> list[ModuleNode]:
    return [node, *(inner for child in node.children for inner in walk(child))]


def test_layers_of_equal_structure_are_one_node() -> None:
    (block,) = layers_of(tiny()).children
    assert (block.key, block.count, block.what) == ("0-3", 4, "4 x PhiDecoderLayer")


def test_a_layer_whose_modules_have_other_shapes_stands_by_itself() -> None:
    hf = tiny()
    hf.model.layers[2].mlp.fc1 = nn.Linear(24, 50)
    hf.model.layers[2].mlp.fc2 = nn.Linear(50, 24)
    first, other = layers_of(hf).children
    assert (first.key, other.key) == ("0-1, 3", "2")
    assert "mlp.fc1" in other.differs
    assert not first.differs


def test_a_layer_whose_setting_alone_is_another_stands_by_itself_and_says_so() -> None:
    hf = tiny()
    hf.model.layers[1].self_attn.sliding_window = 7
    _, other = layers_of(hf).children
    assert other.key == "1"
    assert other.differs == "self_attn.sliding_window 7"


def test_a_layer_of_another_class_stands_by_itself() -> None:
    class OtherNorm(nn.LayerNorm):
        pass

    hf = tiny()
    hf.model.layers[0].input_layernorm = OtherNorm(24)
    assert [node.key for node in layers_of(hf).children] == ["0", "1-3"]


def test_renamed_modules_show_both_names_and_others_one() -> None:
    root = tree_of(StandardizedTransformer(tiny(), check=False)._subject).root
    labels = {node.label for node in walk(root)}
    assert {"(o_proj/dense)", "(act_fn/activation_fn)", "(down_proj/fc2)", "(norm/final_layernorm)"} <= labels
    assert {"(q_proj)", "(fc1)", "(embed_tokens)", "(lm_head)"} <= labels


def test_every_value_stands_once_under_its_host() -> None:
    root = tree_of(StandardizedTransformer(tiny(), check=False)._subject).root
    shown = [value.name for node in walk(root) for value in node.values]
    assert sorted(shown) == sorted((*COMMON, "queries_before_rotary", "keys_before_rotary"))
    hosts = {value.name: node.class_name for node in walk(root) for value in node.values}
    assert hosts["attention_queries"] == "PhiAttention"
    assert hosts["mlp_output"] == "PhiMLP"
    assert hosts["layer_output"] == "PhiDecoderLayer"
    assert hosts["logits"] == "PhiForCausalLM"


def test_what_does_not_exist_says_why_in_a_clause() -> None:
    (block,) = layers_of(tiny()).children
    (mid,) = [value for value in block.values if value.missing]
    assert (mid.name, mid.missing) == ("layer_mid", "Phi's block is parallel")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ([0], "0"),
        ([0, 1], "0-1"),
        (list(range(32)), "0-31"),
        ([0, 2, 3, 4, 7], "0, 2-4, 7"),
        ([1, 3, 5, 7, 9], "1, 3, ... 9"),
        ([1, 3], "1, 3"),
        ([layer for layer in range(48) if layer % 4 != 3], "0-2, 4-6, ... 44-46"),
        ([0, 1, 4, 5, 8, 9, 12], "0-1, 4-5, 8-9, 12"),
    ],
)
def test_ranges(numbers: list[int], said: str) -> None:
    assert ranges(numbers) == said


@pytest.mark.parametrize(
    ("reason", "clause"),
    [
        ("A block is parallel: so there.", "A block is parallel"),
        ("No site for `x.y`. More.", "No site for `x.y`"),
        ("Short", "Short"),
    ],
)
def test_brief(reason: str, clause: str) -> None:
    assert brief(reason) == clause


def test_parameters_are_counted_once() -> None:
    tied = nn.ModuleList([nn.Linear(10, 10, bias=False)] * 2)
    assert count_parameters(tied) == "100"
    assert count_parameters(nn.Linear(1000, 1234)) == "1.24M"


def test_weights_stand_under_their_host_where_they_are() -> None:
    root = tree_of(StandardizedTransformer(tiny(), check=False)._subject).root
    weights = {node.class_name: node.weights for node in walk(root) if node.weights}
    assert weights == {
        "PhiForCausalLM": ("W_E", "W_U", "b_U"),
        "PhiAttention": ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O"),
        "PhiMLP": ("W_in", "b_in", "W_out", "b_out"),
    }

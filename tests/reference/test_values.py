"""Which values a call returns, under which paths and in which layouts."""

from __future__ import annotations

import numpy as np
import pytest

from cutaway.errors import CutawayError, InputError, ShapeError, UnavailableValueError, UnknownValueError
from cutaway.reference import Phi, PhiConfig
from cutaway.vocabulary import COMMON, all_paths

CONFIG = PhiConfig(
    num_layers=3,
    hidden_size=24,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=61,
    intermediate_size=40,
    rotary_dim=4,
    initializer_range=0.3,
)
SIZES = {
    "batch": 3,
    "seq": 5,
    "query": 5,
    "key": 5,
    "hidden_size": 24,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 8,
    "qk_head_dim": 8,
    "vocab_size": 61,
    "intermediate_size": 40,
}


@pytest.fixture
def model():
    return Phi.from_config(CONFIG, seed=0)


@pytest.fixture
def ids():
    return np.random.default_rng(1).integers(0, 61, (3, 5))


def test_every_word_of_the_vocabulary_in_its_layout(model, ids):
    found = model(ids, values=["*", "input_size", "head_contributions"])
    names = [name for name in COMMON if name != "layer_mid"]
    expected = all_paths(3, names)
    assert list(found) == [str(path) for path in expected]
    for path in expected:
        array = found[str(path)]
        if path.name == "input_size":
            assert list(array) == [3, 5]
        else:
            assert array.shape == path.value.layout.shape(SIZES), path
    assert np.array_equal(found["input_ids"], ids)
    assert np.array_equal(found["attention_mask"], np.ones((3, 5)))


def test_head_contributions_are_asked_for_by_name_and_sum_to_the_attentions_output(model, ids):
    assert not any("head_contributions" in path for path in model(ids, values="*"))
    found = model(ids, values=["head_contributions", "attention_premix", "attention_output"])
    for layer in range(3):
        at = f"layers.{layer}.self_attn"
        dense = model.layers[layer].self_attn.o_proj
        whole = found[f"{at}.head_contributions"].sum(axis=2) + dense.bias
        assert np.allclose(whole, found[f"{at}.attention_output"], atol=1e-5)
        alone = found[f"{at}.attention_premix"].copy()
        alone[:, :, 1:] = 0
        first = alone.reshape(3, 5, -1) @ dense.weight.T
        assert np.allclose(found[f"{at}.head_contributions"][:, :, 0], first, atol=1e-5)


def test_logits_are_always_there(model, ids):
    plain = model(ids)
    assert list(plain) == ["logits"]
    assert plain.logits is plain["logits"]
    some = model(ids, values=["layers.1.layer_output"])
    assert list(some) == ["layers.1.layer_output", "logits"]
    assert np.array_equal(some.logits, plain.logits)
    assert np.array_equal(model(ids, values="*").logits, plain.logits)


@pytest.mark.parametrize(
    ("values", "paths"),
    [
        ("mlp_output", [f"layers.{i}.mlp.mlp_output" for i in range(3)]),
        (["layers.*.layer_output"], [f"layers.{i}.layer_output" for i in range(3)]),
        ("layers.-1.self_attn.attention_scores", ["layers.2.self_attn.attention_scores"]),
        (["layers.1.mlp.*"], [f"layers.1.mlp.{name}" for name in ("mlp_activation", "mlp_neurons", "mlp_output")]),
        (["lm_head_output", "token_embeddings"], ["token_embeddings", "lm_head_output"]),
        (lambda path: path.endswith("0.layer_input"), ["layers.0.layer_input"]),
        (["logits"], []),
    ],
)
def test_selecting(model, ids, values, paths):
    assert [path for path in model(ids, values=values) if path != "logits"] == paths


def test_layer_mid_gives_its_reason(model, ids):
    for values in ("layer_mid", ["logits", "layers.1.layer_mid"], "layers.*.layer_mid"):
        with pytest.raises(UnavailableValueError, match="parallel"):
            model(ids, values=values)
    assert not any("layer_mid" in path for path in model(ids, values="layers.*"))


@pytest.mark.parametrize("values", ["attention_querys", "layers.3.layer_output", "", ["logits", "mlp_ouput"]])
def test_unknown_values(model, ids, values):
    with pytest.raises(UnknownValueError):
        model(ids, values=values)


def test_every_array_is_the_callers_own(model, ids):
    once, again = model(ids, values="*"), model(ids, values="*")
    for path in once:
        once[path][...] = -7
        for other in once:
            if other > path:
                assert np.array_equal(once[other], again[other]) or np.all(once[other] == -7), (path, other)
    for path, array in model(ids, values="*").items():
        assert np.array_equal(array, again[path])


def test_the_identities_of_a_parallel_block(model, ids):
    v = model(ids, values="*")
    for i in range(3):
        at = f"layers.{i}."
        summed = v[at + "self_attn.attention_output"] + v[at + "mlp.mlp_output"] + v[at + "layer_input"]
        assert np.array_equal(summed, v[at + "layer_output"])
        assert np.array_equal(v[at + "mlp_input"], v[at + "attention_norm_output"])
        assert np.array_equal(v[at + "mlp_norm_output"], v[at + "attention_norm_output"])
        assert np.array_equal(v[at + "mlp.mlp_neurons"], v[at + "mlp.mlp_activation"])
        pattern = v[at + "self_attn.attention_probabilities"]
        assert np.allclose(pattern.sum(-1), 1, atol=1e-6)
        assert np.array_equal(pattern, np.tril(pattern))
    assert np.array_equal(v["layers.0.layer_input"], v["token_embeddings"])
    assert np.array_equal(v["layers.1.layer_input"], v["layers.0.layer_output"])
    assert np.array_equal(v["lm_head_output"], v.logits)
    assert np.array_equal(model.project_on_vocab(v["layers.2.layer_output"]), v.logits)


def test_the_dimensions_beyond_the_rotary_pass_through_untouched(model, ids):
    v = model(ids, values=["layers.0.attention_norm_output", "attention_queries", "attention_keys"])
    queries, keys, _ = model.layers[0].self_attn.project(v["layers.0.attention_norm_output"])
    for name, before in (("queries", queries), ("keys", keys)):
        after = v[f"layers.0.self_attn.attention_{name}"]
        assert np.array_equal(after[..., 4:], before[..., 4:])
        assert np.array_equal(after[:, :, 0], before[:, :, 0])
        assert not np.allclose(after[:, :, 1:, :4], before[:, :, 1:, :4])


@pytest.mark.parametrize(
    "mask",
    [
        None,
        [[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]],
        [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]],
        [[1, 0, 1, 0, 0], [0, 1, 1, 1, 0], [1, 0, 0, 0, 1]],
    ],
)
def test_next_token_probs_at_each_rows_last_real_position(model, ids, mask):
    found = model(ids, mask, values="next_token_probs")
    assert list(found) == ["logits", "next_token_probs"]
    for row in range(3):
        last = 4 if mask is None else max(i for i in range(5) if mask[row][i])
        expected = np.exp(found.logits[row, last].astype(np.float64))
        assert np.allclose(found["next_token_probs"][row], expected / expected.sum(), atol=1e-6)


def test_padding_changes_nothing_that_is_real(model, ids):
    alone = [model(ids[i : i + 1, : i + 2], values="layer_output") for i in range(3)]
    right, left = np.zeros((3, 5), int), np.zeros((3, 5), int)
    right_mask, left_mask = np.zeros((3, 5), int), np.zeros((3, 5), int)
    for i in range(3):
        right[i, : i + 2] = left[i, 3 - i :] = ids[i, : i + 2]
        right_mask[i, : i + 2] = left_mask[i, 3 - i :] = 1
    on_right, on_left = (
        model(right, right_mask, values="layer_output"),
        model(left, left_mask, values="layer_output"),
    )
    refilled = model(np.where(right_mask == 1, right, 60), right_mask, values="layer_output")
    for path in alone[0]:
        for i in range(3):
            assert np.allclose(on_right[path][i, : i + 2], alone[i][path][0], atol=1e-4)
            assert np.allclose(on_left[path][i, 3 - i :], alone[i][path][0], atol=1e-4)
            assert np.array_equal(on_right[path][i, : i + 2], refilled[path][i, : i + 2])


def test_a_boolean_mask_is_a_mask(model, ids):
    mask = np.array([[0, 1, 1, 1, 1]] * 3)
    assert np.array_equal(model(ids, mask).logits, model(ids, mask.astype(bool)).logits)


@pytest.mark.parametrize("context", [2047, 5000])
def test_positions_past_the_context(model, context):
    ids = np.array([[1, 2, 3, 4]])
    near = model(ids, values="attention_scores")
    far = Phi.from_config(CONFIG, seed=0, angle_dtype=np.float64)(
        ids, values="attention_scores", positions=np.arange(4) + context
    )
    for path in near:
        assert np.allclose(near[path], far[path], atol=2e-4)


@pytest.mark.parametrize(
    ("ids", "mask", "more", "kind", "words"),
    [
        ([1, 2, 3], None, {}, InputError, r"\[ids\]"),
        ([[[1]]], None, {}, InputError, "batch seq"),
        ([[1, 2], [3]], None, {}, InputError, "pad them"),
        ([[]], None, {}, InputError, "no token"),
        (np.zeros((0, 4), int), None, {}, InputError, "no token"),
        ([[1.0, 2.0]], None, {}, InputError, "float64"),
        ([["a"]], None, {}, InputError, "whole numbers"),
        ([[1, 2], [3, 61]], None, {}, InputError, "id 61 .row 1, position 1.*61 rows"),
        ([[-1, 2]], None, {}, InputError, "id -1"),
        ([[1, 2]], [[1, 1, 1]], {}, InputError, r"\[1, 3\]; it is to be \[1 2\]"),
        ([[1, 2]], [1, 1], {}, InputError, r"\[1 2\]"),
        ([[1, 2]], [[0.0, -1e9]], {}, InputError, "1 for tokens"),
        ([[1, 2]], None, {"positions": [0]}, ShapeError, "positions"),
        ([[1, 2]], None, {"positions": [[-1, 0]]}, InputError, "from 0"),
        ([[1, 2]], None, {"tables": (np.ones((1, 2, 4)),) * 2}, ShapeError, "rotary table"),
    ],
)
def test_bad_input(model, ids, mask, more, kind, words):
    with pytest.raises(kind, match=words) as caught:
        model(ids, mask, **more)
    assert isinstance(caught.value, CutawayError)


def test_random_models_depend_on_the_seed(ids):
    a, b, c = (Phi.from_config(CONFIG, seed)(ids).logits for seed in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    model = Phi.from_config(CONFIG)
    assert model.embed_tokens.std() == pytest.approx(0.3, rel=0.1)
    assert model.lm_head.bias is not None
    assert not model.lm_head.bias.any()
    with pytest.raises(InputError, match="float16"):
        Phi.from_config(CONFIG, dtype=np.float16)

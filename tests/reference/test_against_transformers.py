"""Every value of every layer against transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway.reference import Phi, rotary_tables
from cutaway.reference.checkpoint import BUILT_IN

CHOICES = {
    "phi-1": {},
    "quarter rotary, grouped heads": {
        "hidden_size": 48,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.25,
    },
    "full rotary, three heads, qk_layernorm": {
        "hidden_size": 36,
        "num_attention_heads": 3,
        "partial_rotary_factor": 1.0,
        "qk_layernorm": True,
    },
    # 0.3 at this width makes scores in the hundreds, where float32's own rounding shows in the probabilities.
    "phi-2's heads": {
        "hidden_size": 240,
        "num_attention_heads": 3,
        "partial_rotary_factor": 0.4,
        "initializer_range": 0.12,
    },
    "one key head, qk_layernorm, another base and epsilon": {
        "num_key_value_heads": 1,
        "qk_layernorm": True,
        "rope_theta": 500.0,
        "layer_norm_eps": 1e-2,
    },
    "heads wider than the stream": {"num_attention_heads": 3, "head_dim": 20},
}
MASKS = {
    "none": None,
    "left": [[0, 0, 0, 1, 1, 1, 1, 1, 1], [1] * 9, [0] * 8 + [1]],
    "right": [[1] * 4 + [0] * 5, [1] * 9, [1] + [0] * 8],
    "a row without a token": [[0] * 9, [1] * 9, [1] * 5 + [0] * 4],
    "hole": [[1, 1, 0, 1, 1, 1, 1, 1, 1], [1] * 9, [1, 0, 0, 1, 0, 1, 1, 1, 0]],
}
FAR = [0, 1, 63, 2000]


@pytest.fixture
def ids():
    return np.random.default_rng(1).integers(0, 61, (3, 9))


def assert_near(found, expected, tolerance):
    """Shapes are equal, and so are values within `tolerance` of the largest; masked scores are equal exactly."""
    for path, array in expected.items():
        assert found[path].shape == array.shape, path
        masked = array <= np.finfo(array.dtype).min / 2
        assert np.array_equal(found[path] <= np.finfo(array.dtype).min / 2, masked), path
        scale = np.abs(array[~masked]).max()
        error = np.abs(found[path] - array)[~masked].max()
        assert error <= tolerance * scale, f"{path}: off by {error:.3g}, largest {scale:.3g}"


@pytest.mark.parametrize("padding", MASKS)
@pytest.mark.parametrize("choice", CHOICES)
def test_float64(make_torch, as_reference, run_torch, ids, choice, padding):
    model = make_torch(**CHOICES[choice])
    run = run_torch(model, ids, MASKS[padding])
    found = as_reference(model)(ids, MASKS[padding], values="*", tables=run.tables)
    assert len(run.values) == 4 + 3 * 16
    assert_near(found, run.values, 1e-10)


@pytest.mark.parametrize("padding", MASKS)
@pytest.mark.parametrize("choice", CHOICES)
def test_float32(make_torch, as_reference, run_torch, ids, choice, padding):
    model = make_torch(torch.float32, **CHOICES[choice])
    run = run_torch(model, ids, MASKS[padding])
    found = as_reference(model)(ids, MASKS[padding], values="*")
    assert found.logits.dtype == np.float32
    assert_near(found, run.values, 1e-5)


@pytest.mark.parametrize("choice", CHOICES)
def test_far_positions(make_torch, as_reference, run_torch, choice):
    """Applied queries and keys, not tables alone, where a wrong frequency or a wrong pair has had time to show."""
    ids = np.random.default_rng(2).integers(0, 61, (3, 4))
    ones = np.ones_like(ids)  # without a mask transformers takes jumping positions for several packed sequences
    applied = ("attention_queries", "attention_keys")
    for dtype, given, tolerance in ((torch.float64, True, 1e-10), (torch.float32, False, 1e-5)):
        model = make_torch(dtype, **CHOICES[choice])
        run = run_torch(model, ids, ones, positions=np.array([FAR] * 3))
        tables = run.tables if given else None
        found = as_reference(model)(ids, ones, values="*", positions=FAR, tables=tables)
        assert_near(found, {path: v for path, v in run.values.items() if path.endswith(applied)}, tolerance)
        assert_near(found, run.values, tolerance)


@pytest.mark.parametrize("rotary_dim", [2, 4, 6, 8, 12, 20, 24, 32, 40, 64, 80])
def test_tables_are_those_of_transformers(make_torch, run_torch, rotary_dim):
    """Angles are equal bit for bit; their cosines come from two libraries and differ by a float32 unit at most."""
    model = make_torch(hidden_size=3 * rotary_dim, num_attention_heads=3, partial_rotary_factor=1.0)
    positions = np.array([[0, 1, 63, 2000, 2047, 2048, 2049, 5000]])
    run = run_torch(model, np.zeros_like(positions), np.ones_like(positions), positions)
    cos, sin = rotary_tables(positions, rotary_dim, angle_dtype=np.float32)
    unit = np.finfo(np.float32).eps / 2
    assert np.abs(cos - run.tables.cos).max() <= unit
    assert np.abs(sin - run.tables.sin).max() <= unit


def test_positions_differ_by_row(make_torch, as_reference, run_torch, ids):
    model = make_torch()
    positions = np.stack([np.arange(9), np.arange(9) * 7, np.arange(9)[::-1] + 2100])
    run = run_torch(model, ids, np.ones_like(ids), positions)
    found = as_reference(model)(ids, values="*", positions=positions, tables=run.tables)
    assert_near(found, run.values, 1e-10)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_plain_models(make_torch, as_reference, ids, implementation):
    """No hooks and no attention function of ours: the logits of the model as users load it."""
    model = make_torch(torch.float32, num_key_value_heads=2)
    model.set_attn_implementation(implementation)
    for mask in MASKS.values():
        with torch.no_grad():
            expected = model(
                torch.as_tensor(ids), attention_mask=None if mask is None else torch.as_tensor(mask)
            ).logits.numpy()
        found = as_reference(model)(ids, mask).logits
        # A query whose keys are all padding gets nothing in sdpa, and the mean of everything in eager attention.
        seen = np.ones((3, 9), bool) if mask is None else np.cumsum(mask, axis=1) > 0
        if implementation == "eager":
            seen[:] = True
        assert np.abs(found - expected)[seen].max() <= 1e-5 * np.abs(expected).max()


def test_float64_sdpa_is_as_near_as_the_cosines_of_transformers(make_torch, as_reference, ids):
    model = make_torch()
    with torch.no_grad():
        expected = model(torch.as_tensor(ids)).logits.numpy()
    found = as_reference(model)(ids).logits
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()


def test_tied_head(make_torch, as_reference, run_torch, ids):
    model = make_torch(tie_word_embeddings=True)
    run = run_torch(model, ids)
    reference = as_reference(model)
    assert reference.lm_head.weight is reference.embed_tokens
    assert_near(reference(ids, tables=run.tables), {"logits": run.values["logits"]}, 1e-10)


def test_a_float16_checkpoint_is_widened(make_torch, run_torch, ids, tmp_path):
    model = make_torch(torch.float16)
    model.save_pretrained(tmp_path)
    run = run_torch(model.double(), ids)
    found = Phi.from_pretrained(tmp_path, dtype=np.float64)(ids, values="*", tables=run.tables)
    assert_near(found, run.values, 1e-10)


@pytest.mark.skipif(not (BUILT_IN / "phi-mini" / "model.safetensors").is_file(), reason="phi-mini is not in the tree")
def test_phi_mini(run_torch):
    from transformers import PhiForCausalLM

    model = PhiForCausalLM.from_pretrained(BUILT_IN / "phi-mini", dtype=torch.float32).eval()
    ids = np.random.default_rng(3).integers(0, model.config.vocab_size, (3, 100))
    run = run_torch(model, ids)
    assert_near(Phi.from_pretrained("phi-mini")(ids, values="*"), run.values, 1e-5)
    run = run_torch(model.double(), ids)
    found = Phi.from_pretrained("phi-mini", dtype=np.float64)(ids, values="*", tables=run.tables)
    assert_near(found, run.values, 1e-10)

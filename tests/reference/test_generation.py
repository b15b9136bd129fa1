"""The cache, and writing on with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway.errors import InputError
from cutaway.reference import Cache, Linear, Phi, PhiAttention, sample


@pytest.fixture
def torch_model(make_torch):
    return make_torch(torch.float64, num_key_value_heads=2)


@pytest.fixture
def model(torch_model, as_reference):
    return as_reference(torch_model)


@pytest.fixture
def ids():
    return np.random.default_rng(4).integers(0, 61, (3, 11))


def test_a_chunk_at_an_offset_is_the_same_rows_of_the_whole():
    """Two queries at positions 5 and 6 look back at all five before them, not at the first two."""
    attention = PhiAttention(24, 4, 6, seed=0)
    x = np.random.default_rng(0).standard_normal((3, 7, 24))
    output, weights = attention.forward(x)
    cache = Cache()
    attention(x[:, :5], attention.rotary(np.arange(5)[None]), np.triu(np.ones((1, 1, 5, 5), bool), 1), cache=cache)
    cache.advance(np.ones((3, 5), int))
    blocked = np.triu(np.ones((1, 1, 2, 7), bool), 6)
    chunk, pattern = attention(x[:, 5:], attention.rotary(np.array([[5, 6]])), blocked, cache=cache)
    assert np.allclose(pattern, weights[:, :, 5:], atol=1e-14)
    assert np.allclose(chunk, output[:, 5:], atol=1e-14)


@pytest.mark.parametrize("sizes", [[11], [1] * 11, [5, 2, 4], [10, 1], [1, 10]])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_chunks_are_the_whole(model, ids, sizes, padding):
    mask = np.ones((3, 11), int)
    if padding == "left":
        mask[0, :4] = mask[2, :7] = 0
    elif padding == "right":
        mask[0, 4:] = mask[2, 7:] = 0
    whole = model(ids, mask, values="*")
    cache, start = Cache(capacity=3), 0
    for size in sizes:
        end = start + size
        part = model(ids[:, start:end], mask[:, :end], values="*", cache=cache)
        assert all(np.isfinite(array).all() for array in part.values())
        assert len(cache) == end
        real = mask[:, start:end] == 1
        for path, array in part.items():
            name = path.rpartition(".")[2]
            if name in ("attention_keys", "attention_values"):
                kept = np.broadcast_to(mask[:, None, :end, None] == 1, array.shape)
                assert np.allclose(array[kept], whole[path][:, :, :end][kept], atol=1e-11), path
            elif name in ("layer_output", "logits", "attention_output", "mlp_output"):
                assert np.allclose(array[real], whole[path][:, start:end][real], atol=1e-11), path
            elif name == "attention_probabilities":
                rows = np.broadcast_to(real[:, None, :, None], array.shape)
                assert array.shape == (3, 4, size, end)
                assert np.allclose(array[rows], whole[path][:, :, start:end, :end][rows], atol=1e-12), path
        start = end


def test_a_cache_remembers_its_padding(model, ids):
    mask = np.ones((3, 11), int)
    mask[1, :6] = 0
    cache = Cache()
    model(ids[:, :10], mask[:, :10], cache=cache)
    found = model(ids[:, 10:], cache=cache, values="attention_mask")
    assert np.array_equal(found["attention_mask"], mask)
    assert np.allclose(found.logits[:, 0], model(ids, mask).logits[:, -1], atol=1e-12)


def test_next_token_logits(model, ids):
    assert np.allclose(model.next_token_logits(ids), model(ids).logits[:, -1], atol=1e-13)


def test_a_failed_call_leaves_the_cache_as_it_was(model, ids):
    cache = Cache()
    model(ids[:, :4], cache=cache)
    for bad in ([[1, 2]], [[1]] * 2 + [[99]]):
        with pytest.raises(InputError):
            model(bad, cache=cache)
    assert len(cache) == 4
    assert np.allclose(model(ids[:, 4:], cache=cache).logits, model(ids).logits[:, 4:], atol=1e-12)


def test_caches_of_another_model_or_batch_are_refused(model, ids, as_reference, make_torch):
    cache = Cache()
    model(ids[:, :4], cache=cache)
    with pytest.raises(InputError, match="batch of 3"):
        model(ids[:2, 4:], cache=cache)
    with pytest.raises(InputError, match=r"head_dim"):
        as_reference(make_torch())(ids, cache=cache)
    with pytest.raises(InputError, match="layer 3"):
        as_reference(make_torch(num_key_value_heads=2, num_hidden_layers=4))(ids, cache=cache)
    with pytest.raises(InputError, match=r"\[3, 7\]; it is to be \[3 11\], the 4 positions in the cache and these 7"):
        model(ids[:, 4:], np.ones((3, 7)), cache=cache)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_greedy_is_that_of_transformers(make_torch, as_reference, ids, dtype):
    torch_model = make_torch(dtype)
    model = as_reference(torch_model)
    left = np.ones((3, 11), int)
    left[0, :4] = left[2, :9] = 0
    for mask in (None, left):
        expected = torch_model.generate(
            torch.as_tensor(ids),
            attention_mask=torch.as_tensor(np.ones_like(ids) if mask is None else mask),
            max_new_tokens=12,
            do_sample=False,
            pad_token_id=0,
        ).numpy()
        assert np.array_equal(model.generate(ids, 12, mask=mask), expected)


def test_rows_of_a_batch_are_continued_as_if_alone(model, ids):
    mask = np.ones((3, 11), int)
    mask[0, :4] = mask[2, :9] = 0
    together = model.generate(ids, 8, mask=mask)
    for row, start in ((0, 4), (1, 0), (2, 9)):
        assert np.array_equal(together[row, start:], model.generate(ids[row : row + 1, start:], 8)[0])


def test_positions_are_counted_from_each_rows_first_token(model, ids, monkeypatch):
    seen = []
    step = model.next_token_logits
    monkeypatch.setattr(
        model, "next_token_logits", lambda *args, **more: seen.append(more["positions"]) or step(*args, **more)
    )
    mask = np.ones((3, 11), int)
    mask[0, :4] = mask[2, :9] = 0
    model.generate(ids, 3, mask=mask)
    for row, start in ((0, 4), (1, 0), (2, 9)):
        assert list(seen[0][row, start:]) == list(range(11 - start))
        assert [positions[row, 0] for positions in seen[1:]] == [11 - start, 12 - start]


def test_rows_end_at_an_end_token(model, ids):
    plain = model.generate(ids, 8)
    ends = [int(plain[0, 12]), int(plain[1, 15])]
    found = model.generate(ids, 8, eos_token_id=ends, pad_token_id=60)
    for row in range(3):
        new = plain[row, 11:]
        stop = next((i for i, token in enumerate(new) if token in ends), 7)
        length = found.shape[1] - 11
        assert np.array_equal(found[row, 11 : 12 + stop], new[: stop + 1][:length])
        assert np.all(found[row, 12 + stop :] == 60)
    one = model.generate(ids[:1], 8, eos_token_id=int(plain[0, 11]))
    assert one.shape == (1, 12)
    assert np.array_equal(model.generate(ids, 8, eos_token_id=()), plain)
    assert np.array_equal(model.generate(ids, 0), ids)


def test_end_and_fill_tokens_of_the_config(as_reference, make_torch, ids):
    free = as_reference(make_torch()).generate(ids, 4)
    end = int(free[0, 11])
    model = as_reference(make_torch(eos_token_id=end, pad_token_id=59))
    found = model.generate(ids, 4)
    assert list(found[0, 11:]) == [end] + [59] * (found.shape[1] - 12)


def test_going_on_with_the_cache(model, ids):
    whole = model.generate(ids, 6)
    cache = Cache()
    first = model.generate(ids, 3, cache=cache)
    assert len(cache) == 13
    logits = model.next_token_logits(first[:, -1:], cache=cache)
    assert np.array_equal(logits.argmax(-1), whole[:, 14])


def test_a_token_costs_one_position(model, ids, monkeypatch):
    """Linear maps, which are all of the work but attention itself, see the new position alone at every step."""
    rows: list[int] = []
    call = Linear.__call__

    def counted(self, x):
        rows.append(x.size // x.shape[-1])
        return call(self, x)

    monkeypatch.setattr(Linear, "__call__", counted)
    model.generate(ids, 9)
    a_pass = len(model.layers) * 6 + 1
    assert len(rows) == 9 * a_pass
    assert set(rows[a_pass:]) == {3}
    assert rows[a_pass - 1] == 3  # the head reads the last position of the prompt only


def test_the_cache_is_not_copied_at_every_step(model, ids):
    cache = Cache()
    buffers = set()
    for step in range(200):
        model.next_token_logits(ids[:, :1], cache=cache)
        buffers.add(id(cache._buffers[0][0]))
        assert len(cache) == step + 1
    assert len(buffers) <= 3


def test_sampling_draws_the_models_distribution():
    logits = np.tile(np.log([[0.5, 0.3, 0.15, 0.05]]), (40_000, 1))
    random = np.random.default_rng(0)

    def frequencies(**settings):
        return np.bincount(sample(logits, random, **settings), minlength=4) / len(logits)

    assert np.allclose(frequencies(), [0.5, 0.3, 0.15, 0.05], atol=0.01)
    squared = np.array([0.5, 0.3, 0.15, 0.05]) ** 2
    assert np.allclose(frequencies(temperature=0.5), squared / squared.sum(), atol=0.01)
    assert np.allclose(frequencies(top_k=2), [0.625, 0.375, 0, 0], atol=0.01)
    assert np.allclose(frequencies(top_p=0.79), [0.625, 0.375, 0, 0], atol=0.01)
    assert np.allclose(frequencies(top_p=0.1), [1, 0, 0, 0])
    assert np.allclose(frequencies(temperature=0), [1, 0, 0, 0])


def test_sampled_text_depends_on_the_seed(model, ids):
    a, b, c = (model.generate(ids, 10, temperature=1.5, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert np.array_equal(model.generate(ids, 10, temperature=1.0, top_k=1), model.generate(ids, 10))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"mask": [[1] * 10 + [0]] * 3}, "pad on the left"),
        ({"mask": [[1] * 10] * 3}, r"\[3 11\]"),
    ],
)
def test_bad_settings(model: Phi, ids, settings, words):
    with pytest.raises(InputError, match=words):
        model.generate(ids, **{"max_new_tokens": 2, **settings})


def test_a_used_cache_is_refused(model, ids):
    cache = Cache()
    model(ids, cache=cache)
    with pytest.raises(InputError, match="11 positions"):
        model.generate(ids, 2, cache=cache)

"""Reading at positions: real tokens of each row, whatever the side of the padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DynamicCache

from cutaway.errors import InputError
from tests import raw, tiny
from tests.batches.test_padding import KINDS, ROWS, STARTS, mixed, of_kind

POSITIONS = [-1, 0, 1, -2, [0, -1], [-1, 0, 1], range(2), slice(-2, None), slice(0, 2), [[0], [4], [7], [1]]]


def of_row(positions: Any, row: int) -> Any:
    """The same positions in the row alone, as a list is indexed."""
    tokens = list(range(len(ROWS[row])))
    if isinstance(positions, int):
        return tokens[positions]
    if isinstance(positions, slice):
        return tokens[positions]
    chosen = positions[row] if isinstance(positions, list) and isinstance(positions[0], list) else positions
    return [tokens[position] for position in chosen]


@KINDS
@pytest.mark.parametrize("positions", POSITIONS, ids=str)
def test_reading_at_positions_gives_each_rows_real_tokens(kind: str, positions: Any) -> None:
    hf, model = of_kind(kind, "sdpa")
    with torch.no_grad():
        states = hf(**mixed(), output_hidden_states=True)
    if kind == "gpt2":
        with torch.no_grad():
            placed = (torch.arange(8) - torch.tensor(STARTS)[:, None]).clamp(min=0)
            states = hf(**mixed(), position_ids=placed, output_hidden_states=True)
    found = model.read(mixed(), "layers.0.layer_output", "logits", "next_token_probs", positions=positions)
    for row, start in enumerate(STARTS):
        place = of_row(positions, row)
        place = place + start if isinstance(place, int) else [start + one for one in place]
        assert torch.equal(found["layers.0.layer_output"][row], states.hidden_states[1][row, place])
        assert torch.equal(found["logits"][row], states.logits[row, place])
    assert found["next_token_probs"].shape == (4, 64)


def test_heads_and_patterns_are_read_along_their_tokens_and_queries() -> None:
    model = tiny.shared()
    whole = model.read(mixed(), "layers.1.self_attn.*")
    last = [start + len(row) - 1 for start, row in zip(STARTS, ROWS, strict=True)]
    found = model.read(mixed(), "layers.1.self_attn.*", positions=-1)
    several = model.read(mixed(), "layers.1.self_attn.*", positions=[-1, 0])
    for path, value in whole.items():
        axis = 2 if path.rpartition(".")[2] in _THIRD else 1
        for row, place in enumerate(last):
            expected = value[row].select(axis - 1, place)
            assert torch.equal(found[path][row], expected), path
            assert torch.equal(several[path][row].select(axis - 1, 0), expected), path
            assert torch.equal(several[path][row].select(axis - 1, 1), value[row].select(axis - 1, STARTS[row])), path


_THIRD = (
    "queries_before_rotary",
    "keys_before_rotary",
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_scores",
    "attention_probabilities",
)


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        (2, r"row 0 has no position 2: it has 2 tokens"),
        ([-1, -3], "row 0 has no position -3"),
        ("prompt", r"different numbers of tokens at positions 'prompt': \[2, 5, 8, 3\]"),
        (slice(1, None), "different numbers"),
        (slice(30, 40), "no token at positions"),
        ("new", "no token at positions"),
        ([[0], [1], [2]], "given for 3 rows, and the pass has 4"),
        ([[0], [1, 2], [0], [0]], "as many for each"),
        ([], "empty"),
        (True, "given True"),
        ("last", "given 'last'"),
    ],
    ids=str,
)
def test_positions_that_are_no_one_tensor_are_refused(positions: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tiny.shared().read(mixed(), "layer_output", positions=positions)


def test_what_has_no_axis_of_tokens_cannot_be_read_at_positions() -> None:
    with pytest.raises(InputError, match="no axis of tokens"):
        tiny.shared().read(tiny.IDS, "next_token_probs", "input_size", positions=-1)
    with pytest.raises(InputError, match="not known which axis"):
        tiny.shared().read(tiny.IDS, "layers.0.mlp.fc1.output", positions=-1)


@pytest.mark.parametrize("keep", [3, torch.tensor([1, 4, 5])], ids=["three", "indices"])
def test_logits_that_are_kept_in_part_are_read_and_edited_at_positions(keep: Any) -> None:
    hf, model = tiny.plain(), tiny.shared()
    whole = tiny.logits_of(hf)
    found = model.read(tiny.IDS, "logits", positions=[-1, -2], logits_to_keep=keep)["logits"]
    torch.testing.assert_close(found, whole[:, [5, 4]], rtol=1e-5, atol=1e-5)
    with model.hooks({"logits": lambda value: value + 1}, positions=-2):
        found = model.read(tiny.IDS, "logits", logits_to_keep=keep)["logits"]
    changed = whole[:, [3, 4, 5] if isinstance(keep, int) else [1, 4, 5]].clone()
    changed[:, 1] += 1
    torch.testing.assert_close(found, changed, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="logits_to_keep"):
        model.read(tiny.IDS, "logits", positions=0, logits_to_keep=keep)


def test_positions_after_a_cache_are_those_of_the_whole_row() -> None:
    hf, model = tiny.plain(), tiny.shared()
    mask = tiny.LEFT_PADDED["attention_mask"]
    ids = tiny.LEFT_PADDED["input_ids"]
    with torch.no_grad():
        whole = hf(ids, attention_mask=mask, output_hidden_states=True).hidden_states[2]
        cache = hf(ids[:, :4], attention_mask=mask[:, :4], use_cache=True).past_key_values
    found = model.read(ids[:, 4:], "layers.1.layer_output", attention_mask=mask, cache=cache, positions=-1)
    torch.testing.assert_close(found["layers.1.layer_output"], whole[:, 5], rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        cache = hf(ids[:, :4], attention_mask=mask[:, :4], cache=DynamicCache()).past_key_values
    with pytest.raises(InputError, match="position 0 of row 0 is in the cache"):
        model.read(ids[:, 4:], "layers.1.layer_output", attention_mask=mask, cache=cache, positions=0)


@KINDS
def test_a_trace_indexes_real_tokens(kind: str) -> None:
    _, model = of_kind(kind, "sdpa")
    whole = model.read(mixed(), "layers.0.layer_output", "logits")
    last = [start + len(row) - 1 for start, row in zip(STARTS, ROWS, strict=True)]
    with model.trace(mixed()) as run:
        found = model.layers[0].layer_output[run.at(-1)]
        both = model.layers[0].layer_output[run.at([0, -1])]
        model.layers[1].layer_output[run.at(-1)] += 1
        logits = model.logits
    stream = whole["layers.0.layer_output"]
    assert torch.equal(found, stream[range(4), last])
    assert torch.equal(both, torch.stack([stream[range(4), STARTS], stream[range(4), last]], dim=1))
    with model.hooks({"layers.1.layer_output": lambda value: value + 1}, positions=-1):
        assert torch.equal(model.read(mixed(), "logits")["logits"], logits)
    assert not torch.equal(whole["logits"], logits)
    with model.scan(mixed()) as run:
        assert model.layers[0].layer_output[run.at([0, -1])].shape == (4, 2, 32)


def test_in_a_generation_the_steps_own_tokens_are_indexed() -> None:
    model = tiny.shared()
    with model.generate(ROWS, max_new_tokens=3, do_sample=False) as run:
        for step in run:
            if step.index == 0:
                rows, places = run.at(-1)
                assert places.tolist() == [7, 7, 7, 7]
                assert rows.tolist() == [0, 1, 2, 3]
            else:
                with pytest.raises(InputError, match="in the cache"):
                    run.at(-1)
                assert run.at([[len(row) + step.index - 1] for row in ROWS])[1].tolist() == [[0]] * 4


def test_a_mask_that_a_function_edits_is_the_one_that_counts() -> None:
    hf, model = tiny.plain(), tiny.shared()
    mask = torch.ones_like(tiny.IDS)
    mask[:, 4:] = 0
    expected = raw.value(hf, {"input_ids": tiny.IDS, "attention_mask": mask}, "layer_output", 1)[:, 3]
    edits: dict[str, Any] = {"attention_mask": lambda _: mask}
    with model.hooks(edits):
        found = model.read(tiny.IDS, "layers.1.layer_output", positions=-1)["layers.1.layer_output"]
        with model.trace(tiny.IDS) as run:
            traced = model.layers[1].layer_output[run.at(-1)]
    assert torch.equal(found, expected)
    assert torch.equal(traced, expected)
    assert torch.equal(
        model.edited(edits).read(tiny.IDS, "layer_output", positions=-1)["layers.1.layer_output"], expected
    )

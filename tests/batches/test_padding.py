"""Rows padded on the left, on the right and not at all: each real token's values are the single prompt's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import InputError
from cutaway.vocabulary import VALUES
from tests import tiny
from tests.generation.test_steps import both

KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
KERNELS = pytest.mark.parametrize("attention", ["sdpa", "eager"])
ROWS = [[5, 9], [33, 2, 61, 17, 7], [50, 4, 12, 29, 6, 11, 23, 3], [8, 44, 21]]
"""The first is padded on the left, the second on the right, the third not, the fourth on both sides."""
STARTS = [6, 0, 0, 2]


def mixed(pad: int = 0) -> dict[str, Tensor]:
    ids, mask = torch.full((4, 8), pad), torch.zeros(4, 8, dtype=torch.long)
    for row, (start, tokens) in enumerate(zip(STARTS, ROWS, strict=True)):
        ids[row, start : start + len(tokens)] = torch.tensor(tokens)
        mask[row, start : start + len(tokens)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def of_kind(kind: str, attention: str) -> tuple[Any, Any]:
    if kind == "phi":
        return tiny.plain("P", attention), tiny.shared("P", attention)
    from tests.families import models

    return models.plain(kind, attention), models.wrapped(kind, attention)


def real(name: str, row: Tensor, start: int, length: int) -> Tensor:
    """The part of one row's value that belongs to its real tokens."""
    for axis, word in enumerate(VALUES[name].layout.axes[1:]):
        if word in ("seq", "query", "key"):
            row = row.narrow(axis, start, length)
    return row.clamp(min=-1e30)  # what hides a key is the lowest number, or twice that


@KINDS
@KERNELS
def test_each_real_tokens_values_are_those_of_the_prompt_alone(kind: str, attention: str) -> None:
    _, model = of_kind(kind, attention)
    positions = (torch.arange(8) - torch.tensor(STARTS)[:, None]).clamp(min=0)
    together, placed = model.read(mixed()), model.read(mixed(), position_ids=positions)
    for row, (start, tokens) in enumerate(zip(STARTS, ROWS, strict=True)):
        for path, alone in model.read(tokens).items():
            name = path.rpartition(".")[2]
            if name == "input_size":
                continue
            rotated = kind != "gpt2" and name in ("attention_queries", "attention_keys")
            found = (placed if rotated else together)[path][row]
            found, alone = (real(name, value, s, len(tokens)) for value, s in ((found, start), (alone[0], 0)))
            scale = max(1.0, float(alone.abs().masked_fill(alone < -1e29, 0).max()))
            torch.testing.assert_close(found, alone, rtol=1e-5, atol=2e-5 * scale, msg=lambda m, p=path: f"{p}: {m}")


@KINDS
def test_rows_alone_by_plain_transformers_give_the_same_logits(kind: str) -> None:
    hf, model = of_kind(kind, "sdpa")
    logits = model.read(mixed(), "logits")["logits"]
    for row, (start, tokens) in enumerate(zip(STARTS, ROWS, strict=True)):
        with torch.no_grad():
            alone = hf(torch.tensor([tokens])).logits[0]
        torch.testing.assert_close(logits[row, start : start + len(tokens)], alone, rtol=1e-5, atol=2e-5)


@KINDS
def test_next_token_probs_are_those_of_each_rows_last_real_token(kind: str) -> None:
    hf, model = of_kind(kind, "sdpa")
    with torch.no_grad():
        expected = torch.stack([hf(torch.tensor([row])).logits[0, -1].softmax(-1) for row in ROWS])
    with model.trace(mixed()):
        torch.testing.assert_close(model.next_token_probs, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(
        model.read(mixed(), "next_token_probs")["next_token_probs"], expected, rtol=1e-4, atol=1e-6
    )


@KINDS
def test_the_ids_that_fill_the_padding_change_no_real_value_and_no_loss(kind: str) -> None:
    _, model = of_kind(kind, "sdpa")
    mask = mixed()["attention_mask"].bool()
    one, other = (model.read(mixed(pad), "layer_output", "logits", "next_token_probs") for pad in (0, 55))
    for path in one:
        a, b = (v if path == "next_token_probs" else v[mask] for v in (one[path], other[path]))
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)

    def loss(found: dict[str, Tensor]) -> Tensor:
        follows = mask[:, :-1] & mask[:, 1:]
        return torch.nn.functional.cross_entropy(found["logits"][:, :-1][follows], mixed()["input_ids"][:, 1:][follows])

    torch.testing.assert_close(loss(one), loss(other), rtol=1e-6, atol=1e-6)


@KINDS
def test_patching_a_padded_batch_is_patching_row_by_row(kind: str) -> None:
    _, model = of_kind(kind, "sdpa")
    moved = torch.randn(32, generator=torch.Generator().manual_seed(0))
    for layer in range(3):
        with model.hooks({f"layers.{layer}.layer_output": lambda value: value + moved}, positions=[1]):
            together = model.read(mixed(), "next_token_probs")["next_token_probs"]
            rows = torch.cat([model.read(row, "next_token_probs")["next_token_probs"] for row in ROWS])
        torch.testing.assert_close(together, rows, rtol=1e-4, atol=1e-5)
        untouched = model.read(mixed(), "next_token_probs")["next_token_probs"]
        moved_rows = (together - untouched).abs().amax(dim=1) > 1e-5
        assert moved_rows.all() or (layer == 2 and moved_rows.tolist() == [True, False, False, False])


@KINDS
def test_a_callers_mask_and_position_ids_reach_the_model_as_they_are(kind: str) -> None:
    hf, model = of_kind(kind, "sdpa")
    mask = torch.tensor([[1, 1, 0, 1, 1, 1], [0, 0, 1, 1, 0, 1], [1, 1, 1, 1, 0, 0]])
    positions = torch.tensor([[3, 1, 0, 7, 9, 2], [0, 0, 5, 6, 7, 8], [1, 2, 3, 4, 5, 6]])
    with torch.no_grad():
        expected = hf(tiny.IDS, attention_mask=mask, position_ids=positions).logits
    seen: dict[str, Any] = {}
    handle = model.hf.register_forward_pre_hook(lambda _m, _a, kwargs: seen.update(kwargs), with_kwargs=True)
    given = {"input_ids": tiny.IDS, "attention_mask": mask, "position_ids": positions}
    with model.trace(given):
        by_mapping = model.logits
    with model.trace(tiny.IDS, attention_mask=mask, position_ids=positions):
        assert torch.equal(model.attention_mask, mask)
        by_argument = model.logits
    handle.remove()
    assert torch.equal(seen["attention_mask"], mask)
    assert torch.equal(seen["position_ids"], positions)
    assert torch.equal(by_mapping, expected)
    assert torch.equal(by_argument, expected)
    assert mask.tolist()[1] == [0, 0, 1, 1, 0, 1]


@KINDS
def test_a_token_hidden_in_the_middle_moves_no_other(kind: str) -> None:
    """A mask of the caller's own hides a column; positions are where the tokens stand."""
    hf, model = of_kind(kind, "sdpa")
    mask = torch.ones(3, 6, dtype=torch.long)
    mask[:, 2] = 0
    with torch.no_grad():
        expected = hf(tiny.IDS, attention_mask=mask, position_ids=torch.arange(6).expand(3, -1)).logits
    found = model.read(tiny.IDS, "logits", attention_mask=mask)["logits"]
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@KINDS
def test_a_batch_generates_from_left_padding_what_each_row_generates_alone(kind: str) -> None:
    hf, model = both(kind)
    with model.generate(ROWS, max_new_tokens=5, do_sample=False) as run:
        pass
    for row, tokens in enumerate(ROWS):
        alone = hf.generate(torch.tensor([tokens]), max_new_tokens=5, do_sample=False)
        assert torch.equal(run.output[row, 8:], alone[0, len(tokens) :])


@pytest.mark.parametrize(
    ("mask", "words"),
    [(torch.ones(2, 6), "2 rows"), (torch.ones(3, 5), "5 long"), ([1, 1, 1, 1, 1, 1], "1 rows")],
)
def test_a_mask_that_does_not_fit_is_refused(mask: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tiny.shared().trace(tiny.IDS, attention_mask=mask)


@pytest.mark.parametrize("batch", [[[5, 9], "text"], [5, [9]], ["text", 5], [[5, 9], []], [[5, 2.5]]], ids=str)
def test_a_mixed_up_batch_is_refused(batch: Any) -> None:
    with pytest.raises(InputError):
        tiny.shared().trace(batch)

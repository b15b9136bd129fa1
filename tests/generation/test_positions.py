"""A position is a place in the whole sequence: the same with a cache, without one, and in a padded batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway.errors import InputError
from tests import tiny
from tests.generation.test_steps import both

PROMPT = [5, 9, 33, 2, 61, 17]
NEW = 6
KINDS = pytest.mark.parametrize("kind", ["phi", "llama", "gpt2", "neox"])
CHANGE = 6 * torch.randn(32, generator=torch.Generator().manual_seed(0))
LOGITS = {"output_logits": True, "return_dict_in_generate": True, "do_sample": False}


def steered(value: Tensor) -> Tensor:
    return value + CHANGE


BLOCKS = {"phi": "model.layers.1", "llama": "model.layers.1", "gpt2": "transformer.h.1", "neox": "gpt_neox.layers.1"}


def by_hand(kind: str, chosen: Callable[[int], bool], prompt: list[int] = PROMPT) -> tuple[Tensor, Tensor]:
    """Greedy text and logits, the whole sequence run at each step, layer 1's output changed at the chosen positions."""
    hf, _ = both(kind)
    block = hf.get_submodule(BLOCKS[kind])

    def edit(_module: Any, _args: Any, output: Any) -> Any:
        stream = (output[0] if isinstance(output, tuple) else output).clone()
        for position in filter(chosen, range(stream.shape[1])):
            stream[:, position] = steered(stream[:, position])
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    ids, logits = torch.tensor([prompt]), []
    handle = block.register_forward_hook(edit)
    with torch.no_grad():
        for _ in range(NEW):
            logits.append(hf(ids, use_cache=False).logits[:, -1])
            ids = torch.cat([ids, logits[-1].argmax(-1, keepdim=True)], dim=1)
    handle.remove()
    return ids, torch.stack(logits)


def assert_same(output: Any, expected: tuple[Tensor, Tensor]) -> None:
    assert torch.equal(output.sequences, expected[0])
    torch.testing.assert_close(torch.stack(output.logits), expected[1], rtol=1e-4, atol=1e-4)


def test_each_choice_of_positions_makes_logits_of_its_own() -> None:
    """So that the comparisons below can fail."""
    logits = [by_hand("phi", chosen)[1] for given, chosen in POSITIONS.values() if given is not None]
    for one in range(len(logits)):
        assert not any(torch.allclose(logits[one], other, atol=0.01) for other in logits[:one])


POSITIONS: dict[str, tuple[Any, Callable[[int], bool]]] = {
    "all": ("all", lambda p: True),
    "none given": (None, lambda p: True),
    "prompt": ("prompt", lambda p: p < 6),
    "new": ("new", lambda p: p >= 6),
    "first": (0, lambda p: p == 0),
    "one of the prompt": (3, lambda p: p == 3),
    "a generated one": (7, lambda p: p == 7),
    "several": ([1, 6, 9], lambda p: p in (1, 6, 9)),
    "last of the prompt": (-1, lambda p: p == 5),
    "a slice over the edge": (slice(4, 8), lambda p: 4 <= p < 8),
    "a slice from the end": (slice(-2, None), lambda p: p >= 4),
    "every second": (slice(1, None, 2), lambda p: p >= 1 and p % 2 == 1),
    "a range": (range(2, 9, 3), lambda p: p in (2, 5, 8)),
}


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_are_counted_in_the_whole_sequence(positions: str, use_cache: bool) -> None:
    given, chosen = POSITIONS[positions]
    model = tiny.shared()
    with model.hooks({"layers.1.layer_output": steered}, positions=given):
        with model.generate(PROMPT, max_new_tokens=NEW, use_cache=use_cache, **LOGITS) as run:
            pass
    assert_same(run.output, by_hand("phi", chosen))


@KINDS
@pytest.mark.parametrize("positions", ["prompt", "new", "a slice over the edge"])
def test_positions_mean_the_same_for_every_family(kind: str, positions: str) -> None:
    given, chosen = POSITIONS[positions]
    _, model = both(kind)
    expected = by_hand(kind, chosen)
    for use_cache in (True, False):
        with model.hooks({"layers.1.layer_output": steered}, positions=given):
            with model.generate(PROMPT, max_new_tokens=NEW, use_cache=use_cache, **LOGITS) as run:
                pass
        assert_same(run.output, expected)


@pytest.mark.parametrize("step", [0, 1, 3])
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_step_stands_for_the_tokens_that_are_new_in_it(step: int, use_cache: bool) -> None:
    model = tiny.shared()
    expected = by_hand("phi", lambda p: p < 6 if step == 0 else p == 5 + step)
    with model.hooks({"layers.1.layer_output": steered}, step=step):
        with model.generate(PROMPT, max_new_tokens=NEW, use_cache=use_cache, **LOGITS) as run:
            pass
    assert_same(run.output, expected)


BATCH = [[5, 9], [33, 2, 61, 17, 7], [50, 4, 12, 29, 6, 11, 23, 3]]


@KINDS
@pytest.mark.parametrize("positions", ["prompt", "new", "one of the prompt", "last of the prompt", "a generated one"])
@pytest.mark.parametrize(
    "arguments", [{}, {"use_cache": False}, {"cache_implementation": "static"}], ids=["cache", "none", "static"]
)
def test_in_a_padded_batch_each_row_counts_from_its_own_first_token(
    kind: str, positions: str, arguments: dict[str, Any]
) -> None:
    _, model = both(kind)
    given = POSITIONS[positions][0]
    with model.hooks({"layers.1.layer_output": steered}, positions=given):
        with model.generate(BATCH, max_new_tokens=NEW, do_sample=False, **arguments) as run:
            pass
        for row, prompt in enumerate(BATCH):
            with model.generate(prompt, max_new_tokens=NEW, do_sample=False, use_cache=False) as alone:
                pass
            assert torch.equal(run.output[row, 8:], alone.output[0, len(prompt) :])


def test_in_a_padded_batch_the_lone_rows_are_those_made_by_hand() -> None:
    model = tiny.shared()
    with model.hooks({"layers.1.layer_output": steered}, positions=[1, 4]):
        with model.generate(BATCH, max_new_tokens=NEW, do_sample=False) as run:
            pass
    for row, prompt in enumerate(BATCH):
        expected, _ = by_hand("phi", lambda p: p in (1, 4), prompt)
        assert torch.equal(run.output[row, 8:], expected[0, len(prompt) :])


def test_beams_and_samples_of_a_prompt_share_its_length() -> None:
    model = tiny.shared()
    for arguments in ({"num_beams": 3, "do_sample": False}, {"do_sample": True, "num_return_sequences": 2}):
        outputs = []
        for use_cache in (True, False):
            torch.manual_seed(3)
            with model.hooks({"layers.1.layer_output": steered}, positions="new"):
                with model.generate(BATCH[:2], max_new_tokens=4, use_cache=use_cache, **arguments) as run:
                    pass
            outputs.append(run.output)
        assert torch.equal(*outputs)


def test_a_trace_in_the_middle_of_a_generation_has_positions_of_its_own() -> None:
    model = tiny.shared()
    with model.hooks({"layers.1.layer_output": steered}, positions=[1, 7]):
        with model.generate(PROMPT, max_new_tokens=NEW, do_sample=False) as run:
            for _ in run:
                model.layers[0].layer_output
                with model.trace([1, 2, 3]):
                    model.layers[2].layer_output
        with model.trace(BATCH[2]):
            model.layers[0].layer_output
            model.read([[1, 2]] * 4, "layers.2.layer_output")
            nested = model.layers[1].layer_output
        with model.trace(BATCH[2]):
            assert torch.equal(model.layers[1].layer_output, nested)
    assert torch.equal(run.output, by_hand("phi", lambda p: p in (1, 7))[0])


WAYS: dict[str, dict[str, Any]] = {
    "no cache": {"use_cache": False},
    "static cache": {"cache_implementation": "static"},
    "a prompt in parts": {"prefill_chunk_size": 4},
    "an assistant": {"assistant_model": None},
    "prompt lookup": {"prompt_lookup_num_tokens": 2},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("positions", ["prompt", "new", "last of the prompt", "a slice from the end"])
def test_transformers_own_generate_is_asked_where_its_prompt_ends(positions: str, way: str) -> None:
    given, chosen = POSITIONS[positions]
    hf, model = tiny.plain(), tiny.shared()
    arguments = {**WAYS[way], **({"assistant_model": tiny.fresh(seed=5)} if way == "an assistant" else {})}
    expected, _ = by_hand("phi", chosen)
    ids = torch.tensor([PROMPT])
    with model.hooks({"layers.1.layer_output": steered}, positions=given):
        plain = hf.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, **arguments)
        with model.generate(PROMPT, max_new_tokens=NEW, do_sample=False, **arguments) as run:
            pass
    assert torch.equal(plain, expected)
    assert torch.equal(run.output, expected)


@pytest.mark.parametrize(
    ("positions", "words"),
    [("promt", "'promt'"), (1.5, "1.5"), ([1, "2"], "a number, several"), (slice(None, None, -1), "goes forward")],
)
def test_what_are_no_positions_is_refused_before_anything_runs(positions: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        tiny.shared().hooks({"layers.1.layer_output": steered}, positions=positions)


def test_values_without_tokens_and_steps_that_cannot_be_are_refused() -> None:
    model = tiny.shared()
    with pytest.raises(InputError, match="no axis of tokens"):
        model.hooks({"layers.1.mlp.fc1.output": steered}, positions=[1])
    with pytest.raises(InputError, match="steps count from 0"):
        model.hooks({"layers.1.layer_output": steered}, step=-1)
    with pytest.raises(InputError, match="not both"):
        model.hooks({"layers.1.layer_output": steered}, step=1, positions="new")

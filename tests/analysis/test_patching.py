"""The patching sweep beside a loop of raw hooks over layers and positions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.analysis import patching_sweep
from cutaway.analysis.unedited import Unedited
from cutaway.errors import InputError, ShapeError
from tests.families import models
from tests.raw import edited_logits, value
from tests.tiny import plain

TOKEN = 5


@pytest.fixture(scope="module")
def model() -> StandardizedTransformer:
    return StandardizedTransformer(plain(), check=False)


@pytest.fixture(scope="module")
def prompts(model: StandardizedTransformer) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    clean, corrupted = torch.randint(0, model.vocab_size, (2, 7), generator=generator)
    return clean, corrupted


def inputs(ids: Tensor) -> dict[str, Tensor]:
    return {"input_ids": ids[None], "attention_mask": torch.ones_like(ids)[None]}


def one_by_one(model: StandardizedTransformer, name: str, axis: int, prompts: tuple[Tensor, Tensor]) -> Tensor:
    clean, corrupted = prompts
    effects = torch.empty(model.num_layers, len(clean))
    for layer in range(model.num_layers):
        stored = value(model.hf, inputs(clean), name, layer)
        for position in range(len(clean)):

            def patch(given: Tensor, stored: Tensor = stored, position: int = position) -> Tensor:
                new = given.clone()
                new.select(axis, position).copy_(stored.select(axis, position))
                return new

            effects[layer, position] = edited_logits(model.hf, inputs(corrupted), name, layer, patch)[0, -1, TOKEN]
    return effects


@pytest.mark.parametrize(
    ("name", "axis"),
    [("layer_output", 1), ("layer_input", 1), ("mlp_output", 1), ("attention_output", 1), ("attention_queries", 2)],
)
@pytest.mark.parametrize("rows", [None, 3, 1])
def test_it_gives_what_a_loop_gives(model, prompts, name, axis, rows):
    found = patching_sweep(model, *prompts, lambda logits: logits[:, TOKEN], value=name, rows=rows)
    wanted = one_by_one(model, name, axis, prompts)
    assert wanted.std() > 1e-2
    assert torch.allclose(found, wanted, atol=1e-4 * float(wanted.abs().max()))


def test_the_last_layers_stream_matters_at_the_last_position_alone(model, prompts):
    clean, corrupted = prompts
    found = patching_sweep(model, clean, corrupted, lambda logits: logits[:, TOKEN])
    with torch.no_grad():
        own, given = (model.hf(ids[None]).logits[0, -1, TOKEN] for ids in (corrupted, clean))
    assert torch.allclose(found[-1, :-1], own.expand(len(clean) - 1), atol=1e-4)
    assert torch.allclose(found[-1, -1], given, atol=1e-4)


def test_nothing_stays_on_the_model(model, prompts):
    before = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.hf.modules()]
    patching_sweep(model, *prompts, lambda logits: logits[:, TOKEN])
    after = [(len(module._forward_hooks), len(module._forward_pre_hooks)) for module in model.hf.modules()]
    assert after == before


@pytest.mark.parametrize("value_name", ["logits", "attention_scores", "layer_outputs"])
def test_values_without_layer_and_position_are_refused(model, prompts, value_name):
    with pytest.raises(InputError, match="axis of positions"):
        patching_sweep(model, *prompts, lambda logits: logits[:, TOKEN], value=value_name)


def test_prompts_of_other_lengths_are_refused(model, prompts):
    clean, corrupted = prompts
    with pytest.raises(ShapeError, match="7 tokens and the corrupted one 6"):
        patching_sweep(model, clean, corrupted[:-1], lambda logits: logits[:, TOKEN])


def test_several_rows_are_refused(model, prompts):
    clean, corrupted = prompts
    with pytest.raises(InputError, match="clean prompt has 2 rows"):
        patching_sweep(model, clean.expand(2, -1), corrupted, lambda logits: logits[:, TOKEN])


def test_a_measure_of_another_shape_is_refused(model, prompts):
    with pytest.raises(ShapeError, match=r"\[2\] here; it gave \[\]"):
        patching_sweep(model, *prompts, lambda logits: logits.sum())


def test_fewer_rows_than_one_are_refused(model, prompts):
    with pytest.raises(InputError, match="at least one row"):
        patching_sweep(model, *prompts, lambda logits: logits[:, TOKEN], rows=0)


FAMILIES = ("llama", "gpt2", "neox", "gemma2", "qwen2-window", "mistral-window", "phi3", "bloom", "falcon", "mixtral")
FAMILIES += ("deepseek_v3", "mamba2", "qwen3_next", "opt", "gptj", "smollm3", "granite", "olmo2")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("name", ["layer_output", "mlp_output", "mixer_output"])
def test_in_every_family_it_gives_what_whole_rows_give(kind, name):
    hf = models.build({**models.CONFIGS, **models.APART}[kind]())
    model = StandardizedTransformer(hf, check=False)
    if not model.support()[name].available or len(model.read(models.IDS[:1], name)) < model.num_layers:
        pytest.skip("this family has no such value on every layer")
    clean, corrupted = models.IDS[0], models.IDS[1]
    found = patching_sweep(model, clean, corrupted, lambda logits: logits[:, TOKEN], value=name, rows=2)
    stored = model.read(clean, name)
    for layer, (path, kept) in enumerate(stored.items()):
        for position in range(len(clean)):

            def put(given, kept=kept, position=position):
                given[:, position] = kept[:, position]

            with model.hooks({path: put}):
                wanted = hf(corrupted[None]).logits[0, -1, TOKEN]
            torch.testing.assert_close(found[layer, position], wanted, rtol=1e-3, atol=1e-3)


def test_positions_before_an_edit_are_run_once(model, prompts):
    seen = []
    handle = model.hf.model.layers[-1].register_forward_hook(lambda _module, _args, output: seen.append(output.shape))
    try:
        patching_sweep(model, *prompts, lambda logits: logits[:, TOKEN], value="layer_input", rows=2)
    finally:
        handle.remove()
    sweep = seen[-4 * model.num_layers :]
    assert [shape[1] for shape in sweep] == [7, 5, 3, 1] * model.num_layers


def test_with_an_edit_in_force_whole_rows_are_run_and_the_edit_counts(model, prompts):
    clean, corrupted = prompts

    def silence_the_first(value: Tensor) -> None:
        value[:, 0] = 0

    with model.hooks({"layers.1.mlp.mlp_output": silence_the_first}):
        assert "in force" in Unedited(model, corrupted).why_whole
        found = patching_sweep(model, clean, corrupted, lambda logits: logits[:, TOKEN], rows=3)
        stored = model.read(clean, "layer_output")
        for layer, (path, kept) in enumerate(stored.items()):

            def put(given, kept=kept):
                given[:, 4] = kept[:, 4]

            with model.hooks({path: put}):
                wanted = model.read(corrupted, "logits")["logits"][0, -1, TOKEN]
            assert torch.allclose(found[layer, 4], wanted, atol=1e-4)


def test_a_state_is_not_gone_on_with() -> None:
    model = StandardizedTransformer(models.build(models.APART["mamba2"]()), check=False)
    assert "carry a state" in Unedited(model, models.IDS[0]).why_whole

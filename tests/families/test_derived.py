"""Derived families: what is claimed was measured, and what does not hold on the weights is taken off or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel

from cutaway import StandardizedTransformer
from cutaway.errors import UnsupportedModelError
from cutaway.families import Family, derive, normed
from cutaway.inspection.measure import measured
from cutaway.sites import (
    Site,
    attention_argument,
    input_of,
    output_of,
    pattern,
    softmax_input,
    stream_at,
)
from cutaway.subject.subject import Subject

_SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
_USUAL = {**_SIZES, "intermediate_size": 96, "max_position_embeddings": 48, "initializer_range": 0.3, "pad_token_id": 0}
IDS = torch.tensor([[5, 9, 33, 2, 61, 17], [7, 7, 1, 40, 8, 3], [50, 4, 12, 29, 6, 11]])


@lru_cache(maxsize=8)
def plain(name: str) -> PreTrainedModel:
    more: dict[str, dict[str, Any]] = {
        "Granite": {"residual_multiplier": 0.22, "num_key_value_heads": 2},
        "Gemma2": {"head_dim": 16, "num_key_value_heads": 2},
        "Mixtral": {"num_local_experts": 4, "num_key_value_heads": 2},
        "Olmo": {"num_key_value_heads": 4},
        "OpenAIGPT": {"n_positions": 48},
        "Bart": {
            "d_model": 32,
            "decoder_layers": 3,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 64,
            "init_std": 0.3,
        },
        "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32},
        "GPTNeo": {"attention_types": [[["global"], 3]], "intermediate_size": 64},
    }
    config = getattr(transformers, f"{name}Config")(**{**_USUAL, **more[name]})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        hf = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.ndim == 1:
                    parameter.add_(0.3 * torch.randn_like(parameter))
    return hf


def with_sites(**sites: Site) -> Callable[[Family], Family]:
    return lambda family: replace(family, values={**family.values, **sites})


def with_stream(*terms: Any) -> Callable[[Family], Family]:
    return lambda family: replace(family, stream=terms)


def swapped(family: Family) -> Family:
    """Attention and MLP in each other's place."""
    return replace(
        family,
        values={
            **family.values,
            "attention_output": output_of("mlp", of="layer"),
            "mlp_output": output_of("self_attn", of="layer"),
        },
    )


def final_norm(family: Family) -> Family:
    return replace(
        family,
        modules={**family.modules, "model": {**family.modules["model"], "norm": "model.layers.0.input_layernorm"}},
    )


LIES: dict[str, tuple[str, Callable[[Family], Family], str]] = {
    "a norm of another sublayer": (
        "Granite",
        with_sites(attention_norm_output=output_of("post_attention_layernorm")),
        "`attention_norm_output`",
    ),
    "another final norm": ("Granite", final_norm, "the lens"),
    "another stream": ("Granite", with_sites(layer_input=input_of("mlp", argument="x", of="layer")), "`layer_input`"),
    "a block's output that is the MLP's": ("Granite", with_sites(layer_output=output_of("mlp")), "the sum"),
    "sublayers in each other's place": ("Granite", swapped, "the sum"),
    "a term without its factor": ("Granite", with_stream("layer_input", "attention_output", "mlp_output"), "the sum"),
    "a sum in another order": ("Olmo", with_stream("attention_output", "mlp_output", "layer_input"), "the sum"),
    "a stream between at another norm": ("Granite", with_sites(layer_mid=stream_at("input_layernorm")), "`layer_mid`"),
    "heads split by the wrong count": (
        "Granite",
        with_sites(attention_premix=input_of("o_proj", argument="input", split=("num_kv_heads", "head_dim"))),
        "`attention_premix`",
    ),
    "a pattern that is the scores": (
        "Granite",
        with_sites(attention_probabilities=softmax_input()),
        "`attention_scores` and `attention_probabilities`",
    ),
    "scores that are the pattern": (
        "Granite",
        with_sites(attention_scores=pattern()),
        "`attention_scores` and `attention_probabilities`",
    ),
    "values that are the keys": (
        "Olmo",
        with_sites(attention_values=attention_argument("key")),
        "`attention_values` and `attention_head_outputs`",
    ),
    "neurons of another projection": (
        "Granite",
        with_sites(mlp_neurons=output_of("act_fn")),
        "`mlp_neurons`",
    ),
    "an output before the norm after it": ("Gemma2", with_sites(attention_output=output_of()), "the sum"),
    "weights of experts for their scores": (
        "Mixtral",
        with_sites(router_logits=output_of("gate", key=1, rows=True)),
        "`router_logits`",
    ),
    "numbers of experts for their weights": (
        "Mixtral",
        with_sites(expert_weights=output_of("gate", key=2, rows=True)),
        "`expert_weights`",
    ),
}
"""What each lie is told of, the family with it, and the claim that is to be taken off."""


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_taken_off(lie: str) -> None:
    name, told, claim = LIES[lie]
    honest, _ = measured(Subject(plain(name), None, name, family=derive(plain(name))))
    before = {off.claim for off in honest.family.taken_off}
    found, _ = measured(Subject(plain(name), None, name, family=told(derive(plain(name)))))
    assert claim in {off.claim for off in found.family.taken_off} - before
    assert all(off.why for off in found.family.taken_off)


def test_what_is_claimed_equals_raw_hooks() -> None:
    hf = plain("Gemma2")
    model = StandardizedTransformer(hf)
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        hf.model.layers[1].post_attention_layernorm.register_forward_hook(
            lambda *a: seen.update(attention=a[2].clone())
        ),
        hf.model.layers[1].post_feedforward_layernorm.register_forward_hook(lambda *a: seen.update(mlp=a[2].clone())),
        hf.model.layers[1].register_forward_hook(
            lambda *a: seen.update(out=(a[2][0] if isinstance(a[2], tuple) else a[2]).clone())
        ),
    ]
    with torch.no_grad():
        hf(IDS)
    for hook in hooks:
        hook.remove()
    found = model.read(IDS, "layers.1.self_attn.attention_output", "layers.1.mlp.mlp_output", "layers.1.layer_output")
    for name, path in (("attention", "self_attn.attention_output"), ("mlp", "mlp.mlp_output"), ("out", "layer_output")):
        assert torch.equal(found[f"layers.1.{path}"], seen[name])


POST_NORM = {
    "OpenAIGPT": lambda x, attention, mlp, block: block.ln_2(block.ln_1(x + attention) + mlp),
    "Bart": lambda x, attention, mlp, block: block.final_layer_norm(block.self_attn_layer_norm(x + attention) + mlp),
}
"""How blocks with a norm behind each sum make their output, by hand from transformers' source."""


@pytest.mark.parametrize("name", POST_NORM)
def test_norms_in_the_stream_are_part_of_the_sum(name: str) -> None:
    hf = plain(name)
    model = StandardizedTransformer(hf)
    assert not [off for off in model._subject.family.taken_off if off.claim == "the sum"]
    found = model.read(IDS)
    for layer in range(3):
        paths = ("layer_input", "self_attn.attention_output", "mlp.mlp_output", "layer_output", "layer_mid")
        x, attention, mlp, output, middle = (found[f"layers.{layer}.{path}"] for path in paths)
        block = model.layers[layer].module
        with torch.no_grad():
            assert torch.equal(POST_NORM[name](x, attention, mlp, block), output)
            norm = block.ln_1 if name == "OpenAIGPT" else block.self_attn_layer_norm
            assert torch.equal(middle, norm(x + attention)), layer
    swapped = replace(
        derive(hf),
        stream=(normed((normed(("layer_input", "attention_output"), _norms(name)[1]), "mlp_output"), _norms(name)[0]),),
    )
    lying, _ = measured(Subject(hf, None, name, family=swapped))
    assert "the sum" in {off.claim for off in lying.family.taken_off}


def _norms(name: str) -> tuple[str, str]:
    return ("ln_1", "ln_2") if name == "OpenAIGPT" else ("self_attn_layer_norm", "final_layer_norm")


@pytest.mark.parametrize(("name", "counted"), [("OpenAIGPT", True), ("OPT", False), ("GPTNeo", True)])
def test_rows_padded_on_the_left_have_positions_where_the_model_wants_them(name: str, counted: bool) -> None:
    """OPT counts positions from the mask by itself."""
    model = StandardizedTransformer(plain(name), family="derived")
    assert model._subject.family.positions_from_mask == counted
    batch = model.read([[5, 9], [7, 7, 1, 40, 8]], "layers.1.layer_output")["layers.1.layer_output"]
    alone = model.read([[5, 9]], "layers.1.layer_output")["layers.1.layer_output"]
    torch.testing.assert_close(batch[:1, -2:], alone, rtol=1e-4, atol=1e-4)


def test_a_derived_model_says_so_everywhere() -> None:
    model = StandardizedTransformer(plain("Olmo"))
    assert "family derived and measured" in str(model)
    assert "family derived and measured" in str(model.support())
    assert "keeps what was derived of it, and measured" in str(model.check())
    unmeasured = StandardizedTransformer(plain("Olmo").config, dispatch=False)
    assert "family derived from a pass, unmeasured" in " ".join(str(unmeasured).split())


def test_an_encoder_is_refused() -> None:
    config = transformers.BertConfig(**_USUAL)
    with pytest.raises(UnsupportedModelError, match="an encoder: changing the last of five tokens"):
        StandardizedTransformer(transformers.BertForMaskedLM(config).eval())


def test_chosen_experts_can_be_exchanged() -> None:
    """An edit of the indices routes by force, as a raw hook on the router does."""
    hf = plain("Mixtral")
    model = StandardizedTransformer(hf)

    def raw(_module: Any, _args: Any, output: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        logits, weights, indices = output
        return logits, weights, (indices + 1) % 4

    hook = hf.model.layers[1].mlp.gate.register_forward_hook(raw)
    with torch.no_grad():
        expected = hf(IDS).logits
        hook.remove()
        assert not torch.equal(expected, hf(IDS).logits)
    with model.trace(IDS):
        mlp = model.layers[1].mlp
        assert mlp.router_logits.shape == (3, 6, 4)
        assert mlp.expert_indices.shape == (3, 6, 2)
        mlp.expert_indices = (mlp.expert_indices + 1) % 4
        logits = model.logits.save()
    assert torch.equal(logits, expected)
    with model.hooks({"layers.1.mlp.expert_indices": lambda indices: (indices + 1) % 4}):
        with torch.no_grad():
            assert torch.equal(hf(IDS).logits, expected)


@pytest.mark.parametrize("name", ["Mamba", "Mamba2"])
def test_a_cache_of_states_alone_counts_by_the_mask(name: str) -> None:
    """`positions="new"` are the generated ones, though such a cache does not know how many it has seen."""
    more = {"num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4} if name == "Mamba2" else {}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=64, hidden_size=32, state_size=4, num_hidden_layers=2, pad_token_id=0, eos_token_id=None, **more
    )
    torch.manual_seed(0)
    hf = AutoModelForCausalLM.from_config(config).eval()
    model = StandardizedTransformer(hf)
    expected = hf.generate(IDS, max_new_tokens=4, do_sample=False)
    with model.generate(IDS, max_new_tokens=4, do_sample=False) as run:
        seen = [model.layers[1].mixer.mixer_output.shape[1] for _ in run]
    assert seen == [6, 1, 1, 1]
    assert torch.equal(run.sequences, expected)
    touched: list[torch.Tensor] = []

    def note(part: torch.Tensor) -> None:
        touched.append(part.clone())

    with model.hooks({"layers.1.mixer.mixer_output": note}, positions="new"):
        hf.generate(IDS, max_new_tokens=4, do_sample=False)
    assert touched


def test_what_was_read_stays_as_it_was_where_the_model_writes_into_it() -> None:
    """Falcon adds the attention's output into the MLP's, in place."""
    config = transformers.FalconConfig(**_SIZES, new_decoder_architecture=False, multi_query=True, parallel_attn=True)
    torch.manual_seed(0)
    hf = AutoModelForCausalLM.from_config(config).eval()
    model = StandardizedTransformer(hf)
    raw: list[torch.Tensor] = []
    hook = hf.transformer.h[1].mlp.register_forward_hook(lambda _m, _a, output: raw.append(output.clone()))
    with torch.no_grad():
        plain_logits = hf(IDS).logits
    hook.remove()
    path = "layers.1.mlp.mlp_output"
    assert torch.equal(model.read(IDS, path, "logits")[path], raw[0])
    with model.trace(IDS):
        seen = model.layers[1].mlp.mlp_output.save()
        logits = model.logits.save()
    assert torch.equal(seen, raw[0])
    assert torch.equal(logits, plain_logits)
    kept: list[torch.Tensor] = []
    with model.hooks({path: kept.append}), torch.no_grad():
        assert torch.equal(hf(IDS).logits, plain_logits)
    assert torch.equal(kept[0], raw[0])

    def add(_module: Any, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return output + 1

    hook = hf.transformer.h[1].mlp.register_forward_hook(add)
    with torch.no_grad():
        expected = hf(IDS).logits
    hook.remove()
    with model.trace(IDS):
        model.layers[1].mlp.mlp_output += 1
        assert torch.equal(model.logits, expected)


def test_an_mlp_without_a_norm_is_asked_for_behind_the_stream_that_enters_it() -> None:
    config = transformers.Olmo2Config(**_USUAL)
    torch.manual_seed(0)
    hf = AutoModelForCausalLM.from_config(config).eval()
    model = StandardizedTransformer(hf)
    with model.trace(IDS):
        middle = model.layers[1].layer_mid.clone()
        given = model.layers[1].mlp.input.clone()
        assert torch.equal(middle, given)
    with model.trace(IDS):
        model.layers[1].layer_mid
        model.layers[1].mlp_input = model.layers[1].mlp_input + 1
        edited = model.logits.save()

    def add(_module: Any, args: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return (args[0] + 1,)

    hook = hf.model.layers[1].mlp.register_forward_pre_hook(add)
    with torch.no_grad():
        assert torch.equal(edited, hf(IDS).logits)
    hook.remove()

"""The notes of every family: they hold on the models the pages use, and fail on models that are made otherwise."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import GPTNeoXConfig, LlamaConfig

from cutaway import StandardizedTransformer
from cutaway.encyclopedia import NoteError, notes_of, run_note
from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of
from cutaway.encyclopedia.notes import gpt_neox, llama, phi_block, phi_float16, phi_stream, phi_tokens
from cutaway.encyclopedia.specimens import specimen_of
from cutaway.families import FAMILIES

ALL = [(family, note) for family in CHECKPOINTS for note in notes_of(family)]
FIRST_FOUR = {"phi", "llama", "gpt2", "gpt_neox"}


@pytest.fixture(scope="session")
def specimens():
    return {family: specimen_of(family) for family in CHECKPOINTS}


@pytest.mark.parametrize(("family", "note"), ALL, ids=[f"{family}-{note.name}" for family, note in ALL])
def test_it_holds_and_every_figure_is_told(specimens, family, note) -> None:
    model, name = specimens[family]
    result = run_note(note, model, name)
    assert not result.does_not_apply
    assert set(result.figures) == set(note.figures)
    assert "{" not in result.claim
    assert {said.figure for said in note.reported} <= set(note.figures)


def test_every_family_has_notes_and_checkpoints() -> None:
    assert set(CHECKPOINTS) == set(FAMILIES)
    assert all(len(notes_of(family)) >= (5 if family in FIRST_FOUR else 6) for family in CHECKPOINTS)
    for family, note in ALL:
        assert note.claim, f"{family}: {note.name} has no claim"
        assert notes_of(family).count(note) == 1


@pytest.mark.parametrize("family", CHECKPOINTS)
def test_checkpoints_are_those_that_the_family_file_names(family) -> None:
    for checkpoint in CHECKPOINTS[family]:
        assert checkpoint.hub_id in FAMILIES[family].checkpoints
        assert config_of(family, checkpoint)._name_or_path == checkpoint.hub_id


@pytest.mark.parametrize(
    ("hub_id", "count"),
    [
        ("openai-community/gpt2", 124_439_808),
        ("openai-community/gpt2-xl", 1_557_611_200),
        ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ("meta-llama/Llama-3.2-1B", 1_235_814_400),
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("HuggingFaceTB/SmolLM2-135M", 134_515_008),
        ("EleutherAI/pythia-70m", 70_426_624),
        ("EleutherAI/pythia-1.4b", 1_414_647_808),
        ("EleutherAI/gpt-neox-20b", 20_554_567_680),
        ("Qwen/Qwen2.5-0.5B", 494_032_768),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("mistralai/Mistral-7B-v0.1", 7_241_732_096),
        ("mistralai/Mistral-7B-v0.3", 7_248_023_552),
        ("mistralai/Mistral-Nemo-Base-2407", 12_247_782_400),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("openai/gpt-oss-20b", 20_914_757_184),
        ("openai/gpt-oss-120b", 116_829_156_672),
        ("mistralai/Mamba-Codestral-7B-v0.1", 7_285_403_648),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 79_674_391_296),
        ("google/gemma-2-2b", 2_614_341_888),
        ("google/gemma-2-9b", 9_241_705_984),
        ("google/gemma-2-27b", 27_227_128_320),
        ("google/gemma-3-1b-pt", 999_885_952),
        ("google/gemma-3-270m", 268_098_176),
        ("allenai/OLMo-2-1124-7B", 7_298_617_344),
        ("allenai/OLMo-2-0425-1B", 1_484_916_736),
        ("ibm-granite/granite-3.0-2b-base", 2_533_531_648),
        ("HuggingFaceTB/SmolLM3-3B", 3_075_098_624),
        ("microsoft/Phi-3-mini-4k-instruct", 3_821_079_552),
        ("microsoft/phi-4", 14_659_507_200),
        ("stabilityai/stablelm-3b-4e1t", 2_795_443_200),
        ("tiiuae/falcon-7b", 6_921_720_704),
        ("tiiuae/falcon-40b", 41_303_293_952),
        ("bigscience/bloom-560m", 559_214_592),
        ("bigscience/bloom-7b1", 7_069_016_064),
        ("bigscience/bloom", 176_247_271_424),
        ("facebook/opt-125m", 125_239_296),
        ("facebook/opt-350m", 331_196_416),
        ("EleutherAI/gpt-j-6b", 6_050_882_784),
    ],
)
def test_configs_give_the_published_numbers_of_parameters(hub_id, count) -> None:
    """The numbers are those of the checkpoints' own pages; a wrong size in a config shows here."""
    family, checkpoint = next((f, c) for f, some in CHECKPOINTS.items() for c in some if c.hub_id == hub_id)
    model = StandardizedTransformer(config_of(family, checkpoint), dispatch=False)
    assert sum(weights.numel() for weights in model.hf.parameters()) == count


def spoilt(specimens, spoil) -> StandardizedTransformer:
    model, _ = specimens["phi"]
    hf = copy.deepcopy(model.hf)
    with torch.no_grad():
        spoil(hf)
    return StandardizedTransformer(hf, tokenizer=model.tokenizer, check=False)


def no_bias(hf) -> None:
    hf.model.layers[2].self_attn.dense.bias = None


def zero_padding(hf) -> None:
    hf.lm_head.weight[2005:] = 0


def likely_padding(hf) -> None:
    hf.lm_head.bias[2040] = 50


def no_norm_bias(hf) -> None:
    hf.lm_head.register_forward_hook(lambda module, args, output: output * 2)


def even_attention(hf) -> None:
    for layer in hf.model.layers:
        layer.self_attn.q_proj.weight.zero_()
        layer.self_attn.q_proj.bias.zero_()


@pytest.mark.parametrize(
    ("note", "spoil"),
    [
        (phi_block.biases_everywhere, no_bias),
        (phi_tokens.padded_vocabulary, zero_padding),
        (phi_tokens.padded_vocabulary, likely_padding),
        (phi_stream.constant_lens, no_norm_bias),
        (phi_stream.induction_head, even_attention),
    ],
)
def test_it_fails_on_a_model_made_otherwise(specimens, note, spoil) -> None:
    with pytest.raises(NoteError, match="does not hold on the spoilt one"):
        run_note(note, spoilt(specimens, spoil), "the spoilt one")


def test_float16_overflows_by_plain_transformers_too(specimens) -> None:
    """The note's copy, run without Cutaway: eager gives NaN, sdpa does not."""
    from cutaway.encyclopedia.notes.halves import copy_in_float16, with_large_products

    model, _ = specimens["phi"]
    prompt = "The Eiffel Tower is in the city of"
    with torch.no_grad():
        _, enlarged, weights = with_large_products(model, prompt)
        ids = torch.tensor([model.tokenizer(prompt)["input_ids"]])
        eager = copy_in_float16(model, weights, "eager").hf(ids).logits
        sdpa = copy_in_float16(model, weights, "sdpa").hf(ids).logits
    assert enlarged > 65504
    assert eager.isnan().any()
    assert sdpa.isfinite().all()
    assert run_note(phi_float16.float16_under_eager, model, "phi-mini").figures["sdpa"] == "0"


def test_notes_know_when_they_do_not_apply(specimens) -> None:
    small = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sequential = StandardizedTransformer(GPTNeoXConfig(**small, use_parallel_residual=False), check=False)
    for note in (gpt_neox.two_norms, gpt_neox.sum_order):
        assert "sequential" in run_note(note, sequential, "tiny").claim
    model, name = specimens["phi"]
    bare = StandardizedTransformer(model.hf, check=False)
    assert "without a tokenizer" in run_note(phi_tokens.padded_vocabulary, bare, name).claim


def test_llama_notes_hold_with_a_key_head_for_each_query_head() -> None:
    small = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = StandardizedTransformer(LlamaConfig(**small, intermediate_size=64, initializer_range=0.3), check=False)
    result = run_note(llama.grouped_heads, model, "tiny")
    assert result.figures["queries"] == result.figures["keys"] == "4"

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


def hooked(path: str, change):
    """A model one of whose modules returns something else."""

    def spoil(hf) -> None:
        hf.get_submodule(path).register_forward_hook(lambda module, args, output: change(output))

    return spoil


def with_bias(path: str):
    def spoil(hf) -> None:
        linear = hf.get_submodule(path)
        linear.bias = torch.nn.Parameter(torch.randn(linear.out_features))

    return spoil


def setting(path: str, name: str, value):
    def spoil(hf) -> None:
        setattr(hf.get_submodule(path), name, value)

    return spoil


def without_bias(path: str):
    return setting(path, "bias", None)


def untied(hf) -> None:
    hf.lm_head.weight = torch.nn.Parameter(torch.randn_like(hf.lm_head.weight))


def doubled(output):
    return output * 2


def shifted(output):
    return output + 1


OTHERWISE = [
    ("qwen2", "three_biases", without_bias("model.layers.0.self_attn.q_proj")),
    ("qwen2", "bias_of_distance", setting("model.layers.0.self_attn", "scaling", 0.0)),
    ("qwen3", "bounded_scores", hooked("model.layers.1.self_attn.q_norm", lambda queries: queries * 9)),
    ("qwen3", "no_biases", with_bias("model.layers.0.mlp.up_proj")),
    ("mistral", "every_layer_windowed", setting("model.layers.1.self_attn", "scaling", 1e9)),
    ("mistral", "llamas_block", hooked("model.layers.1.mlp", shifted)),
    ("mixtral", "weights_of_the_chosen", hooked("model.layers.1.mlp.gate", lambda out: (out[0], out[1] * 2, out[2]))),
    ("mixtral", "sum_of_experts", hooked("model.layers.0.mlp.experts", shifted)),
    ("qwen3_moe", "softmax_first", hooked("model.layers.0.mlp.gate", lambda out: (out[0] * 2, *out[1:]))),
    ("qwen3_moe", "router_is_linear", hooked("model.layers.0.mlp.gate", lambda out: (out[0] + 1, *out[1:]))),
    ("gpt_oss", "clamped_experts", hooked("model.layers.0.mlp.experts", doubled)),
    ("gpt_oss", "sink_is_a_parameter", setting("model.layers.1.self_attn", "scaling", 0.5)),
    ("deepseek_v3", "edit_of_the_latent", hooked("model.layers.0.self_attn.kv_b_proj", torch.zeros_like)),
    ("deepseek_v3", "shared_expert", hooked("model.layers.1.mlp", shifted)),
    ("mamba2", "gate", hooked("backbone.layers.0.mixer.out_proj", shifted)),
    ("mamba2", "forgetting", lambda hf: hf.backbone.layers[0].mixer.A_log.data.fill_(-200.0)),
    ("qwen3_next", "gated_shared_expert", hooked("model.layers.0.mlp", shifted)),
    ("qwen3_next", "one_plus_weight", hooked("model.layers.0.input_layernorm", doubled)),
    ("gemma2", "length_is_the_norms", setting("model.layers.0", "post_attention_layernorm", torch.nn.Linear(48, 48))),
    ("gemma2", "one_plus_weight", hooked("model.layers.0.input_layernorm", doubled)),
    ("gemma2", "scaled_embedding", untied),
    ("gemma3", "one_plus_weight", hooked("model.layers.0.self_attn.k_norm", doubled)),
    ("gemma3", "scale_of_scores", setting("model.layers.0.self_attn", "scaling", 1.0)),
    ("olmo2", "norm_over_all_heads", hooked("model.layers.0.self_attn.q_norm", doubled)),
    ("olmo2", "length_is_read", hooked("model.layers.0.mlp.up_proj", shifted)),
    ("granite", "scale_of_scores", setting("model.layers.0.self_attn", "scaling", 1.0)),
    ("granite", "enlarged_embedding", setting("model", "embedding_multiplier", 3.0)),
    ("smollm3", "only_distances", hooked("model.rotary_emb", lambda out: (out[0] * 1.1, out[1]))),
    ("smollm3", "layers_without_rotary", setting("model.layers.0.self_attn", "use_rope", 0)),
    ("phi3", "weights_by_name", hooked("model.layers.0.self_attn.qkv_proj", doubled)),
    ("phi3", "llamas_block", hooked("model.layers.1.mlp", shifted)),
    ("stablelm", "layer_norm", setting("model.layers.0", "input_layernorm", torch.nn.RMSNorm(48))),
    ("stablelm", "contents_alone", hooked("model.rotary_emb", lambda out: (out[0] * 0 + 1, out[1] * 0))),
    ("falcon", "fused_by_group", hooked("transformer.h.0.self_attention.query_key_value", shifted)),
    ("falcon", "side_by_side", hooked("transformer.h.0.input_layernorm", lambda out: out + 1e-3 * torch.rand(()))),
    ("bloom", "normed_embedding", hooked("transformer.word_embeddings_layernorm", lambda out: out + torch.rand(()))),
    ("bloom", "tied_head", untied),
    ("opt", "rows_of_positions", hooked("model.decoder.embed_positions", shifted)),
    ("opt", "relu_neurons", setting("model.decoder.layers.1", "activation_fn", torch.nn.GELU())),
    ("gptj", "where_biases_are", without_bias("transformer.h.0.mlp.fc_in")),
    (
        "gptj",
        "sum_order",
        hooked("transformer.h.1", lambda out: (out[0] + 1, *out[1:]) if isinstance(out, tuple) else out + 1),
    ),
]
"""For each family two notes, and a model made so that they do not hold."""


@pytest.mark.parametrize(("family", "name", "spoil"), OTHERWISE, ids=[f"{one[0]}-{one[1]}" for one in OTHERWISE])
def test_a_familys_note_fails_on_a_model_made_otherwise(specimens, family, name, spoil) -> None:
    hf = copy.deepcopy(specimens[family][0].hf)
    with torch.no_grad():
        spoil(hf)
    note = next(note for note in notes_of(family) if note.name == name)
    with pytest.raises(NoteError):
        run_note(note, StandardizedTransformer(hf, check=False), "the spoilt one")


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

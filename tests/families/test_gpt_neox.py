"""What is GPT-NeoX's own: wiring that the config decides, the interleaved projection, and a partial rotary."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers.models.gpt_neox.modeling_gpt_neox import apply_rotary_pos_emb

from cutaway import StandardizedTransformer
from cutaway.errors import UnavailableValueError
from tests.families.models import IDS, build, neox, plain, wrapped


def test_the_config_decides_whether_there_is_a_stream_between_attention_and_mlp() -> None:
    assert "layers.1.layer_mid" in wrapped("neox-sequential").read(IDS)
    parallel = wrapped("neox")
    with pytest.raises(UnavailableValueError, match="parallel: attention and MLP each read the stream that enters"):
        parallel.read(IDS, "layer_mid")
    with parallel.trace(IDS), pytest.raises(UnavailableValueError, match="parallel"):
        parallel.layers[1].layer_mid


def test_in_a_parallel_block_nothing_goes_from_attention_to_the_mlp() -> None:
    for kind, same in (("neox", True), ("neox-sequential", False)):
        model = wrapped(kind)
        before = model.read(IDS, "layers.1.mlp_input", "layers.2.mlp_input")
        with model.hooks({"layers.1.self_attn.attention_output": lambda value: value * 0}):
            after = model.read(IDS, "layers.1.mlp_input", "layers.2.mlp_input")
        assert torch.equal(before["layers.1.mlp_input"], after["layers.1.mlp_input"]) is same
        assert not torch.equal(before["layers.2.mlp_input"], after["layers.2.mlp_input"])


def test_both_norms_of_a_parallel_block_read_the_stream_that_enters_it() -> None:
    values, hf = wrapped("neox").read(IDS), plain("neox")
    with torch.no_grad():
        expected = hf.get_submodule("gpt_neox.layers.1.post_attention_layernorm")(values["layers.1.layer_input"])
    assert torch.equal(values["layers.1.mlp_norm_output"], expected)
    assert not torch.equal(expected, values["layers.1.attention_norm_output"])


@pytest.mark.parametrize("kind", ["neox", "neox-sequential"])
def test_query_key_and_value_stand_side_by_side_in_each_heads_part(kind: str) -> None:
    values, hf = wrapped(kind).read(IDS), plain(kind)
    entering = values["layers.1.attention_norm_output"]
    with torch.no_grad():
        fused = hf.get_submodule("gpt_neox.layers.1.attention.query_key_value")(entering)
        heads = fused.unflatten(-1, (4, 3, 8)).permute(3, 0, 2, 1, 4)  # [three batch head seq width]
        cos, sin = hf.get_submodule("gpt_neox.rotary_emb")(entering, torch.arange(6)[None])
        queries, keys = apply_rotary_pos_emb(heads[0], heads[1], cos, sin)
    at = "layers.1.self_attn.attention_"
    assert cos.shape[-1] == 2, "a quarter of each head is turned"
    assert torch.equal(values[f"{at}queries"], queries)
    assert torch.equal(values[f"{at}keys"], keys)
    assert torch.equal(values[f"{at}values"], heads[2])


def test_an_edit_of_the_stream_between_reaches_the_mlp_and_the_blocks_output() -> None:
    model = wrapped("neox-sequential")
    values = model.read(IDS, "layers.1.layer_mid")
    with model.trace(IDS):
        model.layers[1].layer_mid += 1
        entering = model.layers[1].mlp_input.save()
        mlp = model.layers[1].mlp.mlp_output.save()
        output = model.layers[1].layer_output.save()
    norm = plain("neox-sequential").get_submodule("gpt_neox.layers.1.post_attention_layernorm")
    with torch.no_grad():
        expected = norm(values["layers.1.layer_mid"] + 1)
    assert torch.equal(entering, expected)
    assert torch.equal(output, mlp + (values["layers.1.layer_mid"] + 1))


def test_keys_that_published_configs_carry_are_considered() -> None:
    config = neox(rotary_pct=0.25, rotary_emb_base=10000, attention_dropout_prob=0, hidden_dropout_prob=0)
    assert StandardizedTransformer(config, dispatch=False).head_dim == 8


def test_a_checkpoint_whose_head_is_named_as_published_is_read(tmp_path: Any) -> None:
    """Published files call the head `embed_out`, which transformers 5 renames as it loads."""
    from safetensors.torch import load_file, save_file

    hf = build(neox())
    hf.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("lm_head", "embed_out"): tensor for name, tensor in weights.items()}
    assert "embed_out.weight" in renamed
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = StandardizedTransformer(tmp_path)
    assert torch.equal(model.read(IDS, "logits")["logits"], wrapped("neox").read(IDS, "logits")["logits"])

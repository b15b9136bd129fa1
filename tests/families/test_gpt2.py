"""What is GPT-2's own: learned positions, the fused projection, and settings that are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.errors import UnsupportedModelError
from cutaway.model.inputs import prompt_inputs
from tests.families.models import IDS, PROMPTS, build, gpt2, left_padded, plain, wrapped


def test_positions_are_added_after_token_embeddings() -> None:
    values, hf = wrapped("gpt2").read(IDS), plain("gpt2")
    positions = hf.get_parameter("transformer.wpe.weight")[:6]
    assert torch.equal(values["layers.0.layer_input"], values["token_embeddings"] + positions)


def test_queries_keys_and_values_are_the_thirds_of_one_projection() -> None:
    values, hf = wrapped("gpt2").read(IDS), plain("gpt2")
    with torch.no_grad():
        fused = hf.get_submodule("transformer.h.1.attn.c_attn")(values["layers.1.attention_norm_output"])
    for third, name in zip(fused.split(32, dim=-1), ("queries", "keys", "values"), strict=True):
        found = values[f"layers.1.self_attn.attention_{name}"]
        assert torch.equal(found, third.unflatten(-1, (4, 8)).transpose(1, 2))


def test_the_width_of_the_mlp_is_four_times_the_streams_unless_it_is_set() -> None:
    assert wrapped("gpt2").intermediate_size == 128
    assert wrapped("gpt2-narrow").intermediate_size == 48


def test_a_head_that_is_tied_has_no_bias_and_the_embeddings_weight() -> None:
    model = wrapped("gpt2")
    assert model.lm_head.bias is None
    assert model.lm_head.weight is model.embed_tokens.weight


class TestPositions:
    """Learned positions are counted from each row's first real token."""

    def _position_ids(self, *prompt: Any, **forward: Any) -> Tensor | None:
        """What the plain model is called with."""
        hf: Any = build(gpt2())
        model = StandardizedTransformer(hf, check=False)
        given: list[Any] = []
        handle = hf.register_forward_pre_hook(lambda _m, _a, kwargs: given.append(kwargs), with_kwargs=True)
        model.read(*prompt, "logits", **forward)
        handle.remove()
        return given[-1].get("position_ids")

    def test_left_padding_is_not_counted(self) -> None:
        found = self._position_ids(PROMPTS)
        assert found is not None
        assert found.tolist() == [
            [0, 0, 0, 0, 0, 0, 0, 1],
            [0, 0, 0, 0, 1, 2, 3, 4],
            [0, 1, 2, 3, 4, 5, 6, 7],
        ]

    def test_rows_padded_on_either_side_may_be_mixed(self) -> None:
        model = wrapped("gpt2")
        ids = torch.tensor([[0, 0, 61, 17], [7, 7, 0, 0], [50, 4, 12, 29]])
        mask = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]])
        logits = model.read({"input_ids": ids, "attention_mask": mask}, "logits")["logits"]
        for row, real in enumerate((slice(2, 4), slice(0, 2), slice(0, 4))):
            alone = model.read(ids[row, real], "logits")["logits"][0]
            torch.testing.assert_close(logits[row, real], alone, rtol=1e-5, atol=1e-5)

    def test_without_left_padding_nothing_is_given(self) -> None:
        assert self._position_ids(IDS) is None
        right = torch.tensor([[1, 1, 1, 1, 0, 0]] * 3)
        assert self._position_ids(IDS, attention_mask=right) is None

    def test_a_hidden_token_moves_no_other(self) -> None:
        """A mask of the caller's own is as plain transformers takes it."""
        mask = torch.tensor([[1, 1, 0, 1, 1, 1]] * 3)
        assert self._position_ids(IDS, attention_mask=mask) is None
        hf: Any = plain("gpt2")
        with torch.no_grad():
            expected = hf(IDS, attention_mask=mask).logits
        assert torch.equal(wrapped("gpt2").read(IDS, "logits", attention_mask=mask)["logits"], expected)

    def test_generation_gives_each_row_what_its_prompt_gets_alone(self) -> None:
        model = wrapped("gpt2")
        with model.generate(PROMPTS, max_new_tokens=6, do_sample=False) as run:
            pass
        for row, prompt in enumerate(PROMPTS):
            with model.generate([prompt], max_new_tokens=6, do_sample=False) as alone:
                pass
            assert run.output[row, 8:].tolist() == alone.output[0, len(prompt) :].tolist()

    def test_the_callers_own_are_kept(self) -> None:
        own = torch.arange(10, 18)[None].repeat(3, 1)
        assert torch.equal(self._position_ids(PROMPTS, position_ids=own), own)
        assert torch.equal(self._position_ids({**left_padded(), "position_ids": own}), own)

    def test_a_family_with_a_rotary_is_given_none(self) -> None:
        assert set(prompt_inputs(wrapped("llama")._subject, PROMPTS, None)) == {"input_ids", "attention_mask"}


def test_scores_carry_the_layers_own_scale() -> None:
    model = StandardizedTransformer(build(gpt2(scale_attn_by_inverse_layer_idx=True)))
    values = model.read(IDS)
    for layer in range(3):
        at = f"layers.{layer}.self_attn.attention_"
        product = values[f"{at}queries"] @ values[f"{at}keys"].transpose(-1, -2)
        scores = values[f"{at}scores"]
        torch.testing.assert_close(scores[..., -1, :], product[..., -1, :] * 8**-0.5 / (layer + 1))


def test_cross_attention_is_refused_with_the_reason() -> None:
    with pytest.raises(UnsupportedModelError, match=r"`add_cross_attention`.*second attention"):
        StandardizedTransformer(gpt2(add_cross_attention=True), dispatch=False)


def test_attention_that_goes_past_the_interface_is_refused_under_eager_alone() -> None:
    config = gpt2(reorder_and_upcast_attn=True)
    with pytest.raises(UnsupportedModelError, match=r"`reorder_and_upcast_attn`.*under eager.*'sdpa'"):
        StandardizedTransformer(config, attn_implementation="eager", dispatch=False)
    StandardizedTransformer(build(config, "sdpa")).check()


def test_keys_that_published_configs_carry_are_considered() -> None:
    more = {"n_ctx": 48, "output_past": True, "predict_special_tokens": True, "_num_labels": 1}
    config = gpt2(**more, task_specific_params={"text-generation": {"do_sample": True, "max_length": 50}})
    StandardizedTransformer(config, dispatch=False)

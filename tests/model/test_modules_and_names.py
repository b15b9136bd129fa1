"""Modules by standard and native names, their parameters, inputs and outputs, and the sizes."""

from __future__ import annotations

import pytest
import torch

from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, OrderError, UnavailableValueError, UnknownValueError
from tests import raw, tiny


def test_modules_answer_to_their_standard_and_their_native_names() -> None:
    hf, model = tiny.plain(), tiny.shared()
    layer, block = model.layers[1], hf.model.layers[1]
    pairs = [
        (model.embed_tokens, hf.model.embed_tokens),
        (model.norm, hf.model.final_layernorm),
        (model.model.final_layernorm, hf.model.final_layernorm),
        (model.lm_head, hf.lm_head),
        (layer, block),
        (model.model.layers[1], block),
        (layer.input_layernorm, block.input_layernorm),
        (layer.self_attn, block.self_attn),
        (layer.self_attn.q_proj, block.self_attn.q_proj),
        (layer.self_attn.k_proj, block.self_attn.k_proj),
        (layer.self_attn.v_proj, block.self_attn.v_proj),
        (layer.self_attn.o_proj, block.self_attn.dense),
        (layer.self_attn.dense, block.self_attn.dense),
        (layer.mlp, block.mlp),
        (layer.mlp.act_fn, block.mlp.activation_fn),
        (layer.mlp.activation_fn, block.mlp.activation_fn),
        (layer.mlp.down_proj, block.mlp.fc2),
        (layer.mlp.fc1, block.mlp.fc1),
        (layer.mlp.fc2, block.mlp.fc2),
    ]
    for ours, native in pairs:
        assert ours.module is native


def test_parameters_and_attributes_are_the_modules_own() -> None:
    hf, model = tiny.plain(), tiny.shared()
    assert model.lm_head.weight is hf.lm_head.weight
    assert model.lm_head.bias is hf.lm_head.bias
    assert model.layers[0].self_attn.o_proj.weight is hf.model.layers[0].self_attn.dense.weight
    assert model.layers[0].self_attn.dense.bias is hf.model.layers[0].self_attn.dense.bias
    assert model.norm.weight is hf.model.final_layernorm.weight
    assert model.layers[2].self_attn.scaling == 8**-0.5
    assert model.layers[2].self_attn.layer_idx == 2
    stream = torch.randn(2, 32)
    assert torch.equal(model.norm(stream), hf.model.final_layernorm(stream))


def test_layers_count_from_both_ends_and_come_in_slices() -> None:
    hf, model = tiny.plain(), tiny.shared()
    assert len(model.layers) == tiny.LAYERS
    assert [layer.module for layer in model.layers] == list(hf.model.layers)
    assert model.layers[-1].module is hf.model.layers[2]
    assert [layer.module for layer in model.layers[1:]] == list(hf.model.layers[1:])
    for index in (3, -4):
        with pytest.raises(IndexError, match=f"there is no layer {index}"):
            model.layers[index]
    with model.trace(tiny.IDS):
        assert model.layers[-3].layer_output is model.layers[0].layer_output


def test_input_inputs_and_output_of_any_module() -> None:
    hf, model = tiny.plain(), tiny.shared()
    inputs = tiny.as_inputs(tiny.IDS)
    normed = raw.value(hf, inputs, "attention_norm_output", 1)
    with model.trace(tiny.IDS):
        attention = model.layers[1].self_attn
        args, kwargs = attention.inputs
        assert args == ()
        assert torch.equal(kwargs["hidden_states"], normed)
        assert torch.equal(attention.input, normed)
        assert torch.equal(attention.q_proj.output, hf.model.layers[1].self_attn.q_proj(normed))
        assert isinstance(attention.output, tuple)
        assert attention.output[0] is attention.attention_output
        assert torch.equal(model.layers[1].mlp.fc1.input, normed)
        assert model.layers[1].output is model.layers[1].layer_output
        assert torch.equal(model.lm_head.output, tiny.logits_of(hf))
        assert torch.equal(model.output.logits, tiny.logits_of(hf))


def test_native_inputs_and_outputs_can_be_assigned_and_edited_in_place() -> None:
    hf, model = tiny.plain(), tiny.shared()
    inputs = tiny.as_inputs(tiny.IDS)

    def expected(name: str) -> torch.Tensor:
        return raw.edited_logits(hf, inputs, name, 1, lambda value: value + 1)

    with model.trace(tiny.IDS):
        model.layers[1].output = model.layers[1].output + 1
        assert torch.equal(model.logits, expected("layer_output"))
    with model.trace(tiny.IDS):
        model.layers[1].mlp.fc2.input += 1
        assert torch.equal(model.logits, expected("mlp_neurons"))
    with model.trace(tiny.IDS):
        output = model.layers[1].self_attn.output
        model.layers[1].self_attn.output = (output[0] + 1, *output[1:])
        assert torch.equal(model.logits, expected("attention_output"))
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.input = model.layers[1].self_attn.input + 1
        edited = model.logits
    assert not torch.equal(edited, expected("attention_norm_output"))  # the MLP reads the norm's own output
    assert not torch.equal(edited, tiny.logits_of(hf))


@pytest.mark.parametrize("kind", ["P", "P-gqa"])
def test_sizes_under_their_standard_names(kind: str) -> None:
    model = tiny.shared(kind)
    sizes = {
        "num_layers": 3,
        "hidden_size": 32,
        "num_heads": 4,
        "num_kv_heads": 2 if kind == "P-gqa" else 4,
        "head_dim": 8,
        "qk_head_dim": 8,
        "vocab_size": 64,
        "intermediate_size": 128,
    }
    assert model.sizes == sizes
    for name, size in sizes.items():
        assert getattr(model, name) == size


def test_the_wrapper_hands_out_the_untouched_model_and_what_is_known_of_it() -> None:
    hf = tiny.fresh(dtype=torch.bfloat16)
    model = StandardizedTransformer(hf, tokenizer="mine")
    assert model.hf is hf
    assert model.config is hf.config
    assert model.tokenizer == "mine"
    assert model.dtype == torch.bfloat16
    assert model.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda model: model.layer_output, "`layer_output` does not hang on the model"),
        (lambda model: model.layers[0].mlp_outptu, "Did you mean"),
        (lambda model: model.layers[0].self_attn.mlp_output, "it is a value of the mlp: `layers.0.mlp.mlp_output`"),
        (lambda model: model.layers[0].post_attention_layernorm, "no module"),
        (lambda model: model.layers[0].mlp.gate_proj, "phi has no module of its own"),
        (lambda model: model.layers[0].mlp.fc1.wieght, "has nothing called `wieght`"),
        (lambda model: model.no_such_thing, "no value or module called `no_such_thing`"),
    ],
)
def test_an_unknown_name_says_what_there_is(ask, words: str) -> None:
    with pytest.raises(UnknownValueError) as caught:
        ask(tiny.shared())
    assert words in str(caught.value)
    assert isinstance(caught.value, AttributeError)
    assert isinstance(caught.value, CutawayError)


def test_assigning_to_an_unknown_name_is_refused() -> None:
    model = tiny.shared()
    with pytest.raises(UnknownValueError), model.trace(tiny.IDS):
        model.layers[0].mlp_outptu = torch.zeros(1)
    with pytest.raises(UnknownValueError):
        model.lm_head.weight = torch.zeros(1)


@pytest.mark.parametrize("host", ["model", "layer", "attention", "mlp"])
def test_dir_lists_values_and_modules(host: str) -> None:
    model = tiny.shared()
    hosts = {
        "model": model,
        "layer": model.layers[0],
        "attention": model.layers[0].self_attn,
        "mlp": model.layers[0].mlp,
    }
    expected = {
        "model": {"logits", "lm_head", "norm", "num_heads"},
        "layer": {"layer_output", "mlp"},
        "attention": {"attention_scores", "o_proj", "dense", "output"},
        "mlp": {"mlp_neurons", "fc1", "down_proj"},
    }
    assert expected[host] <= set(dir(hosts[host]))


@pytest.mark.parametrize("packed", ["buffer", "parameter", "attribute"])
def test_a_model_whose_linear_layers_are_packed_has_all_its_values(packed: str) -> None:
    class Packed(torch.nn.Module):
        def __init__(self, linear: torch.nn.Linear) -> None:
            super().__init__()
            scale = linear.weight.detach().abs().max() / 127
            weight = (linear.weight.detach() / scale).round().add(128).to(torch.uint8)
            if packed == "buffer":
                self.register_buffer("weight", weight)
            elif packed == "parameter":
                self.weight = torch.nn.Parameter(weight, requires_grad=False)
            else:
                self.weight = weight
            self.scale, self.bias = scale, linear.bias

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.linear(input, (self.weight.float() - 128) * self.scale, self.bias)

    hf = tiny.fresh()
    for block in hf.model.layers:
        for owner, name in (
            (block.self_attn, "q_proj"),
            (block.self_attn, "dense"),
            (block.mlp, "fc1"),
            (block.mlp, "fc2"),
        ):
            setattr(owner, name, Packed(getattr(owner, name)))
    model = StandardizedTransformer(hf)
    found = model.read(tiny.IDS)
    assert len(found) == 7 + 18 * tiny.LAYERS
    torch.testing.assert_close(found["logits"], tiny.logits_of(hf), atol=1e-4, rtol=1e-4)


def test_a_module_exchanged_after_the_model_was_opened_is_reported_and_opening_again_finds_it() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    model.read(tiny.IDS, "logits")
    hf.model.layers[1].mlp.fc2 = torch.nn.Linear(128, 32)
    for names in (["layers.1.mlp.mlp_neurons"], ["*"]):
        with pytest.raises(
            UnavailableValueError, match=r"did not come by `layers\.1\.mlp\.mlp_neurons`.*open it again"
        ):
            model.read(tiny.IDS, *names)
    with pytest.raises(OrderError, match="open it again"), model.trace(tiny.IDS):
        model.layers[1].mlp.mlp_neurons
    again = StandardizedTransformer(hf).read(tiny.IDS, "layers.1.mlp.mlp_neurons")
    expected = raw.value(hf, tiny.as_inputs(tiny.IDS), "mlp_neurons", 1)
    assert torch.equal(again["layers.1.mlp.mlp_neurons"], expected)


def test_the_implementation_and_the_dtype_may_change_after_the_model_was_opened() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf)
    hf.set_attn_implementation("eager")
    assert torch.equal(model.read(tiny.IDS)["logits"], tiny.logits_of(hf))
    hf.to(torch.bfloat16)
    assert torch.equal(model.read(tiny.IDS)["logits"], tiny.logits_of(hf))
    assert model.dtype == torch.bfloat16

"""Faults that the catalogue found in Cutaway, each on the smallest class that shows it."""

from __future__ import annotations

from dataclasses import replace

import torch

from catalogue import oracles, raw, recorded, tiny
from catalogue.specimen import PADDED, Specimen
from cutaway import StandardizedTransformer
from cutaway.families import FAMILIES
from cutaway.vocabulary import ValuePath


def opened(name: str) -> Specimen:
    hf = tiny.build(tiny.case(name))
    return Specimen(hf, StandardizedTransformer(hf))


def test_gradients_begin_where_no_stream_is_served() -> None:
    """XLNet's streams have the batch second, so that neither embeddings nor blocks' inputs are values."""
    specimen = opened("xlnet")
    assert not {"token_embeddings", "layer_input"} & {path.name for path in specimen.paths}
    block = specimen.hf.transformer.layer[1]
    kept: list[torch.Tensor] = []
    hook = block.register_forward_pre_hook(lambda _, args: kept.append(args[0]))
    logits = specimen.hf(**specimen.inputs).logits
    hook.remove()
    (expected,) = torch.autograd.grad(logits.square().mean(), kept)
    for parameter in specimen.hf.parameters():
        parameter.requires_grad_(False)
    with specimen.model.trace(grad=True, **specimen.inputs):
        stream = specimen.model.layers[1].input
        specimen.model.logits.square().mean().backward()
    torch.testing.assert_close(stream.grad, expected, rtol=1e-4, atol=1e-6)


def test_no_sum_is_stated_of_what_is_not_served() -> None:
    """CpmAnt puts a prompt of its own before the tokens, so that its streams are longer than the input."""
    specimen = opened("cpmant")
    family = specimen.subject.family_at(0)
    assert family.stream == ()
    assert family.no_sum.startswith("Measured at load: `layers.0.")
    assert not {"attention_output", "mlp_output", "layer_mid"} & set(family.values)


def test_layers_that_a_pass_does_not_come_by_say_why_they_have_no_sum() -> None:
    specimen = opened("mllama")
    assert specimen.subject.family_at(3).no_sum == "A pass from ids alone does not come by this layer."
    assert specimen.subject.family_at(0).stream


def test_a_step_without_a_mask_is_looked_into_where_eager_attention_adds_one() -> None:
    found = recorded.generation(opened("modernbert-decoder"))
    assert found.held == found.tried > 0, found.differs


def test_a_padded_row_keeps_its_padding_where_a_model_keeps_its_state_in_an_argument_of_its_own() -> None:
    """RWKV's steps are given the mask of all tokens so far and no cache, which looked as if the first were run."""
    specimen = opened("rwkv")
    found = recorded.generation(specimen)
    assert found.held == found.tried > 0, found.differs
    arguments = {"max_new_tokens": 3, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
    plain = specimen.hf.generate(**PADDED, **arguments)
    with specimen.model.generate(**PADDED, max_new_tokens=3, do_sample=False) as run:
        probabilities = [specimen.model.next_token_probs.clone() for _ in run]
    for mine, logits in zip(probabilities, plain.logits, strict=True):
        assert torch.equal(mine, logits.softmax(dim=-1))
    one = {name: tensor[:1] for name, tensor in PADDED.items()}
    path, passes = "layers.1.layer_output", []

    def only_new(value: torch.Tensor) -> torch.Tensor:
        passes.append(value.shape)
        return value + 1 if len(passes) > 1 else value

    with raw.attached(specimen.hf, {specimen.spots[path]: only_new}):
        expected = specimen.hf.generate(**one, **arguments)
    with specimen.model.hooks({path: lambda value: value + 1}, positions="new"):
        edited = specimen.hf.generate(**one, **arguments)
    assert len(passes) == 3
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(edited.logits, expected.logits, strict=True))
    assert not torch.equal(edited.logits[1], specimen.hf.generate(**one, **arguments).logits[1])


def test_a_derived_family_does_not_speak_of_a_file() -> None:
    family = FAMILIES["llama"]
    assert "family file" in family.why_lacking("something")
    assert replace(family, derived=True).why_lacking("something") == "No `something` was found in a pass of this model."


def test_a_report_of_nothing_does_not_say_that_it_was_kept() -> None:
    specimen = opened("llama")
    report = replace(specimen.model.check(), results=())
    assert "could not be put to the test" in str(report).splitlines()[0]
    assert oracles.check(specimen).tried


def test_why_a_value_is_missing_is_told_of_the_layer_that_is_asked() -> None:
    """Zamba has layers with a mixer, and layers with a mixer behind an attention that is shared."""
    subject = opened("zamba").subject
    told = [subject.why_missing(ValuePath("attention_scores", layer)) for layer in (0, 1)]
    assert told[0] != told[1]
    assert told[1].startswith("This is a layer with mixer (2)")

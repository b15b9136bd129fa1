"""What people of other libraries, and in a notebook, do by habit: it works as they mean it, or says what is meant."""

from __future__ import annotations

import gc
import inspect
import pydoc
import rlcompleter
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BatchEncoding

import cutaway
from cutaway import StandardizedTransformer
from cutaway.errors import (
    CutawayError,
    InputError,
    NoTraceError,
    OrientationWarning,
    UnavailableValueError,
    UnknownLayerError,
    UnknownValueError,
)
from cutaway.vocabulary import COMMON, VALUES
from tests import raw, tiny
from tests.families import models

# Truth, length, numbers.


def test_hosts_are_true_and_have_a_length_where_they_are_several() -> None:
    model = tiny.shared()
    for host in (model, model.layers, model.layers[0], model.layers[0].mlp, model.layers[0].mlp.fc1, model.model):
        assert host
    assert len(model.layers) == len(model.model.layers) == tiny.LAYERS
    for host in (model, model.layers[0], model.norm):
        with pytest.raises(TypeError):
            len(host)
        with pytest.raises(TypeError):
            iter(host)


NUMBERS = [np.int64(1), np.uint8(1), torch.tensor(1), np.array(1)]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: type(number).__name__)
def test_numbers_of_numpy_and_torch_serve_for_layers_steps_and_factors(number: Any) -> None:
    hf, model = tiny.plain(), tiny.shared()
    assert model.layers[number] is model.layers[1]
    assert model.layers[-number].module is hf.model.layers[-1] if not isinstance(number, np.uint8) else True
    assert model.model.layers[number].module is hf.model.layers[1]
    assert [layer.module for layer in model.layers[number:]] == list(hf.model.layers[1:])
    vector = torch.ones(tiny.HIDDEN)
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "layer_output", 1, lambda value: value + 1)
    for layers in (number, [number], slice(number, 2), range(int(number), 2), "layers.1.layer_output"):
        with model.steer(layers, vector, factor=number):
            assert torch.equal(tiny.logits_of(hf), expected)
    plus_one = {"layers.1.layer_output": lambda value: value + 1}
    with model.hooks(plus_one, step=number), model.generate(tiny.IDS, max_new_tokens=3, do_sample=False) as by_number:
        pass
    with model.hooks(plus_one, step=1), model.generate(tiny.IDS, max_new_tokens=3, do_sample=False) as by_int:
        pass
    assert torch.equal(by_number.output, by_int.output)


@pytest.mark.parametrize("truth", [True, np.True_, torch.tensor(True)], ids=lambda truth: type(truth).__name__)
def test_truth_values_are_no_numbers(truth: Any) -> None:
    model, vector = tiny.shared(), torch.ones(tiny.HIDDEN)
    for ask in (
        lambda: model.layers[truth],
        lambda: model.steer(truth, vector),
        lambda: model.steer(1, vector, factor=truth),
        lambda: model.hooks({"layer_output": lambda value: value}, step=truth),
    ):
        with pytest.raises(InputError, match=r"is a (whole )?number; it was given"):
            ask()


def test_what_is_no_layer_is_told() -> None:
    model = tiny.shared()
    for index in ("a", 1.0, None, (0, 1)):
        with pytest.raises(InputError, match="a layer is a whole number"):
            model.layers[index]
    with pytest.raises(UnknownLayerError, match="0 to 2"):
        model.layers[3]
    with pytest.raises(IndexError, match="there is no layer 3"):
        model.steer([0, 3], torch.ones(tiny.HIDDEN))


def test_a_stream_by_name_is_steered_and_what_is_none_is_refused() -> None:
    hf, model = tiny.plain(), tiny.shared()
    expected = raw.edited_logits(hf, tiny.as_inputs(tiny.IDS), "attention_output", 2, lambda value: value + 1)
    with model.steer("layers.-1.self_attn.attention_output", torch.ones(tiny.HIDDEN)):
        assert torch.equal(tiny.logits_of(hf), expected)
    with pytest.raises(InputError, match=r"`layers\.0\.mlp\.mlp_neurons` is no stream"):
        model.steer("mlp_neurons", torch.ones(tiny.HIDDEN))


# Prompts.


def test_a_tokenizers_output_spread_is_a_prompt() -> None:
    hf, model = tiny.plain(), tiny.shared()
    tokens = BatchEncoding({name: tensor.clone() for name, tensor in tiny.LEFT_PADDED.items()})
    expected = tiny.logits_of(hf, tiny.LEFT_PADDED)
    for prompt, spread in (((tokens,), {}), ((), tokens)):
        assert torch.equal(model.read(*prompt, **spread)["logits"], expected)
        with model.trace(*prompt, **spread):
            assert torch.equal(model.logits, expected)
        with model.scan(*prompt, **spread):
            assert model.logits.shape == expected.shape
        with model.generate(*prompt, **spread, max_new_tokens=2, do_sample=False) as run:
            pass
        assert torch.equal(run.output, hf.generate(**tokens, max_new_tokens=2, do_sample=False))
    assert list(model.read("logits", "layers.-1.layer_output", **tokens)) == ["layers.2.layer_output", "logits"]
    assert torch.equal(model.read(input_ids=tiny.IDS, attention_mask=None)["logits"], tiny.logits_of(hf))


def test_a_prompt_given_twice_or_not_at_all_is_refused() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    for call in (model.trace, model.scan, model.generate):
        with pytest.raises(InputError, match="`input_ids` is given twice"):
            call("abc", input_ids=tiny.IDS)
    with pytest.raises(InputError, match="the ids are given by name"):
        model.read("abc", "logits", input_ids=tiny.IDS)
    for call in (model.trace, model.scan, model.generate, model.read):
        with pytest.raises(InputError, match=rf"`{call.__name__}` was given no prompt"):
            call()


def test_calling_the_model_is_transformers_own_call() -> None:
    hf, model = tiny.plain(), tiny.shared()
    with torch.no_grad():
        assert torch.equal(model(tiny.IDS).logits, tiny.logits_of(hf))
        assert torch.equal(model(**tiny.as_inputs(tiny.IDS)).logits, tiny.logits_of(hf))
    for wrong in ("a text", ["a", "b"], [1, 2, 3], np.array([[1, 2]])):
        with pytest.raises(InputError, match=r"takes ids as a tensor; it was given a.*model\.read\(prompt"):
            model(wrong)
    with pytest.raises(InputError, match=r"spread, `model\(\*\*tokens\)`"):
        model(BatchEncoding(tiny.as_inputs(tiny.IDS)))


# Looking.


def test_dir_lists_what_is_ours() -> None:
    model = tiny.shared()
    listed = dir(model)
    assert {"trace", "read", "logits", "layers", "lm_head", "num_heads", "hf", "model", "explain"} <= set(listed)
    assert len(listed) < 60
    assert not {"named_modules", "zero_grad", "register_buffer", "cuda", "_subject"} & set(listed)
    assert "layer_mid" not in dir(model.layers[0])
    assert set(dir(model.layers[0].mlp.fc1)) == {
        "weight",
        "bias",
        "input",
        "inputs",
        "output",
        "source",
        "module",
        "skip",
    }
    for host in (model, model.layers[0], model.layers[0].self_attn, model.layers[0].mlp):
        assert {name for name in VALUES if name in dir(host)} == {
            path.name for path in model._subject.value_paths if path.value.host == host._host
        }


def test_completing_a_name_runs_nothing_and_fails_nowhere() -> None:
    model = tiny.shared()
    calls: list[int] = []
    handle = model.hf.register_forward_pre_hook(lambda *_: calls.append(1))
    completer = rlcompleter.Completer({"layer": model.layers[0], "model": model})
    with model.trace(tiny.IDS):
        assert {"layer.layer_input", "layer.layer_output"} <= set(completer.attr_matches("layer.layer_"))
        assert "model.logits" in completer.attr_matches("model.l")
    assert {"layer.layer_input", "layer.layer_output"} <= set(completer.attr_matches("layer.layer_"))
    handle.remove()
    assert not calls


def test_a_values_meaning_is_at_hand() -> None:
    model = tiny.shared()
    text = pydoc.plain(pydoc.render_doc(model.layers[0].self_attn))
    assert "Pattern [batch num_heads query key]: scores entering the softmax, scaled and masked." in text
    assert type(model.layers[0]).layer_output.__doc__ == (
        f"Residual [batch seq hidden_size]: {COMMON['layer_output'].meaning}."
    )
    said = repr(model.explain("layers.0.self_attn.attention_scores"))
    assert said.startswith("layers.*.self_attn.attention_scores  Pattern [batch num_heads query key]")
    assert COMMON["attention_scores"].meaning in said
    assert "not here: Phi's block is parallel" in repr(model.explain("layer_mid"))
    with pytest.raises(UnknownValueError, match="Did you mean 'attention_scores'"):
        model.explain("atention_scores")


def test_reprs_tell_what_there_is() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    values = "layer_input, attention_norm_output, mlp_norm_output, mlp_input, layer_output"
    assert repr(model.layers[3]) == f"<layer 3 of phi-mini: PhiDecoderLayer, values: {values}>"
    assert repr(model.layers[1].mlp).startswith("<MLP of layer 1 of phi-mini: PhiMLP, values: mlp_activation, ")
    assert repr(model.layers) == "<4 layers of phi-mini: PhiDecoderLayer>"
    assert repr(model.layers[0].mlp.fc1) == "<layers.0.mlp.fc1 of phi-mini: Linear(128, 512, bias=True)>"
    block = str(model.layers[3]).split("\n")
    assert block[0] == "(3): PhiDecoderLayer"
    assert "    attention_queries        [batch num_heads seq qk_head_dim]" in block
    assert "    (o_proj/dense): Linear(128, 128, bias=True)" in block
    whole = str(model).split("\n")
    assert [line.strip() for line in block[1:]] == [
        line.strip() for line in whole[whole.index("      (0-3): 4 x PhiDecoderLayer") + 1 :][: len(block) - 1]
    ]
    assert "<details open><summary>(3): " in model.layers[3]._repr_html_()
    found = model.read("import os", "layers.1.layer_output", "input_size")
    assert repr(found).split("\n")[1:] == [
        "  input_size             [1, 2]",
        "  layers.1.layer_output  [1, 2, 128] float32",
    ]


def test_a_trace_tells_its_prompt_where_it_stands_and_what_was_asked_and_runs_nothing_by_it() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    entered: list[int] = []
    handles = [layer.register_forward_pre_hook(lambda *_: entered.append(1)) for layer in model.hf.model.layers]
    trace = model.trace("def add(a, b):")
    assert repr(trace).startswith("<trace of phi-mini; prompt [1, 7]; not open yet")
    with trace as run:
        assert repr(run) == "<trace of phi-mini; prompt [1, 7]; open, and nothing has run yet>"
        model.layers[0].layer_output
        model.layers[1].mlp.mlp_output[:] = 0
        assert repr(run).endswith(
            "; open, and the pass waits at `layers.1.mlp.mlp_output`; "
            "asked for: layers.0.layer_output, layers.1.mlp.mlp_output>"
        )
        assert len(entered) == 2
    assert "over: its block was left; asked for: layers.0.layer_output" in repr(run)
    assert len(entered) == 2
    assert repr(model.scan([1, 2])).startswith("<scan of phi-mini, shapes alone; prompt [1, 2]; not open yet")
    assert repr(model.trace([1], grad=True)).startswith("<trace of phi-mini, with gradients; ")
    for handle in handles:
        handle.remove()


def test_a_trace_keeps_no_tensor_alive_for_what_it_tells() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS) as run:
        held = weakref.ref(model.layers[0].layer_output)
        repr(run)
    gc.collect()
    assert "layers.0.layer_output" in repr(run)
    assert held() is None


def test_a_generation_and_its_steps_tell_how_far_they_are() -> None:
    model = tiny.shared()
    run = model.generate(tiny.IDS, max_new_tokens=3, do_sample=False)
    start = "<generation of PhiForCausalLM; prompt [3, 6], max_new_tokens=3, do_sample=False; "
    assert repr(run).startswith(f"{start}not run yet")
    with run:
        assert repr(run) == f"{start}open, and nothing has run yet>"
        for step in run:
            model.layers[1].layer_output
            if step.index == 2:
                assert repr(step) == "<step 2; runs 1 token in each of 3 rows>"
                assert repr(run) == (
                    f"{start}at step 2, 8 tokens so far in a row; open, and the pass waits at `layers.1.layer_output`; "
                    "asked for in this step: layers.1.layer_output>"
                )
    assert repr(run).startswith(f"{start}done: 3 new tokens a row")
    with pytest.raises(ZeroDivisionError), model.generate(tiny.IDS, max_new_tokens=3) as left:
        raise ZeroDivisionError
    assert repr(left).endswith("left by an error before its end>")


@pytest.mark.parametrize(
    ("positions", "step", "at"),
    [
        (None, None, ""),
        (-1, None, " at position -1"),
        ([0, 2], None, " at positions 0, 2"),
        (slice(1, None), None, " at positions 1:"),
        ("new", None, " at new tokens"),
        (None, 0, " at the prompt"),
        (None, 2, " at step 2"),
        ([[0], [1, 2], [0]], None, " at positions of each row"),
    ],
)
def test_edits_tell_their_values_and_positions(positions: Any, step: int | None, at: str) -> None:
    model = tiny.shared()
    hooks = model.hooks(
        {"mlp_output": lambda value: value, "layers.1:3.layer_output": lambda value: value},
        positions=positions,
        step=step,
    )
    names = f"layers.*.mlp.mlp_output{at}, layers.1:3.layer_output{at}"
    assert repr(hooks).startswith(f"<edits of PhiForCausalLM: {names}; not in force")
    if positions is None and step is None:
        with hooks:
            tiny.logits_of(model.hf)
            assert repr(hooks).endswith("in force, called 5 times so far>")
    edited = model.edited({"mlp_output": lambda value: value}, positions=positions, step=step)
    assert f"edited: layers.*.mlp.mlp_output{at}" in " ".join(repr(edited).split())
    assert "edited: " in edited._repr_html_()
    assert "edited" not in repr(model)
    assert f"PhiForCausalLM, edited: layers.*.mlp.mlp_output{at}; prompt" in repr(edited.trace(tiny.IDS))


def test_a_trace_says_what_another_librarys_word_or_a_value_is() -> None:
    model = tiny.shared()
    run, generation = model.trace(tiny.IDS), model.generate(tiny.IDS, max_new_tokens=1)
    for ask, words in (
        (lambda: run.invoke, "a list of prompts"),
        (lambda: run.layer_output, "`model.layers[i].layer_output`"),
        (lambda: run.logits, "inside the block: `model.logits`"),
        (lambda: generation.next, "`for step in run:`"),
        (lambda: generation.txt, "Did you mean 'text'"),
    ):
        with pytest.raises(UnknownValueError) as caught:
            ask()
        assert words in str(caught.value)
    assert not hasattr(run, "_repr_html_")


def test_what_a_generations_output_raises_stays_what_it_is() -> None:
    model = StandardizedTransformer(tiny.fresh(), check=False)

    def broken(*_: Any) -> None:
        raise AttributeError("the model's own")

    model.hf.model.layers[1].register_forward_hook(broken)
    with pytest.raises(AttributeError, match=r"^the model's own$"):
        model.generate(tiny.IDS, max_new_tokens=1).output


def test_in_a_notebook_a_support_is_shown_once_and_its_text_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)  # where rich shows what it is to print
    support = tiny.shared().support()
    text = repr(support)
    assert all(name in text for name in COMMON)
    assert "attention_scores" in support._repr_html_()
    assert capsys.readouterr().out == ""


# Other libraries' words, other ways, weights.


def test_hosts_under_the_familys_own_names_have_their_values() -> None:
    model = models.wrapped("gpt2")
    with model.trace(models.IDS):
        pattern = model.transformer.h[1].attn.attention_probabilities
        assert pattern is model.layers[1].self_attn.attention_probabilities
    assert model.transformer.h[-1].mlp.module is model.hf.transformer.h[2].mlp


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.run_with_cache, "TransformerLens's `run_with_cache` is here `model.read(prompt"),
        (lambda m: m.to_tokens, "model.tokenizer(text, return_tensors='pt').input_ids"),
        (lambda m: m.layers[2].hook_resid_post, "is here 'layers.2.layer_output'"),
        (lambda m: m.blocks, "is here `model.layers`"),
        (lambda m: m.layers[0].attn, "is here `self_attn`"),
        (lambda m: m.W_pos, "the position embedding's own module"),
        (lambda m: m.layers_output, "nnterp's `layers_output` is here `model.layers[i].layer_output`"),
        (lambda m: m.skip_layers, "layer.skip()"),
        (lambda m: m.layers[0].next, "nnsight's `next` is here `for step in run:`"),
        (lambda m: m.layers[0].mlp.fc1.all, "nnsight's `all` is here"),
        (lambda m: m.layers[0].self_attn.source.self_q_proj_0.next, "nnsight's `next`"),
        (lambda m: m.support()["resid_pre"], "'layers.*.layer_input'"),
        (lambda m: cutaway.LanguageModel, "`StandardizedTransformer`"),
    ],
)
def test_a_word_of_another_library_is_told_ours(ask: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(AttributeError) as caught:
        ask(tiny.shared())
    assert words in str(caught.value)


def test_what_is_offered_for_other_libraries_words_is_there() -> None:
    from cutaway.vocabulary.other_words import NAMES

    model = tiny.shared()
    for words in NAMES.values():
        for word, ours in words.items():
            for path in [
                part for i, part in enumerate(ours.split("'")) if i % 2 and part.startswith(("layers", "final"))
            ]:
                if path != "layers.{layer}.layer_mid":
                    assert model.read(tiny.IDS, path.format(layer=1)), word


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlp", "`layers.0.mlp` is a module and no value of a pass"),
        ("skip", "`layers.0.skip` is no value of a pass"),
        ("training", "`layers.0.training` is the model's own"),
    ],
)
def test_what_cannot_be_assigned_says_why(name: str, words: str) -> None:
    with pytest.raises(UnknownValueError, match=words):
        setattr(tiny.shared().layers[0], name, 1)
    with pytest.raises(UnknownValueError, match="is the model's own"):
        tiny.shared().num_heads = 3


def test_what_a_property_raises_stays_what_it_is() -> None:
    model = tiny.shared()

    def broken(*_: Any) -> None:
        raise AttributeError("the model's own")

    handle = model.hf.model.layers[1].register_forward_hook(broken)
    try:
        with pytest.raises(AttributeError, match=r"^the model's own$"), model.trace(tiny.IDS):
            model.layers[2].layer_output
    finally:
        handle.remove()
    with pytest.raises(UnavailableValueError, match="parallel"):
        model.layers[0].layer_mid
    with pytest.raises(NoTraceError):
        model.layers[0].layer_output
    assert not hasattr(model.layers[0], "layer_mid")
    assert not hasattr(model.layers[0], "nothing_of_the_kind")


def test_outside_a_trace_one_is_sent_to_a_read_that_works() -> None:
    model = tiny.shared()
    for ask in (
        lambda: model.layers[1].output,
        lambda: model.layers[1].mlp.fc1.inputs,
        lambda: model.layers[1].self_attn.source.self_q_proj_0.output,
        lambda: model.layers[1].self_attn.attention_scores,
    ):
        with pytest.raises(NoTraceError) as caught:
            ask()
        name = str(caught.value).split("model.read(prompt, '")[1].split("'")[0]
        assert list(model.read(tiny.IDS, name)) == [name]


def test_the_orientation_of_a_weight_is_stated() -> None:
    model = models.wrapped("gpt2")
    attention = model.layers[0].self_attn
    with pytest.warns(OrientationWarning, match=r"is a Conv1D's, \[in out\].*`\.weight\.T`") as caught:
        weight = attention.o_proj.weight
    assert caught[0].filename == __file__
    assert weight is model.hf.transformer.h[0].attn.c_proj.weight
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert attention.c_proj.weight is weight
        assert models.wrapped("llama").layers[0].self_attn.o_proj.weight is not None
    assert repr(attention.o_proj) == "<layers.0.self_attn.o_proj of GPT2LMHeadModel: Conv1D(32, 32, weight [in out])>"
    assert "(down_proj/c_proj): Conv1D(128, 32, weight [in out])" in str(model)


def test_rooms_of_the_package_are_reached_by_name_and_listed() -> None:
    code = (
        "import sys, cutaway\n"
        "assert 'torch' not in sys.modules\n"
        "for name in ('analysis', 'pictures', 'families', 'reference'):\n"
        "    assert name in dir(cutaway)\n"
        "    assert getattr(cutaway, name).__name__ == 'cutaway.' + name\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, env={"PYTHONPATH": ":".join(sys.path)})
    assert done.returncode == 0


def test_every_public_call_names_the_prompt_first() -> None:
    for call in ("trace", "generate", "scan", "read"):
        parameters = list(inspect.signature(getattr(StandardizedTransformer, call)).parameters.values())
        assert parameters[1].name == "prompt"
    assert issubclass(UnknownLayerError, (CutawayError, IndexError))

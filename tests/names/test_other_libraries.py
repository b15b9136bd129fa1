"""What is typed by habit of TransformerLens, nnsight, nnterp and others is told what to type here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import pipeline

import cutaway
from cutaway import StandardizedTransformer
from cutaway.errors import CutawayError, InputError, NotReadError, UnknownValueError
from cutaway.model.declared import AttentionNames, LayerNames, MixerNames, MlpNames, ModelNames
from cutaway.model.hosts import AttentionHost, LayerHost, MixerHost, MlpHost, ModelHost
from cutaway.vocabulary import CONFIG_NAMES, MODULES, VALUES, WEIGHTS, values
from cutaway.vocabulary.other_arguments import ARGUMENTS
from cutaway.vocabulary.other_words import NAMES
from tests import raw, tiny

VECTOR = torch.ones(tiny.HIDDEN)


def said(ask: Callable[[], Any], error: type[Exception] = CutawayError) -> str:
    with pytest.raises(error) as caught:
        ask()
    return str(caught.value)


def test_every_word_of_another_library_gets_its_sentence_wherever_it_is_asked() -> None:
    model = tiny.shared()
    found = model.read(tiny.IDS, "logits")
    ours = {*VALUES, *WEIGHTS, *MODULES}
    for word in {word for words in NAMES.values() for word in words} - ours:
        for host in (model, model.layers[0], found):
            if not hasattr(host, word):
                assert f"`{word}` is " in said(lambda host=host, word=word: getattr(host, word))


def test_every_argument_of_another_library_gets_its_sentence_or_is_one_here() -> None:
    model = tiny.shared()
    for words in ARGUMENTS.values():
        for word in words:
            for call in (model.read, model.trace, model.scan):
                if word not in inspect.signature(call).parameters:
                    assert f"`{word}` is " in said(lambda call=call, word=word: call(tiny.IDS, **{word: 1}))


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda m: m.n_layers, "`model.num_layers`"),
        (lambda m: m.d_model, "`model.hidden_size`"),
        (lambda m: m.fold_layer_norm, "`fold_layer_norm` is not there: weights stay those of the checkpoint"),
        (lambda m: m.layers.layer_output, "Of one layer it is `model.layers[i].layer_output`, and of all `model.read("),
        (lambda m: m.layers.self_attn, "Of one layer it is `model.layers[i].self_attn`."),
        (lambda m: m.forward("text"), "it was given a text. For values of a pass say `model.read(prompt, 'logits')`"),
        (
            lambda m: m.read(tiny.IDS, "logits", names_filter=None),
            "`names_filter` is here the names that `read` is given",
        ),
        (
            lambda m: m.trace(tiny.IDS, remote=True),
            "nnsight's `remote` is not there: a model runs where it was loaded.",
        ),
        (lambda m: m.trace(text="a"), "`text` is here the prompt, which comes first"),
        (lambda m: m.generate(tiny.IDS, prepend_bos=True), "TransformerLens's `prepend_bos` is here the text"),
        (
            lambda m: m.steer(1, steering_vector=VECTOR),
            "nnterp's `steering_vector` is here `vector`. It has: layers, vec",
        ),
        (lambda m: m.hooks(fwd_hooks=[]), "`fwd_hooks` is here the functions of `with model.hooks({name: function}):`"),
        (lambda m: m.edited({}, position=1), "`edited` has no argument `position`. Did you mean 'positions'"),
        (lambda m: StandardizedTransformer("phi-mini", fold_ln=True), "`fold_ln` is not there: weights stay those of"),
        (lambda m: StandardizedTransformer(m.hf, rename={}), "nnsight's `rename` is here the standard names"),
        (lambda m: StandardizedTransformer.from_pretrained("x"), "is here `StandardizedTransformer(name_or_folder_or_"),
        (
            lambda m: StandardizedTransformer.layers,
            "is opened by `model = StandardizedTransformer(name_or_folder_or_mod",
        ),
        (
            lambda m: cutaway.HookedTransformer,
            "TransformerLens's `HookedTransformer` is here `StandardizedTransformer`",
        ),
        (lambda m: cutaway.families.propose(StandardizedTransformer), "it was given StandardizedTransformer. Load it"),
        (lambda m: cutaway.families.propose("phi-mini"), "it was given a str. Load it first"),
    ],
)
def test_what_was_typed_by_habit_says_what_to_type(ask: Callable[[Any], Any], words: str) -> None:
    assert words in said(lambda: ask(tiny.shared()))


def test_a_draft_is_made_of_an_opened_model_too() -> None:
    model = tiny.shared()
    assert cutaway.families.propose(model) == cutaway.families.propose(model.hf)


def test_an_edited_models_forward_is_its_call() -> None:
    model = tiny.shared()
    expected = raw.edited_logits(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", 1, lambda value: value + 1)
    edited = model.edited({"layers.1.layer_output": lambda value: value + 1})
    with torch.no_grad():
        assert torch.equal(edited.forward(tiny.IDS).logits, expected)
        assert torch.equal(model.forward(tiny.IDS).logits, tiny.logits_of(tiny.plain()))


# The mapping that a reading returns.


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (("resid_post", 1), "TransformerLens's `resid_post` is here 'layers.1.layer_output'."),
        (("layer_output", 1), "A name is a path, in one string. Did you mean 'layers.1.layer_output'?"),
        (("q", 1, "attn"), "'layers.1.self_attn.attention_queries'"),
        (("logits",), "Did you mean 'logits'?"),
        ("blocks.1.hook_resid_post", "is here 'layers.1.layer_output'."),
        (0, "0 was not read. A value is asked for by its path."),
    ],
)
def test_a_cache_asked_as_elsewhere_says_the_path(key: Any, words: str) -> None:
    found = tiny.shared().read(tiny.IDS, "layer_output", "attention_queries", "logits")
    assert words in said(lambda: found[key], NotReadError)
    assert key not in found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("decompose_resid", "`decompose_resid` is here `model.read(prompt, 'token_embeddings', 'attention_output'"),
        ("remove_batch_dim", "an index, `found[path][0]`, of each value"),
        ("layer_output", "A value is asked for by its path, in brackets: `found['layers.0.layer_output']`."),
        ("cpu", "`{path: value.cpu for path, value in found.items()}`"),
        ("tensor", "Did you mean 'tensors'"),
    ],
)
def test_a_cache_has_no_methods_of_elsewhere_and_says_what_serves(name: str, words: str) -> None:
    found = tiny.shared().read(tiny.IDS, "layer_output", "logits")
    assert words in said(lambda: getattr(found, name), UnknownValueError)
    assert not hasattr(found, name)


def test_the_parts_that_are_offered_for_a_decomposition_sum_to_the_stream() -> None:
    model = tiny.shared()
    parts = model.read(tiny.IDS, "token_embeddings", "attention_output", "mlp_output")
    stream = raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", tiny.LAYERS - 1)
    torch.testing.assert_close(sum(parts.values()), stream, rtol=1e-5, atol=1e-5)


# Functions, steps, tensors.


@pytest.mark.parametrize(
    ("function", "written"),
    [
        (lambda value, hook: value, "`<lambda>(value, hook)`"),
        (lambda module, args, output: output, "`<lambda>(module, args, output)`"),
        (lambda: None, "`<lambda>()`"),
        (lambda *, value: value, "`<lambda>(*, value)`"),
    ],
)
@pytest.mark.parametrize("way", ["hooks", "editing", "edited"])
def test_a_function_that_cannot_be_called_with_a_value_is_refused_at_once(
    way: str, function: Any, written: str
) -> None:
    message = said(lambda: getattr(tiny.shared(), way)({"layers.1.layer_output": function}), InputError)
    assert "called with the value alone" in message
    assert written in message


class Adds:
    def __call__(self, value: torch.Tensor, hook: Any = None) -> torch.Tensor:
        return value + 1


@pytest.mark.parametrize(
    "function", [Adds(), Adds().__call__, lambda *given: given[0] + 1, torch.nn.Identity().forward]
)
def test_a_function_that_can_be_is_taken(function: Any) -> None:
    model = tiny.shared()
    adds = not inspect.ismethod(function) or isinstance(function.__self__, Adds)
    expected = raw.edited_logits(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", 1, lambda value: value + adds)
    with model.hooks({"layers.1.layer_output": function}):
        assert torch.equal(model.read(tiny.IDS, "logits")["logits"], expected)
    with model.hooks({"layers.1.layer_output": torch.relu_}):  # written in C, it tells no signature
        model.read(tiny.IDS, "logits")


def test_a_step_says_where_its_values_are() -> None:
    model = tiny.shared()
    with model.generate(tiny.IDS, max_new_tokens=2, do_sample=False) as run:
        for step in run:
            assert "inside the block: `model.logits`" in said(lambda step=step: step.logits, UnknownValueError)
            assert "`for step in run:`" in said(lambda step=step: step.next(), UnknownValueError)
            assert "Did you mean 'positions'" in said(lambda step=step: step.position, UnknownValueError)
    assert "`for step in run:`" in said(lambda: run.steps, UnknownValueError)


def test_a_tensor_without_save_says_what_serves() -> None:
    model = tiny.shared()
    for ask in (lambda: model.layers[0].output[0].save(), lambda: model.layers[0].layer_output.value):
        with pytest.raises(AttributeError) as caught, model.trace(tiny.IDS):
            ask()
        assert any("`cutaway.save(tensor)`" in note for note in caught.value.__notes__)


def test_a_pipeline_that_was_given_the_model_itself_says_what_to_give_it() -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    edited = model.edited({"layers.1.layer_output": lambda value: value + 1})
    wrong = pipeline("text-generation", model=edited, tokenizer=model.tokenizer)
    assert "a pipeline does, is given `model.hf`" in said(lambda: wrong("def a", max_new_tokens=2), UnknownValueError)


# Prompts in NumPy's arrays.

TEXTS = ["def add(a, b):", "import os", "x"]


@pytest.mark.parametrize("dtype", [None, object])
def test_an_array_of_strings_is_a_prompt_as_a_list_of_them(dtype: Any) -> None:
    model = StandardizedTransformer("phi-mini", check=False)
    rows = [model.tokenizer(text).input_ids for text in TEXTS]
    width = max(map(len, rows))
    inputs = {
        "input_ids": torch.tensor([[model.tokenizer.pad_token_id or 0] * (width - len(row)) + row for row in rows]),
        "attention_mask": torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows]),
    }
    with torch.no_grad():
        expected = model.hf(**inputs).logits[:, -1]
        alone = model.hf(torch.tensor(rows[:1])).logits
    assert torch.equal(model.read(np.array(TEXTS, dtype=dtype), "logits")["logits"][:, -1], expected)
    assert torch.equal(model.read(np.array(TEXTS[0], dtype=dtype), "logits")["logits"], alone)
    assert torch.equal(model.read(np.array(rows[0], dtype=dtype), "logits")["logits"], alone)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (np.array([["a", "b"]]), "the array of strings is of shape [1, 2]"),
        (np.array([b"a"]), "the array holds bytes"),
        (np.array([]), "integers"),
        (np.array(["a", 1], dtype=object), "mixes int, str"),
    ],
)
def test_an_array_that_is_no_prompt_is_refused(prompt: Any, words: str) -> None:
    assert words in said(lambda: tiny.shared().read(prompt, "logits"), InputError)


# What editors and completers know without running anything.


@pytest.mark.parametrize(
    ("declared", "host", "of"),
    [
        (ModelNames, ModelHost, "model"),
        (LayerNames, LayerHost, "layer"),
        (AttentionNames, AttentionHost, "attention"),
        (MixerNames, MixerHost, "mixer"),
        (MlpNames, MlpHost, "mlp"),
    ],
)
def test_what_is_declared_is_what_the_vocabulary_has(declared: type, host: type, of: str) -> None:
    hosts = inspect.get_annotations(host)
    built_in = {value.name: value for value in values._ROWS}  # others may be registered while tests run
    names = {row.name for rows in (built_in, WEIGHTS, MODULES) for row in rows.values() if row.host == of}
    assert {*inspect.get_annotations(declared), *hosts} == names | (set(CONFIG_NAMES) if of == "model" else set())
    assert not {"layers", "self_attn", "mixer", "mlp"} & set(inspect.get_annotations(declared))


def test_a_completers_stand_in_of_a_class_lists_what_it_may_have() -> None:
    stand_in = LayerHost.__new__(LayerHost)  # as IPython makes one of a declared class
    assert {"layer_output", "layer_mid", "self_attn", "mlp", "input_layernorm", "skip"} <= set(dir(stand_in))
    assert inspect.get_annotations(ModelHost)["layers"] == list[LayerHost]
    assert inspect.get_annotations(LayerHost)["self_attn"] is AttentionHost


def test_what_was_read_is_saved_whole(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    found = tiny.shared().read(tiny.IDS)
    save_file(found, tmp_path / "found.safetensors")
    logits = load_file(tmp_path / "found.safetensors")["logits"]
    assert torch.equal(logits, tiny.logits_of(tiny.plain()))

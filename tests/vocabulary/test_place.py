"""Places: what is written, what it means, and what is refused."""

from __future__ import annotations

import pytest

from cutaway.errors import InputError
from cutaway.vocabulary import VALUES
from cutaway.vocabulary.place import AXES, Place, axis_of


@pytest.mark.parametrize(
    ("written", "name", "picked"),
    [
        ("layers.9.self_attn.attention_premix[head=6]", "layers.9.self_attn.attention_premix", {"head": 6}),
        (
            "layers.*.mlp.mlp_neurons[neuron=12, position=-1]",
            "layers.*.mlp.mlp_neurons",
            {"neuron": 12, "position": -1},
        ),
        ("layer_output[position=*]", "layer_output", {"position": "*"}),
        ("layers[-1].layer_output[position=1:]", "layers[-1].layer_output", {"position": slice(1, None)}),
        ("layers[0:2].mlp_output", "layers[0:2].mlp_output", {}),
        ("attention_scores[query=(0, 3), key=0:4:2]", "attention_scores", {"query": (0, 3), "key": slice(0, 4, 2)}),
        ("logits", "logits", {}),
    ],
)
def test_what_is_written_is_read_and_written_again(written, name, picked) -> None:
    place = Place.of(written)
    assert (place.name, dict(place.picked)) == (name, picked)
    assert str(place) == written
    assert Place.of(str(place)) == place


def test_what_is_swept() -> None:
    assert Place.of("attention_premix[head=*, position=-1]").swept == ("head",)
    assert Place.of("attention_premix").swept == ()


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("layer_output[heads=3]", "no word for an axis.*`head`"),
        ("layer_output[position=last]", "`last` in .* is no selection"),
        ("layer_output[position=1.5]", "is no selection"),
        ("layer_output[position=]", "is no selection"),
        ("layer_output[position=3:1:-1]", "is no selection"),
        ("layer_output[position=()]", "is no selection"),
        ("layer_output[position=1, 3]", "`3` is not"),
        ("layer_output[position=1, position=2]", "twice which position"),
    ],
)
def test_what_is_no_place_is_refused(written, said) -> None:
    with pytest.raises(InputError, match=said):
        Place.of(written)


def test_each_word_stands_for_one_axis_of_a_layout() -> None:
    for value in VALUES.values():
        for word, names in AXES.items():
            there = [name for name in names if name in value.layout.axes]
            assert len(there) <= 1, f"{value.name}: {word}"
            if there:
                assert value.layout.axes[axis_of(word, value.layout, value.name)] == there[0]


@pytest.mark.parametrize(
    ("name", "word", "said"),
    [
        ("layer_output", "head", r"no axis of heads. It is narrowed by `position`, `dimension`\."),
        ("attention_scores", "dimension", "`head`, `position`, `query`, `key`"),
        ("layer_output", "query", "no axis of queries"),
        ("input_size", "position", "cannot be narrowed"),
    ],
)
def test_an_axis_that_a_value_lacks_is_refused(name, word, said) -> None:
    with pytest.raises(InputError, match=said):
        axis_of(word, VALUES[name].layout, name)

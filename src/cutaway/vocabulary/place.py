"""Places: a name, narrowed on the axes that its value's layout names.

`layers.9.self_attn.attention_premix[head=6]`, `layers.*.mlp.mlp_neurons[neuron=12, position=-1]`,
`layers.*.layer_output[position=*]`. A word picks of its axis a number, a slice `0:4`, several `(1, 5)`, or with `*`
each in turn. Numbers may count from the end. Positions are those of `hooks` and `read`: real tokens of the row, padding
not counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cutaway.errors import InputError
from cutaway.vocabulary.elsewhere import near
from cutaway.vocabulary.layouts import Layout

AXES: Mapping[str, tuple[str, ...]] = {
    "head": ("num_heads", "num_kv_heads"),
    "position": ("seq", "query"),
    "query": ("query",),
    "key": ("key",),
    "dimension": ("hidden_size", "qk_head_dim", "head_dim", "kv_latent_size", "conv_size", "mixer_size"),
    "neuron": ("intermediate_size",),
    "expert": ("num_experts",),
}
"""The words, each with the axes of layouts that it stands for: of keys and values, `head` is the key head."""

Picked = int | slice | tuple[int, ...] | str
"""What is picked of an axis: a number, a slice, several, or `"*"`, each in turn."""


@dataclass(frozen=True)
class Place:
    """A name as `read` and `hooks` take it, and what of its values is meant.

    Attributes:
        name: the name without what narrows it.
        picked: by word, what is picked of its axis; empty for the whole values.
    """

    name: str
    picked: Mapping[str, Picked]

    @classmethod
    def of(cls, written: str) -> Place:
        """A place as it is written.

        Raises:
            InputError: what stands in the brackets is no selection; it says what is.
        """
        found = _NARROWED.fullmatch(written.strip())
        if found is None:
            return cls(written, {})
        picked: dict[str, Picked] = {}
        for part in _parts(found["inside"]):
            word, sign, selection = (piece.strip() for piece in part.partition("="))
            if not sign:
                raise InputError(
                    f"`{written}` is narrowed by `word=what`, separated by commas; `{part.strip()}` is not."
                )
            if word not in AXES:
                raise InputError(f"`{word}` is no word for an axis.{near(word, AXES)} The words are {_WORDS}.")
            if word in picked:
                raise InputError(f"`{written}` says twice which {word} is meant.")
            picked[word] = _selection(selection, written)
        return cls(found["name"].strip(), picked)

    @property
    def swept(self) -> tuple[str, ...]:
        """The words whose axes are swept by `*`."""
        return tuple(word for word, selection in self.picked.items() if selection == "*")

    def __str__(self) -> str:
        inside = ", ".join(f"{word}={_written(selection)}" for word, selection in self.picked.items())
        return f"{self.name}[{inside}]" if inside else self.name


def axis_of(word: str, layout: Layout, path: str) -> int:
    """The axis of a layout for which a word stands.

    Raises:
        InputError: the value has no such axis; it says which words it can be narrowed by.
    """
    for name in AXES[word]:
        if name in layout.axes:
            return layout.axes.index(name)
    there = [f"`{other}`" for other, names in AXES.items() if any(name in layout.axes for name in names)]
    by = f" It is narrowed by {', '.join(there)}." if there else " It cannot be narrowed."
    raise InputError(f"`{path}` is {layout}, which has no axis of {_PLURALS.get(word, word + 's')}.{by}")


_WORDS = ", ".join(f"`{word}`" for word in AXES)
_PLURALS = {"query": "queries"}
_NARROWED = re.compile(r"(?P<name>[^=]*[^=\s])\[(?P<inside>[^\[\]]*=[^\[\]]*)\]")


def _parts(inside: str) -> Sequence[str]:
    """What is separated by commas outside of parentheses."""
    return re.split(r",(?![^()]*\))", inside)


def _selection(text: str, written: str) -> Picked:
    if text == "*":
        return text
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"(-?\d+)?\s*:\s*(-?\d+)?(\s*:\s*[1-9]\d*)?", text):
        return slice(*(int(bound) if bound.strip() else None for bound in text.split(":")))
    if re.fullmatch(r"\(\s*-?\d+(\s*,\s*-?\d+)*\s*,?\s*\)", text):
        return tuple(int(number) for number in re.findall(r"-?\d+", text))
    raise InputError(
        f"`{text}` in `{written}` is no selection: a number, a slice `0:4`, several `(1, 5)`, or `*` for each in turn."
    )


def _written(selection: Picked) -> str:
    if isinstance(selection, slice):
        bounds = [selection.start, selection.stop, *([selection.step] if selection.step is not None else [])]
        return ":".join("" if bound is None else str(bound) for bound in bounds)
    if isinstance(selection, tuple):
        return f"({', '.join(map(str, selection))}{',' * (len(selection) == 1)})"
    return str(selection)

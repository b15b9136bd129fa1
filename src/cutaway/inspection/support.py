"""`support()`: which values exist for this checkpoint under this load, and where each is read.

Availability comes from the survey, that is from a pass of this very model, and not from a list kept by hand.
"""

from __future__ import annotations

from typing import Any

import torch

from cutaway.inspection import printout
from cutaway.inspection.kinds import load_told
from cutaway.inspection.rows import SupportRow, SupportRows, WeightRow
from cutaway.sites import AT_MODULES, MOMENTS, OF_SOFTMAX
from cutaway.subject.subject import Subject
from cutaway.vocabulary import VALUES, WEIGHTS, Value, ValuePath, Weight


class Support(SupportRows):
    """Rows that print as a table, also in a notebook."""

    def __str__(self) -> str:
        return printout.support_text(self)

    __repr__ = __str__

    def __rich__(self) -> Any:
        return printout.support_rich(self)

    def _repr_html_(self) -> str:
        return printout.support_html(self)


def support(subject: Subject) -> Support:
    """Asks a model which values it has."""
    values = tuple(_row(subject, value) for value in VALUES.values())
    weights = tuple(_weight(subject, row) for row in WEIGHTS.values())
    return Support(subject.name, load_told(subject), values, weights)


def _row(subject: Subject, value: Value) -> SupportRow:
    layers = range(subject.sizes["num_layers"]) if value.host != "model" else [None]
    has_site = subject.has_site(value.name)
    present = [layer for layer in layers if has_site and subject.is_available(ValuePath(value.name, layer))]
    if value.derived and has_site:
        where = "derived from " + " and ".join(
            f"`{source}`" for source in (*(value.derived_from or ("input_ids",)), *value.weights)
        )
    elif has_site:
        where = _where(subject, value)
    else:
        where = subject.why_unavailable(value.name)
    if has_site and not present:
        where = subject.why_missing(ValuePath(value.name, layers[0])) if len(layers) else "This model has no layers."
    return SupportRow(
        value=value.name,
        host=value.host,
        layout=value.layout.name,
        axes=value.layout.axes,
        meaning=value.meaning,
        available=bool(present),
        read_only=value.read_only,
        layers=tuple(layer for layer in present if layer is not None),
        where=where,
        condition=_condition(subject, value, present, len(layers)) if present else "",
        rare=value.rare,
    )


def _weight(subject: Subject, row: Weight) -> WeightRow:
    layers = range(subject.sizes["num_layers"]) if row.host != "model" else [None]
    present = [layer for layer in layers if subject.weights.has(row, layer)]
    if present:
        where = subject.weights.where(row, present[0])
    else:
        missing = subject.weights.why_missing(row, layers[0]) if len(layers) else "This model has no layers."
        where = missing or "Its projection has no bias: it is None."
    numbers = tuple(layer for layer in present if layer is not None)
    return WeightRow(row.name, row.host, row.layout.axes, row.meaning, bool(present), numbers, where)


def _where(subject: Subject, value: Value) -> str:
    """The place in the family's own names: `dense`'s input, where the site says `o_proj`."""
    layer = subject.layer_with(value.name)
    site = subject.family_at(None if value.host == "model" else layer).values[value.name]
    if site.moment not in AT_MODULES:
        told = site.describe()
        return told if told.startswith("after") else f"the {told}"
    host = site.of or value.host
    own = subject.module_path(host, layer, site.module).rpartition(".")[2] if site.module else _OWN[host]
    return f"{own}'s {MOMENTS[site.moment]}"


_OWN = {
    "model": "the model",
    "layer": "the layer",
    "attention": "the attention",
    "mixer": "the mixer",
    "mlp": "the MLP",
}


def _condition(subject: Subject, value: Value, present: list[Any], of: int) -> str:
    notes = []
    if len(present) < of:
        lacking = next(layer for layer in range(of) if layer not in present)
        why = subject.why_missing(ValuePath(value.name, lacking)).rstrip(".")
        notes.append(f"on {len(present)} of {of} layers (layer {lacking}: {why})")
    site = subject.family_at(None if value.host == "model" else present[0]).values.get(value.name)
    implementation = subject.hf.config._attn_implementation
    if site is not None and site.moment in OF_SOFTMAX and implementation != "eager":
        float32 = ", in float32," if subject.hf.dtype in (torch.float16, torch.bfloat16) else ""
        notes.append(
            f"asking for it runs that layer's eager attention{float32} beside {implementation}, whose result flows on "
            "unless it is edited"
        )
    elif site is not None and site.moment in OF_SOFTMAX and subject.hf.dtype == torch.float16:
        notes.append("float16 products of 65504 and more overflow under eager; a warning tells")
    if value.name == "attention_premix" and subject.family_at(present[0]).premix_differs:
        notes.append("not the head outputs side by side: gated, normed or mixed after the attention function")
    if value.name in ("attention_queries", "attention_keys") and getattr(subject.hf.config, "rope_parameters", None):
        notes.append(
            "rotated by the place in the padded row, unless `position_ids` count real tokens, as in `generate`"
        )
    return "; ".join(notes)


__all__ = ["Support", "SupportRow", "WeightRow", "support"]

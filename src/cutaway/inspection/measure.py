"""Putting the claims of a derived family to the test, and taking off what does not hold.

What was found in a pass without weights is a claim. The model is checked as every model is; each claim that the check
refutes is taken off, with the figure that it failed by as the reason, until what is left holds.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import torch

from cutaway.errors import CheckError, UnsupportedModelError
from cutaway.families import Family, Kind, TakenOff
from cutaway.families.stream import names_in
from cutaway.inspection.check import check
from cutaway.inspection.check.compare import close
from cutaway.inspection.check.places import run_plain
from cutaway.inspection.check.report import CheckReport
from cutaway.inspection.check.run import EVERY, sample
from cutaway.sites import Site
from cutaway.subject.arguments import takes
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath

_ADDED = ("attention_output", "mixer_output", "mlp_output", "layer_mid")
_MOST = 60
"""How many claims are taken off before it is given up."""


def measured(subject: Subject) -> tuple[Subject, CheckReport]:
    """A subject of the same model whose family claims what holds on its weights, and the report of its check.

    Raises:
        UnsupportedModelError: it is an encoder, or too little holds.
    """
    _refuse_an_encoder(subject)
    taken: list[TakenOff] = []
    for _ in range(_MOST):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                report = check(subject)
        except CheckError as error:
            family, off = _without(subject, error)
            taken.append(off)
            subject = subject.of_family(replace(family, taken_off=tuple(taken)))
        else:
            ran = not any(skipped.promise == EVERY for skipped in report.untested)
            counted = subject.family.positions_from_mask and ran and _wants_positions(subject)
            return subject.of_family(replace(subject.family, measured=ran, positions_from_mask=counted)), report
    raise UnsupportedModelError(
        f"too little holds of what was found in {subject.name}, a {type(subject.hf).__name__}. The last of {_MOST}: "
        f"{taken[-1].why}"
    )


def _wants_positions(subject: Subject) -> bool:
    """Whether a row that is padded on the left is nearer to the row alone with positions that count from its first
    token: some models with learned positions count so by themselves, and some take no positions."""
    alone = sample(subject, rows=1, seq=4)
    if "attention_mask" not in alone or not takes(subject.hf, "position_ids"):
        return False
    padded = {name: torch.cat([value.new_zeros(1, 2), value], dim=1) for name, value in alone.items()}
    positions = (padded["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    expected = run_plain(subject, alone)
    without, counted = (
        (run_plain(subject, inputs)[:, -expected.shape[1] :] - expected).abs().nan_to_num(0.0).max().item()
        for inputs in (padded, {**padded, "position_ids": positions})
    )
    return counted < _NEARER * without


_NEARER = 0.1
"""How much nearer, in the largest difference of what is returned."""


def _refuse_an_encoder(subject: Subject) -> None:
    """Raises for a model that generates nothing and in which a token's stream depends on those that follow.

    Raises:
        UnsupportedModelError: saying what was found.
    """
    if subject.hf.can_generate():
        return
    inputs = sample(subject, rows=1, seq=5)
    other = {**inputs, "input_ids": inputs["input_ids"].clone()}
    other["input_ids"][0, -1] = (other["input_ids"][0, -1] + 1) % subject.sizes["vocab_size"]
    try:
        first, second = run_plain(subject, inputs), run_plain(subject, other)
    except Exception:  # whatever the model raises by itself, which its check tells
        return
    if first.shape[:2] == (1, 5) and not close(first[:, :-1], second[:, :-1]):
        kind = type(subject.hf).__name__
        raise UnsupportedModelError(
            f"{subject.name} is a {kind}, an encoder: changing the last of five tokens changes what it returns for the "
            "ones before. The vocabulary is that of decoders, in which a token sees those before it."
        )


def _without(subject: Subject, error: CheckError) -> tuple[Family, TakenOff]:
    """The family without the claim that a check has refuted."""
    path = next((path for path in subject.value_paths if str(path) == error.value), None)
    claim, why = error.claim, str(error)
    if path is None:
        raise UnsupportedModelError(
            f"{subject.name}, a {type(subject.hf).__name__}, does not keep what was found in it, and which value is at "
            f"fault cannot be told: {why}"
        )
    layers = _same_kind(subject, path.layer)
    if claim == "lens":
        return replace(subject.family, no_lens=f"Measured at load: {why}"), TakenOff("the lens", (), why)
    if claim == "heads merged":
        return _changed(subject, layers, premix_differs=why), TakenOff("premix is the heads", layers, why)
    if claim == "sum":
        return _without_sum(subject, path, layers, why, []), TakenOff("the sum", layers, why)
    names = {
        "pattern": ("attention_scores", "attention_probabilities"),
        "projected": ("attention_premix",),
        "mixed": ("attention_values", "attention_head_outputs"),
        "neurons projected": ("mlp_neurons",),
    }
    gone = list(names.get(claim, (path.name,)))
    off = TakenOff(" and ".join(f"`{name}`" for name in gone), layers, why)
    stated = subject.family_at(layers[0]).stream if layers else ()
    if stated and {"layer_output", *names_in(stated)} & set(gone):
        return _without_sum(subject, path, layers, why, gone), off
    return _changed(subject, layers, drop=gone, why=why), off


def _without_sum(subject: Subject, path: ValuePath, layers: tuple[int, ...], why: str, others: list[str]) -> Family:
    """The family without the sum on some layers, and without other values: what the sublayers add to the stream is
    known by the sum alone, and of what is not there no sum can be put to the test."""
    terms = [name for name in _ADDED if name not in others and _has(subject, path, name)]
    no_sum = f"Measured at load: {why}"
    return _changed(subject, layers, drop=[*others, *terms], why=why, stream=(), no_sum=no_sum)


def _has(subject: Subject, path: ValuePath, name: str) -> bool:
    return name in subject.family_at(path.layer).values


def _same_kind(subject: Subject, layer: int | None) -> tuple[int, ...]:
    """The layers of the kind of one."""
    if layer is None:
        return ()
    own = subject.family_at(layer)
    return tuple(number for number in range(subject.sizes["num_layers"]) if subject.family_at(number) is own)


def _changed(
    subject: Subject,
    layers: tuple[int, ...],
    *,
    drop: list[str] | None = None,
    why: str = "",
    **changes: object,
) -> Family:
    """The family with changes on some layers, or around them; values that are dropped have the reason `why`."""
    family, gone = subject.family, drop or []
    lacks = dict.fromkeys(gone, f"Measured at load: {why}")
    if not family.kinds or not layers:
        return replace(
            family,
            values={name: site for name, site in family.values.items() if name not in gone},
            unavailable={**family.unavailable, **lacks},
            **changes,  # pyright: ignore[reportArgumentType]
        )
    kinds = [_lesser(kind, gone, lacks, changes) if kind.layers & set(layers) else kind for kind in family.kinds]
    return replace(family, kinds=tuple(kinds))


def _lesser(kind: Kind, gone: list[str], lacks: dict[str, str], changes: dict[str, object]) -> Kind:
    values: dict[str, Site] = {name: site for name, site in kind.values.items() if name not in gone}
    return replace(kind, values=values, unavailable={**kind.unavailable, **lacks}, **changes)  # pyright: ignore[reportArgumentType]

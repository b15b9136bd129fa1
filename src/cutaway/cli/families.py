"""`cutaway families [MODEL]`: the families that have a file, or what was derived of a model that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.options import Json, Loading, opens_a_model, refuse_without_model
from cutaway.errors import InputError

if TYPE_CHECKING:
    from cutaway.cli.terminal import Table
    from cutaway.model import StandardizedTransformer


@opens_a_model
def families(
    loading: Loading,
    model: Annotated[
        str | None, typer.Argument(help="A hub id, a local folder, or phi-mini; left out, the families are listed.")
    ] = None,
    as_json: Json = False,
    as_file: Annotated[bool, typer.Option("--file", help="Print the family as a file to start from.")] = False,
) -> None:
    """List the families that have a file, or show what was derived of a model.

    Any other model opens too: what it adds up to is found in a pass of it, and measured on its weights.
    """
    from cutaway.cli.terminal import print_json, say

    if as_json and as_file:
        raise InputError("--json prints data and --file a file of Python. Give one of them.")
    if model is None:
        refuse_without_model(loading)
        if as_file:
            raise InputError("--file prints the family of a MODEL, and none was given.")
        rows = _deep()
        print_json({"families": rows}) if as_json else say(_table(rows).text())
        return
    from cutaway.cli.opening import open_model

    opened = open_model(model, loading)
    if as_file:
        from cutaway.families import propose

        say(propose(opened.hf))
    elif as_json:
        print_json(to_dict(opened))
    else:
        say("\n".join(_told(opened)))


def _deep() -> list[dict[str, Any]]:
    from cutaway.families import FAMILIES

    return [
        {"family": family.name, "classes": list(family.architectures), "checkpoints": list(family.checkpoints)}
        for family in FAMILIES.values()
    ]


def _table(rows: list[dict[str, Any]]) -> Table:
    from cutaway.cli.terminal import Table

    header = ("family", "class", "for example")
    cells = [
        (row["family"], ", ".join(row["classes"]), row["checkpoints"][0] if row["checkpoints"] else "-") for row in rows
    ]
    return Table(
        header, cells, [f"{len(rows)} families have a file; what any other model is, is found when it is opened"]
    )


def to_dict(model: StandardizedTransformer) -> dict[str, Any]:
    """What is known of a model's family as data: `family`, `derived`, `measured`, the kinds of `layers`, each with its
    numbers, its sum and its values, and what was `taken_off`."""
    from cutaway.families.stream import told
    from cutaway.inspection.kinds import kinds_of

    subject = model._subject
    family = subject.family
    kinds: list[dict[str, Any]] = []
    for what, layers in kinds_of(subject).items():
        own = subject.family_at(layers[0])
        values = [path.name for path in subject.value_paths if path.layer == layers[0]]
        kinds.append(
            {
                "what": what,
                "layers": layers,
                "sum": told(own.stream) or None,
                "no_sum": own.no_sum or None,
                "values": values,
            }
        )
    return {
        "model": subject.name,
        "class": type(subject.hf).__name__,
        "family": family.name,
        "derived": family.derived,
        "measured": family.measured,
        "layers": kinds,
        "taken_off": [{"claim": off.claim, "layers": list(off.layers), "why": off.why} for off in family.taken_off],
    }


def _told(model: StandardizedTransformer) -> list[str]:
    from cutaway.inspection.numbers import ranges

    known = to_dict(model)
    how = "has a family file" if not known["derived"] else "has no family file; what follows was found in a pass of it"
    how += ", and measured on its weights" if known["derived"] and known["measured"] else ""
    lines = [f"{known['model']}: {known['class']} {how}."]
    for kind in known["layers"]:
        lines.append(f"  layers {ranges(kind['layers'])}: {kind['what']}")
        lines.append(f"    {'layer_output = ' + kind['sum'] if kind['sum'] else 'no sum: ' + str(kind['no_sum'])}")
        lines.append(f"    {', '.join(kind['values'])}")
    lines += [f"  taken off: {off['claim']}: {off['why']}" for off in known["taken_off"]]
    if known["derived"]:
        lines.append("A file to start from: cutaway families --file, or cutaway.families.propose(model).")
    return lines

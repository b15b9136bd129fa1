"""`cutaway check MODEL`: does it keep what the vocabulary promises?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutaway.cli.options import Json, Loading, Model, opens_a_model
from cutaway.errors import CheckError

if TYPE_CHECKING:
    from cutaway.inspection.check import CheckReport


@opens_a_model
def check(
    model: Model,
    loading: Loading,
    shapes_only: Annotated[
        bool, typer.Option("--shapes-only", help="Load no weights, and check shapes alone.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that a model keeps the vocabulary's promises. Ends with status 1 where it does not."""
    from cutaway.cli.opening import open_model
    from cutaway.cli.terminal import print_json, say, waiting

    opened = open_model(model, loading, dispatch=not shapes_only, check=False)
    try:
        with waiting(f"checking {model}"):
            report = opened.check()
    except CheckError as error:
        if as_json:
            print_json({"model": model, "holds": False, "broken": str(error), "promises": [], "untested": []})
        raise
    if as_json:
        print_json(to_dict(report))
    else:
        say(str(report))


def to_dict(report: CheckReport) -> dict[str, Any]:
    """A report as data: `model`, `holds`, `broken` (what does not hold, or null), `promises` and `untested`.

    A promise is in words, with the `cases` in which it was put to the test, or why it could not be. Where the family is
    `derived`, `taken_off` has what was claimed at first and does not hold.
    """
    promises = [{"promise": result.promise, "cases": result.cases} for result in report]
    untested = [{"promise": skipped.promise, "why": skipped.why} for skipped in report.untested]
    taken_off = [{"claim": off.claim, "layers": list(off.layers), "why": off.why} for off in report.taken_off]
    return {
        "model": report.model,
        "holds": True,
        "broken": None,
        "promises": promises,
        "untested": untested,
        "derived": report.derived,
        "taken_off": taken_off,
    }

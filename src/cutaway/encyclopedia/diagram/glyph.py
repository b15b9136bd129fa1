"""A family's block as a small sign: enough to tell parallel from sequential, and one norm from two."""

from __future__ import annotations

from cutaway.encyclopedia.diagram.block import Wiring


def glyph(wiring: Wiring) -> str:
    """The sign of a block, as SVG without a word: what it shows is written beside it."""
    shapes = _parallel(wiring) if wiring.parallel else _sequential()
    return (
        '<svg class="glyph" viewBox="0 0 96 120" width="96" height="120" aria-hidden="true" focusable="false" '
        f'xmlns="http://www.w3.org/2000/svg">{shapes}</svg>'
    )


def _parallel(wiring: Wiring) -> str:
    if wiring.attention_norm == wiring.mlp_norm:
        norms = '<path class="wire" d="M14 22H30"/><rect class="norm" x="30" y="17" width="58" height="10" rx="3"/>'
    else:
        norms = (
            '<path class="wire" d="M14 10H75V17M45 10V17"/>'
            '<rect class="norm" x="33" y="17" width="24" height="10" rx="3"/>'
            '<rect class="norm" x="63" y="17" width="24" height="10" rx="3"/>'
        )
    return (
        f'<path class="stream" d="M14 2V118"/>{norms}'
        '<path class="wire" d="M45 27V98M75 27V98H14"/>'
        '<rect class="attention" x="33" y="38" width="24" height="44" rx="4"/>'
        '<rect class="mlp" x="63" y="38" width="24" height="44" rx="4"/>'
        '<circle class="sum" cx="45" cy="98" r="5"/><circle class="sum" cx="14" cy="98" r="5"/>'
    )


def _sequential() -> str:
    stages = "".join(
        f'<path class="wire" d="M14 {y}H60V{y + 46}H14"/>'
        f'<rect class="norm" x="42" y="{y + 5}" width="36" height="8" rx="3"/>'
        f'<rect class="{kind}" x="42" y="{y + 18}" width="36" height="22" rx="4"/>'
        f'<circle class="sum" cx="14" cy="{y + 46}" r="5"/>'
        for y, kind in ((8, "attention"), (66, "mlp"))
    )
    return f'<path class="stream" d="M14 2V118"/>{stages}'

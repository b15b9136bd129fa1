"""A family's layer as a small sign: enough to tell parallel from sequential, where the norms are, and what there is in
place of attention and MLP."""

from __future__ import annotations

from cutaway.encyclopedia.kinds import LayerKind
from cutaway.encyclopedia.shapes import MlpShape
from cutaway.encyclopedia.wiring import Branch, Stage

_TOP, _HEIGHT = 8, 58


def glyph(kind: LayerKind) -> str:
    """The sign of a layer, as SVG without a word: what it shows is written beside it."""
    stages = kind.wiring.stages
    shift = _HEIGHT / 2 if len(stages) == 1 and not kind.wiring.parallel else 0
    shapes = "".join(
        _placed(_parallel(kind, stage), i, len(stages))
        if len(stage.branches) > 1
        else _one(kind, stage, _TOP + shift + i * _HEIGHT)
        for i, stage in enumerate(stages)
    )
    return (
        '<svg class="glyph" viewBox="0 0 96 120" width="96" height="120" aria-hidden="true" focusable="false" '
        f'xmlns="http://www.w3.org/2000/svg"><path class="stream" d="M14 2V118"/>{shapes}</svg>'
    )


def _placed(shapes: str, place: int, of: int) -> str:
    """Sublayers side by side, as high as one of several stages where there are several."""
    if of == 1:
        return shapes
    return f'<g transform="translate(0 {_TOP + place * _HEIGHT - 4}) scale(1 {(_HEIGHT - 6) / 108:.3f})">{shapes}</g>'


def _parallel(kind: LayerKind, stage: Stage) -> str:
    if stage.shared_norm:
        norms = '<path class="wire" d="M14 22H30"/><rect class="norm" x="30" y="17" width="58" height="10" rx="3"/>'
    else:
        norms = (
            '<path class="wire" d="M14 10H75V17M45 10V17"/>'
            '<rect class="norm" x="33" y="17" width="24" height="10" rx="3"/>'
            '<rect class="norm" x="63" y="17" width="24" height="10" rx="3"/>'
        )
    first, second, *_ = stage.branches
    joined = not stage.additions or (not stage.additions[0].left.has_stream and not stage.additions[0].right.has_stream)
    sums = (
        '<path class="wire" d="M45 27V98M75 27V98H14"/><circle class="sum" cx="45" cy="98" r="5"/>'
        if joined
        else '<path class="wire" d="M45 27V90H14M75 27V104H14"/><circle class="sum" cx="14" cy="90" r="5"/>'
    )
    return (
        f"{norms}{sums}{_body(kind, first, 33, 38, 24, 44)}{_body(kind, second, 63, 38, 24, 44)}"
        f'<circle class="sum" cx="14" cy="{98 if joined else 104}" r="5"/>'
    )


def _one(kind: LayerKind, stage: Stage, y: float) -> str:
    (branch,) = stage.branches
    both = branch.norm and branch.after
    norms = "".join(
        f'<rect class="norm" x="42" y="{y + at:g}" width="36" height="{7 if both else 8}" rx="3"/>'
        for at in ([5] if branch.norm else []) + ([36 if both else 33] if branch.after else [])
    )
    top, height = (15, 18) if both else (18, 22) if branch.norm else (7, 22)
    return (
        f'<path class="wire" d="M14 {y:g}H60V{y + 46:g}H14"/>{norms}{_body(kind, branch, 42, y + top, 36, height)}'
        f'<circle class="sum" cx="14" cy="{y + 46:g}" r="5"/>'
    )


def _body(kind: LayerKind, branch: Branch, x: float, y: float, width: float, height: float) -> str:
    shape = kind.shapes[branch.host]
    if not isinstance(shape, MlpShape) or shape.kind != "experts":
        return f'<rect class="{branch.host}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'
    each = (width - 4) / 3
    return "".join(
        f'<rect class="mlp" x="{x + i * (each + 2):.4g}" y="{y:g}" width="{each:.4g}" height="{height:g}" rx="2.5"/>'
        for i in range(3)
    )

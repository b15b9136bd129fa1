"""How a figure is written: three digits, groups of thousands, powers of ten as powers of ten."""

from __future__ import annotations

import math
from typing import Any

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def shown(figure: Any) -> str:
    """A figure as a reader would write it: `1,024`, `0.94`, `7.1×10⁻⁹`, `yes`."""
    if isinstance(figure, bool):
        return "yes" if figure else "no"
    if isinstance(figure, int):
        return f"{figure:,}"
    if isinstance(figure, float):
        return _number(figure)
    if isinstance(figure, (list, tuple)):
        return ", ".join(shown(part) for part in figure)
    return str(figure)


def _number(figure: float) -> str:
    if not math.isfinite(figure) or figure == 0:
        return f"{figure:g}".replace("-", "−")
    if 1e-3 <= abs(figure) < 1e6:
        digits = max(0, 2 - math.floor(math.log10(abs(figure))))
        text = f"{figure:,.{digits}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return text.replace("-", "−")
    mantissa, _, exponent = f"{figure:.1e}".partition("e")
    return f"{mantissa.replace('-', '−')}×10{str(int(exponent)).translate(_RAISED)}"

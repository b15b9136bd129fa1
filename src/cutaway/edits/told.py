"""What edits say of themselves: which values, and at which positions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.positions import Choice, NewToken, RowByRow


def edits_told(edits: Sequence[FunctionEdit], num_layers: int) -> str:
    """The names of the values, those of several layers as one, with the positions at which the functions count.

    `layers.*.mlp.mlp_output, layers.1:3.layer_output at positions -1`
    """
    kinds: dict[tuple[str, str], list[int]] = {}
    for edit in edits:
        path = edit.address.path
        found = _LAYER.match(path)
        layers = kinds.setdefault((path[found.end() :] if found else path, _choice_told(edit.choice)), [])
        if found and int(found[1]) not in layers:
            layers.append(int(found[1]))
    return ", ".join(
        f"{'layers.' * bool(layers)}{part}{rest}{at}"
        for (rest, at), layers in kinds.items()
        for part in (_runs(sorted(layers), num_layers) or [""])
    )


def _runs(layers: Sequence[int], num_layers: int) -> list[str]:
    """Layers' numbers as names have them: `*`, `1:3`, `2`."""
    if len(layers) == num_layers > 1:
        return ["*"]
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return [str(run[0]) if len(run) == 1 else f"{run[0]}:{run[-1] + 1}" for run in runs]


def _choice_told(choice: Choice) -> str:
    if choice is None or choice == "all":
        return ""
    if isinstance(choice, str):
        return f" at {'the prompt' if choice == 'prompt' else 'new tokens'}"
    if isinstance(choice, NewToken):
        return f" at step {choice + 1}"
    if isinstance(choice, RowByRow):
        return " at positions of each row"
    if isinstance(choice, slice):
        ends = ["" if end is None else str(end) for end in (choice.start, choice.stop)]
        return f" at positions {':'.join([*ends, *([str(choice.step)] if choice.step else [])])}"
    numbers = [choice] if isinstance(choice, int) else list(choice)
    more = ", …" if len(numbers) > _SHOWN else ""
    return f" at position{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:_SHOWN]))}{more}"


_LAYER = re.compile(r"layers\.(\d+)(?=\.)")
_SHOWN = 8
"""How many positions are told."""

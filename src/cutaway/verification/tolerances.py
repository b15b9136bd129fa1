"""How far the two implementations may be apart, by the dtype the model runs in.

A step in float64 or float32 is rounded a few times, and so is the reference's, so that 1e-10 and 1e-5 of the largest
entry at a position leave room for sums of thousands of terms and for a hundred blocks: over 32 random blocks of 256
dimensions float32 comes to 5e-6.

bfloat16 and float16 keep 8 and 11 bits, and every operation rounds. A step, from the model's own values, is held
against arithmetic that hardly rounds: the activation and the rotary, which round five times or so, come to 1.1e-2 and
1.3e-3, and every value is allowed about three times that. Over a whole pass the roundings of the blocks add up, and
being independent they do so with the square root of the depth: in bfloat16 2e-2 after 4 blocks and 5e-2 after 32, in
float16 3e-3 and 9e-3 (random models of 256 dimensions, standard deviation 0.08). What is allowed is again about three
times that. So a whole pass in half precision shows gross faults only, and it is the steps that show the finer ones.
"""

from __future__ import annotations

from dataclasses import dataclass

_FACTORS: dict[str, tuple[float, float]] = {
    "float64": (1e-10, 0.0),
    "float32": (1e-5, 0.0),
    "bfloat16": (3e-2, 3e-2),
    "float16": (4e-3, 4e-3),
}


@dataclass(frozen=True)
class Tolerance:
    """Relative tolerances, to be held against `Difference.relative`.

    Attributes:
        step: of a value computed from the model's own values before it.
        growth: what each block's roundings come to, in a pass; 0 where the step's tolerance has room for them all.
    """

    step: float
    growth: float

    def whole(self, blocks: int) -> float:
        """Of a value computed from the prompt, after this many blocks."""
        return self.step + self.growth * blocks**0.5


def tolerance_for(dtype: str) -> Tolerance:
    """The tolerance of a dtype, by its name."""
    return Tolerance(*_FACTORS[dtype])

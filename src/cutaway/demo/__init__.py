"""`cutaway demo`: what Cutaway does, shown on the built-in checkpoint in a terminal.

`steps` holds the few lines of library code that each step runs; what is shown as code is their source. `run` runs them
and shows what they gave; `stage`, `bars` and `heatmap` draw.
"""

from cutaway.demo.run import run

__all__ = ["run"]

"""`cutaway demo`: what Cutaway does, shown on the built-in checkpoint in a terminal.

`steps` holds the few lines of library code that each step runs; what is shown as code is their source. `run` runs them
and shows what they gave, and `page` is the page it ends with; `stage`, `bars` and `heatmap` draw.
"""

from cutaway.demo.page import is_own_page
from cutaway.demo.run import run

__all__ = ["is_own_page", "run"]

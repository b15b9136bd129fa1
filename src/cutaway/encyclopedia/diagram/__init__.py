"""The diagram of a stack and its layers, drawn from parts: no family has one of its own."""

from cutaway.encyclopedia.diagram.glyph import glyph
from cutaway.encyclopedia.diagram.stack import draw_stack, stack

__all__ = ["draw_stack", "glyph", "stack"]

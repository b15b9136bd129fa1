"""From a model and a prompt to a picture: reads the values, names the tokens, and calls `cutaway.pictures`.

from cutaway.drawing import draw, write_attention_page

draw(model, "attention-head", "def add(a, b):", layer=1, head=2).save("head.svg")
write_attention_page(model, "def add(a, b):", "attention.html")
"""

from cutaway.drawing.heads import Head, telling_head
from cutaway.drawing.kinds import KINDS, Kind, draw, kind_of
from cutaway.drawing.page import attention_page, write_attention_page

__all__ = ["KINDS", "Head", "Kind", "attention_page", "draw", "kind_of", "telling_head", "write_attention_page"]

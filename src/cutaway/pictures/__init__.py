"""Pictures of a model's insides: still ones by matplotlib, and pages that one can point at.

A picture is made from arrays and tokens, never from a model: any values that have the shape of a value of the
vocabulary will do, from Cutaway, from the NumPy reference or from elsewhere. Each function makes one picture and
returns it as an object that shows itself in a notebook and has `.save(path)`: a `Picture` saves as `.png` or `.svg`, a
`Page` as one `.html` file that needs nothing else.

    from cutaway import pictures

    pictures.attention_layer(probabilities, tokens, title="phi-mini, layer 1").save("layer-1.svg")
    pictures.attention_viewer(patterns, tokens).save("attention.html")

Probabilities are coloured from 0 to 1; signed values from blue to orange, with 0 in the middle.
"""

from cutaway.pictures.attention import attention_grid, attention_head, attention_layer
from cutaway.pictures.labels import Token, text_of, token_label, token_labels
from cutaway.pictures.lens import lens_table
from cutaway.pictures.next_tokens import next_token_bars
from cutaway.pictures.page import Page
from cutaway.pictures.patching import patching_heatmap
from cutaway.pictures.rotary import relative_position_curve, rotary_heatmap, rotated_vector
from cutaway.pictures.still import Picture
from cutaway.pictures.stream import stream_norms
from cutaway.pictures.tokenizing import token_texts
from cutaway.pictures.viewer import attention_viewer

__all__ = [
    "Page",
    "Picture",
    "Token",
    "attention_grid",
    "attention_head",
    "attention_layer",
    "attention_viewer",
    "lens_table",
    "next_token_bars",
    "patching_heatmap",
    "relative_position_curve",
    "rotary_heatmap",
    "rotated_vector",
    "stream_norms",
    "text_of",
    "token_label",
    "token_labels",
    "token_texts",
]

"""What a picture refuses, and what it takes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cutaway import pictures
from cutaway.errors import CutawayError, InputError, ShapeError

ONES = np.full((3, 3), 1 / 3)
ABC = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: pictures.attention_head(ONES[0], ABC), ShapeError, r"\[query key\]"),
        (lambda: pictures.attention_head(ONES, ["a", "b"]), ShapeError, "2 given for 3 keys"),
        (lambda: pictures.attention_head(ONES, ABC, key_tokens=["a"]), ShapeError, "1 given for 3 keys"),
        (lambda: pictures.attention_head(ONES, "abc"), InputError, "sequence of tokens"),
        (lambda: pictures.attention_head(ONES, [1, 2, 3]), InputError, "decode the ids"),
        (lambda: pictures.attention_head(np.zeros((0, 0)), []), InputError, "nothing along `query`"),
        (lambda: pictures.attention_head(ONES * np.nan, ABC), InputError, r"first at \(0, 0\).*padding"),
        (lambda: pictures.attention_head(ONES * 9, ABC), InputError, "softmax"),
        (lambda: pictures.attention_head(ONES - 1, ABC), InputError, "from 0 to 1"),
        (lambda: pictures.attention_head(ONES * 1j, ABC), InputError, "real numbers"),
        (lambda: pictures.attention_head([["x"] * 3] * 3, ABC), InputError, "real numbers"),
        (lambda: pictures.attention_head(torch.ones(3, 3, device="meta"), ABC), InputError, "meta device"),
        (lambda: pictures.attention_head(ONES, ABC, theme="night"), InputError, "'light' or 'dark'"),
        (lambda: pictures.attention_layer(ONES, ABC), ShapeError, r"\[num_heads query key\]"),
        (lambda: pictures.attention_layer(np.stack([[ONES]] * 2), ABC), ShapeError, "2 rows of a batch"),
        (lambda: pictures.attention_grid([[ONES], [ONES[:2]]], ABC), ShapeError, "different shapes"),
        (lambda: pictures.attention_grid(ONES, ABC), ShapeError, "num_layers"),
        (lambda: pictures.attention_viewer([[ONES]], ["a"]), ShapeError, "1 given for 3 keys"),
        (lambda: pictures.attention_viewer([[ONES[1:]]], ABC), ShapeError, "2 queries and 3 keys"),
        (lambda: pictures.attention_viewer([[ONES]], ABC, layer=1), InputError, "no layer 1"),
        (lambda: pictures.attention_viewer([[ONES]], ABC, head=-2), InputError, "no head -2"),
        (lambda: pictures.attention_viewer([[ONES]], ABC, theme="night"), InputError, "'auto'"),
        (lambda: pictures.attention_viewer([[ONES]], ABC, most_bytes=5), InputError, "shorter prompt"),
        (lambda: pictures.stream_norms(np.ones(3), ABC), ShapeError, "hidden_size"),
        (lambda: pictures.stream_norms(np.ones((2, 3, 4)), ["a"]), ShapeError, "1 given for 3 positions"),
        (lambda: pictures.stream_norms(np.ones((2, 3)), ABC, layer_names=["x"]), ShapeError, "for 2 layers"),
        (lambda: pictures.stream_norms(np.full((2, 3, 4), np.inf), ABC), InputError, "not finite"),
        (lambda: pictures.lens_table([ABC], ONES[:2], ABC), ShapeError, "1 layers of 3 positions"),
        (lambda: pictures.lens_table([ABC, ["a"]], ONES[:2], ABC), ShapeError, "1 or 3 positions"),
        (lambda: pictures.lens_table("abc", ONES[:1], ABC), InputError, "one string"),
        (lambda: pictures.lens_table([ABC], ONES[:1] * 5, ABC), InputError, "from 0 to 1"),
        (lambda: pictures.next_token_bars(ABC, [0.5, 0.5]), ShapeError, "3 given for 2"),
        (lambda: pictures.next_token_bars(ABC, [0.5, 0.5, 0.5]), InputError, "sum to 1.5"),
        (lambda: pictures.next_token_bars(ABC, [0.1] * 3, most=0), InputError, "at least one bar"),
        (lambda: pictures.next_token_bars([], []), InputError, "nothing"),
        (lambda: pictures.patching_heatmap(np.ones(3), ABC), ShapeError, r"\[layer column\]"),
        (lambda: pictures.patching_heatmap(np.ones((2, 3)), ["a"]), ShapeError, "for 3 columns"),
        (lambda: pictures.rotated_vector(np.ones((2, 4))), ShapeError, "head_dim"),
        (lambda: pictures.rotated_vector(np.ones(5)), InputError, "even number"),
        (lambda: pictures.rotated_vector(np.ones(4), rotary_dims=6), ShapeError, "4 dimensions"),
        (lambda: pictures.rotated_vector(np.ones(4), pairs=[2]), InputError, "no pair 2"),
        (lambda: pictures.rotated_vector(np.ones(4), pairs=[]), InputError, "1 to 8"),
        (lambda: pictures.rotated_vector(np.ones(4), pairing="odd"), InputError, "'interleaved'"),
        (lambda: pictures.rotated_vector(np.ones(4), 0), InputError, "positions must be"),
        (lambda: pictures.rotated_vector(np.ones(4), [0.5]), InputError, "whole numbers"),
        (lambda: pictures.rotated_vector(np.ones(4), 33), InputError, "which is 32"),
        (lambda: pictures.rotary_heatmap(rotary_dims=7), InputError, "even number"),
        (lambda: pictures.rotary_heatmap(base=1.0), InputError, "above 1"),
        (lambda: pictures.rotary_heatmap(which="tan"), InputError, "'sin'"),
        (lambda: pictures.relative_position_curve(query=np.ones(32), key=np.ones(64)), ShapeError, "one of|one head"),
    ],
)
def test_what_is_refused(make, error, says):
    with pytest.raises(error, match=says) as caught:
        make()
    assert isinstance(caught.value, CutawayError)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_of_every_dtype_draw_alike(dtype):
    halves = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    tensor = halves.to(dtype, copy=True).requires_grad_()
    assert pictures.attention_head(tensor, ["a", "b"]).to_png(50) == pictures.attention_head(
        halves.numpy(), ["a", "b"]
    ).to_png(50)


def test_layers_may_come_one_by_one_with_a_batch_axis(causal, prompt):
    whole = causal(3, 2, 11, 11)
    separate = [torch.tensor(layer)[None].bfloat16().float() for layer in whole]
    given = torch.stack([layer[0] for layer in separate]).numpy()
    plain = pictures.attention_grid(given, prompt).to_png(40)
    assert pictures.attention_grid(separate, prompt).to_png(40) == plain
    assert pictures.attention_grid(given[None], prompt).to_png(40) == plain


def test_rounding_above_one_is_no_error():
    pictures.attention_head([[1.004, 0.0], [0.5, 0.5]], ["a", "b"])


def test_layers_of_pictures_of_one_token():
    assert pictures.attention_layer(np.ones((1, 1, 1)), ["x"]).to_png(40)
    assert pictures.attention_viewer(np.ones((1, 1, 1, 1)), [""]).html
    assert pictures.stream_norms(np.zeros((1, 1)), ["x"]).to_png(40)
    assert pictures.patching_heatmap(np.zeros((1, 1)), ["x"]).to_png(40)
    assert pictures.next_token_bars(["x"], [1.0]).to_png(40)
    assert pictures.lens_table([["x"]], [[0.5]], ["x"]).to_png(40)

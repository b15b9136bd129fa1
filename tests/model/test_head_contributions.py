"""`head_contributions`: each head's part of what the attention adds, against plain modules in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from cutaway import StandardizedTransformer
from cutaway.errors import CheckError, OrderError, ReadOnlyError
from tests import raw, tiny
from tests.families import models, native
from tests.model.test_weights import KINDS, PHI, pair

SUMMED = [kind for kind in KINDS if kind in PHI or "head_contributions" not in native.native(kind).lacks]
NAME = "layers.1.self_attn.head_contributions"


def expected(kind: str, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Each head alone through the plain projection, without its bias, times what a norm behind it makes of the whole;
    and what the attention adds."""
    hf, _ = pair(kind)
    norm = None
    if kind in PHI:
        premix, output = (raw.value(hf, inputs, f"attention_{name}", 1) for name in ("premix", "output"))
        dense = hf.model.layers[1].self_attn.dense
    else:
        premix, output = (native.value(hf, kind, inputs, f"attention_{name}", 1) for name in ("premix", "output"))
        dense, norm = native.Parts(hf, kind, 1).o_proj, native.Parts(hf, kind, 1).after_attention
    parts = []
    with torch.no_grad():
        whole = dense(premix.flatten(-2))
        gain = norm(whole) / whole if norm else torch.ones_like(whole)
        nothing = dense(torch.zeros_like(premix.flatten(-2)))
        for head in range(premix.shape[2]):
            alone = torch.zeros_like(premix)
            alone[:, :, head] = premix[:, :, head]
            parts.append((dense(alone.flatten(-2)) - nothing) * gain)
    return torch.stack(parts, dim=2), output


@pytest.mark.parametrize("kind", SUMMED)
def test_they_are_each_head_alone_and_sum_to_the_attentions_output(kind: str) -> None:
    _, model = pair(kind)
    # GPT-2 is given positions that count real tokens, which the raw pass is not; eager attention in float64 gives NaN
    # where a query sees nothing, as the gain of a norm is where all is 0; and a norm computes in float32.
    normed = kind not in PHI and bool(native.native(kind).post_attention)
    padded = not normed and not kind.startswith("gpt2")
    inputs = models.left_padded() if padded else tiny.as_inputs(tiny.IDS)
    tolerance = 1e-5 if normed else 1e-11
    parts, output = expected(kind, inputs)
    with model.trace(inputs):
        traced = model.layers[1].self_attn.head_contributions
    found = model.read(inputs, NAME, "layers.1.self_attn.attention_output")
    torch.testing.assert_close(traced, parts, rtol=tolerance, atol=tolerance)
    assert torch.equal(found[NAME], traced)
    assert list(found) == [NAME, "layers.1.self_attn.attention_output"]
    bias = model.layers[1].self_attn.b_O
    torch.testing.assert_close(traced.sum(2) + (0 if bias is None else bias), output, rtol=tolerance, atol=tolerance)
    last = model.read(inputs, "head_contributions", positions=-1)
    torch.testing.assert_close(last[NAME], parts[:, -1], rtol=tolerance, atol=tolerance)
    assert len(last) == 3


def test_they_are_read_where_named_and_not_by_a_star() -> None:
    model = tiny.shared()
    for names in ((), ("*",), ("layers.*",), ("layers.1.self_attn.*",), (lambda path: "attn" in path,)):
        assert not any("contributions" in path for path in model.read(tiny.IDS, *names))
    for name in ("head_contributions", "layers.*.head_contributions", "*.head_*", "layers.0:3.self_attn.head_c*"):
        assert sum("contributions" in path for path in model.read(tiny.IDS, name)) == 3, name
    assert len(model.read(tiny.IDS, "layers.-1.self_attn.head_contributions")) == 1


def test_they_cannot_be_edited_and_it_is_said_what_can() -> None:
    model, said = tiny.shared(), r"derived from `layers\.1\.self_attn\.attention_premix`\. Edit that"
    with model.trace(tiny.IDS), pytest.raises(ReadOnlyError, match=said):
        model.layers[1].self_attn.head_contributions = torch.zeros(1)
    with pytest.raises(ReadOnlyError, match=said):
        model.hooks({NAME: lambda value: value})
    with pytest.raises(ReadOnlyError, match=said):
        model.steer(NAME, torch.zeros(tiny.HIDDEN))


def test_a_late_one_names_both() -> None:
    model = tiny.shared()
    with (
        pytest.raises(OrderError, match=rf"`{NAME}` is derived from `layers\.1\.self_attn\.attention_premix`"),
        model.trace(tiny.IDS),
    ):
        model.layers[1].layer_output
        model.layers[1].self_attn.head_contributions


def test_edits_of_the_premix_show_in_them() -> None:
    model = tiny.shared()
    with model.hooks({"layers.1.self_attn.attention_premix": lambda value: value * 0}):
        assert not model.read(tiny.IDS, NAME)[NAME].any()
    with model.edited({"layers.1.self_attn.attention_premix": lambda value: value * 0}).trace(tiny.IDS):
        pass
    with model.trace(tiny.IDS):
        model.layers[1].self_attn.attention_premix[:, :, 2] = 0
        parts = model.layers[1].self_attn.head_contributions
        assert not parts[:, :, 2].any()
        assert parts[:, :, 1].any()


def test_in_generation_scan_and_gradients() -> None:
    _, model = pair("phi-gqa")
    steps = []
    with model.generate(tiny.IDS, max_new_tokens=3, do_sample=False) as run:
        for _ in run:
            steps.append((model.layers[1].self_attn.head_contributions, model.layers[1].self_attn.attention_output))
    assert [parts.shape[1] for parts, _ in steps] == [6, 1, 1]
    for parts, output in steps:
        torch.testing.assert_close(parts.sum(2) + model.layers[1].self_attn.b_O, output)
    with model.scan(tiny.IDS):
        shape = model.layers[1].self_attn.head_contributions
    assert shape.is_meta
    assert list(shape.shape) == [3, 6, 4, 32]
    assert shape.dtype == torch.float64
    with model.trace(tiny.IDS, grad=True):
        premix = model.layers[1].self_attn.attention_premix
        parts = model.layers[1].self_attn.head_contributions
        parts[..., 3, 5].sum().backward()
    grad = torch.zeros_like(premix)
    grad[:, :, 3] = model.layers[1].self_attn.W_O[3, :, 5]
    torch.testing.assert_close(premix.grad, grad)


def test_a_model_with_a_hook_on_its_projection_opens() -> None:
    hf = tiny.fresh()
    hf.model.layers[1].self_attn.dense.register_forward_hook(lambda _module, _args, output: output + 1)
    cases = {result.promise: result.cases for result in StandardizedTransformer(hf).check().results}
    assert cases["the sum of head_contributions and the bias is attention_output"] == tiny.LAYERS - 1


def test_check_fails_where_they_do_not_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    from cutaway.inspection.check import relations

    real = relations.head_contributions
    monkeypatch.setattr(relations, "head_contributions", lambda *given: real(*given).roll(1, -1))
    with pytest.raises(CheckError, match="the sum of head_contributions and the bias"):
        StandardizedTransformer(tiny.plain())


def test_check_and_support_tell_of_them() -> None:
    _, model = pair("gpt2")
    row = model.support()["head_contributions"]
    assert row.available
    assert row.read_only
    assert row.where == "derived from `attention_premix` and `W_O`"
    assert row.axes == ("batch", "seq", "num_heads", "hidden_size")
    assert "the sum of head_contributions and the bias is attention_output" in str(model.check())

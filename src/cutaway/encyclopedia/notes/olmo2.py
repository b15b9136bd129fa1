"""OLMo 2's notes: norms behind the sublayers alone, and one norm over all heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "Nothing is normed on the way in",
    figures={"equal": "blocks in which `mlp_input` is `layer_mid` and attention is given `layer_input`, bit for bit"},
)
def read_as_it_is(model: StandardizedTransformer) -> dict[str, Any]:
    """In {equal} of {equal} blocks attention is given the very stream that enters, and the MLP the very stream between.
    The norms stand behind the sublayers. So there is no `attention_norm_output` and no `mlp_norm_output` here, and
    `support()` says why."""
    equal = 0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            assert torch.equal(layer.self_attn.q_proj.input, stream)
            middle = layer.layer_mid
            assert torch.equal(layer.mlp_input, middle)
            equal += 1
    assert not model.support()["attention_norm_output"].available
    return {"equal": equal}


@note(
    "A longer stream is not forgotten on the way in",
    figures={
        "mlp": "factor by which the MLP's projections grow with the stream",
        "llama": "what it would be with a norm before them",
        "written": "factor by which `mlp_output` grows",
    },
)
def length_is_read(model: StandardizedTransformer) -> dict[str, Any]:
    """Make the stream between attention and MLP four times as long, and what `up_proj` returns is {mlp} times as much,
    where a norm before it would leave {llama}. The MLP works at another point of its activation then; but what it
    writes is {written} times what it was, since its norm stands behind it."""
    ids, inner, path = [[5, 9, 33, 2, 61, 17]], "layers.0.mlp.up_proj.output", "layers.0.mlp.mlp_output"
    before = model.read(ids, inner, path)
    with model.hooks({"layers.0.mlp_input": lambda value: value * 4}):
        after = model.read(ids, inner, path)
    grown = [float(after[name].norm() / before[name].norm()) for name in (inner, path)]
    assert abs(grown[0] - 4) < 1e-3
    assert abs(grown[1] - 1) < 0.2
    return {"mlp": f"{grown[0]:.2f}", "llama": "1.00", "written": f"{grown[1]:.2f}"}


@note(
    "One norm for all heads together",
    figures={
        "width": "numbers that the queries' norm is over",
        "error": "largest error of queries rebuilt with one norm over all heads",
        "wrong": "largest error with a norm over each head, as Qwen3 has it",
    },
)
def norm_over_all_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """Queries are normed over all {width} numbers of all heads at once, before they are cut into heads: rebuilt so they
    are off by at most {error}, and by {wrong} with a norm head by head. A head with long queries keeps them long beside
    the others."""
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        attention = model.layers[0].self_attn
        projected = attention.q_proj.output.float()
        queries = attention.queries_before_rotary.float()

    weight = attention.q_norm.weight.float()
    whole = projected / (projected.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt() * weight
    heads = projected.unflatten(-1, (model.num_heads, -1))
    by_head = heads / (heads.square().mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
    by_head = by_head * weight.unflatten(0, (model.num_heads, -1))
    error = float((whole.unflatten(-1, (model.num_heads, -1)).transpose(1, 2) - queries).abs().max())
    wrong = float((by_head.transpose(1, 2) - queries).abs().max())
    assert error < 1e-2 * float(queries.abs().max()) < wrong
    return {"width": weight.numel(), "error": error, "wrong": wrong}


@note(
    "Heads compete for length",
    figures={
        "own": "factor by which the enlarged head's queries grow",
        "others": "factor by which the other heads' queries shrink",
    },
)
def heads_compete(model: StandardizedTransformer) -> dict[str, Any]:
    """One norm over all heads makes them rivals. Make head 0's part of what `q_proj` returns ten times as long: its
    queries grow {own} times, and those of the others shrink to {others} of what they were, though nothing of theirs was
    touched. Where heads are normed one by one neither would happen."""
    ids, path = [[5, 9, 33, 2, 61, 17]], "layers.0.self_attn.queries_before_rotary"

    def enlarged(output: torch.Tensor) -> torch.Tensor:
        heads = output.unflatten(-1, (model.num_heads, -1)).clone()
        heads[..., 0, :] *= 10
        return heads.flatten(-2)

    before = model.read(ids, path)[path]
    with model.hooks({"layers.0.self_attn.q_proj.output": enlarged}):
        after = model.read(ids, path)[path]
    own, others = (float(after[:, part].norm() / before[:, part].norm()) for part in (slice(1), slice(1, None)))
    assert 1 < own < 10
    assert others < 0.9
    return {"own": f"{own:.2f}", "others": f"{others:.2f}"}


@note(
    "How much a sublayer writes is in its norm",
    figures={
        "layer": "the layer",
        "length": "root mean square of what its attention writes",
        "weight": "root mean square of the norm's weight",
    },
)
def length_of_the_written(model: StandardizedTransformer) -> dict[str, Any]:
    """The last thing before the stream is a norm, so the length of what an attention writes hardly depends on what it
    found: in layer {layer} its root mean square is {length} on average, and that of the norm's weight {weight}."""
    path = "layers.0.self_attn.attention_output"
    written = model.read([[5, 9, 33, 2, 61, 17, 40, 8]], path)[path].float()
    weight = model.layers[0].post_attention_layernorm.weight.float()
    length, own = float(written.square().mean().sqrt()), float(weight.square().mean().sqrt())
    unit = (written / weight).square().mean(-1).sqrt()
    torch.testing.assert_close(unit, torch.ones_like(unit), rtol=1e-2, atol=1e-2)
    assert abs(length - own) < 0.3 * own
    return {"layer": 0, "length": length, "weight": own}


@note(
    "The stream grows step by step, and none of its norms is in it",
    figures={
        "exact": "blocks that add up bit for bit",
        "first": "root mean square of the stream that enters",
        "last": "root mean square of the stream that leaves",
    },
)
def stream_is_a_sum(model: StandardizedTransformer) -> dict[str, Any]:
    """Norms behind sublayers are not norms in the stream, as BERT has them: in {exact} of {exact} blocks the stream is
    what entered plus what was written, bit for bit. It grows from {first} to {last} here, and a direct path leads from
    the embedding to the last norm."""
    exact = 0
    with model.trace([[5, 9, 33, 2, 61, 17]]):
        for layer in model.layers:
            stream = layer.layer_input
            total = stream + layer.self_attn.attention_output
            total = total + layer.mlp.mlp_output
            output = layer.layer_output
            assert torch.equal(total, output)
            exact += 1
    streams = [*model.read([[5, 9, 33, 2, 61, 17]], "layers.0.layer_input", "layers.-1.layer_output").values()]
    first, last = (float(stream.square().mean().sqrt()) for stream in streams)
    return {"exact": exact, "first": first, "last": last}

"""Mamba 2's notes: a state that is carried along in the place of a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_IDS = [[5, 9, 33, 2, 61, 17, 40, 8]]


@note(
    "A block is one norm and one mixer",
    figures={"exact": "blocks that add up bit for bit as stream plus `mixer_output`", "values": "values of a layer"},
)
def one_mixer(model: StandardizedTransformer) -> dict[str, Any]:
    """There is no attention and no MLP. A block norms the stream, mixes it over positions and adds what comes of it: in
    {exact} of {exact} blocks `layer_output` is `layer_input + mixer_output`, bit for bit. A layer has {values} values,
    and `support()` says of each other one why it is not here."""
    exact = 0
    with model.trace(_IDS):
        for layer in model.layers:
            stream = layer.layer_input
            mixed = layer.mixer.mixer_output
            output = layer.layer_output
            assert torch.equal(stream + mixed, output)
            exact += 1
    names = {path.split(".")[-1] for path in model.read(_IDS) if path.startswith("layers.0.")}
    assert not any(name.startswith(("attention", "mlp")) for name in names)
    return {"exact": exact, "values": len(names)}


@note(
    "The first token reaches the last through a state",
    figures={
        "moved": "change of the last position's `mixer_output` in layer 0 by another first token",
        "before": "change of any position before an exchanged one",
    },
)
def reaches_forward_alone(model: StandardizedTransformer) -> dict[str, Any]:
    """Exchange the first token and what layer 0's mixer gives at the last position moves by {moved}: the state carried
    it there. Exchange the fifth, and the positions before it move by {before}: nothing runs backwards, without any
    mask."""
    path = "layers.0.mixer.mixer_output"
    plain = model.read(_IDS, path)[path]
    found = []
    for place in (0, 4):
        ids = [list(_IDS[0])]
        ids[0][place] = 90
        found.append((model.read(ids, path)[path] - plain).abs())
    moved, before = float(found[0][0, -1].max()), float(found[1][0, :4].max())
    assert moved > 0
    assert before == 0
    return {"moved": moved, "before": before}


@note(
    "The state does not grow with the text",
    figures={"short": "numbers that a cache holds after 8 tokens", "long": "the same after 40"},
)
def constant_state(model: StandardizedTransformer) -> dict[str, Any]:
    """What generation keeps is a state for each layer, and the last inputs of its convolution: {short} numbers after 8
    tokens and {long} after 40. A transformer's cache would be five times as large."""

    def held(length: int) -> int:
        ids = torch.tensor([[5 + number % 80 for number in range(length)]], device=model.device)
        with torch.no_grad():
            output: Any = model.hf(ids, use_cache=True)
        cache = next(value for key, value in output.items() if "cache" in key or "past" in key)
        return sum(_numbers(layer) for layer in cache.layers)

    short, long = held(8), held(40)
    assert short == long > 0
    return {"short": f"{short:,}", "long": f"{long:,}"}


def _numbers(layer: Any) -> int:
    """How many numbers a layer of a cache holds."""
    held = [*vars(layer).values()]
    held += [tensor for value in held if isinstance(value, dict) for tensor in value.values()]
    return sum(value.numel() for value in held if isinstance(value, torch.Tensor) and value.is_floating_point())


@note(
    "Step by step it gives what it gives at once",
    figures={
        "error": "largest difference of the logits, one token at a time and all at once",
        "range": "range of the logits",
    },
)
def two_ways_to_run(model: StandardizedTransformer) -> dict[str, Any]:
    """A prompt is run in chunks, as products of matrices, and a new token by a step of the recurrence. Both give the
    same up to {error}, on logits over a range of {range}: another order of sums, so values of generated tokens equal
    those of a whole pass to rounding, and not bit for bit."""
    whole = model.read(_IDS, "logits")["logits"]
    logits = []
    with model.generate([_IDS[0][:4]], max_new_tokens=4, do_sample=False) as run:
        for _ in run:
            logits.append(model.logits[:, -1])
    again = model.read(run.sequences[:, :-1], "logits")["logits"][:, 3:]
    error, span = float((torch.stack(logits, 1) - again).abs().max()), float(whole.max() - whole.min())
    assert error < 1e-3 * span
    return {"error": error, "range": span}


@note(
    "The gate can silence a mixer",
    figures={
        "before": "length of `mixer_output` at the last position",
        "after": "its length with the gate's inputs far below zero",
    },
)
def gate(model: StandardizedTransformer) -> dict[str, Any]:
    """`in_proj` returns a gate beside all else, and what the recurrence gives is multiplied by its activation before
    the last norm. With the gate's numbers at zero nothing passes: `mixer_output` shrinks from {before} to {after}."""
    path, width = "layers.0.mixer.mixer_output", model.layers[0].mixer.module.intermediate_size

    def closed(projected: torch.Tensor) -> torch.Tensor:
        projected = projected.clone()
        projected[..., :width] = 0
        return projected

    before = model.read(_IDS, path)[path][0, -1]
    with model.hooks({"layers.0.mixer.in_proj.output": closed}):
        after = model.read(_IDS, path)[path][0, -1]
    lengths = float(before.norm()), float(after.norm())
    assert lengths[1] < 1e-3 * lengths[0]
    return {"before": lengths[0], "after": f"{lengths[1]:g}"}


@note(
    "The stream can be wider than its weights",
    figures={
        "weights": "type of the weights in a half-precision copy",
        "stream": "type of the stream",
        "sublayer": "type of `mixer_output`",
    },
    on="a copy in bfloat16",
)
def stream_in_float32(model: StandardizedTransformer) -> dict[str, Any]:
    """With `residual_in_fp32`, as published checkpoints set it, the stream is kept in {stream} over weights in
    {weights}: what is added is {sublayer}, and the sum is not. An edit of `layer_input` is asked for in the stream's
    own type."""
    import copy

    hf: Any = copy.deepcopy(model.hf)
    half = type(model)(hf.to(torch.bfloat16), check=False)
    values = half.read(_IDS, "layers.1.layer_input", "layers.1.mixer.mixer_output")
    stream, mixed = (str(value.dtype).removeprefix("torch.") for value in values.values())
    assert model.config.residual_in_fp32
    assert stream == "float32"
    return {"weights": "bfloat16", "stream": stream, "sublayer": mixed}


@note(
    "A head forgets at a speed of its own",
    figures={
        "slowest": "share of a head's state that is left after a step, of the slowest",
        "fastest": "the same of the fastest",
    },
)
def forgetting(model: StandardizedTransformer) -> dict[str, Any]:
    """Each head multiplies its state at each step by a number between 0 and 1, of its own rate and of the token. With
    the step's input at nothing the rates alone tell: the slowest head of layer 0 keeps {slowest} of its state a step,
    the fastest {fastest}."""
    mixer: Any = model.layers[0].mixer.module
    with torch.no_grad():
        step = torch.nn.functional.softplus(mixer.dt_bias.float())
        kept = torch.exp(-torch.exp(mixer.A_log.float()) * step)
    assert kept.shape == (mixer.num_heads,)
    assert 0 <= float(kept.min()) < float(kept.max()) < 1
    return {"slowest": float(kept.max()), "fastest": float(kept.min())}

"""Mistral's notes: a window on every layer, which the layers above widen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from cutaway.encyclopedia.note import DoesNotApply, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer

_WHOLE = "this checkpoint sets no `sliding_window`: every query sees all before it."


@note(
    "Every layer sees a window",
    figures={"window": "keys that a late query sees, itself included", "length": "tokens of the prompt"},
)
def every_layer_windowed(model: StandardizedTransformer) -> dict[str, Any]:
    """In a prompt of {length} tokens the last query of every layer and head gives weight to {window} keys, itself and
    those right before it. What lies further back has a weight of exactly 0."""
    window = model.config.sliding_window
    if window is None:
        raise DoesNotApply(_WHOLE)
    length = window + 5
    for pattern in model.read([[5 + i for i in range(length)]], "attention_probabilities").values():
        last = pattern[0, :, -1]
        assert bool((last[:, length - window :] > 0).all())
        assert not last[:, : length - window].any()
    return {"window": window, "length": length}


@note(
    "The window grows by a window a layer",
    figures={
        "first": "earliest token that reaches the last position's output of layer 0",
        "second": "the same of layer 1",
        "last": "the last position",
        "less": "a window less one",
    },
)
def reach_grows(model: StandardizedTransformer) -> dict[str, Any]:
    """A token beyond the window is not lost: it went into one within it, a layer below. Counted by changing each token
    in turn, the output of layer 0 at position {last} depends on tokens from {first} on, that of layer 1 on those from
    {second} on, a window less one, {less}, further back."""
    window = model.config.sliding_window
    if window is None:
        raise DoesNotApply(_WHOLE)
    length = 2 * window + 2
    ids = torch.tensor([5 + i for i in range(length)])
    rows = ids.repeat(length + 1, 1)
    rows[torch.arange(length), torch.arange(length)] = 90
    reached = []
    for layer in (0, 1):
        path = f"layers.{layer}.layer_output"
        outputs = model.read(rows, path, positions=-1)[path]
        reached.append(int((outputs[:-1] != outputs[-1]).any(-1).nonzero()[0]))
    assert reached == [length - window, length - 2 * window + 1]
    return {"first": reached[0], "second": reached[1], "last": length - 1, "less": window - 1}


@note(
    "The cache forgets with the window",
    figures={"kept": "tokens that the cache keeps of a layer", "run": "tokens that were run"},
)
def rolling_cache(model: StandardizedTransformer) -> dict[str, Any]:
    """What lies behind the window is of no more use, and transformers does not keep it: after {run} tokens the cache of
    a layer holds {kept}. A value read of a later step has the keys of these alone."""
    window = model.config.sliding_window
    if window is None:
        raise DoesNotApply(_WHOLE)
    run = window + 5
    ids = torch.tensor([[5 + i for i in range(run)]], device=model.device)
    with torch.no_grad():
        cache = model.hf(ids, use_cache=True).past_key_values
    kept = {layer.keys.shape[2] for layer in cache.layers}
    assert kept == {window - 1}
    return {"kept": kept.pop(), "run": run}


@note(
    "Within the window it is Llama's block",
    figures={"equal": "values of a pass that a Llama with these weights has bit for bit", "all": "values compared"},
)
def llamas_block(model: StandardizedTransformer) -> dict[str, Any]:
    """Take a Llama with the same sizes, give it these weights, and run a prompt that fits the window: {equal} of {all}
    values are the same, bit for bit. Mistral is Llama's block with a window."""
    from transformers import LlamaConfig, LlamaForCausalLM

    given = {key: value for key, value in model.config.to_dict().items() if key in LlamaConfig().to_dict()}
    config = LlamaConfig.from_dict({**given, "architectures": None, "model_type": "llama"})
    config._attn_implementation = model.config._attn_implementation
    with torch.device("meta"):
        hf = LlamaForCausalLM(config)
    hf.load_state_dict(model.hf.state_dict(), assign=True)
    hf.model.rotary_emb = model.hf.model.rotary_emb
    llama = type(model)(hf.eval(), check=False)

    window = model.config.sliding_window or 8
    ids = [[5 + i for i in range(min(window, 8))]]
    ours, theirs = model.read(ids), llama.read(ids)
    tensors = [name for name, value in ours.items() if isinstance(value, torch.Tensor)]
    equal = [name for name in tensors if torch.equal(ours[name], theirs[name])]
    assert equal == tensors
    return {"equal": len(equal), "all": len(tensors)}


@note(
    "Heads may be narrower than the stream allows for",
    figures={"heads": "numbers of all heads in Mistral Nemo", "stream": "numbers of its stream"},
    on="Mistral Nemo's config",
)
def nemos_heads(model: StandardizedTransformer) -> dict[str, Any]:
    """In Mistral-7B the heads together are as wide as the stream. Nemo sets `head_dim` by itself: its heads have
    {heads} numbers where the stream has {stream}, so that `W_O` maps from a narrower space than the one that it writes
    to, and a head's part cannot fill it."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    checkpoint = next(one for one in CHECKPOINTS["mistral"] if "Nemo" in one.hub_id)
    nemo = type(model)(config_of("mistral", checkpoint), dispatch=False)
    heads = nemo.num_heads * nemo.head_dim
    assert heads < nemo.hidden_size
    assert nemo.hf.model.layers[0].self_attn.o_proj.in_features == heads
    return {"heads": f"{heads:,}", "stream": f"{nemo.hidden_size:,}"}


@note(
    "The third version has no window",
    figures={"windowed": "published checkpoints on this page with a window", "whole": "those without"},
    on="published configs",
)
def window_given_up(model: StandardizedTransformer) -> dict[str, Any]:
    """Of the checkpoints on this page {windowed} has a window and {whole} have none: later versions gave it up. Their
    masks differ, and with them what an edit far back does; the names and shapes do not."""
    from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of

    windows = [config_of("mistral", checkpoint).sliding_window for checkpoint in CHECKPOINTS["mistral"]]
    windowed = sum(window is not None for window in windows)
    assert windows[0] is not None
    assert 0 < windowed < len(windows)
    return {"windowed": windowed, "whole": len(windows) - windowed}

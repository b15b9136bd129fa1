"""What is edited inside attention in one pass of a generation counts in that pass; what enters the cache lasts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests import tiny
from tests.generation.test_steps import both

PROMPT = [5, 9, 33, 2]
KEPT = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
CACHES = pytest.mark.parametrize("cache", [{}, {"cache_implementation": "static"}], ids=["dynamic", "static"])


def by_hand(hf: Any, ids: Tensor, lasts: bool) -> list[Tensor]:
    """Logits of each step for the ids that were generated, by a plain model whose values are edited in the prompt's
    pass, by a hook on the projection; unless it `lasts`, the layer's cache is then given its own values again."""

    def moved(_module: Any, _args: Any, output: Tensor) -> Tensor:
        return output + 1

    def run(tokens: Tensor, cache: Any, edited: bool) -> Any:
        handle = hf.model.layers[1].self_attn.v_proj.register_forward_hook(moved) if edited else None
        with torch.no_grad():
            out = hf(tokens, cache=cache, use_cache=True)
        if handle is not None:
            handle.remove()
        return out

    prompt = run(ids[:, :4], None, edited=True)
    cache, logits = prompt.past_key_values, [prompt.logits[:, -1]]
    if not lasts:
        cache.layers[1].values = cache.layers[1].values - 1
    for place in range(4, 7):
        logits.append(run(ids[:, place : place + 1], cache, edited=False).logits[:, -1])
    return logits


@CACHES
@pytest.mark.parametrize("name", ["attention_values", "v_proj"])
@pytest.mark.parametrize("kind", ["phi", "llama"])
def test_values_edited_in_the_prompts_pass_do_not_last_and_the_projections_output_does(
    kind: str, name: str, cache: dict[str, Any]
) -> None:
    hf, model = both(kind)
    with model.generate(PROMPT, **KEPT, **cache) as run:
        for step in run:
            if step.index == 0:
                attention = model.layers[1].self_attn
                if name == "v_proj":
                    attention.v_proj.output += 1
                else:
                    attention.attention_values = attention.attention_values + 1
    found = run.output
    for one, other in zip(found.logits, by_hand(hf, found.sequences, name == "v_proj"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@CACHES
def test_a_function_by_position_is_made_in_every_pass_so_that_it_lasts(cache: dict[str, Any]) -> None:
    hf, model = both("phi")
    with model.hooks({"layers.1.self_attn.attention_values": lambda value: value + 1}, positions="prompt"):
        with model.generate(PROMPT, **KEPT, **cache) as run:
            pass
    for one, other in zip(run.output.logits, by_hand(hf, run.output.sequences, lasts=True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["attention_values", "attention_keys"])
def test_it_is_said_where_the_value_is_described(name: str) -> None:
    support = tiny.shared().support()
    assert "counts in its pass alone" in support[name].meaning
    assert ("rotated by the place in the padded row" in support[name].condition) == (name == "attention_keys")

"""One class from end to end: built, opened, told of, and put to each oracle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from catalogue import oracles, recorded, tiny
from catalogue.oracles import Outcome
from catalogue.specimen import IDS, Specimen, quiet, same, told
from cutaway import StandardizedTransformer
from cutaway.cli.families import to_dict

ORACLES: dict[str, tuple[str, Callable[[Specimen], Outcome]]] = {
    "check": ("`check()` passes", oracles.check),
    "logits": ("logits with every value read are the plain call's", oracles.logits),
    "values": ("each value is what a raw hook sees there", oracles.values),
    "records": ("values are transformers' `hidden_states`, `attentions`, `router_logits`", recorded.records),
    "generation": ("greedy generation, every value read at each step, is the plain one", recorded.generation),
    "edits": ("an edit by name is the same edit by a raw hook", oracles.edits),
    "gradients": ("a value's gradient is torch's own", oracles.gradients),
    "skip": ("a module passed over is the plain model without it", oracles.skipping),
    "scan": ("a scan has the shapes of a run", oracles.scanning),
    "sum": ("the stated sum is the block's output", oracles.sums),
}
"""Each oracle of a specimen, what holds if it does, and how it is asked."""

BFLOAT16 = "bfloat16"
LEFT = "untouched"
MORE = {
    BFLOAT16: "in bfloat16 the class opens, its check passes, and reading leaves the logits as they are",
    LEFT: "afterwards the model is the plain one: no hook, the same logits",
}
AGAIN = ("logits", "values", "records", "edits", "gradients")
"""What is asked under both eager and sdpa attention: in the one, scores and patterns are on the model's own way."""


def examine(case: tiny.Case) -> dict[str, Any]:
    """What is found of a class, as data.

    Returns:
        `name`, `class`, `images`, and `state`: "not built" (its tiny model cannot be made), "not run" (the plain model
        fails on ids alone), "refused" (Cutaway does not open it), each with its `reason`, or "opened", with what
        `cutaway families` tells, `kernels` (the attention implementations it was opened under), `counts` of its
        values, and `oracles`.
    """
    row: dict[str, Any] = {"name": case.name, "class": case.architecture, "images": case.images}
    try:
        hf = tiny.build(case)
    except Exception as error:  # whatever transformers raises
        return {**row, "state": "not built", "reason": told(error)}
    try:
        with torch.no_grad():
            plain = recorded.raw.result_of(hf(input_ids=IDS))
    except Exception as error:  # whatever the plain model raises
        return {**row, "state": "not run", "reason": told(error)}
    hooks = attached(hf)
    try:
        specimen = _opened(hf)
    except Exception as error:  # a refusal; a fault of ours is told likewise
        return {**row, "state": "refused", "reason": told(error)}
    found = {name: _asked(ask, specimen) for name, (_, ask) in ORACLES.items()}
    kernels = [specimen.kernel]
    other = "sdpa" if specimen.kernel == "eager" else "eager"
    if _under(other, case, found):
        kernels.append(other)
    found[BFLOAT16] = _asked(oracles.bfloat16, case)
    found[LEFT] = Outcome()
    with torch.no_grad():
        found[LEFT].case(same(recorded.raw.result_of(hf(input_ids=IDS)), plain), "the logits")
    found[LEFT].case(attached(hf) == hooks, "what is attached")
    names = {path.name for path in specimen.paths}
    counts = {"names": len(names), "places": len(specimen.paths)}
    return {
        **row,
        "state": "opened",
        **to_dict(specimen.model),
        "kernels": kernels,
        "counts": counts,
        "oracles": {name: vars(outcome) for name, outcome in found.items()},
    }


def _opened(hf: Any) -> Specimen:
    with quiet():
        return Specimen(hf, StandardizedTransformer(hf))


def _asked(ask: Callable[[Any], Outcome], of: Any) -> Outcome:
    """An oracle's outcome; an error, of ours or of the model's, is a case that does not hold."""
    try:
        with quiet():
            return ask(of)
    except Exception as error:
        outcome = Outcome()
        outcome.case(False, told(error))
        return outcome


def _under(kernel: str, case: tiny.Case, found: dict[str, Outcome]) -> bool:
    """Asks again under another attention implementation; False where the class has none such."""
    try:
        hf = tiny.build(case, attention=kernel)
        with torch.no_grad():
            hf(input_ids=IDS)
    except Exception as error:  # mostly transformers' own refusal
        if "does not support an attention implementation" not in str(error):
            found["logits"].skip(f"the plain model under {kernel} attention: {told(error)}")
        return False
    try:
        specimen = _opened(hf)
    except Exception as error:
        found["check"].case(False, f"opening it under {kernel} attention: {told(error)}")
        return True
    for name in AGAIN:
        found[name].add(_asked(ORACLES[name][1], specimen))
    return True


def attached(hf: torch.nn.Module) -> dict[str, Any]:
    """What is attached to a model, and what is not of its class: counts of hooks, and own attributes by module."""
    return {
        path: (
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            len(module._backward_hooks),
            "forward" in vars(module),
            type(module),
        )
        for path, module in hf.named_modules()
    } | {"config": getattr(hf.config, "_attn_implementation", None)}

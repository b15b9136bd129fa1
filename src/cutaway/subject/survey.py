"""The survey: one pass of the model's twin on the meta device, noting what it comes by.

It answers, for this model under this load and not from a hand-kept list, which values exist, with which shape, and in
which order a pass reaches them. It needs no weights and no compute, so it is the same for a checkpoint of 2.7 billion
parameters that was never downloaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cutaway.families import Family
from cutaway.sites import Moment, OperationMoment
from cutaway.tracing import Attachment, attach, meta_twin, remove_all
from cutaway.tracing.interior import uses_interface
from cutaway.tracing.torch_state import no_settings

BATCH, SEQ = 3, 7
"""The size of the surveyed call; no model has axes of these lengths, so that a mixed-up axis shows."""

_INSIDE: tuple[Moment, ...] = ("arguments", "softmax", "pattern", "result")


@dataclass(frozen=True)
class Survey:
    """What a pass came by.

    Attributes:
        order: each moment, as the module's own path and the kind of moment, with its rank in the pass.
        passing: the shapes of what passed there: a tensor on the meta device, or a container of them.
    """

    order: Mapping[tuple[str, Moment | OperationMoment], int]
    passing: Mapping[tuple[str, Moment | OperationMoment], Any]


@no_settings()
def survey(hf: PreTrainedModel, family: Family, sizes: Mapping[str, int]) -> Survey:
    """Runs a model's twin once, with everything attached that can be."""
    twin = meta_twin(hf)
    order: dict[tuple[str, Moment | OperationMoment], int] = {}
    passing: dict[tuple[str, Moment | OperationMoment], Any] = {}

    def note(path: str, moment: Moment) -> Any:
        def callback(what: Any) -> None:
            order.setdefault((path, moment), len(order))
            passing.setdefault((path, moment), what)

        return callback

    layers = family.modules["model"]["layers"]
    attentions = {f"{layers}.{i}.{family.modules['layer']['self_attn']}" for i in range(sizes["num_layers"])}
    streams = {site.module for site in family.values.values() if site.moment == "stream"}
    beside = {f"{layers}.{i}.{family.modules['layer'][name]}" for i in range(sizes["num_layers"]) for name in streams}
    noted: list[Attachment] = []
    try:
        try:
            for path, module in twin.named_modules():
                moments: tuple[Moment, ...] = ("stream", "enter", "exit") if path in beside else ("enter", "exit")
                if path in attentions and uses_interface(type(module)):
                    moments = ("enter", *_INSIDE, "exit")
                for moment in moments:
                    attach(module, moment, note(path, moment), _always, noted)
            twin(**meta_inputs(BATCH, SEQ))
        finally:
            remove_all(noted)
    except BaseException:
        remove_all(noted)  # once more, where an interrupt has cut it short
        raise
    return Survey(order, passing)


def meta_inputs(batch: int, seq: int) -> dict[str, Tensor]:
    """Inputs on the meta device. The mask is `[batch 1 query key]`: a model takes such a one as it is, where it would
    want to know what is in a `[batch seq]` one."""
    return {
        "input_ids": torch.zeros(batch, seq, dtype=torch.long, device="meta"),
        "attention_mask": torch.ones(batch, 1, seq, seq, dtype=torch.bool, device="meta"),
    }


def _always() -> bool:
    return True

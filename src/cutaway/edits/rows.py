"""The rows of a call: which tokens are real, where each stands in its row, and where each row's prompt ends.

A token's position is its place in its row's whole sequence, padding not counted, on whichever side that is. It is the
same with a cache, where a pass sees the newest token alone, without one, where it sees all, and for a model that runs
its prompt again half-way.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cutaway.errors import InputError
from cutaway.sites.slots import Call
from cutaway.subject.inputs import cached_positions
from cutaway.subject.state_caches import UNKNOWN

prompt_mask: ContextVar[Tensor | None] = ContextVar("cutaway_prompt_mask", default=None)
"""In the passes of a generation, the mask of its prompts: `[batch prompt]`, zeros are padding."""


@dataclass(frozen=True)
class ModelCall:
    """A call of the whole model: its arguments, and how many tokens its cache held when it began."""

    call: Call
    past: int

    @classmethod
    def of(cls, call: Call) -> ModelCall:
        """A call that begins now."""
        return cls(call, cached_positions(call.kwargs))

    @property
    def ids(self) -> Tensor | None:
        """The ids `[batch seq]`; None where the model is called with embeddings in their stead."""
        return self.call.kwargs.get("input_ids", self.call.args[0] if self.call.args else None)

    @property
    def tokens(self) -> Tensor:
        """The ids `[batch seq]`, or the embeddings that the model is called with in their stead."""
        return self.call.kwargs["inputs_embeds"] if self.ids is None else self.ids

    def real(self, prompts: Tensor | None = None) -> Tensor:
        """Which of the tokens that the call's attention can see, those in its cache first, are no padding: `[batch
        total]`.

        `prompts` is the mask of a generation's prompts, for a call that is not given one.
        """
        tokens = self.tokens
        batch, seq = tokens.shape[:2]
        if self.past == UNKNOWN:
            raise InputError(
                "positions are not known in this pass: its cache holds states alone, which do not tell how many tokens "
                "they have seen. Open the edit before the first pass with that cache, or give the mask of all tokens."
            )
        total = self.past + seq
        real = _real_by_mask(self.call.kwargs.get("attention_mask"), batch, total)
        if real is not None:
            return real
        if prompts is not None and batch % len(prompts) == 0 and total >= prompts.shape[1]:
            prompts = a_row_each(prompts, batch)
            return F.pad(prompts.to(tokens.device) != 0, (0, total - prompts.shape[1]), value=True)
        return torch.ones(batch, total, dtype=torch.bool, device=tokens.device)

    def kept(self) -> Tensor | None:
        """Of which of its own tokens the call computes logits: their places, ascending; None for all."""
        keep = self.call.kwargs.get("logits_to_keep", 0)
        seq = self.tokens.shape[1]
        if isinstance(keep, Tensor):
            return torch.arange(seq)[keep.cpu()].reshape(-1)
        return torch.arange(seq)[-int(keep) :] if keep else None


class Rows(NamedTuple):
    """The rows of a pass under way.

    Attributes:
        where: every token's position, those in the cache first: `[batch total]`; padding is -1.
        ends: the length of each row's prompt: `[batch]`.
        own: how many of the tokens, the last ones, are the pass's own.
        kept: of which of its own it computes logits; None for all.
    """

    where: Tensor
    ends: Tensor
    own: int
    kept: Tensor | None

    @classmethod
    def of(cls, call: ModelCall, root: nn.Module, before: Rows | None = None) -> Rows:
        """The rows of a call of `root`; `before` are those of the call that came before it, if there was one."""
        known = prompt_mask.get()
        where = counted(call.real(known))
        return cls(where, _ends(call, where, root, known, before), call.tokens.shape[1], call.kept())


class UnderWay:
    """What a pass is called with, for edits that are opened when it is under way."""

    call: ModelCall | None = None

    def note(self, call: Call) -> None:
        """Notes a call that begins now."""
        self.call = ModelCall.of(call)


under_way: ContextVar[UnderWay | None] = ContextVar("cutaway_under_way", default=None)
"""In a pass of a trace, its call."""


def counted(real: Tensor) -> Tensor:
    """The positions of tokens of which it is known which are real."""
    return torch.where(real, real.long().cumsum(dim=1) - 1, -1)


def real_so_far(call: Call, prompts: Tensor | None) -> Tensor:
    """`ModelCall.real` of a call that begins now."""
    return ModelCall.of(call).real(prompts)


def a_row_each(prompts: Tensor, batch: int) -> Tensor:
    """What is known of each prompt, for each row of a pass: beams and several samples of a prompt stand side by
    side."""
    return prompts.repeat_interleave(batch // len(prompts), dim=0)


def _real_by_mask(mask: Any, batch: int, total: int) -> Tensor | None:
    """What a mask says of the tokens so far: one of padding, `[batch total]`, or one of each query's keys, `[batch 1
    query key]`, as transformers makes beforehand for a static cache. The last query sees all that is real."""
    if isinstance(mask, Mapping):
        mask = mask.get("full_attention")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(mask, Tensor) or mask.shape[-1] < total:
        return None
    if mask.ndim == 2:
        real = mask[:, :total] != 0
    elif mask.ndim == 4:
        seen = mask[:, 0, -1, :total]
        real = seen if seen.dtype == torch.bool else seen > _HIDDEN
    else:
        return None
    return real.expand(batch, -1)


_HIDDEN = -5000.0
"""What an additive mask adds to hide a key is lower, in float16 too; a bias that only shifts scores is not."""


def _ends(call: ModelCall, where: Tensor, root: nn.Module, known: Tensor | None, before: Rows | None) -> Tensor:
    batch, total = where.shape
    width = None
    if known is None:
        width, known = _prompt_under_way(root)
    if known is not None and batch % len(known) == 0:
        return a_row_each((known != 0).sum(dim=1), batch).to(where.device)
    lengths = (where >= 0).sum(dim=1)
    if width is not None:
        within = (where[:, :width] >= 0).sum(dim=1)
        return within + max(0, width - total)  # a prompt that is run in parts goes on
    if call.past and before is not None and before.where.shape[1] == call.past and batch % len(before.ends) == 0:
        return a_row_each(before.ends, batch)
    return lengths


def _prompt_under_way(root: nn.Module) -> tuple[int | None, Tensor | None]:
    """How long the prompts are of transformers' own `generate` that runs this pass, and their mask if one was given.

    They are among the arguments of the call, which is found on the stack: a pass tells neither which of its tokens were
    generated when it has no cache, nor that a prompt is run in parts, nor that an assistant has added to it.
    """
    generate = getattr(type(root), "generate", None)
    if generate is None:
        return None, None
    code = inspect.unwrap(generate).__code__
    frame: FrameType | None = sys._getframe()
    found: FrameType | None = None
    for_candidates = False
    while frame is not None:
        if frame.f_globals.get("__name__") == "transformers.generation.candidate_generator":
            for_candidates = True  # the model is its own assistant here, and is given candidates with the prompt
        elif frame.f_code is code and frame.f_locals.get("self") is root and (found is None or for_candidates):
            found, for_candidates = frame, False
        frame = frame.f_back
    if found is None:
        return None, None
    given: Mapping[str, Any] = found.f_locals.get("kwargs") or {}
    mask = given.get("attention_mask")
    tokens = found.f_locals.get("inputs")
    for name in ("input_ids", "inputs_embeds"):
        tokens = given.get(name) if tokens is None else tokens
    width = tokens.shape[1] if isinstance(tokens, Tensor) else 1
    return width, mask if isinstance(mask, Tensor) and mask.ndim == 2 else None

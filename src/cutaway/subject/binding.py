"""How an address is made: a site, or a module's own input or output, bound to the module that stands at a path."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from torch import nn

from cutaway.sites import Moment, OperationMoment, Slot
from cutaway.sites.slots import FirstArgument, Whole
from cutaway.subject.address import Address
from cutaway.subject.survey import Survey
from cutaway.vocabulary import Value

NATIVE_NAMES: dict[str, tuple[Moment, Whole | FirstArgument]] = {
    "input": ("enter", FirstArgument()),
    "inputs": ("enter", Whole()),
    "output": ("exit", Whole()),
}
"""What every module has beside the vocabulary's values: its first argument, its arguments, and its output."""


def bind(
    modules: Mapping[str, nn.Module],
    survey: Survey,
    path: str,
    value: Value | None,
    own: str,
    moment: Moment | OperationMoment,
    slot: Slot | Whole | FirstArgument,
    sizes: Mapping[str, int] = MappingProxyType({}),
    *,
    in_stream: bool = False,
) -> Address:
    """The address of what is at a moment of a module.

    Args:
        modules: every module by its path.
        survey: what a pass came by.
        path: as a user writes it.
        value: the row of the vocabulary; None for a module's own input and output.
        own: the module's own path.
        moment: when in its call.
        slot: where in what passes.
        sizes: the lengths of the axes there.
        in_stream: whether what enters the module is the residual stream itself.
    """
    parts = own.split(".") if own else []
    holders = [modules[".".join(parts[:i])] for i in range(len(parts))]
    within = tuple(holder for holder in holders if not isinstance(holder, (nn.ModuleList, nn.ModuleDict)))
    overwritten = (own, moment) in survey.overwritten
    rank = survey.rank(own, moment)
    shared = moment == "arguments" or (moment == "enter" and in_stream)
    shared = shared or (value is None and (moment == "enter" or isinstance(moment, OperationMoment)))
    return Address(path, value, own, modules[own], moment, slot, within, rank, sizes, overwritten, shared)

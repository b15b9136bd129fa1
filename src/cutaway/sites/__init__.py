"""Where a value is read or written in a running model.

A *site* is a moment in a module's call (it is entered, it exits, its attention function has its arguments, …) and
a *slot*: which tensor of what passes there, and how it is seen in the vocabulary's layout. A family file gives one
site for each value; `cutaway.tracing` attaches it to a running model.
"""

from cutaway.sites.sites import (
    AT_MODULES,
    INSIDE,
    MOMENTS,
    OF_SOFTMAX,
    OF_TOKEN_ROWS,
    STREAMS,
    Moment,
    OperationMoment,
    Site,
    attention_argument,
    attention_result,
    gate_beside,
    input_of,
    output_of,
    pattern,
    sink,
    softmax_input,
    stream_at,
)
from cutaway.sites.slots import Slot

__all__ = [
    "AT_MODULES",
    "INSIDE",
    "MOMENTS",
    "OF_SOFTMAX",
    "OF_TOKEN_ROWS",
    "STREAMS",
    "Moment",
    "OperationMoment",
    "Site",
    "Slot",
    "attention_argument",
    "attention_result",
    "gate_beside",
    "input_of",
    "output_of",
    "pattern",
    "sink",
    "softmax_input",
    "stream_at",
]

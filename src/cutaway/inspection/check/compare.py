"""Comparing what a model computes with what it promises: bit for bit, or within the rounding of a dtype."""

from __future__ import annotations

import torch
from torch import Tensor

from cutaway.errors import CheckError

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROUNDINGS = 8
"""How many roundings of its dtype two values may part that are computed in two ways, relative to the largest."""


def same(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal bit for bit, in shape and dtype too; a NaN equals a NaN."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return False
    expected = expected.to(found.device)
    return torch.equal(found, expected) or bool(((found == expected) | (found.isnan() & expected.isnan())).all())


def same_bits(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors hold the very same bits, NaNs among them."""
    alike = found.shape == expected.shape and found.dtype == expected.dtype
    return alike and torch.equal(_bits(found), _bits(expected.to(found.device)))


def another(tensor: Tensor) -> Tensor:
    """A tensor whose every entry is another by its last bit, whatever the entry is: zero, infinite or not a number."""
    return (_bits(tensor) ^ 1).view(tensor.dtype)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(_INTEGERS[tensor.element_size()])


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal up to a few roundings of the dtype of the first, relative to the largest entry."""
    if found.shape != expected.shape:
        return False
    expected = expected.to(found.device, found.dtype)
    tolerance = _ROUNDINGS * torch.finfo(found.dtype).eps
    finite = expected.masked_fill(~expected.isfinite(), 0)
    scale = finite.abs().max().item() if finite.numel() else 0.0
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def must_be_same(name: str, found: Tensor, expected: Tensor, what: str, claim: str = "") -> None:
    """Raises a `CheckError` unless two tensors are equal bit for bit."""
    if not same(found, expected):
        differs(name, found, expected, what, claim)


def must_be_close(name: str, found: Tensor, expected: Tensor, what: str, claim: str = "") -> None:
    """Raises a `CheckError` unless two tensors are equal up to a few roundings."""
    if not close(found, expected):
        differs(name, found, expected, what, claim)


def differs(name: str, found: Tensor, expected: Tensor, what: str, claim: str = "") -> None:
    """Raises a `CheckError` that says by how much.

    Args:
        name: the value's path.
        what: what it should be, in words.
        claim: the same in a word, see `CheckError`.
    """
    raise CheckError(f"`{name}` is not {what}: {_difference(found, expected)}.", value=name, claim=claim)


def _difference(found: Tensor, expected: Tensor) -> str:
    if found.shape != expected.shape:
        return f"its shape is {list(found.shape)}, not {list(expected.shape)}"
    if found.dtype != expected.dtype and not expected.is_floating_point():
        return f"it is {found.dtype}, not {expected.dtype}"
    difference = (found.double() - expected.to(found.device).double()).abs().nan_to_num(float("inf")).max().item()
    return f"they differ by {difference:.2e} at most"

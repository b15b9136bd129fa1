"""Reading a safetensors file with NumPy alone.

The format (https://github.com/huggingface/safetensors#format) is eight bytes with the header's length, little-endian;
the header, JSON that gives each tensor's dtype, shape and place; then the tensors' bytes, end to end. NumPy has no
bfloat16: it is the upper half of a float32, so that sixteen zero bits behind it widen it exactly.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from cutaway.errors import LoadError
from cutaway.reference.parts import Array

_STORED = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # as bits
}


class Entry(NamedTuple):
    """A tensor's line in the header: dtype, shape, and first and last byte counted from the header's end."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def _are_sizes(thing: Any) -> bool:
    """Whether something is a list of whole numbers from 0 on."""
    return isinstance(thing, list) and all(type(number) is int and number >= 0 for number in thing)


class SafetensorsFile:
    """An open safetensors file. Its header is checked against the file when it is opened.

    Args:
        path: the file.

    Attributes:
        entries: the header's lines by tensor name.

    Raises:
        LoadError: the file cannot be read, is not in this format, or is shorter or longer than its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file: IO[bytes] = path.open("rb")
        except OSError as error:
            raise LoadError(f"{path} cannot be read: {error.strerror or error}") from error
        try:
            size = path.stat().st_size
            self._data_start = 8 + self._header_length(size)
            self.entries = self._read_header()
            self._check_extent(size - self._data_start)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def read(self, name: str, dtype: DTypeLike) -> Array:
        """One tensor, converted to `dtype`; an array of its own.

        Raises:
            LoadError: the file ends before the tensor does, or the tensor's dtype is not a floating one.
        """
        entry = self.entries[name]
        if entry.dtype not in _STORED:
            raise LoadError(f"{self.path}: `{name}` is of dtype {entry.dtype}; expected {', '.join(_STORED)}")
        self._file.seek(self._data_start + entry.start)
        stored = np.fromfile(self._file, _STORED[entry.dtype], math.prod(entry.shape))
        if stored.size != math.prod(entry.shape):
            raise LoadError(f"{self.path} is truncated: it ends inside `{name}`. Fetch the file again")
        if entry.dtype == "BF16":
            stored = (stored.astype(np.uint32) << 16).view(np.float32)
        return stored.astype(dtype, copy=False).reshape(entry.shape)

    def _header_length(self, size: int) -> int:
        first = self._file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or length < 2:
            raise LoadError(f"{self.path} is not a safetensors file ({size} bytes, no header). Fetch the file again")
        if 8 + length > size:
            raise LoadError(
                f"{self.path} is truncated or not a safetensors file: its first bytes announce a header of {length} "
                f"bytes and the file has {size}. Fetch the file again"
            )
        return length

    def _read_header(self) -> dict[str, Entry]:
        try:
            header: dict[str, Any] = json.loads(self._file.read(self._data_start - 8))
            header.pop("__metadata__", None)
            lines = header.items()
        except RecursionError:
            raise LoadError(f"{self.path} is damaged: its header is nested too deep to be read") from None
        except (ValueError, TypeError, AttributeError) as error:
            raise LoadError(f"{self.path} is damaged: its header is not a safetensors header ({error})") from error
        return {name: self._entry(name, line) for name, line in lines}

    def _entry(self, name: str, line: Any) -> Entry:
        """A line of the header, each of its fields of the kind that it is to be."""
        fields: dict[str, Any] = line if isinstance(line, dict) else {}
        dtype, shape, offsets = (fields.get(field, "nothing") for field in ("dtype", "shape", "data_offsets"))
        wrong = [
            f"`{field}` {value!r}"
            for field, value, right in (
                ("dtype", dtype, isinstance(dtype, str)),
                ("shape", shape, _are_sizes(shape)),
                ("data_offsets", offsets, _are_sizes(offsets) and len(offsets) == 2),
            )
            if not right
        ]
        if wrong:
            said = ", ".join(wrong)
            raise LoadError(f"{self.path} is damaged: its header is not a safetensors header: `{name}` has {said}")
        return Entry(dtype, tuple(shape), *offsets)

    def _check_extent(self, data_size: int) -> None:
        """The tensors are to lie end to end, each as long as its shape, and to fill the file."""
        end = 0
        for name, entry in sorted(self.entries.items(), key=lambda item: (item[1].start, item[1].stop)):
            stored = _STORED.get(entry.dtype)
            length = entry.stop - entry.start
            wrong_length = stored is not None and length != math.prod(entry.shape) * stored.itemsize
            if entry.start != end or wrong_length:
                raise LoadError(f"{self.path} is damaged: its header misplaces `{name}` ({entry})")
            end = entry.stop
        if end != data_size:
            how = "truncated" if data_size < end else "damaged"
            last = next((name for name, entry in self.entries.items() if entry.stop > data_size), None)
            inside = f"; it ends inside or before `{last}`" if last else ""
            raise LoadError(
                f"{self.path} is {how}: its header announces {end} bytes of tensors and {data_size} are there{inside}. "
                "Fetch the file again"
            )

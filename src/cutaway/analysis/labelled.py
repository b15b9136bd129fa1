"""What an analysis returns: a tensor whose axes have names, and along them labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from cutaway.errors import InputError, LoadError, ShapeError, did_you_mean
from cutaway.files import write_file

_ROWS, _COLUMNS = 12, 8
"""How much of a tensor is printed."""


@dataclass(frozen=True)
class Check:
    """An identity that a result has to keep, and by how much it misses it.

    Attributes:
        promise: what is said: "the parts sum to the stream".
        off: the largest difference.
        within: what is allowed, by the rounding of the dtype.
    """

    promise: str
    off: float
    within: float

    @property
    def held(self) -> bool:
        """Whether it is kept; never where the difference is no number."""
        return self.off <= self.within

    def __str__(self) -> str:
        return f"{'✓' if self.held else '✗'} {self.promise}: off by {self.off:.1e}, {self.within:.1e} allowed"


class Entry(NamedTuple):
    """One number of a tensor, and the label of each axis there."""

    value: float
    labels: dict[str, str]

    def __str__(self) -> str:
        return f"{self.value:+.4g}  {', '.join(f'{axis} {label}' for axis, label in self.labels.items())}"


class LabelledTensor:
    """A tensor whose axes have names, and along them labels.

    >>> effects = LabelledTensor(torch.rand(2, 3), ("layer", "head"))
    >>> effects.select(layer=1).top(2)

    Args:
        tensor: the numbers; device, dtype and graph stay as they are.
        axes: a name for each axis.
        labels: for some of the axes, a label for each place along it; by default its number.
        checks: the identities that the numbers were put to.
    """

    def __init__(
        self,
        tensor: Tensor,
        axes: Sequence[str],
        labels: Mapping[str, Sequence[object]] | None = None,
        checks: Sequence[Check] = (),
    ) -> None:
        axes, given = tuple(axes), dict(labels or {})
        if len(axes) != tensor.ndim or len(set(axes)) != len(axes):
            raise ShapeError(
                f"a tensor of shape {list(tensor.shape)} has {tensor.ndim} axes, and the names are {axes}."
            )
        for axis in given:
            _number(axes, axis)
        self.tensor, self.axes, self.checks = tensor, axes, tuple(checks)
        self.labels: dict[str, tuple[str, ...]] = {}
        for axis, size in zip(axes, tensor.shape, strict=True):
            along = tuple(str(label) for label in given.get(axis, range(size)))
            if len(along) != size:
                raise ShapeError(f"the axis `{axis}` is {size} long, and it was given {len(along)} labels.")
            self.labels[axis] = along

    @property
    def shape(self) -> torch.Size:
        """The tensor's shape."""
        return self.tensor.shape

    def select(self, **at: int | str | slice | Sequence[int | str]) -> LabelledTensor:
        """A part, by axis: a number or a label takes the axis away, a slice or several leave it.

        Raises:
            InputError: there is no such axis, or no such label along it.
        """
        found = self
        for axis, which in at.items():
            found = found._at(axis, which)
        return found

    def _at(self, axis: str, which: int | str | slice | Sequence[int | str]) -> LabelledTensor:
        number, along = _number(self.axes, axis), self.labels[axis]
        if isinstance(which, slice):
            places = list(range(len(along)))[which]
        elif isinstance(which, (int, str)):
            tensor = self.tensor.select(number, _place(axis, along, which))
            return self._of(tensor, [name for name in self.axes if name != axis])
        else:
            places = [_place(axis, along, one) for one in which]
        tensor = self.tensor.index_select(number, torch.tensor(places, device=self.tensor.device))
        return self._of(tensor, self.axes, {axis: [along[place] for place in places]})

    def sum(self, *axes: str) -> LabelledTensor:
        """The sum over these axes, which are gone; over all without any."""
        return self._reduced(torch.sum, axes)

    def mean(self, *axes: str) -> LabelledTensor:
        """The mean over these axes, which are gone; over all without any."""
        return self._reduced(torch.mean, axes)

    def _reduced(self, function: Any, axes: Sequence[str]) -> LabelledTensor:
        numbers = [_number(self.axes, axis) for axis in axes or self.axes]
        tensor = function(self.tensor, dim=numbers) if numbers else self.tensor
        return self._of(tensor, [axis for number, axis in enumerate(self.axes) if number not in numbers])

    def _of(
        self, tensor: Tensor, axes: Sequence[str], labels: Mapping[str, Sequence[str]] | None = None
    ) -> LabelledTensor:
        kept = {axis: (labels or {}).get(axis, self.labels[axis]) for axis in axes}
        return LabelledTensor(tensor, axes, kept, self.checks)

    def top(self, count: int = 5, *, by_size: bool = False) -> list[Entry]:
        """The largest numbers, each with where it is; `by_size` takes the most negative for large too."""
        flat = self.tensor.detach().flatten()
        best = (flat.abs() if by_size else flat).topk(min(count, flat.numel())).indices
        return [self._entry(int(place)) for place in best]

    def _entry(self, place: int) -> Entry:
        indices = torch.unravel_index(torch.tensor(place), self.tensor.shape)
        labels = {axis: self.labels[axis][int(index)] for axis, index in zip(self.axes, indices, strict=True)}
        return Entry(float(self.tensor.detach().flatten()[place]), labels)

    # To other libraries, and to a file.

    def to_numpy(self) -> Any:
        """The numbers as a NumPy array; bfloat16, which NumPy lacks, becomes float32."""
        tensor = self.tensor.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()

    def to_pandas(self) -> Any:
        """A pandas frame of two axes, a series of any other number; pandas has to be installed."""
        pandas = _library("pandas")
        along = [list(self.labels[axis]) for axis in self.axes]
        if len(self.axes) == 2:
            frame = pandas.DataFrame(self.to_numpy(), index=along[0], columns=along[1])
            return frame.rename_axis(index=self.axes[0], columns=self.axes[1])
        index = pandas.MultiIndex.from_product(along, names=list(self.axes)) if self.axes else None
        return pandas.Series(self.to_numpy().reshape(-1), index=index)

    def to_xarray(self) -> Any:
        """An xarray array with the labels as coordinates; xarray has to be installed."""
        xarray = _library("xarray")
        coords = {axis: list(self.labels[axis]) for axis in self.axes}
        return xarray.DataArray(self.to_numpy(), dims=self.axes, coords=coords)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Writes a safetensors file with axes, labels and checks in its header.

        Raises:
            AlreadyThereError: the file is there, and `force` was not said.
        """
        from safetensors.torch import save

        told = {"axes": self.axes, "labels": self.labels, "checks": [asdict(check) for check in self.checks]}
        tensor = self.tensor.detach().cpu().contiguous()
        write_file(Path(path), save({"tensor": tensor}, {_HEADER: json.dumps(told)}), replace=force)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads what `save` has written.

        Raises:
            LoadError: the file is none, or holds something else.
        """
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(str(path), "pt") as file:  # type: ignore[no-untyped-call]
                told = json.loads((file.metadata() or {})[_HEADER])
                checks = [Check(**check) for check in told["checks"]]
                return cls(file.get_tensor("tensor"), told["axes"], told["labels"], checks)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, ShapeError, InputError) as error:
            raise LoadError(f"{path} holds no labelled tensor: {error}") from error

    def __repr__(self) -> str:
        sizes = ", ".join(f"{axis} {size}" for axis, size in zip(self.axes, self.shape, strict=True))
        lines = [f"{type(self).__name__} [{sizes}] {str(self.tensor.dtype).removeprefix('torch.')}"]
        if 0 < self.tensor.ndim <= 2 and self.tensor.numel():
            lines += _table(self)
        elif self.tensor.numel():
            lines += [str(entry) for entry in self.top(5, by_size=True)]
        return "\n".join([*lines, *(str(check) for check in self.checks)])


_HEADER = "cutaway.labelled"


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise InputError(f"{name} is not installed: `pip install {name}`. `to_numpy()` does without.") from error


def _number(axes: Sequence[str], axis: str) -> int:
    if axis not in axes:
        raise InputError(f"there is no axis `{axis}`; there are {', '.join(axes)}.{did_you_mean(axis, axes)}")
    return axes.index(axis)


def _place(axis: str, along: Sequence[str], which: int | str) -> int:
    """Where a label or a number is along an axis."""
    if isinstance(which, int):
        if not -len(along) <= which < len(along):
            raise InputError(f"the axis `{axis}` is {len(along)} long, so there is no {which}.")
        return which % len(along)
    if which not in along:
        raise InputError(f"along `{axis}` nothing is called `{which}`.{did_you_mean(which, along)}")
    if along.count(which) > 1:
        raise InputError(f"along `{axis}` `{which}` stands {along.count(which)} times. Give its number.")
    return along.index(which)


def _table(labelled: LabelledTensor) -> list[str]:
    """The numbers under their labels, as far as there is room."""
    tensor = labelled.tensor.detach().float().cpu()
    columns = list(labelled.labels[labelled.axes[-1]]) if tensor.ndim == 2 else [""]
    tensor = tensor if tensor.ndim == 2 else tensor[:, None]
    rows = list(labelled.labels[labelled.axes[0]])
    cells = [["", *columns[:_COLUMNS]]]
    for row, line in zip(rows[:_ROWS], tensor, strict=False):
        cells.append([row, *(f"{number:.4g}" for number in line[:_COLUMNS].tolist())])
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    more = [f"… {len(rows)} by {len(columns)}"] if len(rows) > _ROWS or len(columns) > _COLUMNS else []
    return [line for line in lines if line.strip()] + more

"""What a reading returns: a mapping from path to value, which answers to the names that were asked for too."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import NotReadError, UnknownValueError
from cutaway.passes.late_edits import tensors_in
from cutaway.passes.saving import carry_save
from cutaway.vocabulary.elsewhere import elsewhere, near
from cutaway.vocabulary.paths import spelled_out


class Values(dict[str, Any]):
    """The values of one pass by path, in the order in which the pass reached them.

    Iterating gives each value once, under its path. `found["layers.-1.layer_output"]` is the value that was asked for
    by this name; for a name that stands for several, `found["layers.*.layer_output"]`, the answer is a mapping of them.

    A tensor shares its memory with no other of them and is contiguous, so that `safetensors.torch.save_file` takes it;
    `tensors()` gives tensors also for what is none, as `input_size`.
    """

    def __init__(
        self,
        values: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
        asked: Mapping[str, str | tuple[str, ...]] = MappingProxyType({}),
        num_layers: int = 0,
    ) -> None:
        super().__init__(values)
        self._asked = dict(asked)
        self._num_layers = num_layers

    def tensors(self) -> dict[str, Tensor]:
        """Every value as a tensor of its own: `safetensors.torch.save_file(found.tensors(), "values.safetensors")`.

        A size is a tensor of integers; each tensor that a module's output holds is one, `layers.0.self_attn.output.0`.
        """
        found: dict[str, Tensor] = {}
        for path, value in self.items():
            if isinstance(value, torch.Size):
                found[path] = torch.tensor(value)
            elif isinstance(value, Tensor):
                found[path] = value
            else:
                found.update({f"{path}.{i}": tensor for i, tensor in enumerate(tensors_in(value))})
        return apart(found)

    def _path(self, name: object) -> str | tuple[str, ...] | None:
        """The path, or the paths, that another name than a path stands for."""
        if not isinstance(name, str):
            return None
        if name in self._asked:
            return self._asked[name]
        spellings = spelled_out(name, self._num_layers)
        return spellings[0] if len(spellings) == 1 and super().__contains__(spellings[0]) else None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self or any(path.rpartition(".")[2] == name for path in self):
            path = next(path for path in self if path.rpartition(".")[2] == name)
            hint = f" A value is asked for by its path, in brackets: `found['{path}']`."
        elif hasattr(Tensor, name) and not elsewhere(name):
            hint = f" Its values have it: `{{path: value.{name} for path, value in found.items()}}`."
        else:
            hint = near(name, [one for one in dir(self) if not one.startswith("_")])
        raise UnknownValueError(f"what a reading returns is a mapping, and has nothing called `{name}`.{hint}")

    def __missing__(self, name: str) -> Any:
        path = self._path(name)
        if isinstance(path, str):
            return super().__getitem__(path)
        if path is not None:
            return Values(
                {one: super(Values, self).__getitem__(one) for one in path if super(Values, self).__contains__(one)}
            )
        raise NotReadError(f"{name!r} was not read.{self._hint(name)} There are: {_some(list(self))}.")

    def _hint(self, name: object) -> str:
        """What is meant by a name that was not read. TransformerLens writes one as `("resid_post", 2)`."""
        if isinstance(name, str):
            return near(name, self)
        if isinstance(name, tuple) and name and isinstance(name[0], str):
            parts: tuple[object, ...] = name
            layer = next((part for part in parts[1:] if isinstance(part, int)), None)
            where = "" if layer is None else f"layers.{layer}."
            same = [path for path in self if path.startswith(where) and path.rpartition(".")[2] == name[0]]
            hint = f" Did you mean '{same[0]}'?" if same else near(name[0], self, layer=layer)
            return f" A name is a path, in one string.{hint}"
        return " A value is asked for by its path."

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._path(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """The value of this name, or the default where it was not read."""
        return self[name] if name in self else default  # noqa: SIM401

    def copy(self) -> Values:
        """Another mapping with the same values."""
        return Values(self, self._asked, self._num_layers)

    def __repr__(self) -> str:
        width = max(map(len, self), default=0)
        lines = [f"  {path:<{width}}  {_brief(value)}" for path, value in self.items()]
        return "\n".join([f"<{len(self)} value{'s' * (len(self) != 1)} of one pass>", *lines])

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # `torch.save` pickles by protocol 2, and `torch.load` refuses classes that it does not know: what it saves is
        # an ordinary mapping.
        if protocol <= 2:
            return (OrderedDict, (), None, None, iter(self.items()))
        return (Values, ({**self}, self._asked, self._num_layers))


def apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values, each tensor contiguous and in memory that no other has.

    One is copied only where it must be: one tensor often has two names, as where one module's output is the next one's
    input, and heads are views of a stream.
    """
    taken: set[int] = set()
    found: dict[str, Any] = {}
    for path, value in values.items():
        if isinstance(value, Tensor) and not value.is_meta:
            storage = value.untyped_storage()._cdata
            if not value.is_contiguous() or storage in taken:
                value = carry_save(value.clone(memory_format=torch.contiguous_format))
                storage = value.untyped_storage()._cdata
            taken.add(storage)
        found[path] = value
    return found


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{list(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        parts: tuple[Any, ...] = value
        return f"({', '.join(_brief(part) for part in parts)})"
    return str(list(value)) if isinstance(value, torch.Size) else type(value).__name__


def _some(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

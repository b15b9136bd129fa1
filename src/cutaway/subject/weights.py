"""The weights of one model under their standard names, in one orientation, out of the modules that hold them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from cutaway.families import Family
from cutaway.families.stored import Stored
from cutaway.subject.places import Places
from cutaway.tracing.twin import is_sharded
from cutaway.vocabulary import HOSTS, MODULES, WEIGHTS, Weight

_MULTIPLIES = frozenset({"transformers.models.falcon.modeling_falcon.FalconLinear"})
"""Classes with a forward of their own that multiplies by the matrix and adds the bias, and does no more."""

_HEADS = ("num_heads", "num_kv_heads")


def weight_path(row: Weight, layer: int | None) -> str:
    """A weight's path: `layers.3.self_attn.W_Q`."""
    host = HOSTS[row.host].format(layer=layer)
    return f"{host}.{row.name}" if host else row.name


class Weights:
    """What of the standard weights a model has, and where.

    Args:
        hf: the model.
        places: where its modules stand, and its family on each layer.
        sizes_at: gives the sizes on a layer under their standard names.
    """

    def __init__(
        self, hf: PreTrainedModel, places: Places, sizes_at: Callable[[int | None], Mapping[str, int]]
    ) -> None:
        self._hf, self._places, self._sizes_at = hf, places, sizes_at

    def why_missing(self, row: Weight, layer: int | None) -> str:
        """Why a weight does not exist on a layer, or on the model; empty where it does, if only as None."""
        family = self._places.family(layer)
        stored = family.weights.get(row.matrix)
        if stored is None or (stored.module in MODULES and stored.module not in family.modules.get(row.host, {})):
            return self._not_named(row, stored, family, layer)
        own = self.path(row, layer)
        if own not in self._places.modules:
            return self._places.why_no_module(row.host, layer, stored.module)
        return self._why_no_matrix(row, stored, own, layer)

    def has(self, row: Weight, layer: int | None) -> bool:
        """Whether a weight exists and is a tensor."""
        if self.why_missing(row, layer):
            return False
        module = self.module(row, layer)
        return not row.bias_of or getattr(module, "bias", None) is not None

    def where(self, row: Weight, layer: int | None) -> str:
        """Where a weight is kept, in the family's own names: `c_attn.weight`, the first of three side by side."""
        stored = self._places.family(layer).weights[row.matrix]
        own = self.path(row, layer).rpartition(".")[2]
        kept = f"{own}.{'bias' if row.bias_of else 'weight'}"
        if not stored.beside or (row.bias_of and row.matrix == "W_O"):
            return kept
        order = f"{stored.beside.index(row.matrix) + 1} of {len(stored.beside)} side by side"
        return f"{kept}, {order}{' in each head' * stored.by_head}"

    def read(self, row: Weight, module: nn.Module, layer: int | None) -> Tensor | None:
        """A weight as a view of the parameter of the module that holds it, seen in the weight's layout."""
        if row.bias_of:
            bias: Any = getattr(module, "bias", None)
            if bias is None:
                return None
            bias = _resident(module, "bias", bias)
            return self._by_head(row, bias[:, None], row.layout.axes[0], layer)[..., 0]
        matrix = _resident(module, "weight", module.weight)  # pyright: ignore[reportArgumentType]
        if isinstance(module, nn.Embedding):
            return matrix
        matrix = matrix.T if isinstance(module, Conv1D) else matrix  # [out in]
        heads = row.layout.axes[0]
        if row.name == "W_O":
            return matrix.unflatten(1, (self._sizes_at(layer)[heads], -1)).permute(1, 2, 0)
        return self._by_head(row, matrix, heads, layer).mT

    def _by_head(self, row: Weight, matrix: Tensor, axis: str, layer: int | None) -> Tensor:
        """The rows `[out in]` that belong to a weight; with an axis of heads in front where it has one."""
        stored, sizes = self._places.family(layer).weights[row.matrix], self._sizes_at(layer)
        heads = sizes[axis] if axis in _HEADS else 0
        if stored.by_head:
            groups = sizes["num_kv_heads"]
            matrix = matrix.unflatten(0, (groups, -1))
            own = _part(row, stored, matrix, sizes, dim=1, share=groups)
            return own.unflatten(1, (heads // groups, -1)).flatten(0, 1)
        own = _part(row, stored, matrix, sizes, dim=0, share=1) if stored.beside else matrix
        return own.unflatten(0, (heads, -1)) if heads else own

    def module(self, row: Weight, layer: int | None) -> nn.Module:
        """The module that holds a weight."""
        return self._places.modules[self.path(row, layer)]

    def path(self, row: Weight, layer: int | None) -> str:
        """The own path of the module that holds a weight, or would."""
        return self._places.module(row.host, layer, self._places.family(layer).weights[row.matrix].module)

    def _not_named(self, row: Weight, stored: Stored | None, family: Family, layer: int | None) -> str:
        if row.host == "mlp" and "experts" in family.modules.get("mlp", {}):
            experts = self._places.module("mlp", layer, "experts")
            return f"This MLP is a mixture of experts, each with matrices of its own; `{experts}` holds them."
        if row.matrix == "W_gate" and "up_proj" not in family.modules.get("mlp", {}):
            return f"The MLP of {family.name} is not known to have a gate."
        if row.matrix == "W_U" and stored is not None:
            return f"This model has no `{stored.module}`."
        module = (
            f"`{stored.module}`, {MODULES[stored.module].meaning.partition(',')[0]}" if stored else "a module for it"
        )
        return f"The family {family.name} does not name {module}, nor says where else `{row.matrix}` is kept."

    def _why_no_matrix(self, row: Weight, stored: Stored, own: str, layer: int | None) -> str:
        """Why a module does not hold a plain matrix; empty where it does."""
        module = self._places.modules[own]
        kind = type(module)
        base = next((cls for cls in (nn.Linear, Conv1D, nn.Embedding) if isinstance(module, cls)), None)
        does_more = base is None or kind.forward is not base.forward
        if does_more and f"{kind.__module__}.{kind.__name__}" not in _MULTIPLIES:
            held = [name for name, child in module.named_modules() if name and isinstance(child, (nn.Linear, Conv1D))]
            beside = f" What it wraps is at `.{held[0]}`." if held else ""
            merge = " Merge an adapter into it (peft's `merge_and_unload()`) to have one matrix." if held else ""
            return (
                f"`{own}` is a {kind.__module__}.{kind.__name__} here, which does more than multiply by one matrix, so "
                f"that none is what it computes with.{beside}{merge}"
            )
        parameter: Any = module.weight
        if type(parameter) not in (Tensor, nn.Parameter) or not parameter.is_floating_point() or parameter.ndim != 2:
            return (
                f"The weight of `{own}` is a {type(parameter).__name__} of {parameter.dtype} here, not a plain matrix "
                "of numbers: it is packed or quantised. Load the model without quantisation to have it."
            )
        if is_sharded(self._hf):
            return "Tensor parallelism has spread it over several processes. Load the model without it."
        shape: Any = list(reversed(parameter.shape)) if base is Conv1D else list(parameter.shape)
        return self._why_other_sizes(row, stored, own, shape, self._sizes_at(layer))

    def _why_other_sizes(
        self, row: Weight, stored: Stored, own: str, shape: list[int], sizes: Mapping[str, int]
    ) -> str:
        """Why a matrix `[out in]` cannot be taken apart into heads or parts; empty where it can."""
        if row.matrix == "W_O":
            found, expected = shape[1], sizes.get("num_heads", 0) * sizes.get("head_dim", 0)
        elif row.host == "attention" or stored.beside:
            found, expected = shape[0], sum(_width(name, sizes) for name in stored.beside or (row.matrix,))
        else:
            return ""
        if found == expected:
            return ""
        return f"`{own}` has a weight of {shape} [out in] here, and {expected} were expected for {found}."


def _part(row: Weight, stored: Stored, matrix: Tensor, sizes: Mapping[str, int], dim: int, share: int) -> Tensor:
    lengths = [_width(name, sizes) // share for name in stored.beside]
    place = stored.beside.index(row.matrix)
    return matrix.narrow(dim, sum(lengths[:place]), lengths[place])


def _width(matrix: str, sizes: Mapping[str, int]) -> int:
    """How many numbers a projection writes for each token; 0 where that is not known."""
    axes = [axis for axis in WEIGHTS[matrix].layout.axes if axis != "hidden_size"]
    return prod(sizes.get(axis, 0) for axis in axes)


def _resident(module: nn.Module, name: str, parameter: Tensor) -> Tensor:
    """A parameter, from where accelerate has put it where that is not in the module."""
    kept: Any = getattr(getattr(module, "_hf_hook", None), "weights_map", None)
    return kept[name] if parameter.is_meta and kept is not None else parameter

"""A slot puts a tensor into what passes and leaves everything else, the container's type above all, as it was."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.phi.modeling_phi import PhiAttention

from cutaway import StandardizedTransformer
from cutaway.sites import Slot
from cutaway.sites.slots import Call
from tests import tiny

Pair = namedtuple("Pair", ["first", "second"])
OLD, NEW, OTHER = torch.zeros(2), torch.ones(2), torch.full((2,), 5.0)


class Strict(list[Any]):
    """A list of a user's own class."""


CONTAINERS: dict[str, tuple[Any, str | int]] = {
    "tuple": ((OLD, OTHER), 0),
    "the second of a tuple": ((OTHER, OLD), 1),
    "list": ([OLD, OTHER], 0),
    "a class of lists": (Strict([OLD, OTHER]), 0),
    "named tuple": (Pair(OLD, OTHER), 0),
    "the second of a named tuple": (Pair(OTHER, OLD), 1),
    "torch.return_types": (torch.return_types.max((OLD, OTHER)), 0),
    "dict": ({"x": OLD, "y": OTHER}, "x"),
    "ordered dict": (OrderedDict(y=OTHER, x=OLD), "x"),
    "model output": (BaseModelOutputWithPast(last_hidden_state=OLD, hidden_states=(OTHER,)), "last_hidden_state"),
}


def leaves(thing: Any) -> list[Any]:
    values = list(thing.values()) if isinstance(thing, Mapping) else list(thing)
    return [leaf for value in values for leaf in (leaves(value) if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize(("passing", "key"), CONTAINERS.values(), ids=CONTAINERS)
def test_the_container_keeps_its_type_and_the_rest(passing: Any, key: str | int) -> None:
    kind, before = type(passing), leaves(passing)
    written = Slot(key).write(passing, NEW)
    assert type(written) is kind
    assert Slot(key).read(written, {}) is NEW
    assert all(new is (NEW if old is OLD else old) for new, old in zip(leaves(written), before, strict=True))


def test_a_tensor_is_its_own_container() -> None:
    assert Slot().write(OLD, NEW) is NEW


def test_arguments_stay_where_they_were_given() -> None:
    by_place = Slot("hidden_states").write(Call((OLD, OTHER), {"mask": OTHER}), NEW)
    assert by_place.args[0] is NEW
    assert by_place.args[1] is OTHER
    assert list(by_place.kwargs) == ["mask"]
    by_name = Slot("hidden_states").write(Call((OTHER,), {"hidden_states": OLD}), NEW)
    assert by_name.args[0] is OTHER
    assert by_name.kwargs["hidden_states"] is NEW
    another = Slot("mask", is_first=False).write(Call((OLD,), {}), NEW)
    assert another.args[0] is OLD
    assert another.kwargs["mask"] is NEW


def test_heads_that_were_taken_apart_are_put_together_again() -> None:
    slot = Slot("hidden_states", ("num_heads", "head_dim"))
    flat = torch.arange(24.0).reshape(2, 12)
    heads = slot.read(Call((flat,), {}), {"num_heads": 3, "head_dim": 4})
    assert heads.shape == (2, 3, 4)
    heads[:, 1] = 0
    assert (flat[:, 4:8] == 0).all()
    written = slot.write(Call((flat,), {}), heads + 1)
    assert torch.equal(written.args[0], flat + 1)


@pytest.mark.parametrize("kind", [tuple, list, Strict, Pair])
def test_an_edit_in_a_trace_keeps_the_container_that_the_model_reads(kind: type) -> None:
    class InAContainer(PhiAttention):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            items = super().forward(*args, **kwargs)
            return kind(*items) if kind is Pair else kind(items)

    def add(_module: nn.Module, _args: Any, output: Any) -> tuple[Tensor, Any]:
        return output[0] + 1, output[1]

    hf, seen = tiny.fresh(), list[type]()
    attention: Any = hf.model.layers[1].self_attn
    handle = attention.register_forward_hook(add)
    expected = tiny.logits_of(hf)
    handle.remove()
    attention.__class__ = InAContainer
    model = StandardizedTransformer(hf, check=False)
    for assigned in (True, False):
        with model.trace(tiny.IDS):
            if assigned:
                model.layers[1].self_attn.attention_output = model.layers[1].self_attn.attention_output + 1
            else:
                model.layers[1].self_attn.attention_output[:] += 1
            assert torch.equal(model.logits, expected)
    with model.hooks({"layers.1.self_attn.attention_output": lambda value: value + 1}):
        handle = attention.register_forward_hook(lambda _module, _args, output: seen.append(type(output)))
        assert torch.equal(tiny.logits_of(hf), expected)
        handle.remove()
    assert seen == [kind]

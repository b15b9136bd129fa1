"""Edits of a model whose layers are on several devices: they go where their value is."""

import pytest
import torch

from cutaway.errors import DeviceError
from cutaway.sites import output_of
from cutaway.subject.address import Address


def _address() -> Address:
    site = output_of("mlp")
    return Address("layers.0.mlp.mlp_output", None, "mlp", torch.nn.Identity(), site.moment, site.slot, (), None)


def test_an_edit_is_moved_to_its_values_device_where_layers_are_spread() -> None:
    old, new = torch.empty(2, 3, device="meta"), torch.ones(2, 3)
    assert _address().fit(old, new, move=True).device == old.device


def test_on_one_device_it_is_refused_with_the_remedy() -> None:
    old, new = torch.ones(2, 3), torch.empty(2, 3, device="meta")
    with pytest.raises(DeviceError, match=r"Move it: `\.to\('cpu'\)`"):
        _address().fit(old, new)

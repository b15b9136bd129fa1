"""The labelled tensor: parts by name, sums, what is largest, files, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from cutaway.analysis import Check, LabelledTensor
from cutaway.errors import AlreadyThereError, InputError, LoadError, ShapeError

NUMBERS = torch.arange(12.0).view(2, 3, 2) - 5
LABELS = {"head": ("a", "b", "c"), "position": ["The", "cat"]}


@pytest.fixture
def found() -> LabelledTensor:
    return LabelledTensor(NUMBERS.clone(), ("layer", "head", "position"), LABELS, [Check("they add up", 1e-7, 1e-5)])


def test_parts_are_taken_by_name(found) -> None:
    part = found.select(layer=-1, head="b")
    assert part.axes == ("position",)
    assert torch.equal(part.tensor, NUMBERS[1, 1])
    assert part.labels == {"position": ("The", "cat")}
    some = found.select(head=["c", 0], position=slice(1, None))
    assert some.axes == found.axes
    assert torch.equal(some.tensor, NUMBERS[:, [2, 0], 1:])
    assert some.labels["head"] == ("c", "a")
    assert some.labels["position"] == ("cat",)
    assert some.checks == found.checks


def test_sums_and_means_are_over_named_axes(found) -> None:
    assert torch.equal(found.sum("head").tensor, NUMBERS.sum(1))
    assert found.sum("head").axes == ("layer", "position")
    assert torch.equal(found.mean("layer", "position").tensor, NUMBERS.mean((0, 2)))
    assert found.sum().tensor == NUMBERS.sum()
    assert found.sum().axes == ()


def test_the_largest_are_told_with_their_labels(found) -> None:
    best = found.top(2)
    assert [entry.value for entry in best] == [6.0, 5.0]
    assert best[0].labels == {"layer": "1", "head": "c", "position": "cat"}
    assert "head c, position cat" in str(best[0])
    lowest = LabelledTensor(torch.tensor([1.0, -9.0]), ("head",)).top(1, by_size=True)
    assert lowest[0].value == -9
    assert len(found.top(100)) == 12


def test_the_graph_and_the_dtype_stay() -> None:
    tensor = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    labelled = LabelledTensor(tensor * 2, ("head",))
    labelled.sum().tensor.backward()
    assert torch.equal(tensor.grad, torch.full_like(tensor, 2))
    assert labelled.tensor.dtype == torch.bfloat16
    assert labelled.to_numpy().dtype == np.float32


def test_a_file_gives_it_back_and_holds_no_code(found, tmp_path: Path) -> None:
    path = tmp_path / "found.safetensors"
    found.save(path)
    again = LabelledTensor.load(path)
    assert torch.equal(again.tensor, found.tensor)
    assert (again.axes, again.labels, again.checks) == (found.axes, found.labels, found.checks)
    with pytest.raises(AlreadyThereError):
        found.save(path)
    found.save(path, force=True)


@pytest.mark.parametrize("kind", ["nothing", "text", "others", "lies"])
def test_what_is_no_such_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    if kind == "text":
        path.write_text("a text")
    if kind == "others":
        save_file({"tensor": NUMBERS}, path)
    if kind == "lies":
        save_file({"tensor": NUMBERS}, path, {"cutaway.labelled": '{"axes": ["one"], "labels": {}, "checks": []}'})
    with pytest.raises(LoadError, match="holds no labelled tensor"):
        LabelledTensor.load(path)


def test_it_prints_as_a_table_with_its_checks(found) -> None:
    text = repr(found.select(layer=0))
    assert text.splitlines()[0] == "LabelledTensor [head 3, position 2] float32"
    assert "The" in text
    assert text.splitlines()[-1] == "✓ they add up: off by 1.0e-07, 1.0e-05 allowed"
    assert "+6  layer 1, head c, position cat" in repr(found)
    assert "… 40 by 1" in repr(LabelledTensor(torch.zeros(40), ("head",)))


def test_a_check_that_is_no_number_is_not_held() -> None:
    assert not Check("it adds up", float("nan"), 1.0).held
    assert str(Check("it adds up", 2.0, 1.0)).startswith("✗")


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: LabelledTensor(NUMBERS, ("layer", "head")), ShapeError, "has 3 axes"),
        (lambda: LabelledTensor(NUMBERS, ("a", "a", "b")), ShapeError, "names are"),
        (lambda: LabelledTensor(NUMBERS, ("a", "b", "c"), {"b": ["x"]}), ShapeError, "is 3 long, and .* 1 labels"),
        (lambda: LabelledTensor(NUMBERS, ("a", "b", "c"), {"d": []}), InputError, "no axis `d`"),
        (lambda: LabelledTensor(NUMBERS, ("layer", "b", "c")).select(layr=1), InputError, "Did you mean 'layer'"),
        (lambda: LabelledTensor(NUMBERS, ("a", "b", "c")).select(a=2), InputError, "2 long, so there is no 2"),
        (lambda: LabelledTensor(NUMBERS, ("a", "b", "c")).select(a="x"), InputError, "nothing is called `x`"),
        (lambda: LabelledTensor(NUMBERS[0, 0], ("t",), {"t": "ee"}).select(t="e"), InputError, "stands 2 times"),
        (lambda: LabelledTensor(NUMBERS, ("a", "b", "c")).sum("d"), InputError, "no axis `d`"),
    ],
)
def test_what_does_not_fit_is_refused(make, error, said) -> None:
    with pytest.raises(error, match=said):
        make()


def test_a_library_that_is_not_there_is_named(found, monkeypatch) -> None:
    for name in ("pandas", "xarray"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=f"{name} is not installed"):
            getattr(found, f"to_{name}")()

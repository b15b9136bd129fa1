"""`cutaway show MODEL`: the printout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cutaway.cli.options import Json, Loading, Model, opens_a_model

if TYPE_CHECKING:
    from cutaway.inspection.printout.tree import ModuleNode, Tree


@opens_a_model
def show(model: Model, loading: Loading, as_json: Json = False) -> None:
    """Print a model under its standard names.

    Shows every module, and every value under its host. Loads no weights, so that --device and --device-map change
    nothing here.
    """
    from cutaway.cli.opening import open_model
    from cutaway.cli.terminal import put

    opened = open_model(model, loading, dispatch=False)
    from cutaway.inspection.printout import tree_of, unbroken_text

    subject = opened._subject
    put(as_json, lambda: to_dict(tree_of(subject)), lambda: opened, lambda: unbroken_text(subject))


def to_dict(tree: Tree) -> dict[str, Any]:
    """A printout as data: `model`, `load`, `sizes` by their standard names, and `modules`, each with what it holds.

    A module has its own `name` (for folded ones their numbers), its `standard` name or null, the `count` that are
    folded into it, its `class` and `arguments`, in what it `differs` from the first of its list or null, its `values`
    and its `children`. Of a value, `missing` says why it is not here, and is null where it is.
    """
    return {
        "model": tree.name,
        "load": tree.load,
        "sizes": dict(tree.sizes),
        "modules": _module(tree.root),
    }


def _module(node: ModuleNode) -> dict[str, Any]:
    return {
        "name": node.key,
        "standard": node.standard or None,
        "count": node.count,
        "class": node.class_name,
        "arguments": node.arguments,
        "differs": node.differs or None,
        "values": [
            {
                "value": value.name,
                "layout": value.layout,
                "meaning": value.meaning,
                "read_only": value.read_only,
                "missing": value.missing or None,
            }
            for value in node.values
        ],
        "children": [_module(child) for child in node.children],
    }

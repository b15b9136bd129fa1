"""Many values in one pass, without a with-block: `model.read(prompt, "layers.*.layer_output", "logits")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.function_hooks import Application
from cutaway.errors import UnavailableValueError
from cutaway.passes.derived import derive
from cutaway.passes.saving import carry_save
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import ValuePath


def read(
    subject: Subject, inputs: Mapping[str, Any], paths: Sequence[ValuePath], edits: Sequence[FunctionEdit] = ()
) -> dict[str, Any]:
    """The values at these paths, by path, in the order of a pass, which is left after the last of them."""
    wanted = [subject.address(path) for path in paths if not path.value.derived]
    sources = {source for path in paths for source in path.value.derived_from or ()}
    needed = {address.path: address for address in wanted}
    needed.update({source: subject.address(ValuePath(source, None)) for source in sources})
    found: dict[str, Any] = {}
    if needed:
        _run(subject, inputs, list(needed.values()), edits, found)
    return {
        str(path): derive(path.name, inputs, found.__getitem__) if path.value.derived else found[str(path)]
        for path in paths
    }


def _run(
    subject: Subject,
    inputs: Mapping[str, Any],
    addresses: list[Address],
    edits: Sequence[FunctionEdit],
    found: dict[str, Any],
) -> None:
    order = subject.survey.order
    last = max(addresses, key=lambda address: order[address.module_path, address.moment])
    running = ForwardPass(partial(subject.hf, **inputs), grad=False)
    applied = Application(subject, edits, running.answers) if edits else None
    try:
        for address in addresses:
            if address is not last:
                running.attach(address.module, address.moment, _keep(address, subject, found))
        stop = running.run_to(last.module, last.moment)
        if stop is not None:
            _keep(last, subject, found)(stop.passing)
        if last.module is subject.hf and last.moment == "exit":
            running.run_to_end()  # nothing is left but to return
        for address in addresses:
            if address.path not in found:
                raise UnavailableValueError(
                    f"the pass did not come by {address.describe()}. Either this call does not use it, or the module "
                    "was exchanged after the model was opened: then open it again."
                )
    finally:
        running.close()
        if applied is not None:
            applied.remove()


def _keep(address: Address, subject: Subject, found: dict[str, Any]) -> Callable[[Any], None]:
    def keep(passing: Any) -> None:
        found[address.path] = carry_save(address.slot.read(passing, subject.sizes))

    return keep

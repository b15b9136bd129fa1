"""The survey: one pass of the model's twin on the meta device, noting what it comes by.

It answers, for this model under this load and not from a hand-kept list, which values exist, with which shape, and in
which order a pass reaches them. It needs no weights and no compute, so it is the same for a checkpoint of 2.7 billion
parameters that was never downloaded. Where a twin cannot run, as with layers whose kernels want real numbers, the model
itself runs a few tokens, and is left as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from transformers import PreTrainedModel

from cutaway.sites import Moment, OperationMoment
from cutaway.sites.slots import Call, TokenRows
from cutaway.subject.places import Places
from cutaway.tracing import Attachment, attach, remove_all
from cutaway.tracing.batch import BatchNote
from cutaway.tracing.occurrences import Whereabouts, paths_of
from cutaway.tracing.torch_state import no_settings
from cutaway.tracing.trial import Trial, first_that_runs

Key = tuple[str, Moment | OperationMoment]
"""A moment: the module's own path, and its kind."""


@dataclass(frozen=True)
class Survey:
    """What a pass came by.

    Attributes:
        order: each moment, with its rank in the pass.
        passing: the shapes of what passed there: a tensor on the meta device, or a container of them.
        repeated: the paths of modules that a pass calls more often than they stand in the model.
        twice: the moments inside a module's call that came several times in one call of it.
        overwritten: the moments whose tensor the model writes into afterwards, in place.
        callers: the paths of the modules that call a module that stands in several places.
        trial: how the model was called.
        failure: why no pass could be run at all; empty where one was.
    """

    order: Mapping[Key, int] = field(default_factory=dict[Key, int])
    passing: Mapping[Key, Any] = field(default_factory=dict[Key, Any])
    repeated: frozenset[str] = frozenset()
    twice: frozenset[Key] = frozenset()
    overwritten: frozenset[Key] = frozenset()
    callers: frozenset[str] = frozenset()
    trial: Trial = field(default_factory=Trial)
    failure: str = ""

    def rank(self, module_path: str, moment: Moment | OperationMoment) -> int | None:
        """When in a pass a moment of a module comes; None where the pass did not come by it."""
        key = (module_path, "enter" if isinstance(moment, OperationMoment) else moment)
        return self.order.get(key)


@no_settings()
def survey(hf: PreTrainedModel, places: Places, has_weights: bool, device: Any) -> Survey:
    """Runs a model's twin once, or where that cannot be, the model, with everything attached that can be.

    Args:
        hf: the model.
        places: where its modules and values stand.
        has_weights: whether the model itself can run.
        device: where the model takes its ids.
    """

    def look(model: PreTrainedModel, run: Callable[[], Any], trial: Trial) -> Survey:
        return replace(_follow(model, places, run, trial.of_twin), trial=trial)

    try:
        return first_that_runs(hf, has_weights, device, look)
    except Exception as error:
        return Survey(failure=f"{type(error).__name__}: {error}".strip().split("\n")[0])


def _follow(model: nn.Module, places: Places, run: Callable[[], Any], of_twin: bool) -> Survey:
    """Makes a call with everything attached."""
    paths = paths_of(model)
    here = Whereabouts(paths)
    order: dict[Key, int] = {}
    passing: dict[Key, Any] = {}
    repeated: set[str] = set()
    twice: set[Key] = set()
    versions: list[tuple[Key, Tensor, int]] = []
    callers: set[str] = set()

    def enter(module: nn.Module, _call: Any) -> None:
        caller = here.path
        if not here.enter(module):
            repeated.add(here.last(module))
        if len(paths[module]) > 1:
            callers.add(caller)

    def leave(module: nn.Module, _output: Any) -> None:
        here.leave(module)

    def note(module: nn.Module, moment: Moment | OperationMoment, what: Any) -> None:
        key = (here.last(module), moment)
        if key in order and key[0] not in repeated:
            twice.add(key)
        order.setdefault(key, len(order))
        versions.extend((key, tensor, tensor._version) for tensor in _tensors(what))
        passing.setdefault(key, what if of_twin else _shapes(what))

    noted: list[Attachment] = []
    try:
        try:
            batch = BatchNote(model, _always)
            noted.append(batch)
            batch.put_on()
            for module, own in paths.items():
                attach(module, "enter", partial(enter, module), _always, noted)
                wanted: dict[Moment | OperationMoment, None] = {}
                for path in own:
                    wanted.update(dict.fromkeys(places.moments(path)))
                for moment in wanted:
                    attach(module, moment, partial(note, module, moment), _always, noted)
                attach(module, "exit", partial(leave, module), _always, noted)
            run()
        finally:
            remove_all(noted)
    except BaseException:
        remove_all(noted)  # once more, where an interrupt has cut it short
        raise
    overwritten = frozenset(key for key, tensor, version in versions if tensor._version != version)
    return Survey(order, passing, frozenset(repeated), frozenset(twice), overwritten, frozenset(callers))


def _tensors(what: Any) -> list[Tensor]:
    """The tensors that passed, of which torch counts the edits."""
    if isinstance(what, Call):
        what = [*what.args, *what.kwargs.values()]
    return [leaf for leaf in tree_leaves(what) if isinstance(leaf, Tensor) and not leaf.is_inference()]


def _shapes(what: Any) -> Any:
    """What passed in a real pass, as shapes on the meta device; what is neither tensor nor plain is left out."""
    if isinstance(what, Call):
        return Call(_shapes(what.args), _shapes(what.kwargs))
    if isinstance(what, TokenRows):
        return TokenRows(_shapes(what.passing), what.batch)

    def shape(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.new_empty(leaf.shape, device="meta")
        return leaf if isinstance(leaf, (int, float, str, bool)) else None

    return tree_map(shape, what)


def _always() -> bool:
    return True

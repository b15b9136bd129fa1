"""What traces and generations say of themselves, and of a name that they do not have.

Nothing here runs a pass or keeps a tensor: what is told is known already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from cutaway.errors import UnknownValueError
from cutaway.subject.address import Address
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import MODULES, VALUES
from cutaway.vocabulary.elsewhere import elsewhere, near


def told(what: str, *facts: str) -> str:
    """One line: what a thing is, and what there is to know of it. Facts that are empty are left out."""
    return f"<{'; '.join(filter(None, (what, *facts)))}>"


def prompt_told(inputs: Mapping[str, Any]) -> str:
    """The prompt's shape, `[batch seq]`."""
    for name, axes in (("input_ids", 2), ("inputs_embeds", 3)):
        given = inputs.get(name)
        if isinstance(given, Tensor):
            of = "" if name == "input_ids" else f" of {name}"
            return f"prompt{of} [{', '.join(map(str, given.shape[:axes]))}]"
    return ""


def standing_told(running: ForwardPass | None, here: Address | None, *, begun: bool) -> str:
    """Whether a trace is open, and where its pass stands."""
    if running is None:
        return "over: its block was left" if begun else "not open yet: `with … as run:` opens it"
    if running.finished:
        return "open, and the pass has run to its end"
    if here is None or not running.started:
        return "open, and nothing has run yet"
    return f"open, and the pass waits at `{here.path or here.describe()}`"


def asked_told(paths: Sequence[str], when: str = "") -> str:
    """What the body has asked for or edited."""
    if not paths:
        return ""
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"asked for{when}: {', '.join(paths[:_SHOWN])}{more}"


def arguments_told(arguments: Mapping[str, Any]) -> str:
    """Arguments of `generate`; those that are not short are told by their type."""
    plain = (str, int, float, bool, type(None))
    return ", ".join(
        f"{name}={value!r}" if isinstance(value, plain) else f"{name}=<{type(value).__name__}>"
        for name, value in arguments.items()
    )


def counted(number: int, thing: str) -> str:
    """ "1 token", "2 tokens"."""
    return f"{number} {thing}{'s' * (number != 1)}"


def unknown(what: str, name: str, there: Iterable[str]) -> UnknownValueError:
    """The error for a name that a trace does not have: what is asked of the model is told so."""
    there = sorted(one for one in there if not one.startswith("_"))
    if name in VALUES or name in MODULES or name in ("layers", "model"):
        hint = f" It is asked of the model, inside the block: `{_asked_of_model(name)}`."
    elif what == "a generation" and hasattr(Tensor, name) and not elsewhere(name):
        hint = (
            " It is a run, and no tensor: its ids are in `output`. What calls a transformers model's `generate` "
            "itself, as a pipeline does, is given `model.hf`, which carries the edits of an edited model too."
        )
    else:
        hint = near(name, there)
    return UnknownValueError(f"{what} has nothing called `{name}`.{hint} It has: {', '.join(there)}.")


def _asked_of_model(name: str) -> str:
    host = VALUES[name].host if name in VALUES else MODULES[name].host if name in MODULES else "model"
    return {
        "model": f"model.{name}",
        "layer": f"model.layers[i].{name}",
        "attention": f"model.layers[i].self_attn.{name}",
        "mixer": f"model.layers[i].mixer.{name}",
        "mlp": f"model.layers[i].mlp.{name}",
    }[host]


_SHOWN = 4
"""How many paths are told."""

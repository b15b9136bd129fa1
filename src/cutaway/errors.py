"""The errors Cutaway raises. Every one is a `CutawayError`; its message says what was given, what was expected and
what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from types import MappingProxyType


class CutawayError(Exception):
    """The base of every error that Cutaway raises itself."""


class UnknownValueError(CutawayError, AttributeError):
    """No value, module or path has this name; the message lists near names."""


class UnknownLayerError(UnknownValueError, IndexError):
    """There is no layer with this number."""


class NotReadError(UnknownValueError, KeyError):
    """A reading does not hold a value of this name."""

    __str__ = Exception.__str__  # a KeyError would quote its message


class UnavailableValueError(CutawayError, AttributeError):
    """The value is a word of the vocabulary, and this model under this load does not have it; the message says why."""


class NoTraceError(CutawayError, RuntimeError):
    """A value was asked for outside a trace, or from a trace that is over."""


class OrderError(CutawayError, RuntimeError):
    """The forward pass is already past the value asked for."""


class LateEditError(OrderError):
    """An edit came after the forward pass had moved on, so that it could not have had an effect."""


class ReadOnlyError(CutawayError, AttributeError):
    """The value can be read and not edited."""


class GradientError(CutawayError, RuntimeError):
    """Gradients were asked of a trace that records none."""


class ShapeError(CutawayError, ValueError):
    """A tensor's shape is not that of the value it would replace."""


class DtypeError(CutawayError, TypeError):
    """A tensor's dtype is not that of the value it would replace."""


class DeviceError(CutawayError, ValueError):
    """A tensor's device is not that of the value it would replace."""


class InputError(CutawayError, ValueError):
    """The prompt cannot be run: empty, of mixed kinds, outside the vocabulary, or longer than the context."""


class UnsupportedModelError(CutawayError, NotImplementedError):
    """No family file covers this architecture, or a setting of it."""


class LoadError(CutawayError, OSError):
    """A checkpoint cannot be read: not found, damaged, in pickle format, or in need of remote code."""


class OptionError(LoadError, InputError):
    """An option of loading that nobody knows, or one that has no such value, or no effect on what is opened."""


class UnknownModelError(LoadError):
    """There is no model, folder or file of the name that was given; the message lists near names."""


class OutputError(CutawayError, OSError):
    """A file or folder cannot be written; the message says why."""


class AlreadyThereError(OutputError):
    """What would be written is there already, and replacing it was not asked for."""


class NoWeightsError(CutawayError, RuntimeError):
    """The model was loaded with `dispatch=False` and its weights cannot be had."""


class CheckError(CutawayError, AssertionError):
    """A model does not keep what the vocabulary promises; the message names the value and what differed.

    Attributes:
        value: the value's path; empty where no single one is at fault.
        claim: in a word, what was claimed of it: "sum", "lens", …; empty for the value itself.
    """

    def __init__(self, message: str, *, value: str = "", claim: str = "") -> None:
        super().__init__(message)
        self.value = value
        self.claim = claim


class NonFiniteWarning(UserWarning):
    """Attention scores overflowed the model's dtype; the message names the layer and the remedy."""


class LongPromptWarning(UserWarning):
    """A prompt is longer than the context for which the model was made, and the model runs all the same."""


class IdleEditWarning(UserWarning):
    """An edited model's edit did not act in a pass; the message says why."""


class UntestedWarning(UserWarning):
    """A check could not put a promise to the test on these weights or under this load; the message names it."""


class OrientationWarning(UserWarning):
    """A weight read under a standard name lies the other way than in most families; the message says how."""


def did_you_mean(
    given: str, names: Iterable[str], most: int = 3, shown: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A sentence that offers the names nearest to the one given, with a space before it; empty where none is near.

    `shown` says how a name is written in the sentence, where that is not as it is.
    """
    near = difflib.get_close_matches(given, list(dict.fromkeys(names)), n=most, cutoff=0.55)
    if not near:
        return ""
    *others, last = [f"'{shown.get(name, name)}'" for name in near]
    return f" Did you mean {', '.join(others) + ' or ' if others else ''}{last}?"

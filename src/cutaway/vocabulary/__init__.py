"""The standard vocabulary: the names, layouts and meanings that are the same for every family.

A *value* is something that flows through a forward pass. It hangs on a *host* (the model, a layer, its attention, mixer
or MLP), has a *layout* (the meaning of its axes), and a *path*: its host's path and its name, as in
`layers.3.self_attn.attention_queries`. This package is data and imports nothing else of Cutaway.
"""

from cutaway.vocabulary.config import CONFIG_NAMES, ConfigName
from cutaway.vocabulary.layouts import LAYOUTS, Layout
from cutaway.vocabulary.modules import MODULES, StandardModule
from cutaway.vocabulary.paths import ValuePath, all_paths, select_paths
from cutaway.vocabulary.values import COMMON, HOSTS, SUBLAYERS, VALUES, Host, Value, values_of
from cutaway.vocabulary.weights import WEIGHTS, Weight, weights_of

__all__ = [
    "COMMON",
    "CONFIG_NAMES",
    "HOSTS",
    "LAYOUTS",
    "MODULES",
    "SUBLAYERS",
    "VALUES",
    "WEIGHTS",
    "ConfigName",
    "Host",
    "Layout",
    "StandardModule",
    "Value",
    "ValuePath",
    "Weight",
    "all_paths",
    "select_paths",
    "values_of",
    "weights_of",
]

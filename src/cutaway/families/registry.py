"""The families that have a file, and finding the one that covers a model."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace as with_changes
from typing import TYPE_CHECKING, Any

from cutaway.errors import CutawayError, UnsupportedModelError
from cutaway.families.bloom import BLOOM
from cutaway.families.deepseek_v3 import DEEPSEEK_V3
from cutaway.families.falcon import FALCON
from cutaway.families.family import Family
from cutaway.families.gemma2 import GEMMA2
from cutaway.families.gemma3 import GEMMA3
from cutaway.families.gpt2 import GPT2
from cutaway.families.gpt_neox import GPT_NEOX
from cutaway.families.gpt_oss import GPT_OSS
from cutaway.families.gptj import GPTJ
from cutaway.families.granite import GRANITE
from cutaway.families.llama import LLAMA
from cutaway.families.mamba2 import MAMBA2
from cutaway.families.mistral import MISTRAL
from cutaway.families.mixtral import MIXTRAL
from cutaway.families.olmo2 import OLMO2
from cutaway.families.opt import OPT
from cutaway.families.phi import PHI
from cutaway.families.phi3 import PHI3
from cutaway.families.qwen2 import QWEN2
from cutaway.families.qwen3 import QWEN3
from cutaway.families.qwen3_moe import QWEN3_MOE
from cutaway.families.qwen3_next import QWEN3_NEXT
from cutaway.families.smollm3 import SMOLLM3
from cutaway.families.stablelm import STABLELM
from cutaway.vocabulary import VALUES, Value
from cutaway.vocabulary.values import as_rare

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        PHI,
        LLAMA,
        GPT2,
        GPT_NEOX,
        QWEN2,
        QWEN3,
        MISTRAL,
        MIXTRAL,
        QWEN3_MOE,
        GPT_OSS,
        DEEPSEEK_V3,
        MAMBA2,
        QWEN3_NEXT,
        GEMMA2,
        GEMMA3,
        OLMO2,
        GRANITE,
        SMOLLM3,
        PHI3,
        STABLELM,
        FALCON,
        BLOOM,
        OPT,
        GPTJ,
    )
}
"""All families by name."""

BUILT_IN = frozenset(FAMILIES)
"""The names of those that this package has."""


def family_of(architecture: str, config: PretrainedConfig) -> Family:
    """The family that covers a transformers class, as it is under this config.

    Raises:
        UnsupportedModelError: no family file covers the class, or its file does not hold under a setting.
    """
    for family in FAMILIES.values():
        if architecture in family.architectures:
            return family.of_config(config)
    covered = ", ".join(name for family in FAMILIES.values() for name in family.architectures)
    raise UnsupportedModelError(
        f"no family file covers {architecture}. Covered: {covered}. A model of it opens all the same, and its family "
        "is derived; `cutaway.families.propose(model)` drafts a file."
    )


def family_of_model(hf: PreTrainedModel) -> Family | None:
    """The family whose file covers a model: its class, a class that it derives from, or, where it has no language-model
    head, the class with one that stands in the same file of transformers and has the same kind of config. None where no
    file does.

    Raises:
        UnsupportedModelError: the file does not hold under a setting.
    """
    covered = {name: family for family in FAMILIES.values() for name in family.architectures}
    classes = type(hf).__mro__
    for cls in classes:
        if cls.__name__ in covered:
            return covered[cls.__name__].of_config(hf.config)
    for cls in classes:
        beside = vars(sys.modules.get(cls.__module__, sys))
        for name, family in covered.items():
            whole: Any = beside.get(name)
            if getattr(whole, "__module__", None) == cls.__module__ and isinstance(hf.config, whole.config_class):
                return _without_its_head(family.of_config(hf.config), hf, name)
    return None


def _without_its_head(family: Family, hf: PreTrainedModel, whole: str) -> Family:
    """The family for a model that has the blocks and another head, or none. `whole` is the class with the usual one."""
    from torch import nn

    names = dict(family.modules["model"])
    prefix = names["layers"].split(".")[0]
    own = "" if hf.base_model is hf else hf.base_model_prefix
    names = {
        name: ".".join(filter(None, (own, path.removeprefix(f"{prefix}."))))
        for name, path in names.items()
        if path.startswith(f"{prefix}.")
    } | {name: path for name, path in names.items() if not path.startswith(f"{prefix}.")}
    if isinstance(getattr(hf, names["lm_head"], None), nn.Module):
        return with_changes(family, modules={**family.modules, "model": names})
    del names["lm_head"]
    reason = (
        f"This is a {type(hf).__name__}, which has no language-model head. What it returns is `model.output`; for "
        f"logits over the vocabulary load the checkpoint as a {whole}."
    )
    lacks = ("lm_head_output", "logits")
    return with_changes(
        family,
        modules={**family.modules, "model": names},
        values={name: site for name, site in family.values.items() if name not in lacks},
        unavailable={**family.unavailable, **dict.fromkeys(lacks, reason)},
    )


def register(family: Family, *, replace: bool = False, values: Iterable[Value] = ()) -> None:
    """Makes a family that is written outside the package known, for as long as the process lasts.

    It may take over what a built-in one states: `replace(FAMILIES["llama"], …)` of `dataclasses`, with `replace=True`
    here. A class that derives from one of its architectures is covered too. For one model alone there is
    `StandardizedTransformer(model, family=family)`.

    Args:
        family: the family.
        replace: whether it takes the place of those that have its name or cover one of its architectures.
        values: rows that the vocabulary lacks and the family has sites for; other families do not have them.

    Raises:
        CutawayError: without `replace`, another family has its name or covers one of its architectures; or a value has
            the name of one that is there.
    """
    rows = tuple(values)
    for row in rows:
        if row.name in VALUES and VALUES[row.name] != as_rare(row):
            raise CutawayError(f"the vocabulary has a value `{row.name}` already: {VALUES[row.name].meaning}.")
    for other in tuple(FAMILIES.values()):
        shared = {other.name, *other.architectures} & {family.name, *family.architectures}
        if shared and not replace:
            raise CutawayError(
                f"the family '{other.name}' stands for {', '.join(sorted(shared))} already. Say replace=True to have "
                "this one in its place."
            )
        if shared:
            del FAMILIES[other.name]
    VALUES.update({row.name: as_rare(row) for row in rows})
    FAMILIES[family.name] = family

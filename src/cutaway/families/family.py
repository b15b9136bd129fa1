"""What a family file states. It is data: names, sites, and what the family lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cutaway.errors import UnsupportedModelError
from cutaway.families.stored import USUAL_WEIGHTS, Stored
from cutaway.sites import Site
from cutaway.vocabulary import CONFIG_NAMES, Host

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Variant:
    """What is other in the checkpoints of a family whose config says so.

    Attributes:
        setting: the config key that decides.
        is_: the value of it under which the variant holds.
        stream: the terms of `layer_output`, as in `Family`.
        values: sites in addition to the family's, or in the place of its own.
    """

    setting: str
    is_: object
    stream: tuple[str, ...]
    values: Mapping[str, Site]


@dataclass(frozen=True)
class Refusal:
    """A setting under which the family file does not hold, and why.

    `under` limits it to one implementation of attention, "eager" say.
    """

    setting: str
    why: str
    under: str = ""


@dataclass(frozen=True)
class Family:
    """A family of models under the standard vocabulary.

    Attributes:
        name: the word by which the family is known, and its page.
        architectures: the transformers classes it covers.
        checkpoints: well-known checkpoints, by their hub ids.
        modules: for each host, the family's own name of each standard module, relative to the host.
        sizes: the family's own config key of each standard size; a head's width is derived where it has no key.
        values: the site of each value that the family has. Derived values need none.
        unavailable: why each of the other values does not exist.
        stream: the terms whose sum is `layer_output`, in the order in which the family adds them, left to right.
        settings: the other config keys that the family file has considered. A key beyond these and transformers' common
            ones, set to something, is refused: it may change what a value means.
        variants: what is other where the config says so.
        refused: settings under which the file does not hold.
        weights: where each matrix of the vocabulary is kept; by default in the modules of the standard names.
        positions_from_mask: whether a left-padded row needs `position_ids` counted from its first real token. A rotary
            needs none, since its scores depend on distances alone.
    """

    name: str
    architectures: tuple[str, ...]
    checkpoints: tuple[str, ...]
    modules: Mapping[Host, Mapping[str, str]]
    sizes: Mapping[str, str]
    values: Mapping[str, Site]
    unavailable: Mapping[str, str]
    stream: tuple[str, ...]
    settings: frozenset[str]
    variants: tuple[Variant, ...] = ()
    refused: tuple[Refusal, ...] = ()
    weights: Mapping[str, Stored] = field(default_factory=lambda: USUAL_WEIGHTS)
    positions_from_mask: bool = False

    def of_config(self, config: PretrainedConfig) -> Family:
        """The family as it is for one checkpoint: itself, or one of its variants.

        Raises:
            UnsupportedModelError: the config sets a flag that is refused, or that the file has not considered; it
                names the flag.
        """
        self._refuse_settings(config)
        family = self
        for variant in self.variants:
            if getattr(config, variant.setting) == variant.is_:
                values = {**family.values, **variant.values}
                lacks = {name: why for name, why in family.unavailable.items() if name not in values}
                family = replace(family, values=values, unavailable=lacks, stream=variant.stream)
        return family

    def native_sizes(self, config: PretrainedConfig) -> dict[str, int]:
        """The sizes of a checkpoint under their standard names.

        A config may leave out what follows from the rest: as many key heads as query heads, heads that share the
        stream's width evenly, an MLP four times as wide as the stream.
        """
        sizes = {name: getattr(config, key, None) for name, key in self.sizes.items()}
        sizes.setdefault("head_dim", getattr(config, "head_dim", None))
        found = {name: int(size) for name, size in sizes.items() if size is not None}
        found.setdefault("num_kv_heads", found["num_heads"])
        found.setdefault("head_dim", found["hidden_size"] // found["num_heads"])
        found.setdefault("qk_head_dim", found["head_dim"])
        found.setdefault("intermediate_size", 4 * found["hidden_size"])
        return {name: found[name] for name in CONFIG_NAMES}

    def _refuse_settings(self, config: PretrainedConfig) -> None:
        for refusal in self.refused:
            implementation = config._attn_implementation
            if getattr(config, refusal.setting, None) and refusal.under in ("", implementation):
                under = f" under {refusal.under} attention" if refusal.under else ""
                raise UnsupportedModelError(
                    f"the config sets `{refusal.setting}`, with which the family file of {self.name} does not hold"
                    f"{under}: {refusal.why}"
                )
        considered = uncommon_settings(config) - self.settings - set(self.sizes.values())
        for key in sorted(considered - {refusal.setting for refusal in self.refused}):
            raise UnsupportedModelError(
                f"the config sets `{key}` to {getattr(config, key)!r}, which the family file of {self.name} has not "
                "considered; it may change what a value means. If it does not, add it to the family's `settings`."
            )


def uncommon_settings(config: PretrainedConfig) -> set[str]:
    """The keys that a config sets to something, beyond those that every config has."""
    from transformers import PretrainedConfig

    common = set(PretrainedConfig().to_dict()) | _BOOKKEEPING
    nothing = (None, False, {}, [])
    set_to_something = {key for key, value in config.to_dict().items() if value not in nothing}
    return {key for key in set_to_something - common if not key.startswith("_")}


_BOOKKEEPING = {
    "auto_map",
    "bos_token_id",
    "eos_token_id",
    "model_type",
    "pad_token_id",
    "quantization_config",
    "task_specific_params",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
}
"""Keys of a config that say nothing of how a value is computed."""

"""What a family file states. It is data: names, sites, and what the family lacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cutaway.errors import UnsupportedModelError
from cutaway.sites import Site
from cutaway.vocabulary import CONFIG_NAMES, Host

if TYPE_CHECKING:
    from transformers import PretrainedConfig


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
        stream: the terms whose sum is `layer_output`, in the order in which the family adds them.
        settings: config keys that the family file has considered. A key beyond these and transformers' common ones,
            set to something, is refused: it may change what a value means.
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

    def native_sizes(self, config: PretrainedConfig) -> dict[str, int]:
        """The sizes of a checkpoint under their standard names."""
        sizes = {name: getattr(config, key, None) for name, key in self.sizes.items()}
        sizes.setdefault("head_dim", getattr(config, "head_dim", None))
        found = {name: int(size) for name, size in sizes.items() if size is not None}
        found.setdefault("num_kv_heads", found["num_heads"])
        found.setdefault("head_dim", found["hidden_size"] // found["num_heads"])
        found.setdefault("qk_head_dim", found["head_dim"])
        return {name: found[name] for name in CONFIG_NAMES}

    def refuse_unknown_settings(self, config: PretrainedConfig) -> None:
        """Raises where the config sets a flag that this family file has not considered.

        Raises:
            UnsupportedModelError: it names the flag.
        """
        from transformers import PretrainedConfig

        common = set(PretrainedConfig().to_dict()) | _BOOKKEEPING
        for key, value in config.to_dict().items():
            if value in (None, False, {}, []) or key in common or key in self.settings:
                continue
            raise UnsupportedModelError(
                f"the config sets `{key}` to {value!r}, which the family file of {self.name} has not considered; it "
                "may change what a value means. If it does not, add it to the family's `settings`."
            )


_BOOKKEEPING = {
    "_name_or_path",
    "auto_map",
    "bos_token_id",
    "eos_token_id",
    "model_type",
    "pad_token_id",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}
"""Keys of a config that say nothing of how a value is computed."""

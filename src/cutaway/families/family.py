"""What a family file states. It is data: names, sites, and what the family lacks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cutaway.errors import UnsupportedModelError
from cutaway.families.lacks import why_lacking
from cutaway.families.stored import USUAL_WEIGHTS, Stored
from cutaway.families.stream import Sum, with_numbers
from cutaway.sites import Site
from cutaway.vocabulary import CONFIG_NAMES, SUBLAYERS, VALUES, Host

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Variant:
    """What is other in the checkpoints of a family whose config says so.

    Attributes:
        setting: the config key that decides.
        is_: the value of it under which the variant holds.
        unlike: in the place of that, another config key: the variant holds if the two are not the same.
        modules, sizes, values: in addition to the family's, or in the place of its own.
        unavailable: values that the variant does not have, and why.
        stream: the sum in the place of the family's; None for the same.
        no_lens: as in `Family`; None for the same.
    """

    setting: str
    is_: object = None
    unlike: str = ""
    modules: Mapping[Host, Mapping[str, str]] = field(default_factory=dict[Host, Mapping[str, str]])
    sizes: Mapping[str, str | int] = field(default_factory=dict[str, str | int])
    values: Mapping[str, Site] = field(default_factory=dict[str, Site])
    unavailable: Mapping[str, str] = field(default_factory=dict[str, str])
    stream: Sum | None = None
    no_lens: str | None = None

    def holds(self, config: PretrainedConfig) -> bool:
        """Whether a checkpoint with this config is one of these."""
        found = getattr(config, self.setting)
        return found != getattr(config, self.unlike) if self.unlike else found == self.is_


@dataclass(frozen=True)
class Kind:
    """What is other on the layers of one kind, in a family whose layers are of several.

    A layer is of a kind if it has a module, by which it is told whatever the config says, or where none differs, if the
    config says so; several kinds may be laid over one layer, one after the other, as "a recurrence" and "experts" are.

    Attributes:
        name: what such a layer has, in words: "experts".
        has: the path of a module below the layer that the layers of this kind have, and the others have not.
        setting: in the place of that, a config key with an entry for each layer.
        is_: the entry of the layers of this kind.
        layers: their numbers, where these are known and not to be told.
        modules: as in `Family`: of the layer those in addition to the family's, and of a sublayer all that it has.
        values, unavailable: in addition to the family's, or in the place of its own.
        lacks: the hosts that these layers do not have, with all their values.
        stream: the sum in the place of the family's; None for the same.
        no_sum, premix_differs: as in `Family`; None for the same.
    """

    name: str
    has: str = ""
    setting: str = ""
    is_: object = None
    layers: frozenset[int] = frozenset()
    modules: Mapping[Host, Mapping[str, str]] = field(default_factory=dict[Host, Mapping[str, str]])
    values: Mapping[str, Site] = field(default_factory=dict[str, Site])
    unavailable: Mapping[str, str] = field(default_factory=dict[str, str])
    lacks: tuple[Host, ...] = ()
    stream: Sum | None = None
    no_sum: str | None = None
    premix_differs: str | None = None


@dataclass(frozen=True)
class TakenOff:
    """A claim of a derived family that did not hold on the model's own weights, and by how much.

    Attributes:
        claim: the value, or what was said of values, in words.
        layers: on which layers; empty for a claim about the model.
        why: what was measured.
    """

    claim: str
    layers: tuple[int, ...]
    why: str

    def told(self) -> str:
        """It in a sentence."""
        layers = f" on layers {', '.join(map(str, self.layers))}" if self.layers else ""
        return f"{self.claim}{layers}: {self.why}"


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
        sizes: the family's own config key of each standard size, or its number where no key has it; a head's width is
            worked out where it has no key.
        values: the site of each value that the family has. Derived values need none.
        unavailable: why each of the other values does not exist.
        stream: the sum that is `layer_output`, in the order in which the family adds it; empty where none is.
        no_sum: why it is not.
        kinds: what is other on some of the layers.
        premix_differs: how `attention_premix` differs from the head outputs side by side; empty where it is them.
        no_lens: what the model does between the final norm and the head, or has in their place; empty where the head
            reads the norm's output.
        settings: the other config keys that the family file has considered. A key beyond these and transformers' common
            ones, set to something, is refused: it may change what a value means.
        variants: what is other where the config says so.
        refused: settings under which the file does not hold.
        weights: where each matrix of the vocabulary is kept; by default in the modules of the standard names.
        positions_from_mask: whether a left-padded row needs `position_ids` counted from its first real token. A rotary
            needs none, since its scores depend on distances alone.
        derived: whether it was found in a pass of the model, and is not written by hand.
        measured: of a derived one, whether its claims were put to the test on the model's weights.
        taken_off: of a derived one, the claims that did not hold there.
    """

    name: str
    architectures: tuple[str, ...]
    checkpoints: tuple[str, ...]
    modules: Mapping[Host, Mapping[str, str]]
    sizes: Mapping[str, str | int]
    values: Mapping[str, Site]
    unavailable: Mapping[str, str]
    stream: Sum
    settings: frozenset[str]
    variants: tuple[Variant, ...] = ()
    refused: tuple[Refusal, ...] = ()
    weights: Mapping[str, Stored] = field(default_factory=lambda: USUAL_WEIGHTS)
    positions_from_mask: bool = False
    kinds: tuple[Kind, ...] = ()
    no_sum: str = ""
    premix_differs: str = ""
    no_lens: str = ""
    derived: bool = False
    measured: bool = False
    taken_off: tuple[TakenOff, ...] = ()

    def of_config(self, config: PretrainedConfig) -> Family:
        """The family as it is for one checkpoint: itself, or one of its variants.

        Raises:
            UnsupportedModelError: the config sets a flag that is refused, or that the file has not considered; it
                names the flag.
        """
        self._refuse_settings(config)
        family = self
        for variant in self.variants:
            if variant.holds(config):
                values = {**family.values, **variant.values}
                values = {name: site for name, site in values.items() if name not in variant.unavailable}
                lacks = {**family.unavailable, **variant.unavailable}
                lacks = {name: why for name, why in lacks.items() if name not in values}
                modules = _with_modules(family.modules, variant.modules)
                sizes = {**family.sizes, **variant.sizes}
                stream = family.stream if variant.stream is None else variant.stream
                no_lens = family.no_lens if variant.no_lens is None else variant.no_lens
                family = replace(
                    family,
                    modules=modules,
                    sizes=sizes,
                    values=values,
                    unavailable=lacks,
                    stream=stream,
                    no_lens=no_lens,
                )
        kinds = tuple(replace(kind, stream=with_numbers(kind.stream, config)) for kind in family.kinds)
        return replace(family, stream=with_numbers(family.stream, config), kinds=kinds)

    def with_kinds(self, kinds: Iterable[Kind]) -> Family:
        """The family as it is on a layer of these kinds."""
        family = self
        for kind in kinds:
            gone = _gone(kind) | dict(kind.unavailable)
            modules = _with_modules(family.modules, kind.modules)
            modules |= {host: names for host, names in kind.modules.items() if host in SUBLAYERS}
            for host in kind.lacks:
                modules.pop(host, None)
                modules["layer"] = {name: own for name, own in modules["layer"].items() if name != SUBLAYERS[host]}
            values = {name: site for name, site in family.values.items() if name not in gone} | dict(kind.values)
            family = replace(
                family,
                modules=modules,
                values=values,
                unavailable={name: why for name, why in {**family.unavailable, **gone}.items() if name not in values},
                stream=family.stream if kind.stream is None else kind.stream,
                no_sum=family.no_sum if kind.no_sum is None else kind.no_sum,
                premix_differs=family.premix_differs if kind.premix_differs is None else kind.premix_differs,
            )
        return replace(family, kinds=())

    def why_lacking(self, name: str) -> str:
        """Why the family has no site for a value, in a sentence."""
        return self.unavailable.get(name) or why_lacking(name, self.name, derived=self.derived)

    def config_keys(self) -> list[str]:
        """The config's own keys of the sizes."""
        return [key for key in self.sizes.values() if isinstance(key, str)]

    def native_sizes(self, config: PretrainedConfig) -> dict[str, int]:
        """The sizes of a checkpoint under their standard names, as far as its config tells them.

        A config may leave out what follows from the rest: as many key heads as query heads, heads that share the
        stream's width evenly, an MLP four times as wide as the stream.
        """
        own = {name: key if isinstance(key, int) else setting(config, key) for name, key in self.sizes.items()}
        if "num_heads" in own:
            own.setdefault("head_dim", setting(config, "head_dim"))
        found = {name: int(size) for name, size in own.items() if isinstance(size, int)}
        if "num_heads" in found:
            found.setdefault("num_kv_heads", found["num_heads"])
            found.setdefault("head_dim", found["hidden_size"] // found["num_heads"])
            found.setdefault("qk_head_dim", found["head_dim"])
        if "mlp_neurons" in self.values:
            found.setdefault("intermediate_size", 4 * found["hidden_size"])
        return {name: found[name] for name in CONFIG_NAMES if name in found}

    def _refuse_settings(self, config: PretrainedConfig) -> None:
        if self.derived:
            return  # it was found under these very settings
        for refusal in self.refused:
            implementation = config._attn_implementation
            if getattr(config, refusal.setting, None) and refusal.under in ("", implementation):
                under = f" under {refusal.under} attention" if refusal.under else ""
                raise UnsupportedModelError(
                    f"the config sets `{refusal.setting}`, with which the family file of {self.name} does not hold"
                    f"{under}: {refusal.why} {_INSTEAD}"
                )
        considered = uncommon_settings(config) - self.settings - set(self.config_keys())
        for key in sorted(considered - {refusal.setting for refusal in self.refused}):
            raise UnsupportedModelError(
                f"the config sets `{key}` to {getattr(config, key)!r}, which the family file of {self.name} has not "
                "considered; it may change what a value means. If it does not, add it to the family's `settings`. "
                f"{_INSTEAD}"
            )


def setting(config: Any, key: str) -> Any:
    """What a config has under a key, None where nothing; some refuse to tell what is another on each layer."""
    try:
        return getattr(config, key, None)
    except Exception:  # of transformers' own, which is no `AttributeError`
        return None


def _with_modules(
    modules: Mapping[Host, Mapping[str, str]], more: Mapping[Host, Mapping[str, str]]
) -> dict[Host, Mapping[str, str]]:
    hosts = dict.fromkeys((*modules, *more))
    return {host: {**modules.get(host, {}), **more.get(host, {})} for host in hosts}


def _gone(kind: Kind) -> dict[str, str]:
    """The values of the hosts that the layers of a kind do not have, and why."""
    why = "This is a layer with {}, and has no {}."
    return {
        name: why.format(kind.name, _WORDS[host])
        for name, value in VALUES.items()
        for host in (_NORM_OF.get(name, value.host),)
        if host in kind.lacks
    }


_NORM_OF: dict[str, Host] = {
    "attention_norm_output": "attention",
    "mixer_norm_output": "mixer",
    "mlp_norm_output": "mlp",
    "mlp_input": "mlp",
}
"""Values of a layer that go with one of its sublayers."""

_WORDS: dict[Host, str] = {"attention": "attention", "mixer": "mixer", "mlp": "MLP"}


def uncommon_settings(config: PretrainedConfig) -> set[str]:
    """The keys that a config sets to something, beyond those that every config has."""
    from transformers import PretrainedConfig

    common = set(PretrainedConfig().to_dict()) | _BOOKKEEPING
    nothing = (None, False, {}, [])
    set_to_something = {key for key, value in config.to_dict().items() if value not in nothing}
    return {key for key in set_to_something - common if not key.startswith("_")}


_INSTEAD = (
    'With family="derived" the model opens all the same, with what is found in a pass of it and holds on its weights.'
)

_BOOKKEEPING = {
    "auto_map",
    "bos_token_id",
    "eos_token_id",
    "model_type",
    "pad_token_id",
    "prefix",
    "quantization_config",
    "task_specific_params",
    "torch_dtype",
    "transformers.js_config",
    "transformers_version",
    "unk_token_id",
    "use_cache",
}
"""Keys of a config that say nothing of how a value is computed."""

"""The options with which a model is opened: each is used, or refused by name.

What is loaded already is not loaded again, so that options of loading say something about it or are refused. Of those
that are given with a checkpoint, transformers drops some that it does not know, and hands others on. A value that
nobody knows would surface as the fault of the weights, once they have all been read; so it is refused before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel
from transformers.utils.quantization_config import QuantizationConfigMixin

from cutaway.errors import OptionError, did_you_mean
from cutaway.subject.option_values import (
    DEVICE_MAPS,
    dtype_of,
    refuse_unknown_attention,
    refuse_unknown_device,
    refuse_unknown_map,
    refuse_unknown_settings,
)
from cutaway.vocabulary.elsewhere import argument_elsewhere


@dataclass(frozen=True)
class Row:
    """An option: what it is for, and of what kind its values are.

    Attributes:
        goes: "here" where it is used by us; "files" where it says which files config, tokenizer and weights are read
            from; "hub" where it says so and has no effect on a folder; "weights" where it says how weights are loaded;
            "map" where it does so beside a device map alone; "nowhere" where it is refused.
        kinds: the classes of its values; none where any will do, or where they are looked at one by one.
        told: what its values are, or why it is refused, in words.
    """

    goes: str
    kinds: tuple[type, ...] = ()
    told: str = ""


_TEXT = Row("files", (str,), "a text")
_YES_OR_NO = Row("weights", (bool,), "True or False")
_NO_MORE = Row("nowhere", (), "transformers does nothing with it any more; leave it out")

TABLE: dict[str, Row] = {
    "tokenizer": Row("here"),
    "dtype": Row("here"),
    "torch_dtype": Row("here"),
    "device": Row("here"),
    "attn_implementation": Row("here"),
    "dispatch": Row("here"),
    "check": Row("here"),
    "family": Row("here"),
    "allow_pickle": Row("here"),
    "trust_remote_code": Row("here"),
    "cache_dir": Row("files"),
    "code_revision": _TEXT,
    "force_download": replace(_YES_OR_NO, goes="files"),
    "gguf_file": _TEXT,
    "local_files_only": replace(_YES_OR_NO, goes="files"),
    "proxies": Row("files", (Mapping,), "a mapping from protocols to addresses"),
    "revision": replace(_TEXT, goes="hub"),
    "subfolder": _TEXT,
    "token": Row("files", (str, bool), "a text, or True for the one that is stored"),
    "adapter_kwargs": Row("weights", (Mapping,), "a mapping"),
    "adapter_name": Row("weights", (str,), "a text"),
    "allow_all_kernels": _YES_OR_NO,
    "device_map": Row("weights"),
    "device_mesh": Row("weights"),
    "disable_mmap": _YES_OR_NO,
    "distributed_config": Row("weights"),
    "experts_implementation": Row("weights", (str, Mapping), "a name, or a mapping from parts of the model to names"),
    "fusion_config": Row("weights"),
    "generation_config": Row("weights", (GenerationConfig, str), "a GenerationConfig, or the folder that holds one"),
    "ignore_mismatched_sizes": _YES_OR_NO,
    "kernel_config": Row("weights"),
    "key_mapping": Row("weights", (Mapping,), "a mapping from patterns to names"),
    "max_memory": Row("map", (Mapping,), "a mapping from devices to sizes"),
    "offload_buffers": replace(_YES_OR_NO, goes="map"),
    "offload_folder": Row("map"),
    "quantization_config": Row(
        "weights", (QuantizationConfigMixin, Mapping), "a BitsAndBytesConfig, or one of its kin"
    ),
    "tp_plan": Row("weights"),
    "tp_size": Row("weights", (int,), "a whole number"),
    "tqdm_class": Row("weights", (type,), "a class"),
    "use_kernels": _YES_OR_NO,
    "use_safetensors": _YES_OR_NO,
    "variant": Row("weights", (str,), "a text"),
    "weights_only": _YES_OR_NO,
    "config": Row(
        "nowhere",
        (),
        "a config is given as the model itself, and is then filled at random; single settings of a checkpoint's config "
        "are options of their own",
    ),
    "state_dict": Row("nowhere", (), "build the model with transformers, and give it"),
    "output_loading_info": Row("nowhere", (), "what does not fit is an error here"),
    "return_unused_kwargs": Row("nowhere", (), "nothing is left unused here"),
    "load_in_8bit": Row("nowhere", (), "say quantization_config=BitsAndBytesConfig(load_in_8bit=True)"),
    "load_in_4bit": Row("nowhere", (), "say quantization_config=BitsAndBytesConfig(load_in_4bit=True)"),
    "low_cpu_mem_usage": _NO_MORE,
    "mirror": _NO_MORE,
    "from_tf": _NO_MORE,
    "from_flax": _NO_MORE,
    "offload_state_dict": _NO_MORE,
}
"""Every option that is not a setting of a checkpoint's config: ours, and those of transformers' `from_pretrained`."""


@dataclass(frozen=True)
class Options:
    """How a checkpoint is opened; `extra` goes to `from_pretrained`."""

    dtype: torch.dtype | str | None = None
    attn_implementation: str | None = None
    device: torch.device | str | None = None
    allow_pickle: bool = False
    trust_remote_code: bool = False
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    def checked(self) -> Options:
        """The same, an older name of the dtype under ours, and without those that are None, as if they were not given.

        Raises:
            OptionError: a value is of no kind, or no name, that is known, or two options say one thing.
        """
        extra = {name: value for name, value in self.extra.items() if value is not None or name not in TABLE}
        dtype = self.dtype
        if "torch_dtype" in extra:
            if dtype is not None:
                raise OptionError("`torch_dtype` is the former name of `dtype`. Give one of them.")
            dtype = extra.pop("torch_dtype")
        refuse_unless_yes_or_no(allow_pickle=self.allow_pickle, trust_remote_code=self.trust_remote_code)
        for name, value in extra.items():
            row = TABLE.get(name)
            if row is not None and row.kinds and not isinstance(value, row.kinds):
                raise OptionError(f"`{name}` is {row.told}; it was given {_shown(value)}.")
        refuse_unknown_attention(self.attn_implementation)
        if self.device is not None:
            refuse_unknown_device(self.device, "device", ())
        refuse_unknown_map(extra.get("device_map"))
        if self.device is not None and "device_map" in extra:
            raise OptionError(
                "a device and a device map were given, and both say where the model goes. Give one of them."
            )
        if isinstance(extra.get("tp_plan"), str) and extra["tp_plan"] != "auto":
            raise OptionError(f"no tensor parallel plan is called '{extra['tp_plan']}'. It is 'auto', or a mapping.")
        refuse_unknown_settings(extra.get("quantization_config"))
        return replace(self, dtype=dtype_of(dtype), extra=extra)

    @property
    def hub(self) -> dict[str, Any]:
        """Which version of a checkpoint, and how it is fetched: what config, tokenizer and weights are told alike."""
        return {name: value for name, value in self.extra.items() if name in TABLE and TABLE[name].goes in _FILES}


_FILES = ("files", "hub")
_REFUSED = frozenset(name for name, row in TABLE.items() if row.goes == "nowhere")
_OURS = tuple(name for name, row in TABLE.items() if row.goes == "here")


def refuse_unless_yes_or_no(**flags: Any) -> None:
    """Raises an `OptionError` for a flag that is neither True nor False: any text would count as True."""
    for name, value in flags.items():
        if isinstance(value, str) or (value is not None and value not in (True, False)):
            raise OptionError(f"`{name}` is True or False; it was given {_shown(value)}.")


def refuse_for_loaded(hf: PreTrainedModel, dispatch: bool, options: Options) -> None:
    """Raises where an option says anything else of a loaded model than what it is.

    Raises:
        OptionError: naming the option, and what to do instead.
    """
    instead = "Give it to transformers' `from_pretrained`."
    _refuse_extra(options.extra, hf.config, "a model that is loaded already", instead)
    if options.dtype not in (None, "auto", hf.dtype):
        _refuse(f"dtype={options.dtype}", f"it is {hf.dtype}", f"convert it first: `hf.to({options.dtype})`")
    if options.device is not None and not _same_device(torch.device(options.device), hf.device):
        _refuse(
            f"device={str(options.device)!r}", f"it is on {hf.device}", f"move it first: `hf.to('{options.device}')`"
        )
    own = hf.config._attn_implementation
    if options.attn_implementation not in (None, own, {"": own}):
        asked = repr(options.attn_implementation)
        _refuse(
            f"attn_implementation={asked}", f"it runs {own} attention", f"say `hf.set_attn_implementation({asked})`"
        )
    if not dispatch and hf.device.type != "meta":
        _refuse("dispatch=False", "it has its weights", "give a checkpoint's name, or a config, to have none in memory")
    for name in ("allow_pickle", "trust_remote_code"):
        if getattr(options, name):
            _refuse(f"{name}=True", "nothing more is read from files")


def refuse_for_config(config: PretrainedConfig, options: Options) -> None:
    """Raises where an option is given with a config that says something of files.

    Raises:
        OptionError: naming the option, and what to do instead.
    """
    _refuse_extra(options.extra, config, "a config, which has no files", "Set what is meant on the config.")
    if options.allow_pickle:
        raise OptionError("`allow_pickle` has no effect on a config, which has no files. Leave it out.")


def refuse_for_folder(options: Options) -> None:
    """Raises where an option is given with a folder that says which of the hub's versions is meant.

    Raises:
        OptionError: naming the option.
    """
    for name in options.extra:
        if name in TABLE and TABLE[name].goes == "hub":
            raise OptionError(f"`{name}` has no effect on a folder: it is of the hub's versions. Leave it out.")


def config_settings(config: PretrainedConfig, options: Options) -> dict[str, Any]:
    """Those of the further options that are settings of a checkpoint's config.

    Raises:
        OptionError: an option that nobody uses; near names are listed.
    """
    settings = config.to_dict()
    found: dict[str, Any] = {}
    for name, value in options.extra.items():
        if name in _REFUSED:
            raise OptionError(f"`{name}` cannot be given here: {TABLE[name].told}.")
        if name in TABLE:
            if TABLE[name].goes == "map" and "device_map" not in options.extra:
                some = " or ".join(map(repr, DEVICE_MAPS[:2]))
                raise OptionError(f"`{name}` has an effect beside a device map alone: say device_map={some} too.")
            continue
        if name not in settings or name.startswith("_"):
            raise OptionError(f"nobody knows an option `{name}`.{_near(name, settings)}")
        found[name] = value
    return found


def _refuse_extra(extra: Mapping[str, Any], config: PretrainedConfig, what: str, instead: str) -> None:
    settings = config.to_dict()
    for name in extra:
        near = "" if name in TABLE or name in settings else _near(name, ())
        raise OptionError(f"`{name}` has no effect on {what}.{near or f' {instead}'}")


def _near(name: str, settings: Iterable[str]) -> str:
    """What is meant by a name: ours before transformers', and these before a config's settings."""
    begun = [ours for ours in _OURS if ours.startswith(name)]
    given = begun[0] if begun else name
    known = [known for known in TABLE if known not in _REFUSED]
    return (
        argument_elsewhere(name)
        or did_you_mean(given, _OURS)
        or did_you_mean(given, known)
        or did_you_mean(given, sorted(settings))
    )


def _refuse(option: str, what: str, instead: str = "") -> None:
    instead = f", or {instead}" if instead else ""
    raise OptionError(f"{option} has no effect on a model that is loaded already: {what}. Leave it out{instead}.")


def _same_device(asked: torch.device, own: torch.device) -> bool:
    return asked.type == own.type and asked.index in (None, own.index)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (str, int, float)) else f"a {type(value).__name__}"

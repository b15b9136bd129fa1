"""The options with which a model is opened: each is used, or refused by name.

What is loaded already is not loaded again, so that options of loading say something about it or are refused. Of those
that are given with a checkpoint, transformers drops some that it does not know, and hands others on.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from cutaway.errors import LoadError
from cutaway.vocabulary.elsewhere import near_argument


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
        """The same, an older name of the dtype under ours.

        Raises:
            LoadError: a dtype that torch does not know, or one given under two names.
        """
        options = self
        if "torch_dtype" in self.extra:
            if self.dtype is not None:
                raise LoadError("`torch_dtype` is the former name of `dtype`. Give one of them.")
            extra = {name: value for name, value in self.extra.items() if name != "torch_dtype"}
            options = replace(self, dtype=self.extra["torch_dtype"], extra=extra)
        _dtype(options.dtype)
        return options

    @property
    def hub(self) -> dict[str, Any]:
        """Which version of a checkpoint, and how it is fetched: what config, tokenizer and weights are told alike."""
        return {name: value for name, value in self.extra.items() if name in _HUB}


_HUB = (
    "cache_dir",
    "code_revision",
    "force_download",
    "gguf_file",
    "local_files_only",
    "proxies",
    "revision",
    "subfolder",
    "token",
)

_OURS = ("tokenizer", "dtype", "device", "attn_implementation", "dispatch", "check", "allow_pickle")

_LOADING = {
    *("adapter_kwargs", "adapter_name", "allow_all_kernels", "code_revision", "device_map", "device_mesh"),
    *("distributed_config", "experts_implementation", "generation_config", "gguf_file", "kernel_config", "key_mapping"),
    *("max_memory", "offload_buffers", "offload_folder", "proxies", "quantization_config", "subfolder", "tp_plan"),
    *("tp_size", "tqdm_class", "use_kernels", "variant"),
}
"""What `from_pretrained` takes out of its keywords without naming it."""

_NOT_FOR_HERE = {
    "config": "a config is given as the model itself, and is then filled at random; single settings of a checkpoint's "
    "config are options of their own",
    "state_dict": "build the model with transformers, and give it",
    "output_loading_info": "what does not fit is an error here",
    "return_unused_kwargs": "nothing is left unused here",
    "load_in_8bit": "say quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
    "load_in_4bit": "say quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    **dict.fromkeys(
        ("low_cpu_mem_usage", "mirror", "from_tf", "from_flax", "offload_state_dict"),
        "transformers does nothing with it any more; leave it out",
    ),
}


def refuse_for_loaded(hf: PreTrainedModel, dispatch: bool, options: Options) -> None:
    """Raises where an option says anything else of a loaded model than what it is.

    Raises:
        LoadError: naming the option, and what to do instead.
    """
    _refuse_extra(options.extra, "a model that is loaded already", "Give it to transformers' `from_pretrained`.")
    if options.dtype not in (None, "auto") and _dtype(options.dtype) != hf.dtype:
        _refuse(f"dtype={options.dtype!r}", f"it is {hf.dtype}", f"convert it first: `hf.to({_dtype(options.dtype)})`")
    if options.device is not None and not _same_device(torch.device(options.device), hf.device):
        _refuse(
            f"device={str(options.device)!r}", f"it is on {hf.device}", f"move it first: `hf.to('{options.device}')`"
        )
    own = hf.config._attn_implementation
    if options.attn_implementation not in (None, own):
        asked = repr(options.attn_implementation)
        _refuse(
            f"attn_implementation={asked}", f"it runs {own} attention", f"say `hf.set_attn_implementation({asked})`"
        )
    if not dispatch and hf.device.type != "meta":
        _refuse("dispatch=False", "it has its weights", "give a checkpoint's name, or a config, to have none in memory")
    for name in ("allow_pickle", "trust_remote_code"):
        if getattr(options, name):
            _refuse(f"{name}=True", "nothing more is read from files", "leave it out")


def refuse_for_config(options: Options) -> None:
    """Raises where an option is given with a config that says something of files.

    Raises:
        LoadError: naming the option, and what to do instead.
    """
    _refuse_extra(options.extra, "a config, which has no files", "Set what is meant on the config.")
    if options.allow_pickle:
        raise LoadError("`allow_pickle` has no effect on a config, which has no files. Leave it out.")


def config_settings(config: PretrainedConfig, options: Options) -> dict[str, Any]:
    """Those of the further options that are settings of a checkpoint's config.

    Raises:
        LoadError: an option that nobody uses; near names are listed.
    """
    settings = config.to_dict()
    known = {*inspect.signature(PreTrainedModel.from_pretrained).parameters, *_LOADING} - _VAGUE
    found: dict[str, Any] = {}
    for name, value in options.extra.items():
        if name in _NOT_FOR_HERE:
            raise LoadError(f"`{name}` cannot be given here: {_NOT_FOR_HERE[name]}.")
        if name in known:
            continue
        if name not in settings or name.startswith("_"):
            raise LoadError(f"nobody knows an option `{name}`.{_near(name, {*_OURS, *known, *settings})}")
        found[name] = value
    return found


_VAGUE = {"cls", "self", "args", "kwargs", "model_args", "pretrained_model_name_or_path", *_NOT_FOR_HERE}


def _refuse_extra(extra: Mapping[str, Any], what: str, instead: str) -> None:
    for name in extra:
        near = _near(name, _OURS)
        raise LoadError(f"`{name}` has no effect on {what}.{near or f' {instead}'}")


def _near(name: str, known: Iterable[str]) -> str:
    return near_argument(name, sorted(known))


def _refuse(option: str, what: str, instead: str) -> None:
    raise LoadError(f"{option} has no effect on a model that is loaded already: {what}. Leave it out, or {instead}.")


def _same_device(asked: torch.device, own: torch.device) -> bool:
    return asked.type == own.type and asked.index in (None, own.index)


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    if dtype is None or dtype == "auto" or isinstance(dtype, torch.dtype):
        return None if isinstance(dtype, str) else dtype
    found = getattr(torch, dtype.removeprefix("torch."), None) if isinstance(dtype, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if not isinstance(found, torch.dtype):
        names = ("float32", "float16", "bfloat16", "float64")
        raise LoadError(f"dtype={dtype!r} is no dtype of torch.{_near(str(dtype), names)}")
    return found

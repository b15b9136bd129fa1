"""Opening a model from whatever names it: a hub id, a local folder, a built-in name, a loaded model, or a config."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from cutaway.errors import LoadError, UnknownModelError
from cutaway.families import FAMILIES, Family
from cutaway.subject.files import as_load_errors, check_config, one_line, read_native_config
from cutaway.subject.loading import (
    folder_in,
    gguf_file,
    load_tokenizer,
    load_weights,
    on_device,
    quiet_hub,
    some_of,
    without_none,
)
from cutaway.subject.option_values import refuse_unknown_parts
from cutaway.subject.options import Options, config_settings, refuse_for_config, refuse_for_folder, refuse_for_loaded
from cutaway.subject.source_names import SHIPPED_CONFIGS, data_folder, known_like, locate
from cutaway.subject.wrappers import unwrapped

Source = str | Path | nn.Module | PretrainedConfig


@dataclass
class Opened:
    """A model, its name, a tokenizer or None, and where it came without weights, what brings them."""

    hf: PreTrainedModel
    tokenizer: Any
    name: str
    load_weights: Callable[[], PreTrainedModel] | None = None
    wrappers: tuple[nn.Module, ...] = ()
    """What the model was taken out of."""


def open_model(source: Source, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    """Opens a model; with `dispatch=False` on the meta device, its weights to come later.

    Raises:
        LoadError: it cannot be found, read, or is in a form that is refused.
        OptionError: nobody knows an option, or its value, or it has no effect on what is opened.
        UnsupportedModelError: no family file covers its architecture.
    """
    options = options.checked()
    try:
        return _open(source, tokenizer, dispatch, options)
    except ImportError as error:
        raise LoadError(f"the model needs a package that is not installed: {one_line(error)}.") from error


def _open(source: Source, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    if isinstance(source, nn.Module):
        hf, wrappers = unwrapped(source)
        refuse_for_loaded(hf, dispatch, options)
        return Opened(hf, tokenizer, hf.config._name_or_path or type(hf).__name__, None, wrappers)
    if isinstance(source, PretrainedConfig):
        return _from_config(source, tokenizer, dispatch, options)
    if not isinstance(source, (str, Path)):  # pyright: ignore[reportUnnecessaryIsInstance]  # what users give is not typed
        raise LoadError(
            "a model is named by a hub id, a folder, a built-in name, a transformers model or a config; it was given a "
            f"{type(source).__name__}."
        )
    return _from_checkpoint(str(source), tokenizer, dispatch, options)


def open_tokenizer(name: str, options: Options) -> Any:
    """The tokenizer of a checkpoint, named as a model is; None where a folder has none.

    Raises:
        LoadError: it cannot be found or read.
    """
    return load_tokenizer(locate(name), options)


def _from_config(config: PretrainedConfig, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    name = config._name_or_path or f"random {type(config).__name__.removesuffix('Config')}"
    refuse_for_config(config, options)
    refuse_unknown_parts(options.attn_implementation, config)
    config = copy.deepcopy(config)  # transformers writes dtype and attention into the one that it is given
    _check_sizes_of(config, f"the config given ({type(config).__name__})")
    dtype = None if options.dtype == "auto" else options.dtype

    def load() -> PreTrainedModel:
        return on_device(_build(name, config, dtype, options), options)

    if dispatch:
        return Opened(load(), tokenizer, name)
    with torch.device("meta"):
        return Opened(_build(name, config, dtype, options), tokenizer, name, load)


def _build(name: str, config: PretrainedConfig, dtype: Any, options: Options) -> PreTrainedModel:
    """A model of a config, its weights random, on torch's default device."""
    arguments = without_none(dtype=dtype, attn_implementation=options.attn_implementation)
    trust = options.trust_remote_code
    with as_load_errors(f"no model can be made of the config of {name}"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust, **arguments).eval()


def _check_sizes_of(config: PretrainedConfig, where: str) -> None:
    family = _family_of_config(config)
    if family is not None:
        check_config(config, family, where)


def _family_of_config(config: PretrainedConfig) -> Family | None:
    """The family of the class that transformers makes of a config."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    made = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
    return next((family for family in FAMILIES.values() if made in family.architectures), None)


def _from_checkpoint(name: str, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    place = locate(name)
    config = _read_config(name, place, options)

    def load() -> PreTrainedModel:
        return load_weights(name, place, config, options)

    if dispatch:
        return Opened(load(), tokenizer or load_tokenizer(place, options), name)
    dtype = getattr(config, "dtype", None) if options.dtype in (None, "auto") else options.dtype
    with torch.device("meta"):
        skeleton = _build(name, config, dtype, options)
    return Opened(skeleton, tokenizer or load_tokenizer(place, options, quiet=True), name, load)


def _read_config(name: str, place: str, options: Options) -> PretrainedConfig:
    local, folder = Path(place).is_dir(), folder_in(place, options)
    gguf = gguf_file(options)
    if local:
        refuse_for_folder(options)
    if gguf and local and not (folder / gguf["gguf_file"]).is_file():
        raise UnknownModelError(f"{name} holds no {gguf['gguf_file']}. Give the name of a GGUF file in it.")
    if local and not gguf:
        path = folder / "config.json"
        if not path.is_file():
            raise LoadError(f"{folder} holds no config.json. Give the folder that holds it and the weights.")
        native = read_native_config(path)
        _refuse_remote_code(name, native, options)
    source = place
    shipped = place in SHIPPED_CONFIGS and "revision" not in options.extra
    if shipped:
        source = str(data_folder(SHIPPED_CONFIGS[place]))

    def read(**settings: Any) -> PretrainedConfig:
        with quiet_hub():
            found: PretrainedConfig = AutoConfig.from_pretrained(
                source, trust_remote_code=options.trust_remote_code, **options.hub, **settings
            )
        return found

    if local:
        with as_load_errors(f"{folder / gguf.get('gguf_file', 'config.json')} cannot be read"):
            config = read()
    else:
        with as_load_errors(f"{name} cannot be had from the hub", known_like(name)):
            config = read()
    settings = config_settings(config, options)
    refuse_unknown_parts(options.attn_implementation, config)
    if settings:
        with as_load_errors(f"the config of {name} does not take {some_of(sorted(settings))}"):
            config = read(**settings)
    _check_sizes_of(config, str(folder / "config.json") if local else f"the config of {name}")
    if shipped:
        config._name_or_path = place
    return config


def _refuse_remote_code(name: str, native: dict[str, Any], options: Options) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if "auto_map" in native and native.get("model_type") not in CONFIG_MAPPING and not options.trust_remote_code:
        raise LoadError(
            f"{name} brings its own code, which loading it would run. If you trust it, pass trust_remote_code=True."
        )

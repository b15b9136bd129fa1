"""Opening a model from whatever names it: a hub id, a local folder, a built-in name, a loaded model, or a config."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from cutaway.errors import CutawayError, LoadError, UnknownModelError, did_you_mean
from cutaway.families import FAMILIES, Family
from cutaway.subject.files import check_beside_weights, check_config, damaged_file, one_line, read_native_config
from cutaway.subject.load_options import refuse_unknown_names
from cutaway.subject.options import Options, config_settings, refuse_for_config, refuse_for_loaded
from cutaway.subject.wrappers import unwrapped

Source = str | Path | nn.Module | PretrainedConfig

SHIPPED_CONFIGS = {
    "microsoft/phi-1": "phi-1",
    "microsoft/phi-1_5": "phi-1_5",
    "microsoft/phi-2": "phi-2",
}
"""Hub ids whose config is in the package, so that they can be looked at with no download."""

BUILT_IN = "phi-mini"
"""The checkpoint that is in the package, weights and all."""


@dataclass
class Opened:
    """A model, its name, a tokenizer or None, and where it came without weights, what brings them."""

    hf: PreTrainedModel
    tokenizer: Any
    name: str
    load_weights: Callable[[], PreTrainedModel] | None = None
    wrappers: tuple[nn.Module, ...] = ()
    """What the model was taken out of."""


def data_folder(name: str) -> Path:
    """A folder of the package's data."""
    return Path(str(files("cutaway") / "data" / name))


def open_model(source: Source, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    """Opens a model; with `dispatch=False` on the meta device, its weights to come later.

    Raises:
        LoadError: it cannot be found, read, or is in a form that is refused, or an option has no effect on it.
        InputError: an option names an attention implementation or a device that nobody knows.
        UnsupportedModelError: no family file covers its architecture.
    """
    options = options.checked()
    refuse_unknown_names(options.attn_implementation, options.device, options.extra)
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
    return _load_tokenizer(_locate(name), options)


def _from_config(config: PretrainedConfig, tokenizer: Any, dispatch: bool, options: Options) -> Opened:
    name = config._name_or_path or f"random {type(config).__name__.removesuffix('Config')}"
    refuse_for_config(options)
    _check_sizes_of(config, f"the config given ({type(config).__name__})")
    dtype = None if options.dtype == "auto" else options.dtype

    def load() -> PreTrainedModel:
        return _on_device(_build(name, config, dtype, options), options)

    if dispatch:
        return Opened(load(), tokenizer, name)
    with torch.device("meta"):
        return Opened(_build(name, config, dtype, options), tokenizer, name, load)


def _build(name: str, config: PretrainedConfig, dtype: Any, options: Options) -> PreTrainedModel:
    """A model of a config, its weights random, on torch's default device."""
    arguments = _without_none(dtype=dtype, attn_implementation=options.attn_implementation)
    trust = options.trust_remote_code
    with _as_load_errors(f"no model can be made of the config of {name}"):
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
    place = _locate(name)
    config = _read_config(name, place, options)

    def load() -> PreTrainedModel:
        return _load_weights(name, place, config, options)

    if dispatch:
        return Opened(load(), tokenizer or _load_tokenizer(place, options), name)
    dtype = getattr(config, "dtype", None) if options.dtype in (None, "auto") else options.dtype
    with torch.device("meta"):
        skeleton = _build(name, config, dtype, options)
    return Opened(skeleton, tokenizer or _load_tokenizer(place, options, quiet=True), name, load)


def _locate(name: str) -> str:
    """The folder or hub id that a name stands for."""
    if name == BUILT_IN:
        return str(data_folder(BUILT_IN))
    if not name.strip():
        raise UnknownModelError("a model's name is empty. Give a hub id, a folder, or 'phi-mini'.")
    path = Path(name).expanduser()
    try:
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:  # longer than a name may be, or with a NUL in it
        raise UnknownModelError(f"no folder and no model has a name of {len(name)} characters like this.") from error
    if is_folder:
        return str(path)
    if path.exists():
        raise UnknownModelError(f"{name} is a file. Give the folder that holds config.json and the weights.")
    looks_like_path = name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name
    if looks_like_path:
        raise UnknownModelError(f"there is no folder {name}.")
    if "/" not in name:
        raise UnknownModelError(
            f"'{name}' is neither a built-in model nor a folder here, and a hub id has the form 'owner/name'."
            f"{_known_like(name)}"
        )
    return name


def _known_like(name: str) -> str:
    """A sentence that offers well-known models whose names are near to the one given."""
    known = [BUILT_IN, *(hub for family in FAMILIES.values() for hub in family.checkpoints)]
    same = [hub for hub in known if hub.rpartition("/")[2].lower() == name.lower()]
    short = {hub.rpartition("/")[2]: hub for hub in known}
    return f" Did you mean '{same[0]}'?" if same else did_you_mean(name, [*known, *short], shown=short)


def _read_config(name: str, place: str, options: Options) -> PretrainedConfig:
    folder = Path(place)
    gguf = _gguf(options)
    if gguf and folder.is_dir() and not (folder / gguf["gguf_file"]).is_file():
        raise UnknownModelError(f"{name} holds no {gguf['gguf_file']}. Give the name of a GGUF file in it.")
    if folder.is_dir() and not gguf:
        path = folder / "config.json"
        if not path.is_file():
            raise LoadError(f"{name} holds no config.json. Give the folder that holds it and the weights.")
        native = read_native_config(path)
        _refuse_remote_code(name, native, options)
    source = place
    shipped = place in SHIPPED_CONFIGS and "revision" not in options.extra
    if shipped:
        source = str(data_folder(SHIPPED_CONFIGS[place]))

    def read(**settings: Any) -> PretrainedConfig:
        with _quiet_hub():
            found: PretrainedConfig = AutoConfig.from_pretrained(
                source, trust_remote_code=options.trust_remote_code, **options.hub, **settings
            )
        return found

    if folder.is_dir():
        with _as_load_errors(f"{folder / gguf.get('gguf_file', 'config.json')} cannot be read"):
            config = read()
    else:
        with _as_load_errors(f"{name} cannot be had from the hub", _known_like(name)):
            config = read()
    settings = config_settings(config, options)
    if settings:
        with _as_load_errors(f"the config of {name} does not take {_some(sorted(settings))}"):
            config = read(**settings)
    _check_sizes_of(config, str(folder / "config.json") if folder.is_dir() else f"the config of {name}")
    if shipped:
        config._name_or_path = place
    return config


@contextlib.contextmanager
def _as_load_errors(what: str, hint: str = "", folder: Path | None = None) -> Generator[None]:
    """Has whatever goes wrong in here come out as a `LoadError`: of the file of a folder that is damaged, if one is."""
    try:
        yield
    except CutawayError:
        raise
    except Exception as error:
        damaged = damaged_file(folder) if folder is not None and folder.is_dir() else ""
        if damaged:
            raise LoadError(f"{what.partition(' cannot ')[0]} are damaged: {damaged}") from error
        raise LoadError(f"{what}: {one_line(error)}.{hint}") from error


def _gguf(options: Options) -> dict[str, str]:
    """The file that holds config, tokenizer and weights in one, where one was named."""
    return {key: value for key, value in options.extra.items() if key == "gguf_file"}


def _refuse_remote_code(name: str, native: dict[str, Any], options: Options) -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if "auto_map" in native and native.get("model_type") not in CONFIG_MAPPING and not options.trust_remote_code:
        raise LoadError(
            f"{name} brings its own code, which loading it would run. If you trust it, pass trust_remote_code=True."
        )


def _load_weights(name: str, place: str, config: PretrainedConfig, options: Options) -> PreTrainedModel:
    folder = Path(place)
    _refuse_pickle(name, place, options)
    if folder.is_dir():
        check_beside_weights(folder / options.extra.get("subfolder", ""))
    arguments = {
        **options.extra,
        **_without_none(dtype=options.dtype, attn_implementation=options.attn_implementation),
    }
    for setting in config_settings(config, options):
        del arguments[setting]  # it is in the config
    if not options.allow_pickle:
        if arguments.get("use_safetensors") is False:
            raise LoadError("use_safetensors=False asks for weights in pickle format: pass allow_pickle=True too.")
        arguments["use_safetensors"] = True
    if "ignore_mismatched_sizes" not in options.extra:
        arguments["ignore_mismatched_sizes"] = True  # so that they are in the report, and refused here by name
    what, hint = f"the weights of {name} cannot be loaded", ""
    if not folder.is_dir():
        what = f"the weights of {name} cannot be had from the hub"
        hint = " Without weights it can still be shown and scanned: dispatch=False."
    quiet = place == str(data_folder(BUILT_IN))
    with _as_load_errors(what, hint, folder), _quiet(quiet), _quiet_hub():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place,
            config=config,
            trust_remote_code=options.trust_remote_code,
            output_loading_info=True,
            **arguments,
        )
    hf, report = loaded
    mismatched = [] if options.extra.get("ignore_mismatched_sizes") else sorted(report["mismatched_keys"])
    if mismatched:
        key, stored, expected = mismatched[0]
        raise LoadError(
            f"the weights of {name} do not fit its config: `{key}` is {list(stored)} in the file and {list(expected)} "
            f"by the config{f', and {len(mismatched) - 1} more' if mismatched[1:] else ''}."
        )
    missing, surplus = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if missing:
        raise LoadError(f"the weights of {name} lack {_some(missing)}; transformers would fill them at random.")
    if surplus:
        raise LoadError(f"the weights of {name} hold {_some(surplus)}, which {type(hf).__name__} has no place for.")
    return _on_device(hf, options)


def _on_device(hf: Any, options: Options) -> PreTrainedModel:
    with _as_load_errors(f"the model cannot be put on {options.device}"):
        return hf.to(options.device) if options.device is not None else hf


def _refuse_pickle(name: str, place: str, options: Options) -> None:
    folder = Path(place)
    if not folder.is_dir() or options.allow_pickle:
        return
    if not any(folder.glob("*.safetensors")) and "gguf_file" not in options.extra:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
            raise LoadError(
                f"the weights of {name} are in pickle format, and loading them can run code that they carry. Convert "
                "them to safetensors, or, if you trust them, pass allow_pickle=True."
            )
        raise LoadError(f"{name} holds no weights: no *.safetensors beside config.json.")


def _load_tokenizer(place: str, options: Options, quiet: bool = False) -> Any:
    folder = Path(place)
    if folder.is_dir() and not _gguf(options) and not any(folder.glob("tokenizer*")) and not any(folder.glob("vocab*")):
        return None
    if quiet and not folder.is_dir():
        return None

    with _as_load_errors(f"the files of the tokenizer of {place} cannot be read", folder=folder):
        return AutoTokenizer.from_pretrained(place, trust_remote_code=options.trust_remote_code, **options.hub)


@contextlib.contextmanager
def _quiet_hub() -> Generator[None]:
    """Leaves out the hub's warnings of each attempt, where the error at the end says it all."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _quiet(quiet: bool) -> Generator[None]:
    """Leaves out transformers' progress bar, for a model that is there at once."""
    shown = transformers_logging.is_progress_bar_enabled()
    if quiet and shown:
        transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if quiet and shown:
            transformers_logging.enable_progress_bar()


def _without_none(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _some(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

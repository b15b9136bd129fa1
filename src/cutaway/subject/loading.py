"""The weights and the tokenizer of a checkpoint, as transformers loads them; what would be filled in or dropped is an
error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from cutaway.errors import LoadError, OptionError, did_you_mean
from cutaway.subject.files import as_load_errors, check_beside_weights
from cutaway.subject.options import Options, config_settings
from cutaway.subject.source_names import BUILT_IN, data_folder


def folder_in(place: str, options: Options) -> Path:
    """The folder with the files, where a checkpoint is one of a folder here."""
    return Path(place) / options.extra.get("subfolder", "")


def gguf_file(options: Options) -> dict[str, str]:
    """The file that holds config, tokenizer and weights in one, where one was named."""
    return {key: value for key, value in options.extra.items() if key == "gguf_file"}


def load_weights(name: str, place: str, config: PretrainedConfig, options: Options) -> PreTrainedModel:
    """A checkpoint's model with its weights, all of them and no others.

    Raises:
        LoadError: they cannot be found or read, are in a form that is refused, or do not fit the config.
        OptionError: an option contradicts another, or a device map names what is not there.
    """
    local, folder = Path(place).is_dir(), folder_in(place, options)
    if local:
        _refuse_pickle(name, folder, options)
        check_beside_weights(folder)
    arguments = {
        **options.extra,
        **without_none(dtype=options.dtype, attn_implementation=options.attn_implementation),
    }
    for setting in config_settings(config, options):
        del arguments[setting]  # it is in the config
    if not options.allow_pickle:
        if arguments.get("use_safetensors") is False:
            raise OptionError("use_safetensors=False asks for weights in pickle format: pass allow_pickle=True too.")
        arguments["use_safetensors"] = True
    if "ignore_mismatched_sizes" not in options.extra:
        arguments["ignore_mismatched_sizes"] = True  # so that they are in the report, and refused here by name
    what, hint = f"the weights of {name} cannot be loaded", ""
    if not local:
        what = f"the weights of {name} cannot be had from the hub"
        hint = " Without weights it can still be shown and scanned: dispatch=False."
    quiet = place == str(data_folder(BUILT_IN))
    with as_load_errors(what, hint, folder), _quiet(quiet), quiet_hub():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            place,
            config=config,
            trust_remote_code=options.trust_remote_code,
            output_loading_info=True,
            **arguments,
        )
    hf, report = loaded
    _refuse_what_does_not_fit(name, hf, report, options)
    _refuse_map_of_elsewhere(hf, arguments.get("device_map"))
    return on_device(hf, options)


def _refuse_what_does_not_fit(name: str, hf: Any, report: Any, options: Options) -> None:
    """Raises where transformers has filled in weights, or dropped some."""
    mismatched = [] if options.extra.get("ignore_mismatched_sizes") else sorted(report["mismatched_keys"])
    if mismatched:
        key, stored, expected = mismatched[0]
        raise LoadError(
            f"the weights of {name} do not fit its config: `{key}` is {list(stored)} in the file and {list(expected)} "
            f"by the config{f', and {len(mismatched) - 1} more' if mismatched[1:] else ''}."
        )
    missing, surplus = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if missing:
        raise LoadError(f"the weights of {name} lack {some_of(missing)}; transformers would fill them at random.")
    if surplus:
        raise LoadError(f"the weights of {name} hold {some_of(surplus)}, which {type(hf).__name__} has no place for.")


def _refuse_map_of_elsewhere(hf: Any, device_map: Any) -> None:
    """Raises where a device map names what is no part of the model, and so places nothing."""
    if not isinstance(device_map, Mapping):
        return
    parts = {*dict(hf.named_modules(remove_duplicate=False)), *hf.state_dict(keep_vars=True)}
    for part in device_map:
        if part not in parts:
            near = did_you_mean(str(part), sorted(parts))
            raise OptionError(f"the device map names {part!r}, and {type(hf).__name__} has no such part.{near}")


def on_device(hf: Any, options: Options) -> PreTrainedModel:
    """The model on the device that was asked for."""
    with as_load_errors(f"the model cannot be put on {options.device}"):
        return hf.to(options.device) if options.device is not None else hf


def _refuse_pickle(name: str, folder: Path, options: Options) -> None:
    if options.allow_pickle:
        return
    if not any(folder.glob("*.safetensors")) and "gguf_file" not in options.extra:
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")) or any(folder.glob("*.pth")):
            raise LoadError(
                f"the weights of {name} are in pickle format, and loading them can run code that they carry. Convert "
                "them to safetensors, or, if you trust them, pass allow_pickle=True."
            )
        raise LoadError(f"{name} holds no weights: no *.safetensors beside config.json.")


def load_tokenizer(place: str, options: Options, quiet: bool = False) -> Any:
    """The tokenizer of a checkpoint; None where a folder has none, and with `quiet` where it is not in a folder.

    Raises:
        LoadError: it cannot be found or read.
    """
    local, folder = Path(place).is_dir(), folder_in(place, options)
    if local and not gguf_file(options) and not any((*folder.glob("tokenizer*"), *folder.glob("vocab*"))):
        return None
    if quiet and not local:
        return None
    with as_load_errors(f"the files of the tokenizer of {place} cannot be read", folder=folder):
        return AutoTokenizer.from_pretrained(place, trust_remote_code=options.trust_remote_code, **options.hub)


@contextlib.contextmanager
def quiet_hub() -> Generator[None]:
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


def without_none(**arguments: Any) -> dict[str, Any]:
    """The arguments that were given."""
    return {name: value for name, value in arguments.items() if value is not None}


def some_of(names: list[str]) -> str:
    """The first names of a list that may be long, in words."""
    shown = ", ".join(f"`{name}`" for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"

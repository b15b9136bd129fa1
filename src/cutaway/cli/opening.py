"""Opening the model that a command names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cutaway.cli.hub import Hub, is_hub_id
from cutaway.cli.options import Loading
from cutaway.cli.terminal import waiting
from cutaway.errors import InputError, LoadError

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


def open_model(name: str, loading: Loading, *, dispatch: bool = True, **more: Any) -> StandardizedTransformer:
    """Opens a model as the options say; `more` goes to `StandardizedTransformer` as it is.

    Raises:
        OptionError: options do not fit each other, or the model.
        LoadError: the model, or the tokenizer that `--tokenizer` names, cannot be had.
    """
    with waiting("starting torch and transformers"):
        from cutaway.model import StandardizedTransformer
        from cutaway.subject.source_names import SHIPPED_CONFIGS
    hub = Hub()
    if is_hub_id(name) and (dispatch or loading.revision is not None or name not in SHIPPED_CONFIGS):
        hub.ask_for(name)
    options = {**loading.given, "tokenizer": _tokenizer(loading, hub), **hub.options, **more}
    with hub.explained(name):
        return StandardizedTransformer(name, dispatch=dispatch, **options)


def need_tokenizer(model: StandardizedTransformer, name: str) -> None:
    """Raises where a text cannot be run.

    Raises:
        InputError: the model has no tokenizer.
    """
    if model.tokenizer is None:
        raise InputError(f"{name} has no tokenizer, so a text cannot be run. Say whose to use: --tokenizer NAME.")


def _tokenizer(loading: Loading, hub: Hub) -> Any:
    """The tokenizer that `--tokenizer` names, or None where it was not given.

    Raises:
        LoadError: it cannot be had.
    """
    name = loading.tokenizer
    if name is None:
        return None
    from cutaway.subject.opening import open_tokenizer
    from cutaway.subject.options import Options

    if is_hub_id(name):
        hub.ask_for(name)
    with hub.explained(name):
        tokenizer = open_tokenizer(name, Options(trust_remote_code=loading.trust_remote_code, extra=hub.options))
    if tokenizer is None:
        raise LoadError(f"{name} has no tokenizer either; name another with --tokenizer.")
    return tokenizer

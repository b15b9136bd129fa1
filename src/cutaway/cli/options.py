"""The options that commands share, each stated once.

A command that opens a model takes `loading: Loading` and is decorated with `opens_a_model`; on the command line each
field of `Loading` is an option then.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, Literal, get_type_hints

import typer

from cutaway.errors import InputError

DtypeName = Literal["float64", "float32", "bfloat16", "float16"]

Model = Annotated[
    str, typer.Argument(metavar="MODEL", help="A hub id, a local folder, or phi-mini.", show_default=False)
]
Prompt = Annotated[
    str, typer.Argument(metavar="PROMPT", help="A text; - reads it from standard input.", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print it as JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there already.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show where in the code an error came from.")]


def _words(metavar: str, help: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


@dataclass(frozen=True)
class Loading:
    """How a model is loaded. A field is named as the library's option is; `cutaway.subject.options` says what for."""

    dtype: Annotated[DtypeName | None, _words("NAME", "float64, float32, bfloat16 or float16.")] = None
    attn_implementation: Annotated[str | None, _words("NAME", "sdpa, eager, flex_attention, ...", "--attn")] = None
    device: Annotated[str | None, _words("NAME", "cpu, cuda, cuda:1, mps, ...")] = None
    device_map: Annotated[str | None, _words("NAME", "Spread it over devices: auto, balanced, ..., or one device.")] = (
        None
    )
    revision: Annotated[str | None, _words("NAME", "Of a hub id: a branch, a tag or a commit.")] = None
    gguf_file: Annotated[str | None, _words("FILE", "The GGUF file in MODEL that holds it.")] = None
    tokenizer: Annotated[str | None, _words("NAME", "Whose tokenizer to use: named as MODEL is.")] = None
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Run code that the checkpoint brings.")
    ] = False
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Load weights in pickle format, which can run code.")
    ] = False
    debug: Debug = False

    @property
    def given(self) -> dict[str, Any]:
        """What was said, by the library's names; `debug` is of the command, and not of loading."""
        every = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "debug"}
        return {name: value for name, value in every.items() if value not in (None, False)}


def flags() -> dict[str, str]:
    """The words of the options on the command line, by the library's names."""
    hints = get_type_hints(Loading, include_extras=True)
    words: dict[str, str] = {}
    for field in fields(Loading):
        option = hints[field.name].__metadata__[0]
        stated = [word for word in (option.default, *(option.param_decls or ())) if isinstance(word, str)]
        words[field.name] = stated[0] if stated else f"--{field.name.replace('_', '-')}"
    return words


def refuse_without_model(loading: Loading) -> None:
    """Raises where a model is to be loaded in some way, and none is loaded.

    Raises:
        InputError: naming the options.
    """
    words = [flags()[name] for name in loading.given]
    if words:
        raise InputError(
            f"{' and '.join(words)} {'say' if words[1:] else 'says'} how MODEL is loaded, and none was given."
        )


def opens_a_model(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command an option for each field of `Loading` in place of its parameter `loading`."""
    own = inspect.signature(command).parameters.values()
    hints = get_type_hints(command, include_extras=True)
    parameters = [one.replace(annotation=hints[one.name]) for one in own if one.name != "loading"]
    shared = get_type_hints(Loading, include_extras=True)
    for field in fields(Loading):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(field.name, kind, default=field.default, annotation=shared[field.name]))

    @wraps(command)
    def run(**given: Any) -> None:
        loading = Loading(**{field.name: given.pop(field.name) for field in fields(Loading)})
        command(**given, loading=loading)

    # typer reads the options from the signature.
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run

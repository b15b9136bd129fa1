"""The model around its blocks: the list of blocks, the embedding, the final norm, the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from cutaway.errors import UnsupportedModelError
from cutaway.families.derivation.modules import count, is_linear, is_norm, recorders
from cutaway.families.derivation.recording import Called, Recording


@dataclass(frozen=True)
class Around:
    """What was found around the blocks.

    Attributes:
        modules: the paths of the standard modules of the model.
        blocks: the paths of the blocks, in order.
        positions: the path of an embedding of positions; empty where there is none.
        no_head: why there is no language-model head; empty where there is.
    """

    modules: dict[str, str]
    blocks: tuple[str, ...]
    positions: str
    no_head: str


def find_around(recording: Recording) -> Around:
    """Finds it.

    Raises:
        UnsupportedModelError: there are no blocks, or a pass does not call each of them once.
    """
    model = recording.model
    layers = _layers(recording)
    container = model.get_submodule(layers)
    blocks = tuple(f"{layers}.{name}" for name, child in container._modules.items() if child is not None)
    if not any(len(recording.calls_of(block)) == 1 for block in blocks):
        times = len(recording.calls_of(blocks[0]))
        raise UnsupportedModelError(
            f"{type(model).__name__} cannot be opened: its layers are looped. A pass calls `{blocks[0]}` {times} "
            f"times, and none of the {len(blocks)} blocks there once: a value of a layer would stand for several."
        )
    paths: dict[nn.Module, str] = {module: path for path, module in model.named_modules()}
    embedding = _embedding(recording, paths)
    modules = {"embed_tokens": embedding.path, "layers": layers}
    head = _head(recording, paths, blocks)
    called = next(block for block in reversed(blocks) if recording.calls_of(block))
    last = recording.calls.index(recording.calls_of(called)[-1])
    end = recording.calls.index(head) if head is not None else len(recording.calls)
    norms = [call for call in recording.calls[last + 1 : end] if is_norm(call.module)]
    if norms:
        modules["norm"] = norms[-1].path
    if head is not None:
        modules["lm_head"] = head.path
    no_head = "" if head is not None else f"This is a {type(model).__name__}, which has no language-model head."
    return Around(modules, blocks, _positions(recording, embedding.path, layers), no_head)


def _layers(recording: Recording) -> str:
    model = recording.model
    lists = [path for path, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module)]
    run = [path for path in lists if any(call.path.startswith(f"{path}.") for call in recording.calls)]
    lists = [path for path in run if any(recording.call_of(f"{path}.{i}") for i in model.get_submodule(path)._modules)]
    if not lists:
        raise UnsupportedModelError(f"{type(model).__name__} cannot be opened: it has no list of blocks.")
    outer = [path for path in lists if not any(path.startswith(f"{other}.") for other in lists)]
    declared = recorders(model).get("hidden_states")
    said = [path for path in outer if declared and type(model.get_submodule(path)[0]).__name__ in declared.classes]  # pyright: ignore
    sizes = {path: count(model.get_submodule(path)) for path in said or outer}
    return max(sizes, key=sizes.__getitem__)


def _embedding(recording: Recording, paths: dict[nn.Module, str]) -> Called:
    model: Any = recording.model
    try:
        own = recording.call_of(paths.get(model.get_input_embeddings(), "?"))
    except (NotImplementedError, AttributeError):
        own = None
    called = [call for call in recording.calls if isinstance(call.module, nn.Embedding)]
    found = own or next(iter(called), None)
    if found is None:
        raise UnsupportedModelError(f"{type(model).__name__} cannot be opened: its embedding of tokens cannot be told.")
    return found


def _head(recording: Recording, paths: dict[nn.Module, str], blocks: tuple[str, ...]) -> Called | None:
    model: Any = recording.model
    try:
        own = recording.call_of(paths.get(model.get_output_embeddings(), "?"))
    except (NotImplementedError, AttributeError):
        own = None
    if own is not None:
        return own
    words = getattr(recording.model.config.get_text_config(), "vocab_size", None)
    heads = [call for call in recording.calls if is_linear(call.module) and not call.path.startswith(blocks)]
    wide = [call for call in heads if call.shape[-1:] == (words,)]
    has_logits = "logits" in recording.result if isinstance(recording.result, dict) else False
    return wide[-1] if wide and has_logits else None


def _positions(recording: Recording, tokens: str, layers: str) -> str:
    """The path of another embedding, that of positions by its name."""
    others = [call.path for call in recording.calls if isinstance(call.module, nn.Embedding)]
    others = [path for path in others if path != tokens and not path.startswith(layers)]
    return next((path for path in others if "pos" in path.lower() or path.endswith("wpe")), "")

"""A family that is found in a pass of the model, for a class that no family file covers.

What is found is a claim, to be put to the test on the model's own weights: `cutaway.inspection.measure` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from cutaway.errors import UnsupportedModelError
from cutaway.families.derivation.around import Around, find_around
from cutaway.families.derivation.block import Block, find_block
from cutaway.families.derivation.finder import Inside
from cutaway.families.derivation.inside import look_inside
from cutaway.families.derivation.recording import Recording, record
from cutaway.families.derivation.sizes import keys_of
from cutaway.families.family import Family, Kind, setting
from cutaway.sites import Site, input_of, output_of
from cutaway.vocabulary import SUBLAYERS, VALUES, Host

Found = tuple[Block, Inside]


def derive(hf: PreTrainedModel, has_weights: bool = False, device: Any = None) -> Family:
    """Finds the family of a model.

    Args:
        hf: the model.
        has_weights: whether it can run, which it does where its twin on the meta device cannot.
        device: where it takes its ids.

    Raises:
        UnsupportedModelError: it has no blocks, or they are looped, or it encodes; it says what was found.
    """
    _refuse_encoders(hf)
    try:
        recording = record(hf, has_weights, device)
    except Exception as error:
        first = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        raise UnsupportedModelError(
            f"no pass of {type(hf).__name__} can be run to find its values in: {first}"
        ) from error
    return family_of_recording(hf, recording)


def family_of_recording(hf: PreTrainedModel, recording: Recording) -> Family:
    """The family that a recorded pass shows."""
    around = find_around(recording)
    kinds: dict[Any, tuple[Found, list[int]]] = {}
    uncalled: dict[int, list[int]] = {}
    for number, path in enumerate(around.blocks):
        calls = len(recording.calls_of(path))
        if calls != 1:
            uncalled.setdefault(calls, []).append(number)
            continue
        found = _found(recording, path)
        kinds.setdefault(_signature(recording, path, found), (found, []))[1].append(number)
    base = _base(hf, recording, around, _sizes(recording, around, [inside for (_, inside), _ in kinds.values()]))
    if len(kinds) == 1 and not uncalled:
        return _laid_over(base, *(found for found, _ in kinds.values()))
    words = _words([found for found, _ in kinds.values()])
    listed = [_kind(word, layers, found) for word, (found, layers) in zip(words, kinds.values(), strict=True)]
    listed += [_uncalled(calls, layers) for calls, layers in uncalled.items()]
    return with_common_facts(base, [replace(kind, has=_only_theirs(recording, around, kind)) for kind in listed])


def _refuse_encoders(hf: PreTrainedModel) -> None:
    config: Any = hf.config
    if getattr(config, "is_encoder_decoder", False):
        raise UnsupportedModelError(
            f"{type(hf).__name__} has an encoder and a decoder, each with a stream of its own, and the vocabulary has "
            "names for one. Its decoder alone opens where transformers has it as a causal language model."
        )


def _signature(recording: Recording, path: str, found: Found) -> Any:
    """What tells the kinds of layers apart: what was found, their modules, and the shapes inside the attention."""
    block = recording.model.get_submodule(path)
    attended = tuple(
        (own.removeprefix(path), tuple(what.shapes.items()))
        for own, what in recording.attended.items()
        if own.startswith(f"{path}.")
    )
    modules = tuple((name, type(part).__name__) for name, part in block.named_modules())
    told = repr((found[0].stream, found[0].no_sum, found[1]))
    return modules, attended, told


def _found(recording: Recording, path: str) -> Found:
    block = find_block(recording, path)
    return block, look_inside(recording, block)


def _sizes(recording: Recording, around: Around, insides: Iterable[Inside]) -> dict[str, int]:
    sizes = {"num_layers": len(around.blocks)}
    first = next(call for path in around.blocks for call in recording.calls_of(path))
    stated = setting(recording.model.config.get_text_config(), "hidden_size")
    sizes["hidden_size"] = stated if isinstance(stated, int) else first.given_shape[-1]
    for inside in insides:
        for name, size in inside.sizes.items():
            sizes.setdefault(name, size)
    head = recording.call_of(around.modules.get("lm_head", "?"))
    if head is not None and head.shape:
        sizes["vocab_size"] = head.shape[-1]
    else:
        embedding: Any = recording.model.get_submodule(around.modules["embed_tokens"])
        sizes["vocab_size"] = int(embedding.num_embeddings)
    return sizes


def _base(hf: PreTrainedModel, recording: Recording, around: Around, sizes: dict[str, int]) -> Family:
    values = {
        "input_ids": input_of(argument="input_ids"),
        "attention_mask": input_of(argument="attention_mask", is_first=False),
        "token_embeddings": output_of("embed_tokens"),
    }
    unavailable: dict[str, str] = {}
    if "norm" in around.modules:
        values["final_norm_output"] = output_of("norm")
    else:
        unavailable["final_norm_output"] = _NO_NORM
    if around.no_head:
        unavailable.update(dict.fromkeys(("lm_head_output", "logits"), around.no_head))
    else:
        values["lm_head_output"] = output_of("lm_head")
        values["logits"] = output_of(key="logits")
    return Family(
        name=str(recording.model.config.model_type),
        architectures=(type(hf).__name__,),
        checkpoints=(),
        modules={"model": around.modules, "layer": {}},
        sizes=keys_of(sizes, recording.model.config),
        values=values,
        unavailable=unavailable,
        stream=(),
        settings=frozenset(),
        no_lens="" if "norm" in around.modules else _NO_NORM,
        positions_from_mask=bool(around.positions),
        derived=True,
    )


def _layer_values(block: Block, inside: Inside) -> dict[str, Site]:
    values = {"layer_output": output_of(), **inside.values}
    if block.call.given is not None:
        values["layer_input"] = input_of(argument=block.call.argument)
    return {name: _in_standard_names(name, values[name], inside) for name in VALUES if name in values}


def _in_standard_names(name: str, site: Site, inside: Inside) -> Site:
    names = inside.modules.get(site.of or VALUES[name].host, {})
    standard = next((standard for standard, own in names.items() if own and own == site.module), site.module)
    return replace(site, module=standard)


def _laid_over(base: Family, found: Found) -> Family:
    block, inside = found
    return replace(
        base,
        modules={**base.modules, **inside.modules},
        values=_in_order({**base.values, **_layer_values(block, inside)}),
        unavailable=_unavailable(base, _layer_values(block, inside), inside.why, _lacking(inside)),
        stream=block.stream,
        no_sum=_no_sum(block),
    )


def _no_sum(block: Block) -> str:
    return block.no_sum[:1].upper() + block.no_sum[1:] + "." if block.no_sum else ""


def _only_theirs(recording: Recording, around: Around, kind: Kind) -> str:
    """The path of a module that the layers of a kind have, and no others; empty where there is none."""
    names = [
        {name for name, _ in recording.model.get_submodule(path).named_modules() if name.count(".") < 2}
        for path in around.blocks
    ]
    theirs = set.intersection(*(names[layer] for layer in kind.layers))
    others = set[str]().union(*(names[layer] for layer in range(len(names)) if layer not in kind.layers))
    return min(theirs - others, key=_depth, default="")


def _depth(path: str) -> tuple[int, str]:
    return path.count("."), path


def _uncalled(calls: int, layers: list[int]) -> Kind:
    """Layers that a pass does not come by, or comes by several times."""
    why = f"A pass calls this layer {calls} times: it is looped, so that its values would stand for several."
    if not calls:
        why = "A pass from ids alone does not come by this layer."
    gone = {value.name: why for value in VALUES.values() if value.host != "model" and not value.derived}
    return Kind(name=f"{calls} calls a pass", layers=frozenset(layers), unavailable=gone, stream=(), no_sum=why)


def _kind(word: str, layers: list[int], found: Found) -> Kind:
    block, inside = found
    values = _layer_values(block, inside)
    return Kind(
        name=word,
        layers=frozenset(layers),
        modules=inside.modules,
        values=values,
        unavailable=_unavailable(None, values, inside.why, _lacking(inside)),
        lacks=_lacking(inside),
        stream=block.stream,
        no_sum=_no_sum(block),
    )


def _lacking(inside: Inside) -> tuple[Host, ...]:
    return tuple(host for host, name in SUBLAYERS.items() if name not in inside.modules["layer"] and host != "mixer")


def with_common_facts(base: Family, kinds: list[Kind]) -> Family:
    """A family of these kinds that states itself what holds for all of them, so that each kind states what is other."""
    values = _shared([kind.values for kind in kinds])
    unavailable = _shared([kind.unavailable for kind in kinds])
    modules: dict[Host, Mapping[str, str]] = {}
    for host in kinds[0].modules:
        if all(host in kind.modules for kind in kinds):
            modules[host] = _shared([kind.modules[host] for kind in kinds])
    streams = {repr(kind.stream): kind.stream for kind in kinds}
    same = len(streams) == 1
    lesser = [
        replace(
            kind,
            values={name: site for name, site in kind.values.items() if name not in values},
            unavailable={name: why for name, why in kind.unavailable.items() if name not in unavailable},
            modules={
                host: own
                for host, names in kind.modules.items()
                if (own := {name: path for name, path in names.items() if modules.get(host, {}).get(name) != path})
            },
            stream=None if same else kind.stream,
        )
        for kind in kinds
    ]
    return replace(
        base,
        modules={**base.modules, **modules},
        values=_in_order({**base.values, **values}),
        unavailable={**base.unavailable, **unavailable},
        stream=(kinds[0].stream or ()) if same else (),
        kinds=tuple(lesser),
    )


def _shared(facts: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What all of these mappings have alike."""
    first, *rest = facts
    return {name: fact for name, fact in first.items() if all(other.get(name) == fact for other in rest)}


def _unavailable(
    base: Family | None, values: dict[str, Site], why: dict[str, str], lacks: tuple[Host, ...]
) -> dict[str, str]:
    """Why each usual value of a layer that was not found is not there."""
    usual = [value for value in VALUES.values() if value.host != "model" and not value.derived]
    norms: dict[str, Host] = {"attention_norm_output": "attention", "mlp_norm_output": "mlp", "mlp_input": "mlp"}
    found = {} if base is None else dict(base.unavailable)
    for value in usual:
        if value.name in values or norms.get(value.name, value.host) in lacks:
            continue
        if value.name in why or not value.rare:
            found[value.name] = why.get(value.name, _NOT_FOUND.get(value.name, "It was not found in a recorded pass."))
    for host in lacks if base is not None else ():
        words = {"attention": "attention", "mlp": "MLP"}
        gone = [v.name for v in usual if norms.get(v.name, v.host) == host and v.name not in values and not v.rare]
        found.update({name: why.get(name, f"No {words.get(host, host)} was found in its blocks.") for name in gone})
    return found


_NO_NORM = "No norm was seen between the last block and the head."

_NOT_FOUND = {
    "layer_mid": "No stream was seen to pass between attention and MLP: both read the same one.",
    "mlp_norm_output": "No norm was seen right before the MLP.",
    "attention_norm_output": "No norm was seen right before the attention.",
}


def _words(found: list[Found]) -> list[str]:
    """What the kinds of layers are called: by their sublayers, with a number where that does not tell them apart."""
    said: list[str] = []
    for _, inside in found:
        names = inside.modules["layer"]
        parts = [word for name, word in (("self_attn", "attention"), ("mixer", "mixer")) if name in names]
        if "mlp" in names:
            parts.append("experts" if inside.modules.get("mlp", {}).keys() & {"router", "experts"} else "MLP")
        said.append(" and ".join(parts) or "blocks")
    return [
        word if said.count(word) == 1 else f"{word} ({said[: number + 1].count(word)})"
        for number, word in enumerate(said)
    ]


def _in_order(values: dict[str, Site]) -> dict[str, Site]:
    return {name: values[name] for name in VALUES if name in values}

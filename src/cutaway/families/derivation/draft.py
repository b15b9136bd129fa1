"""Writing what was found as a family file."""

from __future__ import annotations

from collections.abc import Iterator

from transformers import PretrainedConfig

from cutaway.families.family import uncommon_settings
from cutaway.families.proposal.recording import Recording
from cutaway.families.proposal.structure import Structure
from cutaway.vocabulary import MODULES, VALUES

_KEYS = {
    "num_layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden_size": ("hidden_size", "n_embd", "d_model"),
    "num_heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "num_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "head_dim": ("head_dim",),
    "qk_head_dim": ("head_dim", "qk_head_dim"),
    "vocab_size": ("vocab_size",),
    "intermediate_size": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
}
"""What configs call each size; the one whose value is the measured one is taken."""

_FUNCTION_OF = ("attention_scores", "attention_probabilities", "attention_head_outputs")


def write(structure: Structure, recording: Recording) -> str:
    """The file's text."""
    values, unavailable = _values(structure)
    config = recording.twin.config
    name = str(config.model_type).replace("-", "_")
    sizes = list(_sizes(structure, config))
    sites = sorted({site.partition("(")[0] for site in values.values()})
    architecture = type(recording.twin).__name__
    lines = [
        f'"""{architecture}: drafted from its module tree. Compare it with transformers\' source, line by line.',
        "",
        f"{type(recording.twin).__module__.replace('.', '/')}.py",
        '"""',
        "",
        "from cutaway.families.family import Family",
        f"from cutaway.sites import {', '.join(sites)}",
        "",
        f"{name.upper()} = Family(",
        f'    name="{name}",',
        f'    architectures=("{architecture}",),',
        "    checkpoints=(),  # to check: well-known checkpoints, by their hub ids",
        "    modules={",
        *_modules(structure),
        "    },",
        "    sizes={",
        *sizes,
        "    },",
        "    values={",
        *(f'        "{key}": {site},' for key, site in values.items()),
        "    },",
        "    unavailable={",
        *(f'        "{key}": "{why}",' for key, why in unavailable.items()),
        "    },",
        *_to_check(structure.notes.get("stream", ""), indent=4),
        "    stream=(" + ", ".join(f'"{term}"' for term in structure.stream) + "),",
        *_settings(config, "\n".join(sizes)),
    ]
    if structure.positions:
        lines += _to_check(f"`{structure.positions}` is taken for the embedding of positions.", indent=4)
        lines.append("    positions_from_mask=True,")
    return "\n".join([*lines, ")", ""])


def _to_check(note: str, indent: int) -> list[str]:
    return [f"{' ' * indent}# to check: {note}"] if note else []


def _modules(structure: Structure) -> Iterator[str]:
    for host, found in structure.modules.items():
        yield f'        "{host}": {{'
        for name in (name for name in MODULES if name in found):
            yield from _to_check(structure.notes.get(name, ""), indent=12)
            yield f'            "{name}": "{found[name]}",'
        yield "        },"


def _sizes(structure: Structure, config: PretrainedConfig) -> Iterator[str]:
    measured, native = structure.sizes, config.to_dict()
    hidden, heads = measured["hidden_size"], measured.get("num_heads", 0)
    follows = {
        "num_kv_heads": heads,
        "head_dim": hidden // heads if heads else 0,
        "qk_head_dim": measured.get("head_dim", 0),
        "intermediate_size": 4 * hidden,
    }
    for name, keys in _KEYS.items():
        size = measured.get(name)
        stated = {key: native[key] for key in keys if native.get(key) is not None}
        found = [key for key, value in stated.items() if size in (None, value)]
        if found and not (name == "qk_head_dim" and follows[name] == size):
            yield from _to_check("" if size is not None else "the next was not measured.", indent=8)
            yield f'        "{name}": "{found[0]}",'
        elif name not in follows or (size is not None and follows[name] != size):
            yield f"        # to check: no key of the config was found for {name}, which is {size} here."


def _values(structure: Structure) -> tuple[dict[str, str], dict[str, str]]:
    """The site of each value as text; and why there is none for each of the others."""
    sites = {name: site for name, site in _sites(structure) if name not in structure.why}
    ordered = {name: sites[name] for name in VALUES if name in sites}
    lacks = {
        name: structure.why.get(name) or _reason(name, structure)
        for name, value in VALUES.items()
        if name not in sites and not value.derived
    }
    return ordered, lacks


def _sites(structure: Structure) -> Iterator[tuple[str, str]]:
    modules, arguments = structure.modules, structure.arguments
    yield "input_ids", 'input_of(argument="input_ids")'
    yield "attention_mask", 'input_of(argument="attention_mask", is_first=False)'
    yield "token_embeddings", 'output_of("embed_tokens")'
    yield "layer_input", "input_of()"
    yield "layer_output", "output_of()"
    yield "lm_head_output", 'output_of("lm_head")'
    yield "logits", 'output_of(key="logits")'
    yield "attention_output", "output_of()"
    if "norm" in modules["model"]:
        yield "final_norm_output", 'output_of("norm")'
    if "input_layernorm" in modules["layer"]:
        yield "attention_norm_output", 'output_of("input_layernorm")'
    if structure.shared_norm or "post_attention_layernorm" in modules["layer"]:
        norm = "input_layernorm" if structure.shared_norm else "post_attention_layernorm"
        yield "mlp_norm_output", f'output_of("{norm}")'
    if structure.has_mid:
        yield "layer_mid", 'stream_at("post_attention_layernorm")'
    if structure.attended is not None:
        for name in ("query", "key", "value"):
            word = {"query": "queries", "key": "keys", "value": "values"}[name]
            yield f"attention_{word}", f'attention_argument("{name}")'
        if structure.attended.softmaxes == structure.attended.dropouts == 1:
            yield "attention_scores", "softmax_input()"
            yield "attention_probabilities", "pattern()"
        yield "attention_head_outputs", "attention_result()"
    if "o_proj" in modules["attention"] and structure.sizes.get("num_heads"):
        split = 'split=("num_heads", "head_dim")'
        yield "attention_premix", f'input_of("o_proj", argument="{arguments["o_proj"]}", {split})'
    if "mlp" in modules["layer"]:
        argument = "" if arguments["mlp"] == "hidden_states" else f', argument="{arguments["mlp"]}"'
        yield "mlp_input", f'input_of("mlp"{argument})'
        yield "mlp_output", "output_of()"
    if "act_fn" in modules["mlp"]:
        yield "mlp_activation", 'output_of("act_fn")'
    if "down_proj" in modules["mlp"]:
        yield "mlp_neurons", f'input_of("down_proj", argument="{arguments["down_proj"]}")'


def _reason(name: str, structure: Structure) -> str:
    if name == "layer_mid":
        if "mlp" in structure.modules["layer"] and structure.stream and "stream" not in structure.notes:
            return "The block is parallel: no stream passes between attention and MLP. To check."
        return "The stream between attention and MLP was not found. To check."
    host = VALUES[name].host
    if host == "attention" and structure.attended is None:
        return "The attention does not call transformers' attention interface. To check."
    if name in _FUNCTION_OF:
        return "The eager attention function does not call one softmax and one dropout. To check."
    if host == "mlp" or name.startswith("mlp_"):
        return "No module was found where it could be read: the MLP has none of its own for it. To check."
    return "No module was found where it could be read. To check."


def _settings(config: PretrainedConfig, sizes: str) -> Iterator[str]:
    keys = sorted(key for key in uncommon_settings(config) if f'"{key}"' not in sizes)
    yield from _to_check("each may change what a value means; then the file must say how, or refuse it.", indent=4)
    yield "    settings=frozenset("
    yield "        {"
    for key in keys:
        shown = repr(getattr(config, key)).replace("\n", " ")
        yield f'            "{key}",  # here {shown if len(shown) < 60 else f"{shown[:57]}..."}'
    yield "        }"
    yield "    ),"

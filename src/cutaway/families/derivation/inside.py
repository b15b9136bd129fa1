"""Inside a block: where queries, patterns, neurons, choices of experts and norms are, by what was called with what."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from cutaway.families.derivation.block import Block
from cutaway.families.derivation.modules import is_activation, is_experts, is_linear, is_norm, recorders
from cutaway.families.derivation.recording import BATCH, SEQ, Called, Recording
from cutaway.families.stream import names_in, norms_in
from cutaway.sites import (
    Site,
    attention_argument,
    attention_result,
    input_of,
    output_of,
    pattern,
    sink,
    softmax_input,
    stream_at,
)
from cutaway.vocabulary import Host


@dataclass
class Inside:
    """What was found in a block's sublayers: their modules, the sites of values, why others have none, and sizes."""

    modules: dict[Host, dict[str, str]]
    values: dict[str, Site]
    why: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    premix_differs: str = ""


def look_inside(recording: Recording, block: Block) -> Inside:
    """Finds it."""
    finder = _Finder(recording, block)
    finder.attention()
    finder.mixer()
    finder.mlp()
    finder.norms()
    return finder.found


class _Finder:
    def __init__(self, recording: Recording, block: Block) -> None:
        self.recording, self.block = recording, block
        self.calls = recording.inside(block.path)
        self.found = Inside({"layer": dict(block.modules)}, dict(block.values), dict(block.why))

    def _host(self, name: str) -> str:
        """The path of a sublayer's module; empty where the block has no such sublayer."""
        own = self.found.modules["layer"].get(name)
        return "" if own is None else f"{self.block.path}.{own}".rstrip(".")

    def _inside(self, host: str) -> list[Called]:
        return [call for call in self.calls if call.path.startswith(f"{host}.")]

    def _given_to(self, host: str, value: str) -> Called | None:
        """The call of a sublayer, or of its first part where it is spread out in the block."""
        if host == self.block.path:
            sublayer = self.block.sublayers.get(value)
            linears = [call for call in self.calls if is_linear(call.module) and _child_of(call.path, host)]
            ends = [i for i, call in enumerate(linears) if sublayer is not None and call is sublayer.call]
            return linears[ends[0] - 1] if ends and ends[0] else None
        return self.recording.call_of(host)

    # Attention.

    def attention(self) -> None:
        host = self._host("self_attn")
        if not host:
            return
        names = self.found.modules.setdefault("attention", {})
        seen = [
            (path, what.shapes)
            for path, what in self.recording.attended.items()
            if what.shapes and (path == host or path.startswith(f"{host}."))
        ]
        if seen:
            path, shapes = seen[0]
            self._interior(path.removeprefix(host).removeprefix("."), shapes)
        else:
            why = "No attention function of transformers' interface was called here, and no softmax was seen."
            self.found.why.update(dict.fromkeys(_INTERIOR, why))
        self._output_projection(host, names)
        self._projections(host, names)
        self._before_rotary(host)

    def _interior(self, at: str, shapes: dict[str, torch.Size]) -> None:
        values, why, sizes = self.found.values, self.found.why, self.found.sizes
        if "query" in shapes:
            values["attention_queries"] = attention_argument("query", at)
            values["attention_keys"] = attention_argument("key", at)
            values["attention_values"] = attention_argument("value", at)
            values["attention_head_outputs"] = attention_result(at)
            sizes.update(num_heads=shapes["query"][1], qk_head_dim=shapes["query"][-1])
            sizes.update(num_kv_heads=shapes["value"][1], head_dim=shapes["value"][-1])
        else:
            reason = "This attention calls no function of transformers' interface, to which it would be an argument."
            why.update(dict.fromkeys(_INTERIOR[:4], reason))
        scores, after = shapes.get("softmax"), shapes.get("pattern", shapes.get("softmax result"))
        if scores is None or after is None or len(scores) not in (3, 4) or scores[-2] != SEQ:
            reason = "No softmax over keys was seen inside the attention."
            why.update(dict.fromkeys(("attention_scores", "attention_probabilities"), reason))
            return
        folded = "num_heads" if len(scores) == 3 else ""
        heads = scores[0] // BATCH if folded else scores[1]
        sizes.setdefault("num_heads", heads)
        sinks = scores[-1] == SEQ + 1 and after[-1] == SEQ
        if scores[-1] != SEQ and not sinks:
            reason = f"The softmax is over {scores[-1]} entries, and not over the {SEQ} keys alone."
            why.update(dict.fromkeys(("attention_scores", "attention_probabilities"), reason))
            return
        values["attention_scores"] = softmax_input(at, folded=folded, sinks=sinks)
        values["attention_probabilities"] = pattern(at, folded=folded, dropout="pattern" in shapes)
        if sinks:
            values["attention_sinks"] = sink(at)

    def _output_projection(self, host: str, names: dict[str, str]) -> None:
        sublayer = self.block.sublayers.get("attention_output")
        sizes = self.found.sizes
        linears = [call for call in self._inside(host) if is_linear(call.module)]
        ends = [call for call in linears if sublayer is not None and call.returned is sublayer.call.returned]
        if not ends or ends[-1].given is None:
            return
        end = ends[-1]
        names["o_proj"] = end.path.removeprefix(f"{host}.")
        width, heads = end.given_shape[-1], sizes.get("num_heads", 0)
        if heads and "head_dim" not in sizes and width % heads == 0:
            sizes["head_dim"] = width // heads
        if heads and width == heads * sizes.get("head_dim", 0):
            split = ("num_heads", "head_dim")
            self.found.values["attention_premix"] = input_of("o_proj", argument=end.argument, split=split)
        elif heads:
            self.found.why["attention_premix"] = (
                f"The output projection takes {width} numbers a token, and {heads} heads of {sizes.get('head_dim', 0)} "
                "have not as many."
            )

    def _projections(self, host: str, names: dict[str, str]) -> None:
        call = self.recording.call_of(host)
        linears = [c for c in self._inside(host) if is_linear(c.module) and call is not None and c.given is call.given]
        for key, words in _PROJECTIONS.items():
            found = [c for c in linears if c.path.rpartition(".")[2] in words]
            if len(found) == 1:
                names[key] = found[0].path.removeprefix(f"{host}.")

    def _before_rotary(self, host: str) -> None:
        """Queries and keys as their norms return them, or where there are none, their projections."""
        norms = [call for call in self._inside(host) if is_norm(call.module)]
        for value, key, heads in (
            ("queries_before_rotary", "q", "num_heads"),
            ("keys_before_rotary", "k", "num_kv_heads"),
        ):
            own = [call for call in norms if call.path.rpartition(".")[2].startswith((f"{key}_", _WORDS[key]))]
            if any(_is_latent(call.path, key) for call in norms):
                own = [call for call in self._inside(host) if is_linear(call.module) and _is_expanded(call.path, key)]
            own = own or self._projection(host, f"{key}_proj", norms)
            attended = [
                seen.nodes[_WORDS[key]]
                for path, seen in self.recording.attended.items()
                if _WORDS[key] in seen.nodes and (path == host or path.startswith(f"{host}."))
            ]
            if len(own) == 1 and attended and not attended[0].comes_of(own[0].returned):
                if is_norm(own[0].module):
                    self.found.modules["attention"][f"{key}_norm"] = own[0].path.removeprefix(f"{host}.")
                site = self._heads_of(own[0], host, heads)
                if site is not None:
                    self.found.values[value] = site
        for call in norms:
            if _is_latent(call.path, "kv") and len(call.shape) == 3:
                self.found.values["latent_kv"] = output_of(call.path.removeprefix(f"{host}."))
                self.found.sizes["kv_latent_size"] = call.shape[-1]

    def _projection(self, host: str, name: str, norms: list[Called]) -> list[Called]:
        """The call of a projection whose result no norm is given."""
        own = self.found.modules["attention"].get(name)
        found = [call for call in self._inside(host) if own is not None and call.path == f"{host}.{own}"]
        normed = [norm for norm in norms for call in found if norm.given and norm.given.comes_of(call.returned)]
        return [] if normed else found

    def _heads_of(self, call: Called, host: str, heads: str) -> Site | None:
        sizes = self.found.sizes
        count, width = sizes.get(heads), sizes.get("qk_head_dim")
        if not count or not width:
            return None
        shape, own = call.shape, _standard(self.found.modules["attention"], call.path.removeprefix(f"{host}."))
        if shape == (BATCH, count, SEQ, width):
            return output_of(own)
        if shape == (BATCH, SEQ, count, width):
            return output_of(own, swapped=True)
        if shape == (BATCH, SEQ, count * width):
            return output_of(own, split=(heads, "qk_head_dim"), swapped=True)
        return None

    # Mixers.

    def mixer(self) -> None:
        host = self._host("mixer")
        sublayer = self.block.sublayers.get("mixer_output")
        if not host or sublayer is None:
            return
        names = self.found.modules.setdefault("mixer", {})
        linears = [call for call in self._inside(host) if is_linear(call.module)]
        ends = [call for call in linears if call.returned is sublayer.call.returned]
        if ends:
            names["out_proj"] = ends[-1].path.removeprefix(f"{host}.")
        self._recurrence(host, ends)
        for name in ("conv1d", "in_proj"):
            if any(call.path == f"{host}.{name}" for call in self.calls):
                names[name] = name

    def _recurrence(self, host: str, ends: list[Called]) -> None:
        """What a recurrence gives, where a norm that takes a gate beside is all between it and the last projection."""
        if not ends or not hasattr(self.recording.model.get_submodule(host), "A_log"):
            return
        for call in self._inside(host):
            whole = call.given_shape == (BATCH, SEQ, ends[-1].given_shape[-1])
            if is_norm(call.module) and whole and len(inspect.signature(call.module.forward).parameters) > 1:
                own = call.path.removeprefix(f"{host}.")
                self.found.values["ssm_output"] = input_of(own, argument=call.argument)

    # The MLP.

    def mlp(self) -> None:
        host = self._host("mlp")
        if not host:
            return
        values = self.found.values
        call = self._given_to(host, "mlp_output")
        if host == self.block.path:
            if call is not None and call.given_shape[-1:] == (self._width(),):
                at = call.path.removeprefix(f"{host}.")
                values["mlp_input"] = input_of(at, argument=call.argument, of="layer", rows=call.takes_rows)
        elif call is not None and call.given_shape[-1:] == (self._width(),) and not is_linear(call.module):
            values["mlp_input"] = input_of("mlp", argument=call.argument, rows=call.takes_rows)
        module = self.recording.model.get_submodule(host)
        if host != self.block.path and is_experts(module):
            why = "This MLP is a mixture of experts: each has neurons of its own, in one fused product."
            self.found.why.update(mlp_neurons=why, mlp_activation=why)
            self._experts(host)
        else:
            self._neurons(host)

    def _neurons(self, host: str) -> None:
        sublayer = self.block.sublayers.get("mlp_output")
        names = self.found.modules.setdefault("mlp", {})
        inside = self._inside(host)
        if host == self.block.path:
            inside = [call for call in inside if _child_of(call.path, host)]
        linears = [call for call in inside if is_linear(call.module)]
        downs = [call for call in linears if sublayer is not None and call.returned is sublayer.call.returned]
        if not downs or downs[-1].given is None:
            return
        down, given = downs[-1], downs[-1].given
        names["down_proj"] = down.path.removeprefix(f"{host}.")
        self.found.sizes["intermediate_size"] = down.given_shape[-1]
        self.found.values["mlp_neurons"] = input_of("down_proj", argument=down.argument, rows=down.takes_rows)
        acts = [call for call in inside if is_activation(call.module) and call.shape == down.given_shape]
        if len(acts) == 1:
            names["act_fn"] = acts[0].path.removeprefix(f"{host}.")
            self.found.values["mlp_activation"] = output_of("act_fn", rows=acts[0].by_rows)
        gated = bool(given.factors) and bool(acts) and acts[0].returned is not given
        for call in linears:
            own = call.path.removeprefix(f"{host}.")
            if acts and call.returned is acts[0].given:
                names["gate_proj" if gated else "up_proj"] = own
            elif gated and any(call.returned is factor for factor in given.factors):
                names["up_proj"] = own

    def _experts(self, host: str) -> None:
        """The router by transformers' own record of it; the experts by their class."""
        names = self.found.modules.setdefault("mlp", {})
        router = recorders(self.recording.model).get("router_logits")
        at_block = [call for call in self.calls if router and type(call.module).__name__ in router.classes]
        inside = [call for call in at_block if call.path.startswith(f"{host}.")]
        for call in (inside or at_block)[:1]:
            assert router is not None
            of: Host | None = "mlp" if inside else "layer"
            self._router(call, router.index, call.path.removeprefix(f"{host if inside else self.block.path}."), of)
            if inside:
                names["router"] = call.path.removeprefix(f"{host}.")
        for call in self._inside(host):
            own = call.path.removeprefix(f"{host}.")
            kind = type(call.module).__name__.lower()
            if "." in own or call.shape[-1:] != (self._width(),):
                continue
            if "shared" in own:
                names["shared_expert"] = own
                self.found.values.setdefault("shared_expert_output", output_of("shared_expert", rows=call.by_rows))
            elif "experts" in kind:
                names["experts"] = own
                self.found.values.setdefault("routed_output", output_of("experts", rows=call.by_rows))

    def _width(self) -> int:
        return self.block.call.given_shape[-1] if self.block.call.given_shape else 0

    def _router(self, call: Called, index: int, own: str, of: Host | None) -> None:
        of = None if of == "mlp" else of
        tokens = BATCH * SEQ
        shapes = call.shapes
        if index >= len(shapes) or not shapes[index]:
            return

        def place(i: int) -> Site | None:
            shape = shapes[i]
            if len(shape) not in (2, 3) or (len(shape) == 2 and shape[0] != tokens):
                return None
            return output_of(own, key=i, of=of, rows=len(shape) == 2)

        logits = place(index)
        if logits is None:
            return
        values, sizes = self.found.values, self.found.sizes
        values["router_logits"] = logits
        count = sizes["num_experts"] = shapes[index][-1]
        rest = [i for i, shape in enumerate(shapes) if i != index and shape and shape[-1] != count and place(i)]
        whole = [i for i in rest if (node := call.all_returned[i]) is not None and node.integer]
        weights = [i for i in rest if i not in whole]
        if len(whole) == 1:
            values["expert_indices"] = _there(place(whole[0]))
            sizes["experts_per_token"] = shapes[whole[0]][-1]
        if len(weights) == 1:
            values["expert_weights"] = _there(place(weights[0]))

    # Norms, and the stream between.

    def norms(self) -> None:
        names, values = self.found.modules["layer"], self.found.values
        given = {name: self._given_to(self._host(name), value) for name, value in _ADDS.items() if name in names}
        norms = [call for call in self.calls if is_norm(call.module) and _child_of(call.path, self.block.path)]
        norms = [call for call in norms if call.path not in self._in_stream()]
        mlp = given.get("mlp")
        for norm in norms:
            own = self.block.below(norm.path)
            for name, call in given.items():
                if call is None or norm.returned is None or call.given is not norm.returned:
                    continue
                values[_NORMED[name]] = output_of(own, rows=norm.by_rows)
                if name != "mlp":
                    names.setdefault("input_layernorm", own)
                elif own != names.get("input_layernorm"):
                    if self._is_mid(norm):
                        values["layer_mid"] = stream_at(own, rows=norm.takes_rows)
                    if own == "post_attention_layernorm" or not self._is_taken("post_attention_layernorm"):
                        names["post_attention_layernorm"] = own
        unnormed = mlp is not None and not {"layer_mid", "mlp_norm_output"} & set(values)
        if mlp is not None and unnormed and self._is_mid(mlp):
            values["layer_mid"] = stream_at(self.block.below(mlp.path), rows=mlp.takes_rows)
        if not self.block.stream:
            for name in ("layer_mid", "mlp_norm_output", "mlp_input"):
                values.pop(name, None)
        for name, site in tuple(values.items()):
            if name in ("attention_norm_output", "mixer_norm_output", "layer_mid", "mlp_norm_output"):
                values[name] = replace(site, module=_standard(names, site.module))

    def _in_stream(self) -> set[str]:
        """The paths of norms that stand in the stream, behind a sublayer: what they return goes on in it."""
        norms = [norm for norm in norms_in(self.block.stream) if list(names_in(norm)) != ["layer_input"]]
        return {f"{self.block.path}.{norm.by}" for norm in norms}

    def _is_taken(self, name: str) -> bool:
        """Whether the block has a module of its own of this name, which then means something else."""
        return isinstance(getattr(self.recording.model.get_submodule(self.block.path), name, None), nn.Module)

    def _is_mid(self, call: Called) -> bool:
        """Whether what a call is given is the stream after the first sublayer and before the MLP."""
        sublayers, start = self.block.sublayers, self.block.call.given
        terms = {id(start): "layer_input"} if start is not None else {}
        terms |= {id(one.term): one.value for one in sublayers.values()}
        before = sorted(
            name for name in names_in(self.block.stream) if not name.startswith(("mlp", "routed", "shared"))
        )
        through = {id(c.returned): c.given for c in self.calls if c.path in self._in_stream() and c.given is not None}
        node, parts = call.given, list[str]()
        pending = [node] if node is not None else []
        while pending:
            one = pending.pop()
            if id(one) in terms:
                parts.append(terms[id(one)])
            elif id(one) in through:
                pending.append(through[id(one)])
            elif one.scaled is not None:
                pending.append(one.scaled[0])
            elif one.terms:
                pending.extend(one.terms)
            else:
                return False
        return sorted(parts) == before and len(parts) > 1


_INTERIOR = (
    "attention_queries",
    "attention_keys",
    "attention_values",
    "attention_head_outputs",
    "attention_scores",
    "attention_probabilities",
)
_PROJECTIONS = {
    "q_proj": ("q_proj", "query", "q_lin", "q"),
    "k_proj": ("k_proj", "key", "k_lin", "k"),
    "v_proj": ("v_proj", "value", "v_lin", "v"),
}
_WORDS = {"q": "query", "k": "key"}
_ADDS = {"self_attn": "attention_output", "mixer": "mixer_output", "mlp": "mlp_output"}
_NORMED = {"self_attn": "attention_norm_output", "mixer": "mixer_norm_output", "mlp": "mlp_norm_output"}


def _is_latent(path: str, key: str) -> bool:
    return path.rpartition(".")[2].startswith((f"{key}_a_", f"{key}_latent", f"{key}_down"))


def _is_expanded(path: str, key: str) -> bool:
    return path.rpartition(".")[2] == f"{key}_b_proj"


def _child_of(path: str, host: str) -> bool:
    return "." not in path.removeprefix(f"{host}.")


def _standard(names: dict[str, str], own: str) -> str:
    return next((name for name, is_ in names.items() if is_ == own), own)


def _there(site: Site | None) -> Site:
    assert site is not None
    return site

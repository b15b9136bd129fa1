"""Reading a recording: which module is which, and of what the block's output is the sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn

from cutaway.errors import UnsupportedModelError
from cutaway.families.proposal.recording import Attended, Called, Recording
from cutaway.vocabulary import Host


@dataclass
class Structure:
    """What was found. `why` tells of each value that was not; `notes` of what was guessed, by name."""

    modules: dict[Host, dict[str, str]]
    arguments: dict[str, str] = field(default_factory=dict[str, str])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    stream: tuple[str, ...] = ()
    has_mid: bool = False
    shared_norm: bool = False
    positions: str = ""
    attended: Attended | None = None
    why: dict[str, str] = field(default_factory=dict[str, str])
    notes: dict[str, str] = field(default_factory=dict[str, str])


def find(recording: Recording) -> Structure:
    """The structure of the model that was recorded, by its first block."""
    return _Finder(recording).find()


class _Finder:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.twin = recording.twin
        self.paths = {module: path for path, module in self.twin.named_modules()}
        self.structure = Structure({"model": {}, "layer": {}, "attention": {}, "mlp": {}})

    def find(self) -> Structure:
        layers = self._layers()
        self.block = f"{layers}.0"
        self._around(layers)
        self.entered = self._call(self.block)
        self._attention()
        self._mlp()
        self._norms()
        self._sum()
        return self.structure

    # The model around the blocks.

    def _layers(self) -> str:
        lists = [
            path for path, module in self.twin.named_modules() if isinstance(module, nn.ModuleList) and len(module)
        ]
        lists = [path for path in lists if self.recording.call_of(f"{path}.0")]
        if not lists:
            raise UnsupportedModelError(f"{type(self.twin).__name__} has no list of blocks, so no file can be drafted.")
        counts = {path: _count(self.twin.get_submodule(path)) for path in lists}
        return max(lists, key=counts.__getitem__)

    def _around(self, layers: str) -> None:
        embedding, head = self.twin.get_input_embeddings(), self.twin.get_output_embeddings()
        if embedding not in self.paths or head not in self.paths:
            raise UnsupportedModelError(f"the embedding or the head of {type(self.twin).__name__} cannot be told.")
        names = self.structure.modules["model"]
        names["embed_tokens"], names["layers"] = self.paths[embedding], layers
        stack = self.twin.get_submodule(layers)
        ends = [call for call in self.recording.calls if call.path == f"{layers}.{len(list(stack.children())) - 1}"]
        after = self.recording.calls[self.recording.calls.index(ends[-1]) + 1 :]
        norms = [call for call in after if _is_norm(call.module)]
        if norms:
            names["norm"] = norms[-1].path
        names["lm_head"] = self.paths[head]
        sizes = self.structure.sizes
        sizes["num_layers"] = len(list(stack.children()))
        sizes["vocab_size"], sizes["hidden_size"] = next(embedding.parameters()).shape
        others = (call for call in self.recording.calls if isinstance(call.module, nn.Embedding))
        for call in others:
            if call.path != names["embed_tokens"] and not call.path.startswith(layers):
                self.structure.positions = call.path
        kinds = {tuple(type(part).__name__ for part in block.modules()) for block in stack.children()}
        if len(kinds) > 1:
            self.structure.notes["layers"] = f"blocks are of {len(kinds)} kinds; the draft is made from the first."

    # Inside the block.

    def _attention(self) -> None:
        inside = [path for path in self.recording.attended if path.startswith(f"{self.block}.")]
        named = [call.path for call in self._children() if "attn" in call.path or "attention" in call.path]
        named = [path for path in named if any(p.ndim == 2 for p in self.twin.get_submodule(path).parameters())]
        if not inside and not named:
            raise UnsupportedModelError(f"no attention was found in the blocks of {type(self.twin).__name__}.")
        self.attention = self._call(inside[0] if inside else named[0])
        self.structure.modules["layer"]["self_attn"] = self.attention.path.removeprefix(f"{self.block}.")
        if inside:
            self.structure.attended = self.recording.attended[inside[0]]
        else:
            self.structure.notes["self_attn"] = "found by its name, since it does not call the attention interface."
        self.structure.arguments["attention"] = self.attention.argument
        self._head_sizes()
        self._projections()

    def _head_sizes(self) -> None:
        found = self.structure.attended
        sizes = self.structure.sizes
        if found is not None:
            sizes["num_heads"], sizes["qk_head_dim"] = found.query[1], found.query[3]
            sizes["num_kv_heads"], sizes["head_dim"] = found.value[1], found.value[3]

    def _projections(self) -> None:
        names, sizes = self.structure.modules["attention"], self.structure.sizes
        linears = [call for call in self._inside(self.attention.path) if _is_linear(call.module)]
        ends = [call for call in linears if self.recording.is_(call.returned, self.attention.returned)]
        for call in ends[-1:]:
            names["o_proj"] = call.path.removeprefix(f"{self.attention.path}.")
            self.structure.arguments["o_proj"] = call.argument
        starts = [call for call in linears if self.recording.is_(call.given, self.attention.given)]
        if len(starts) == 3 and sizes.get("num_heads"):
            widths = [sizes["num_heads"] * sizes["qk_head_dim"], sizes["num_kv_heads"] * sizes["qk_head_dim"]]
            widths.append(sizes["num_kv_heads"] * sizes["head_dim"])
            if [_width(call) for call in starts] == widths:
                for name, call in zip(("q_proj", "k_proj", "v_proj"), starts, strict=True):
                    names[name] = call.path.removeprefix(f"{self.attention.path}.")
                self.structure.notes["q_proj"] = "query, key and value in the order in which they are called."

    def _mlp(self) -> None:
        candidates = [
            call
            for call in self._children()
            if call.path != self.attention.path and any(p.ndim >= 2 for p in call.module.parameters())
            if _width(call) == self.structure.sizes["hidden_size"] and not isinstance(call.module, nn.ModuleList)
        ]
        self.mlp: Called | None = max(candidates, key=lambda call: _count(call.module), default=None)
        if self.mlp is None or _is_linear(self.mlp.module):
            self.mlp = None
            return
        names, path = self.structure.modules["mlp"], self.mlp.path
        self.structure.modules["layer"]["mlp"] = path.removeprefix(f"{self.block}.")
        self.structure.arguments["mlp"] = self.mlp.argument
        linears = [call for call in self._inside(path) if _is_linear(call.module)]
        downs = [call for call in linears if self.recording.is_(call.returned, self.mlp.returned)]
        if not downs:
            return
        down = downs[-1]
        assert down.given is not None
        names["down_proj"] = down.path.removeprefix(f"{path}.")
        self.structure.arguments["down_proj"] = down.argument
        self.structure.sizes["intermediate_size"] = down.given.shape[-1]
        acts = [
            call for call in self._inside(path) if _is_activation(call.module) and _width(call) == down.given.shape[-1]
        ]
        if len(acts) == 1:
            names["act_fn"] = acts[0].path.removeprefix(f"{path}.")
            self._gate(acts[0], down, linears)

    def _gate(self, act: Called, down: Called, linears: list[Called]) -> None:
        assert down.given is not None
        assert self.mlp is not None
        factors = self.recording.products.get(id(self.recording.origin(down.given)), ())
        if not any(self.recording.is_(factor, act.returned) for factor in factors):
            return
        for call in linears:
            own = call.path.removeprefix(f"{self.mlp.path}.")
            if self.recording.is_(call.returned, act.given):
                self.structure.modules["mlp"]["gate_proj"] = own
            elif any(self.recording.is_(call.returned, factor) for factor in factors):
                self.structure.modules["mlp"]["up_proj"] = own

    def _norms(self) -> None:
        names = self.structure.modules["layer"]
        norms = [call for call in self._children() if _is_norm(call.module)]
        self.mlp_norm: Called | None = None
        for call in norms:
            own = call.path.removeprefix(f"{self.block}.")
            if self.recording.is_(call.returned, self.attention.given):
                names["input_layernorm"] = own
                self.structure.shared_norm = self.mlp is not None and self.recording.is_(call.returned, self.mlp.given)
            elif self.mlp is not None and self.recording.is_(call.returned, self.mlp.given):
                names["post_attention_layernorm"] = own
                self.mlp_norm = call

    # Of what the block's output is made.

    def _sum(self) -> None:
        terms = {"layer_input": self.entered.given, "attention_output": self.attention.returned}
        terms["mlp_output"] = self.mlp.returned if self.mlp is not None else None
        leaves = self._terms(self.entered.returned, terms)
        names = [self._name_of(leaf, terms) for leaf in leaves or ()]
        missing = [name for name in terms if name not in names]
        self.structure.stream = tuple(names) if not missing and len(names) == 3 else tuple(terms)
        if missing or len(names) != 3:
            others = [self._describe(leaf) for leaf, name in zip(leaves or (), names, strict=False) if not name]
            what = f": the block adds {' and '.join(others)}" if others else ""
            self.structure.notes["stream"] = f"the block's output was not seen to be the sum of these{what}."
            for name in missing:
                if name != "layer_input":
                    self.structure.why[name] = f"It is not added to the stream as it is{what}. To check."
        mid = self.mlp_norm.given if self.mlp_norm is not None else None
        parts = [self._name_of(leaf, terms) for leaf in (self._terms(mid, terms) or ())] if mid is not None else []
        self.structure.has_mid = sorted(parts) == ["attention_output", "layer_input"]

    def _terms(self, total: Tensor | None, terms: dict[str, Tensor | None]) -> list[Tensor] | None:
        """The terms of a sum in the order of a fold from the left; None where it is none."""
        if total is None:
            return None
        total = self.recording.origin(total)
        if self._name_of(total, terms) or id(total) not in self.recording.sums:
            return [total]
        left, right = (self._terms(part, terms) for part in self.recording.sums[id(total)])
        if left is None or right is None or (len(left) > 1 and len(right) > 1):
            return None
        return left + right if len(right) == 1 else right + left

    def _name_of(self, tensor: Tensor, terms: dict[str, Tensor | None]) -> str:
        return next((name for name, term in terms.items() if self.recording.is_(tensor, term)), "")

    def _describe(self, tensor: Tensor) -> str:
        for call in self.recording.calls:
            if self.recording.is_(call.returned, tensor) and call.path.startswith(self.block):
                return f"the output of `{call.path.removeprefix(f'{self.block}.')}`"
        multiple = self.recording.multiples.get(id(self.recording.origin(tensor)))
        return f"a multiple of {self._describe(multiple)}" if multiple is not None else "something else"

    # Calls.

    def _call(self, path: str) -> Called:
        found = self.recording.call_of(path)
        assert found is not None, path
        return found

    def _children(self) -> list[Called]:
        """The calls of the block's own modules, in order."""
        depth = self.block.count(".") + 1
        return [call for call in self._inside(self.block) if call.path.count(".") == depth]

    def _inside(self, path: str) -> Iterator[Called]:
        return (call for call in self.recording.calls if call.path.startswith(f"{path}."))


def _is_linear(module: nn.Module) -> bool:
    return not any(True for _ in module.children()) and any(p.ndim == 2 for p in module.parameters(recurse=False))


def _is_norm(module: nn.Module) -> bool:
    parameters = list(module.parameters())
    by_name = "norm" in type(module).__name__.lower()
    return by_name and not any(True for _ in module.children()) and all(p.ndim <= 1 for p in parameters)


def _is_activation(module: nn.Module) -> bool:
    leaf = not any(True for _ in module.children()) and not any(True for _ in module.parameters())
    return leaf and not isinstance(module, (nn.Dropout, nn.Identity))


def _width(call: Called) -> int:
    return call.returned.shape[-1] if call.returned is not None else 0


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

"""A block: of which modules' outputs its own is the sum, and which sublayer each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from torch import nn

from cutaway.families.derivation.modules import is_experts, is_linear, is_mixer, is_norm
from cutaway.families.derivation.recording import Called, Node, Recording
from cutaway.families.stream import Normed, Sum, Term, Times, names_in
from cutaway.sites import Site, output_of
from cutaway.vocabulary import SUBLAYERS, Host

_DEEPEST = 60
"""How many sums within one another are looked through."""

_HOST: dict[str, Host] = {"attention_output": "attention", "mixer_output": "mixer", "mlp_output": "mlp"}


@dataclass(frozen=True)
class Sublayer:
    """What adds a term to the stream.

    Attributes:
        value: the name of what it adds.
        term: what it adds, before a factor of the block's.
        call: the call that returned it, before a norm that comes after it.
        host: the path of the sublayer's module; the block's own where its parts stand in the block itself.
    """

    value: str
    term: Node
    call: Called
    host: str


@dataclass
class Block:
    """What was found of one block.

    Attributes:
        path: its path.
        call: its call.
        sublayers: what adds to the stream, by the value's name.
        stream: the sum that the block's output is, or none; then `no_sum` says why.
        modules: the block's own name of each sublayer.
        values: sites of what the sublayers add.
        why: why a value has no site.
    """

    path: str
    call: Called
    sublayers: dict[str, Sublayer] = field(default_factory=dict[str, Sublayer])
    stream: Sum = ()
    no_sum: str = ""
    modules: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, Site] = field(default_factory=dict[str, Site])
    why: dict[str, str] = field(default_factory=dict[str, str])

    def below(self, path: str) -> str:
        """A path below the block."""
        return path.removeprefix(f"{self.path}.")


def find_block(recording: Recording, path: str) -> Block:
    """Finds what a block adds up, from its output backwards to its input."""
    return _Finder(recording, path).find()


class _Finder:
    def __init__(self, recording: Recording, path: str) -> None:
        call = recording.call_of(path)
        assert call is not None
        self.recording = recording
        self.block = Block(path, call)
        self.inside = recording.inside(path)
        self.names: dict[int, str] = {}

    def find(self) -> Block:
        block, given, returned = self.block, self.block.call.given, self.block.call.returned
        if given is None or returned is None:
            block.no_sum = "the block takes or returns no tensor first"
            return self._beside()
        self.start = given
        tree = self._expand(returned)
        leaves = list(_leaves(tree))
        if not any(leaf is self.start for leaf in leaves):
            block.no_sum = "the block's output is not a sum of its input and of what modules return"
            return self._beside()
        for leaf in leaves:
            if leaf is not self.start:
                self._name(leaf)
        self._tell_experts_apart()
        term = self._written(tree)
        names = list(names_in(term)) if term is not None else []
        if isinstance(term, (tuple, Normed)) and len(set(names)) == len(names) and len(names) > 1:
            block.stream = term if isinstance(term, tuple) else (term,)
            return block
        others = [self._describe(leaf) for leaf in leaves if leaf is not self.start and id(leaf) not in self.names]
        block.no_sum = f"the block adds {others[0]}" if others else "the block adds one thing twice"
        return self._beside()

    def _beside(self) -> Block:
        """A block whose output is no known sum: nothing ties what its sublayers return to the stream, so none of it is
        claimed. The attention is told by what was seen inside."""
        block = self.block
        block.sublayers.clear()
        block.values.clear()
        block.modules.clear()
        attends = [path for path in self.recording.attended if path.startswith(f"{block.path}.")]
        seen = [path for path in attends if self.recording.attended[path].shapes]
        if seen:
            block.modules["self_attn"] = self._child(seen[0])
        why = f"Nothing measured ties it to the stream: {block.no_sum}."
        block.why.update(dict.fromkeys((*_HOST, "layer_mid", "mlp_norm_output", "mlp_input"), why))
        return block

    # The sum.

    def _expand(self, node: Node, depth: int = 0) -> object:
        """A node as the sum that it is, down to the block's input and what modules return."""
        if node is self.start or depth > _DEEPEST:
            return node
        norm = self._norm(node)
        if norm is not None and norm.given is not None and self._has_start(norm.given):
            return _Normed(self._expand(norm.given, depth + 1), norm.path)
        if node.terms and (self._has_start(node) or self._call(node) is None):
            return tuple(self._expand(part, depth + 1) for part in node.terms)
        if node.scaled is not None and (self._has_start(node) or self._call(node) is None):
            return _Scaled(self._expand(node.scaled[0], depth + 1), node.scaled[1])
        return node

    def _has_start(self, node: Node, depth: int = 0) -> bool:
        if node is self.start:
            return True
        norm = self._norm(node)
        given = (norm.given,) if norm is not None and norm.given is not None else ()
        parts = (*node.terms, *((node.scaled[0],) if node.scaled else ()), *given)
        return depth < _DEEPEST and any(self._has_start(part, depth + 1) for part in parts)

    def _norm(self, node: Node) -> Called | None:
        """The call of a norm that returned a node."""
        return next((call for call in self.inside if call.returned is node and is_norm(call.module)), None)

    def _call(self, node: Node) -> Called | None:
        """The outermost call that returned a node."""
        passing = (nn.Dropout, nn.Identity)
        found = [call for call in self.inside if call.returned is node and not isinstance(call.module, passing)]
        return found[-1] if found else None

    def _written(self, tree: object) -> Term | None:
        """The expression of a tree; None where a leaf of it has no name."""
        if isinstance(tree, _Scaled):
            inner = self._written(tree.inner)
            if inner is None or tree.by == 1:
                return inner
            return Times(inner, *self._factor(tree.by))
        if isinstance(tree, _Normed):
            inner = self._written(tree.inner)
            return None if inner is None else Normed(inner, self.block.below(tree.by))
        if isinstance(tree, tuple):
            parts = [self._written(part) for part in tree]  # pyright: ignore[reportUnknownVariableType]
            if any(part is None for part in parts):
                return None
            return _flat(tuple(part for part in parts if part is not None))
        if tree is self.start:
            return "layer_input"
        assert isinstance(tree, Node)
        return self.names.get(id(tree))

    def _factor(self, by: float | str) -> tuple[float | str, bool]:
        return (self.block.below(by), True) if isinstance(by, str) else (by, False)

    # Names of what is added.

    def _name(self, leaf: Node) -> None:
        call = self._call(leaf)
        if call is None:
            return
        site, after = call, None
        if is_norm(call.module) and call.given is not None:
            inner = self._call(call.given)
            if inner is not None:
                after, call = call, inner
        child = self._child(call.path)
        value = self._kind(child, call)
        if value in self.block.sublayers:
            value = {"mlp_output": "mlp_output 2", "attention_output": "mixer_output"}.get(value, "")
        if not value or value in self.block.sublayers:
            return
        in_block = is_linear(call.module) and self.block.below(call.path) == child
        host = self.block.path if in_block else f"{self.block.path}.{child}"
        self.names[id(leaf)] = value
        self.block.sublayers[value] = Sublayer(value, leaf, call, host)
        if value in _HOST:
            self.block.modules[SUBLAYERS[_HOST[value]]] = "" if in_block else child
        below = self.block.below(site.path)
        if after is not None:
            self.block.values[value] = output_of(below, of="layer", rows=site.by_rows)
        else:
            inside = below if in_block else below.removeprefix(child).removeprefix(".")
            self.block.values[value] = output_of(inside, rows=site.by_rows)

    def _tell_experts_apart(self) -> None:
        """Where a block adds what chosen experts give and what a shared one gives each by itself."""
        block, sublayers = self.block, self.block.sublayers
        second = sublayers.pop("mlp_output 2", None)
        if second is None:
            return
        first = sublayers.pop("mlp_output")
        sites = block.values.pop("mlp_output"), block.values.pop("mlp_output 2")
        both = list(zip((first, second), sites, strict=True))
        routed = [is_experts(self._module(one.host)) for one in (first, second)]
        if sum(routed) != 1:
            self.names = {key: name for key, name in self.names.items() if not name.startswith("mlp_output")}
            return
        chosen, shared = both[routed.index(True)], both[routed.index(False)]
        block.modules["mlp"] = block.below(chosen[0].host)
        for value, (sublayer, site) in (("routed_output", chosen), ("shared_expert_output", shared)):
            old = sublayer.value
            self.names = {key: value if name == old else name for key, name in self.names.items()}
            sublayers[value] = Sublayer(value, sublayer.term, sublayer.call, sublayer.host)
            module = block.below(sublayer.host)
            block.values[value] = output_of(".".join(filter(None, (module, site.module))), of="layer")
        block.why["mlp_output"] = (
            "The block adds `routed_output` and `shared_expert_output` each by itself; no module returns their sum."
        )

    def _kind(self, child: str, call: Called) -> str:
        path = f"{self.block.path}.{child}"
        module = self._module(path)
        seen = [p for p, what in self.recording.attended.items() if what.shapes]
        if any(p == path or p.startswith(f"{path}.") for p in seen):
            return "attention_output"
        if is_mixer(module, child):
            return "mixer_output"
        said = (type(module).__name__.lower(), child.lower())
        if any(word in name for word in ("attn", "attention") for name in said):
            return "attention_output"
        return "mlp_output"

    def _module(self, path: str) -> nn.Module:
        return self.recording.model.get_submodule(path)

    def _child(self, path: str) -> str:
        """The block's own module in which a path is; through lists and dictionaries of modules."""
        parts = self.block.below(path).split(".")
        for number in range(1, len(parts)):
            own = ".".join(parts[:number])
            if not isinstance(self._module(f"{self.block.path}.{own}"), (nn.ModuleList, nn.ModuleDict)):
                return own
        return ".".join(parts)

    def _describe(self, node: Node) -> str:
        call = self._call(node)
        if call is not None:
            return f"the output of `{self.block.below(call.path)}` beside what is known of its sublayers"
        return "something that no module returns"


def _flat(parts: tuple[Term, ...]) -> Sum:
    """A sum of two, the first of which, or the second in its place, is one itself, as one from left to right."""
    first, second = parts
    if isinstance(first, tuple):
        return (*first, second)
    return (*second, first) if isinstance(second, tuple) else parts


@dataclass(frozen=True)
class _Scaled:
    """A sum times a factor."""

    inner: object
    by: float | str


@dataclass(frozen=True)
class _Normed:
    """A sum as a norm returns it, by the norm's path."""

    inner: object
    by: str


def _leaves(tree: object) -> Iterator[Node]:
    if isinstance(tree, (_Scaled, _Normed)):
        yield from _leaves(tree.inner)
    elif isinstance(tree, tuple):
        for part in tree:  # pyright: ignore[reportUnknownVariableType]
            yield from _leaves(part)  # pyright: ignore[reportUnknownArgumentType]
    else:
        assert isinstance(tree, Node)
        yield tree

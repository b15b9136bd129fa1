"""What the searches inside a block share: the calls of its modules, and what was found so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from cutaway.families.derivation.block import Block
from cutaway.families.derivation.modules import is_linear
from cutaway.families.derivation.recording import Called, Recording
from cutaway.sites import Site
from cutaway.vocabulary import Host


@dataclass
class Inside:
    """What was found in a block's sublayers: their modules, the sites of values, why others have none, and sizes."""

    modules: dict[Host, dict[str, str]]
    values: dict[str, Site]
    why: dict[str, str]
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    premix_differs: str = ""


class Finder:
    """A block of a recorded pass, its calls, and what was found in it so far."""

    def __init__(self, recording: Recording, block: Block) -> None:
        self.recording, self.block = recording, block
        self.calls = recording.inside(block.path)
        self.found = Inside({"layer": dict(block.modules)}, dict(block.values), dict(block.why))

    def host(self, name: str) -> str:
        """The path of a sublayer's module; empty where the block has no such sublayer."""
        own = self.found.modules["layer"].get(name)
        return "" if own is None else f"{self.block.path}.{own}".rstrip(".")

    def inside(self, host: str) -> list[Called]:
        """The calls of the modules below one."""
        return [call for call in self.calls if call.path.startswith(f"{host}.")]

    def given_to(self, host: str, value: str) -> Called | None:
        """The call of a sublayer, or of its first part where it is spread out in the block."""
        if host == self.block.path:
            sublayer = self.block.sublayers.get(value)
            linears = [call for call in self.calls if is_linear(call.module) and child_of(call.path, host)]
            ends = [i for i, call in enumerate(linears) if sublayer is not None and call is sublayer.call]
            return linears[ends[0] - 1] if ends and ends[0] else None
        return self.recording.call_of(host)

    def width(self) -> int:
        """The width of the stream."""
        return self.block.call.given_shape[-1] if self.block.call.given_shape else 0


def child_of(path: str, host: str) -> bool:
    """Whether a module stands right below another."""
    return "." not in path.removeprefix(f"{host}.")


def standard(names: dict[str, str], own: str) -> str:
    """The standard name of a module, or its own where it has none."""
    return next((name for name, is_ in names.items() if is_ == own), own)

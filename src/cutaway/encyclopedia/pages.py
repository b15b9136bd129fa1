"""What each page is made of, as data for its template."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from cutaway.encyclopedia import identity
from cutaway.encyclopedia.checkpoints import CHECKPOINTS, config_of
from cutaway.encyclopedia.diagram import draw_stack, glyph
from cutaway.encyclopedia.kinds import LayerKind, layer_kinds
from cutaway.encyclopedia.note import Result
from cutaway.encyclopedia.parts import Parts, parts_of
from cutaway.encyclopedia.published import PUBLISHED, Checkpoint
from cutaway.encyclopedia.traits import Trait, traits_of
from cutaway.families import FAMILIES
from cutaway.vocabulary import CONFIG_NAMES, HOSTS, LAYOUTS, MODULES, WEIGHTS, Host, Weight, values_of

if TYPE_CHECKING:
    from cutaway.inspection.support import Support
    from cutaway.model import StandardizedTransformer

NATIVE_KEYS = (
    "architectures",
    "num_hidden_layers",
    "n_layer",
    "hidden_size",
    "n_embd",
    "intermediate_size",
    "n_inner",
    "num_attention_heads",
    "n_head",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
    "n_positions",
    "hidden_act",
    "activation_function",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "rms_norm_eps",
    "tie_word_embeddings",
    "dtype",
    "qk_layernorm",
    "attention_bias",
    "mlp_bias",
    "use_parallel_residual",
    "resid_pdrop",
    "rope_parameters",
)
"""Keys of transformers' own config that matter to a reader, in the order in which they are shown."""


@dataclass(frozen=True)
class Column:
    """One checkpoint beside others: its sizes, its parameters and its native config."""

    checkpoint: Checkpoint
    sizes: dict[str, str]
    parameters: str
    native: dict[str, str]


@dataclass(frozen=True)
class Identity:
    """What the output of one kind of layer is: of which layers, where there are several kinds, as equations, and in
    standard names."""

    layers: str
    in_symbols: list[Markup]
    in_words: str


@dataclass(frozen=True)
class FamilyPage:
    """All that a family's page shows but its notes' results, which are added once they have run."""

    name: str
    title: str
    summary: str
    architectures: tuple[str, ...]
    checkpoints: tuple[str, ...]
    reference: Checkpoint
    traits: list[Trait]
    glyph: Markup
    diagram: Markup
    parts: Parts
    kinds: list[LayerKind]
    identities: list[Identity]
    order: str
    support: Support
    printout: Markup
    columns: list[Column]
    source: str
    module: str
    specimen: str = ""
    specimen_is_real: bool = False
    results: list[ShownResult] = field(default_factory=lambda: list[ShownResult]())

    @property
    def is_wide(self) -> bool:
        """Whether the drawing is wider than a phone."""
        return 'class="diagram wide"' in self.diagram


@dataclass(frozen=True)
class ShownResult:
    """A note's result and the files of its picture, light and dark, with its description."""

    result: Result
    light: str = ""
    dark: str = ""
    alt: str = ""
    size: tuple[int, int] = (0, 0)


def family_page(name: str, step: Callable[[], None] = lambda: None) -> FamilyPage:
    """Reads a family's page from its file and its checkpoints' configs; `step` is called after each checkpoint."""
    from cutaway.model import StandardizedTransformer

    family = FAMILIES[name]
    columns: list[Column] = []
    models: list[StandardizedTransformer] = []
    for checkpoint in CHECKPOINTS[name]:
        source = checkpoint.hub_id if checkpoint.settings is None else config_of(name, checkpoint)
        model = StandardizedTransformer(source, dispatch=False, dtype=config_of(name, checkpoint).dtype)
        models.append(model)
        columns.append(_column(checkpoint, model))
        step()
    model = models[0]
    subject = model._subject
    kinds = layer_kinds(subject)
    support = model.support()
    parts = parts_of(subject, kinds, support)
    module = import_module(f"cutaway.families.{name}")
    source = inspect.getsource(module)
    return FamilyPage(
        name=name,
        title=PUBLISHED[name].title,
        summary=(inspect.getdoc(module) or "").split("\n\n")[0],
        architectures=family.architectures,
        checkpoints=family.checkpoints,
        reference=CHECKPOINTS[name][0],
        traits=traits_of(subject, kinds),
        glyph=Markup("".join(glyph(kind) for kind in kinds)),
        diagram=Markup(draw_stack(subject, kinds, parts)),
        parts=parts,
        kinds=kinds,
        identities=[_identity(kind) for kind in kinds],
        order=identity.told(kinds),
        support=support,
        printout=Markup(model._repr_html_()),
        columns=columns,
        source=source,
        module=f"cutaway/families/{name}.py",
    )


def _identity(kind: LayerKind) -> Identity:
    layers = "" if len(kind.layers) == kind.of else f"{kind.told}: {kind.words}"
    return Identity(layers, [Markup(line) for line in identity.in_symbols(kind)], identity.in_words(kind.wiring))


def _column(checkpoint: Checkpoint, model: StandardizedTransformer) -> Column:
    count = sum(parameter.numel() for parameter in model.hf.parameters())
    native = model.config.to_dict()
    shown = {key: _native(native[key]) for key in NATIVE_KEYS if key in native}
    shown["dtype"] = str(model.dtype).removeprefix("torch.")
    return Column(checkpoint, {name: f"{size:,}" for name, size in model.sizes.items()}, f"{count:,}", shown)


def _native(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_native(inner)}" for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def native_rows(columns: Sequence[Column]) -> list[tuple[str, list[str]]]:
    """For each native key that any of the checkpoints has, what each says."""
    keys = [key for key in NATIVE_KEYS if any(key in column.native for column in columns)]
    return [(key, [column.native.get(key, "unset") for column in columns]) for key in keys]


def size_rows(columns: Sequence[Column]) -> list[tuple[str, str, list[str]]]:
    """For each standard size its meaning, and what each checkpoint has."""
    return [
        (name, row.meaning, [column.sizes.get(name, "") for column in columns])
        for name, row in CONFIG_NAMES.items()
        if any(name in column.sizes for column in columns)
    ]


def glossary(families: Sequence[FamilyPage]) -> dict[str, Any]:
    """Every value, layout, module and size, and which of these families have each."""
    values = [
        (
            host,
            HOSTS[host].format(layer="*") or "the model itself",
            [(v, _having(v.name, families)) for v in values_of(host)],
        )
        for host in HOSTS
    ]
    used: dict[str, list[str]] = {name: [] for name in LAYOUTS}
    for host in HOSTS:
        for value in values_of(host):
            used[value.layout.name].append(value.name)
    modules = [
        (module, by_answer(families, lambda page, row=module: _native_name(page, row.host, row.name)))
        for module in MODULES.values()
    ]
    weights = [(row, by_answer(families, lambda page, row=row: _kept_in(page, row))) for row in WEIGHTS.values()]
    return {
        "values": values,
        "layouts": [(layout, used[name]) for name, layout in LAYOUTS.items()],
        "modules": modules,
        "weights": weights,
        "sizes": list(CONFIG_NAMES.values()),
    }


def _having(value: str, families: Sequence[FamilyPage]) -> tuple[list[FamilyPage], list[FamilyPage]]:
    """The families that have a value, and those that lack it."""
    having = [page for page in families if page.support[value].available]
    return having, [page for page in families if page not in having]


def by_answer(
    families: Sequence[FamilyPage], answer: Callable[[FamilyPage], str]
) -> list[tuple[str, list[FamilyPage]]]:
    """Families that give one answer together, the most frequent first, and those that give none last."""
    found: dict[str, list[FamilyPage]] = {}
    for page in families:
        found.setdefault(answer(page), []).append(page)
    return sorted(found.items(), key=lambda one: (not one[0], -len(one[1])))


def _kept_in(page: FamilyPage, row: Weight) -> str:
    """Where a family's first checkpoint keeps a weight; empty where it has none."""
    found = page.support.weight(row.name)
    return found.where if found.available else ""


def _native_name(page: FamilyPage, host: Host, name: str) -> str:
    """What a family calls a module; the layers' own place where it is spread out in them."""
    family = FAMILIES[page.name]
    everywhere = [family.modules, *(kind.modules for kind in family.kinds)]
    return next((own for names in everywhere if (own := names.get(host, {}).get(name))), "")

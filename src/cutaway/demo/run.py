"""Runs the steps, and shows what they gave."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from cutaway.demo import steps
from cutaway.demo.bars import bar, before_and_after
from cutaway.demo.early import count_modules, time_ratio
from cutaway.demo.heatmap import heatmap, legend
from cutaway.demo.page import write_page
from cutaway.demo.stage import Stage
from cutaway.errors import AlreadyThereError, OutputError
from cutaway.files import write_file
from cutaway.inspection import printout
from cutaway.model import StandardizedTransformer
from cutaway.pictures.labels import token_label

CODE = "import os\nimport sys\n\nos.path.join(os."
"""A text whose next token stands in it already, after another `os.`"""

PHRASE = "the quick brown fox saw the quick brown fox"
"""A text with a repeated phrase, none of whose other tokens occur twice."""


def run(
    model: StandardizedTransformer,
    name: str,
    console: Console,
    svg: Path | None = None,
    page: Path | None = None,
    only: Sequence[int] = (),
    *,
    replace: bool = False,
) -> None:
    """Shows the demo on a model.

    Args:
        model: a model with a tokenizer.
        name: how it was named.
        console: where to show it.
        svg: a file to draw what is shown to.
        page: a file to write an attention page to.
        only: the numbers of the steps to show; without any, all of them and the page.
        replace: whether files that are there and that are not the demo's own may be replaced.

    Raises:
        OutputError: the SVG file cannot be written. Of the page that is said, and nothing raised.
    """
    stage = Stage(console, picture=svg is not None)
    for number in only or range(1, 1 + len(_SHOWN)):
        _SHOWN[number - 1](stage, model)
    if not only:
        if page is not None:
            _page(stage, model, page, replace)
        command = cutaway_here()
        stage.say(
            f"Go on with\n`{command} show {name}`\n`{command} support {name}`\n`{command} read {name} PROMPT NAME`"
        )
    if svg is not None:
        write_file(svg, stage.drawn().encode(), replace=replace)


def cutaway_here() -> str:
    """`cutaway` as it can be typed: by its path where the shell would not find it, as in an environment that is not
    activated."""
    beside_python = shutil.which("cutaway", path=str(Path(sys.executable).parent))
    if shutil.which("cutaway") is not None or beside_python is None:
        return "cutaway"
    script, here = Path(beside_python), Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def _names(stage: Stage, model: StandardizedTransformer) -> None:
    stage.step("The block, under its standard names")
    stage.code(steps.open_the_model)
    stage.show(printout.rich_block(model._subject))


def _edit(stage: Stage, model: StandardizedTransformer) -> None:
    stage.step("An edit, and what it does to the next token")
    stage.code(steps.edit)
    stage.python(CODE)
    before, after = steps.edit(model, CODE)
    stage.show(before_and_after(_largest(model, before, after, 6)))
    top = int(before.argmax())
    label, was, now = _label(model, top), float(before[top]), float(after[top])
    stage.say(f"`{label}` goes from {was:.2f} to {now:.2f}.")


def _identity(stage: Stage, model: StandardizedTransformer) -> None:
    stage.step("The identity, bit for bit")
    stage.code(steps.add_up)
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("block", justify="right")
    table.add_column("attention + mlp + stream")
    table.add_column("stream + attention + mlp")
    for layer, (exact, difference) in enumerate(steps.add_up(model, CODE)):
        told = Text("equal", style="magenta") if exact else Text("not equal", style="bold red")
        table.add_row(str(layer), told, f"off by up to {difference:.1e}" if difference else "equal")
    stage.show(table)


def _induction(stage: Stage, model: StandardizedTransformer) -> None:
    stage.step("An induction head")
    stage.code(steps.find_induction_head)
    layer, head, score = steps.find_induction_head(model)
    stage.say(f"Head {head} of block {layer}: {score:.2f} of its attention goes there.")
    stage.code(steps.read_pattern)
    pattern = steps.read_pattern(model, PHRASE, layer, head)
    ids = model.tokenizer(PHRASE)["input_ids"]
    again = next(i for i, token in enumerate(ids) if token in ids[1:i])
    stage.show(heatmap(pattern.tolist(), [_label(model, token) for token in ids], named_from=again))
    stage.show(legend())
    kept, repeats = _one_ahead(pattern, ids)
    stage.say(
        f"Where the phrase is said again, {kept} of {repeats} tokens look most at what followed them the first time."
    )


def _one_ahead(pattern: Tensor, ids: Sequence[int]) -> tuple[int, int]:
    """Of how many tokens that stand before, how many look most at the one after their first place."""
    again = [i for i, token in enumerate(ids) if token in ids[1:i]]
    kept = sum(int(pattern[i].argmax()) == ids.index(ids[i], 1) + 1 for i in again)
    return kept, len(again)


def _early(stage: Stage, model: StandardizedTransformer) -> None:
    stage.step("What stopping early skips")
    stage.code(steps.stop_early)
    part = partial(steps.stop_early, model, CODE)
    ran, of = count_modules(model.hf, part)
    long = CODE * 24
    ratio = time_ratio(partial(steps.stop_early, model, long), partial(_whole, model, long))
    layers = sum(1 for _ in model.layers)
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for told, share, figure in (
        ("blocks run", 1 / layers, f"1 of {layers}"),
        ("modules run", ran / of, f"{ran} of {of}, by plain torch hooks"),
        ("time", ratio, f"{ratio:.2f} of a whole pass, timed now"),
    ):
        table.add_row(told, Text(bar(share, 28).replace(" ", "░"), style="magenta"), figure)
    stage.show(table)


_SHOWN = (_names, _edit, _identity, _induction, _early)


def _page(stage: Stage, model: StandardizedTransformer, path: Path, replace: bool) -> None:
    stage.step("Every head, to point at")
    layer, head, _ = steps.find_induction_head(model)
    try:
        write_page(model, PHRASE, path, layer=layer, head=head, replace=replace)
    except AlreadyThereError:
        stage.say(
            f"`{path}` is there already, and the demo did not write it: it is left as it is. --force replaces it."
        )
    except OutputError as error:
        stage.say(str(error))
    else:
        stage.say(f"The attention of every head on the same text is in `{path}`. Open it in a browser.")


def _whole(model: StandardizedTransformer, prompt: str) -> Tensor:
    with model.trace(prompt):
        return model.logits


def _largest(
    model: StandardizedTransformer, before: Tensor, after: Tensor, count: int
) -> list[tuple[str, float, float]]:
    """The tokens that are likeliest in either distribution, likeliest before first."""
    tokens = torch.maximum(before, after).topk(count).indices
    tokens = tokens[before[tokens].argsort(descending=True)].tolist()
    return [(_label(model, token), float(before[token]), float(after[token])) for token in tokens]


def _label(model: StandardizedTransformer, token: int) -> str:
    return token_label(model.tokenizer.decode([token]))

"""Makes the model card from the measured figures, the recipe and the config; `card.md.j2` holds its sentences.

`evaluate` writes the card as it measures; `python -m training.phi_mini.card FOLDER` writes it again from the stored
figures, after a change of the sentences.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jinja2

from training.phi_mini.train import Recipe, repeats_share

TEMPLATE = Path(__file__).with_name("card.md.j2")


def tokens_seen(recipe: Recipe, steps: int) -> tuple[int, int]:
    """Tokens of text and tokens of repeats in the batches of the first so many steps."""
    text = repeats = 0
    for step in range(steps):
        long = step % recipe.long_every == recipe.long_every - 1
        length, batch = (2 * recipe.length, recipe.batch // 2) if long else (recipe.length, recipe.batch)
        repeated = round(batch * repeats_share(recipe, step))
        repeats += repeated * length
        text += (batch - repeated) * length
    return text, repeats


def render_card(figures: dict[str, Any], training: dict[str, Any], config: dict[str, Any]) -> str:
    """The card as Markdown. A figure that the template asks for and nobody measured is an error."""
    recipe = Recipe(**{**training["recipe"], "repeats_fall": tuple(training["recipe"]["repeats_fall"])})
    last = training["log"][-1]
    text, repeats = tokens_seen(recipe, last["step"] + 1)
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    template = environment.from_string(TEMPLATE.read_text())
    return template.render(
        figures,
        recipe=recipe,
        config=config,
        last=last,
        text_seen=text,
        repeats_seen=repeats,
    )


def write_card(folder: Path) -> None:
    """Writes `README.md` from the folder's `evaluation.json`, `training.json` and `config.json`."""
    figures, training, config = (
        json.loads((folder / name).read_text()) for name in ("evaluation.json", "training.json", "config.json")
    )
    (folder / "README.md").write_text(render_card(figures, training, config))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the checkpoint, evaluated")
    write_card(parser.parse_args().folder)

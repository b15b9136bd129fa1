"""Phi's vocabulary: rows that stand for no token, and tokens that stand for runs of spaces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cutaway.encyclopedia.note import DoesNotApply, Reported, note

if TYPE_CHECKING:
    from cutaway.model import StandardizedTransformer


@note(
    "The vocabulary is padded, and the padding is not zero",
    figures={
        "rows": "rows of embedding and head",
        "tokens": "tokens of the tokenizer",
        "spare": "rows without a token",
        "logit": "largest logit of a spare row",
        "probability": "their probability, all together, at the last position",
    },
    reported=(
        Reported("rows", "51,200", "all three checkpoints"),
        Reported("tokens", "50,295", "all three checkpoints"),
        Reported("spare", "905", "all three checkpoints"),
        Reported("logit", "below −1", "phi-2"),
        Reported("probability", "about 10⁻⁶", "phi-2"),
    ),
)
def padded_vocabulary(model: StandardizedTransformer) -> dict[str, Any]:
    """Embedding and head have {rows} rows for {tokens} tokens; the count was rounded up, as matrix products like it.
    The {spare} rows left over stand for nothing, but they were initialised like the rest and hold numbers. They take
    part in the softmax, where training has pushed them down to {probability} together. Count tokens by the tokenizer
    and not by `vocab_size`, and do not draw random ids from the whole range."""
    with model.trace("def area(width, height):\n    return width *"):
        logits = model.logits[0, -1].float()

    tokens = len(model.tokenizer)
    spare = model.lm_head.weight[tokens:]
    probability = float(logits.softmax(-1)[tokens:].sum())
    assert len(spare) > 0
    assert spare.abs().max() > 0
    assert probability < 1e-3
    return {
        "rows": model.vocab_size,
        "tokens": tokens,
        "spare": len(spare),
        "logit": float(logits[tokens:].max()),
        "probability": probability,
    }


@note(
    "A run of spaces is one token",
    figures={
        "runs": "lengths of runs of spaces that are one token",
        "tabs": "lengths of runs of tabs that are one token",
        "ids": "ids of `    return x`, indented by four",
        "texts": "those tokens",
        "added": "tokens put in front or behind",
    },
    reported=(
        Reported("runs", "2 to 31, n spaces being id 50288 − n", "CodeGen's tokenizer, as Phi uses it"),
        Reported("tabs", "2 to 9, from 50294 down to 50287", "CodeGen's tokenizer"),
        Reported("ids", "50284, 7783, 2124", "CodeGen's tokenizer"),
    ),
)
def runs_of_spaces(model: StandardizedTransformer) -> dict[str, Any]:
    """Phi's tokenizer was made for code: GPT-2's tokens, and beside them one for each run of spaces or tabs, so
    that an indent costs one token. It changes what follows: after a run a word stands without the leading space
    that it has elsewhere, so `return` at the start of an indented line and ` return` in the middle of one are two
    different tokens. {model}'s tokenizer is made the same way. Neither adds a token in front or behind; a prompt starts
    with its own first token."""
    if model.tokenizer is None:
        raise DoesNotApply("the model came without a tokenizer.")

    def ids(text: str) -> list[int]:
        return model.tokenizer(text)["input_ids"]

    def runs(character: str) -> list[int]:
        return [n for n in range(2, 64) if len(ids(character * n + "x")) == 2 and len(ids(character * n)) == 1]

    spaces, tabs, line = runs(" "), runs("\t"), ids("    return x")
    texts = [model.tokenizer.decode([token]) for token in line]
    assert texts == ["    ", "return", " x"]
    assert ids(" return") != [line[1]]
    assert spaces == list(range(2, spaces[-1] + 1))
    return {
        "runs": f"{spaces[0]} to {spaces[-1]}",
        "tabs": f"{tabs[0]} to {tabs[-1]}",
        "ids": ", ".join(map(str, line)),
        "texts": [f"`{text!r}`" for text in texts],
        "added": len(line) - len(texts),
    }

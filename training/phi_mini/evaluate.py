"""Measures a phi-mini checkpoint and writes its model card: `python -m training.phi_mini.evaluate FOLDER`.

Everything is measured with plain transformers on the weights as they are stored, float16, computed in float32, on the
files that training never saw. The figures go to `evaluation.json` beside the weights; the card, `README.md`, is made
from them and from `training.json`, so that none of its figures is typed by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, PhiForCausalLM, PreTrainedTokenizerBase
from transformers.utils import logging

from training.phi_mini.baselines import Bigram, Unigram
from training.phi_mini.card import write_card
from training.phi_mini.corpus import Corpus, read_corpus
from training.phi_mini.tokenizer import train_tokenizer

SEED = 20_000
PERIODS = (16, 50, 100, 200)
ROWS = 16
TEXT_WINDOWS = 64
HEAD_BAR = 0.8
NEW_TOKENS = 20
PROMPTS = (
    "import os\nimport ",
    "for i in range(",
    "if __name__ == '__main__':\n    ",
    "class Stack:\n    def __init__(self, items):\n        self.items =",
    "    def is_empty(self):\n        return len(self",
    "try:\n    value = int(text)\nexcept",
    "    if not isinstance(other, Point):\n        return",
    "    with open(filename, 'rb') as f:\n        data =",
)

Figures = dict[str, Any]


def token_stream(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> Tensor:
    """The texts' ids in one row, an end of text before each and after the last."""
    end = tokenizer.eos_token_id
    ids = [end]
    for text in texts:
        ids += [*tokenizer(text, verbose=False)["input_ids"], end]
    return torch.tensor(ids)


@torch.inference_mode()
def stream_loss(model: PhiForCausalLM, stream: Tensor, context: int) -> float:
    """Mean cross-entropy in nats of every token after the first.

    Windows of the full context overlap by half and only what is new in each is scored, so that all but the first
    tokens of the stream are predicted from at least half a context.
    """
    total, scored, step = 0.0, 0, context // 2
    while scored < len(stream) - 1:
        start = max(scored - step, 0)
        window = stream[start : start + context]
        logits = model(window[None, :-1], use_cache=False).logits[0]
        new = slice(scored - start, None)
        total += torch.nn.functional.cross_entropy(logits[new], window[1:][new], reduction="sum").item()
        scored = start + len(window) - 1
    return total / scored


@torch.inference_mode()
def previous_token_scores(model: PhiForCausalLM, stream: Tensor, context: int) -> Tensor:
    """Mean attention from each position, the first left out, to the one before it: `(layers, heads)`."""
    starts = torch.linspace(0, len(stream) - context, TEXT_WINDOWS).long()
    total = torch.zeros(model.config.num_hidden_layers, model.config.num_attention_heads)
    for start in starts.tolist():
        patterns = model(stream[None, start : start + context], output_attentions=True, use_cache=False).attentions
        total += torch.stack([pattern[0].diagonal(-1, dim1=-2, dim2=-1).mean(-1) for pattern in patterns])
    return total / TEXT_WINDOWS


def repeated_twice(period: int, tokens: int, generator: torch.Generator) -> Tensor:
    """`(ROWS, 2 * period)` ids: distinct random tokens, then the same again."""
    first = torch.stack([torch.randperm(tokens, generator=generator)[:period] for _ in range(ROWS)])
    return torch.cat([first, first], dim=1)


@torch.inference_mode()
def induction(model: PhiForCausalLM, tokens: int) -> tuple[dict[int, Tensor], dict[int, float]]:
    """For each period: the induction scores `(layers, heads)`, and the accuracy on what repeats.

    A head's score is its mean attention from a token's second occurrence to the token after its first. The accuracy is
    over the second half but for its first token, which nothing announces.
    """
    generator = torch.Generator().manual_seed(SEED)
    scores: dict[int, Tensor] = {}
    accuracy: dict[int, float] = {}
    for period in PERIODS:
        ids = repeated_twice(period, tokens, generator)
        output = model(ids, output_attentions=True, use_cache=False)
        after_first = [pattern[:, :, period:].diagonal(1, dim1=-2, dim2=-1) for pattern in output.attentions]
        scores[period] = torch.stack([diagonal.mean(dim=(0, 2)) for diagonal in after_first])
        guesses = output.logits[:, period:-1].argmax(-1)
        accuracy[period] = (guesses == ids[:, period + 1 :]).double().mean().item()
    return scores, accuracy


@torch.inference_mode()
def completions(model: PhiForCausalLM, tokenizer: PreTrainedTokenizerBase) -> list[Figures]:
    """For each prompt the greedy continuation and the three likeliest next tokens."""
    rows: list[Figures] = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer(prompt)["input_ids"]])
        probs, tokens = model(ids).logits[0, -1].softmax(-1).topk(3)
        longer = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0
        )
        rows.append(
            {
                "prompt": prompt,
                "completion": tokenizer.decode(longer[0, ids.shape[1] :], skip_special_tokens=True),
                "next": [
                    {"token": tokenizer.decode([token]), "probability": round(p, 3)}
                    for token, p in zip(tokens.tolist(), probs.tolist(), strict=True)
                ],
            }
        )
    return rows


def heads_over_bar(scores: Tensor) -> list[Figures]:
    """The heads whose score reaches the bar, best first."""
    heads = [
        {"layer": layer, "head": head, "score": round(scores[layer, head].item(), 4)}
        for layer, head in (scores >= HEAD_BAR).nonzero().tolist()
    ]
    return sorted(heads, key=lambda head: -head["score"])


def rounded(scores: Tensor) -> list[list[float]]:
    return [[round(score, 4) for score in row] for row in scores.tolist()]


def corpus_figures(corpus: Corpus, folder: Path, train: Tensor, held_out: Tensor, bpe_size: int) -> Figures:
    """What the split holds, and whether the tokenizer in the folder was learned from just this training text."""
    relearned = train_tokenizer(corpus.train, bpe_size).get_vocab()
    stored = json.loads((folder / "tokenizer.json").read_text())
    vocab = stored["model"]["vocab"] | {token["content"]: token["id"] for token in stored["added_tokens"]}
    if relearned != vocab:
        raise SystemExit(
            f"the tokenizer in {folder} was not learned from the library of this Python ({platform.python_version()}): "
            "the held-out files may have been trained on. Run this with the interpreter that ran the training."
        )
    return {
        "python": platform.python_version(),
        "train_files": len(corpus.train),
        "train_characters": sum(map(len, corpus.train)),
        "train_tokens": len(train),
        "held_out_files": len(corpus.held_out),
        "held_out_characters": sum(map(len, corpus.held_out)),
        "held_out_tokens": len(held_out) - 1,
        "held_out_sha256": hashlib.sha256("\0".join(corpus.held_out).encode()).hexdigest(),
    }


def evaluate(folder: Path) -> Figures:
    """All figures of a checkpoint."""
    recipe = json.loads((folder / "training.json").read_text())["recipe"]
    model = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    context = model.config.max_position_embeddings

    corpus = read_corpus()
    train, held_out = token_stream(tokenizer, corpus.train), token_stream(tokenizer, corpus.held_out)
    about_corpus = corpus_figures(corpus, folder, train, held_out, recipe["bpe_size"])
    tokens_per_character = about_corpus["held_out_tokens"] / about_corpus["held_out_characters"]

    unigram, bigram = Unigram.fit(train, len(tokenizer)), Bigram.choose(train, len(tokenizer))
    losses = {
        "unigram": unigram.loss(held_out),
        "bigram": bigram.loss(held_out),
        "phi-mini": stream_loss(model, held_out, context),
    }
    previous = previous_token_scores(model, held_out, context)
    by_period, accuracy = induction(model, recipe["bpe_size"])
    inducing = torch.stack(list(by_period.values())).mean(0)
    best = divmod(int(inducing.argmax()), inducing.shape[1])

    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens": len(tokenizer),
        "bytes": {
            name: (folder / name).stat().st_size
            for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json", "config.json")
        },
        "corpus": about_corpus,
        "bigram_weight": bigram.weight,
        "losses": {
            name: {
                "nats_per_token": round(loss, 4),
                "perplexity": round(math.exp(loss), 2),
                "bits_per_character": round(loss / math.log(2) * tokens_per_character, 4),
            }
            for name, loss in losses.items()
        },
        "head_bar": HEAD_BAR,
        "previous_token": {
            "windows": TEXT_WINDOWS,
            "length": context,
            "scores": rounded(previous),
            "heads": heads_over_bar(previous),
        },
        "induction": {
            "seed": SEED,
            "rows": ROWS,
            "periods": list(PERIODS),
            "scores": rounded(inducing),
            "heads": heads_over_bar(inducing),
            "best_by_period": {str(period): round(score[best].item(), 4) for period, score in by_period.items()},
            "accuracy": {str(period): round(share, 4) for period, share in accuracy.items()},
        },
        "new_tokens": NEW_TOKENS,
        "completions": completions(model, tokenizer),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the checkpoint, as training wrote it")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.disable_progress_bar()
    figures = evaluate(arguments.folder)
    (arguments.folder / "evaluation.json").write_text(json.dumps(figures, indent=1) + "\n")
    write_card(arguments.folder)
    print(json.dumps({key: figures[key] for key in ("losses", "previous_token", "induction")}, indent=1))


if __name__ == "__main__":
    main()

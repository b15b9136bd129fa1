"""Trains phi-mini, the checkpoint that ships with Cutaway: `python -m training.phi_mini.train`.

A miniature of Phi-1: the same architecture (parallel block, partial rotary, biases, gelu_new, untied head, padded
vocabulary), 4 layers of width 128, trained on the Python standard library's source.

Part of every batch is not text: random tokens that repeat with a random period, where only the repeats count
in the loss. They can be predicted by nothing but induction (find the token's earlier occurrence, copy what
followed), so they make the previous-token and induction heads, which are what a small model is looked at for, appear
early. The share starts at one half and falls once the heads are there, to leave the rest of the run to text.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import PhiConfig, PhiForCausalLM

from training.phi_mini.corpus import read_corpus
from training.phi_mini.tokenizer import END_OF_TEXT, save_tokenizer, train_tokenizer


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the run; with the interpreter's version it decides the weights up to rounding."""

    seed: int = 1
    steps: int = 6000
    batch: int = 32
    length: int = 256
    long_every: int = 4  # every fourth batch has twice the length and half the rows, up to the full context
    bpe_size: int = 1966
    vocab_rows: int = 2048
    hidden: int = 128
    layers: int = 4
    heads: int = 4
    context: int = 512
    learning_rate: float = 3e-3
    warmup: int = 200
    weight_decay: float = 0.1
    init: float = 0.05
    repeats_first: float = 0.5
    repeats_last: float = 0.125
    repeats_fall: tuple[float, float] = (0.35, 0.55)  # where in the run the share falls


def phi_config(recipe: Recipe) -> PhiConfig:
    return PhiConfig(
        vocab_size=recipe.vocab_rows,
        hidden_size=recipe.hidden,
        intermediate_size=4 * recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        max_position_embeddings=recipe.context,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        initializer_range=recipe.init,
        tie_word_embeddings=False,
        bos_token_id=recipe.bpe_size,
        eos_token_id=recipe.bpe_size,
    )


def repeats_share(recipe: Recipe, step: int) -> float:
    start, end = recipe.repeats_fall
    done = min(max((step / recipe.steps - start) / (end - start), 0.0), 1.0)
    return recipe.repeats_first + (recipe.repeats_last - recipe.repeats_first) * done


def repeated_rows(rows: int, length: int, tokens: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random tokens that repeat with a random period. Returns ids and labels `(rows, length)`; -100 is not scored."""
    ids = torch.empty(rows, length, dtype=torch.long)
    labels = torch.empty_like(ids)
    for row in range(rows):
        period = int(torch.randint(8, length // 2 + 1, (), generator=generator))
        first = torch.randint(0, tokens, (period,), generator=generator)
        ids[row] = first.repeat(math.ceil(length / period))[:length]
        labels[row] = ids[row]
        labels[row, : period + 1] = -100  # what follows the first repeated token is the first that can be known
    return ids, labels


def make_batch(stream: Tensor, recipe: Recipe, step: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    long = step % recipe.long_every == recipe.long_every - 1
    length, batch = (2 * recipe.length, recipe.batch // 2) if long else (recipe.length, recipe.batch)
    repeats = round(batch * repeats_share(recipe, step))
    starts = torch.randint(0, len(stream) - length, (batch - repeats,), generator=generator)
    text = torch.stack([stream[start : start + length] for start in starts.tolist()])
    ids, labels = repeated_rows(repeats, length, recipe.bpe_size, generator)
    return torch.cat([text, ids]), torch.cat([text, labels])


def learning_rate(recipe: Recipe, step: int) -> float:
    if step < recipe.warmup:
        return recipe.learning_rate * (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / (recipe.steps - recipe.warmup)
    return recipe.learning_rate * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def make_optimizer(model: PhiForCausalLM, recipe: Recipe) -> torch.optim.AdamW:
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    groups = [
        {"params": matrices, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.95), fused=True)


def train(recipe: Recipe, out: Path) -> None:
    torch.manual_seed(recipe.seed)
    generator = torch.Generator().manual_seed(recipe.seed)
    corpus = read_corpus()
    tokenizer = train_tokenizer(corpus.train, recipe.bpe_size)
    save_tokenizer(tokenizer, out, recipe.context)
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(corpus.train):
        ids += [*encoding.ids, end]
    stream = torch.tensor(ids)
    print(f"{len(corpus.train)} files, {sum(map(len, corpus.train)):,} characters, {len(stream):,} tokens", flush=True)

    model = PhiForCausalLM(phi_config(recipe)).train()
    optimizer = make_optimizer(model, recipe)
    began, log = time.time(), []
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(recipe, step)
        ids_batch, labels = make_batch(stream, recipe, step, generator)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids_batch, use_cache=False).logits
        losses = torch.nn.functional.cross_entropy(
            logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100, reduction="none"
        ).view(len(labels), -1)
        loss = losses.sum() / (labels[:, 1:] != -100).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == recipe.steps - 1:
            texts = round(len(labels) * (1 - repeats_share(recipe, step)))
            scored = (labels[texts:, 1:] != -100).sum()
            log.append(
                {
                    "step": step,
                    "text_loss": round(losses[:texts].mean().item(), 4),
                    "repeat_loss": round((losses[texts:].sum() / scored).item(), 4),
                    "seconds": round(time.time() - began),
                }
            )
            print(log[-1], flush=True)
        if step % 1000 == 999 or step == recipe.steps - 1:
            save(model, out)
            (out / "training.json").write_text(json.dumps({"recipe": asdict(recipe), "log": log}, indent=1) + "\n")


def save(model: PhiForCausalLM, out: Path) -> None:
    """Writes float16 weights; the config asks for float32, in which a CPU computes fastest and closest."""
    config = model.config.to_dict()
    weights = {name: tensor.half() for name, tensor in model.state_dict().items()}
    half = PhiForCausalLM(model.config).half()
    half.load_state_dict(weights)
    half.save_pretrained(out)
    config = json.loads((out / "config.json").read_text())
    config["dtype"] = "float32"
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/phi-mini"))
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    train(Recipe(steps=arguments.steps), arguments.out)


if __name__ == "__main__":
    main()

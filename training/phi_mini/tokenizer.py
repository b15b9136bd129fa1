"""phi-mini's tokenizer: CodeGen's scheme, in small.

CodeGen's tokenizer is GPT-2's byte-level BPE with one more token for each run of 2 to 31 spaces and of 2 to 9
tabs, so that a line's indentation is one token. The ids keep CodeGen's order: the BPE's tokens, then
`<|endoftext|>`, then the runs of spaces from the longest to the shortest, then the runs of tabs likewise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
SPACE_RUNS = [" " * n for n in range(31, 1, -1)]
TAB_RUNS = ["\t" * n for n in range(9, 1, -1)]
RUN = re.compile(r" {2,31}|\t{2,9}")


def train_tokenizer(texts: Iterable[str], bpe_size: int) -> Tokenizer:
    """Learns `bpe_size` byte-level tokens from the texts and adds the end of text and the runs after them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=bpe_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_between_runs(texts), trainer)
    tokenizer.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(run, normalized=False) for run in SPACE_RUNS + TAB_RUNS])
    return tokenizer


def _between_runs(texts: Iterable[str]) -> Iterator[str]:
    """The pieces that the BPE will see: the runs are taken out before it."""
    for text in texts:
        yield from filter(None, RUN.split(text))


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """Writes the files that `AutoTokenizer.from_pretrained(folder)` reads."""
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        unk_token=END_OF_TEXT,
        clean_up_tokenization_spaces=False,
        model_max_length=context,
    ).save_pretrained(folder)

"""Tokens from ids join to the text, whatever the tokenizer."""

from __future__ import annotations

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cutaway.pictures import text_of, token_labels, token_texts

TEXT = "a  b\n c = 'é 你好'\n    return a"


def byte_level() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["return a"] * 3, trainer)
    tokenizer.add_tokens([AddedToken("    ", normalized=False)])
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def metaspace() -> PreTrainedTokenizerFast:
    words = ["▁a", "▁b", "▁", "return", "?", *(f"<0x{byte:02X}>" for byte in range(256))]
    model = models.BPE({word: i for i, word in enumerate(words)}, [], byte_fallback=True, unk_token="?")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


@pytest.mark.parametrize("text", [TEXT, "x" + TEXT + "<|endoftext|>", " a", "\t\tb"])
def test_byte_level_tokens_join_to_the_text(text):
    tokenizer = byte_level()
    texts = token_texts(tokenizer, tokenizer(text).input_ids)
    assert text_of(token_labels(texts)) == text


def test_bytes_are_kept_where_a_character_is_cut():
    tokenizer = byte_level()
    assert token_texts(tokenizer, tokenizer("é").input_ids) == [b"\xc3", b"\xa9"]


def test_runs_of_spaces_that_are_added_tokens():
    tokenizer = byte_level()
    assert token_texts(tokenizer, tokenizer("\n    return").input_ids)[:2] == ["\n", "    "]


def test_words_keep_the_space_before_them():
    tokenizer = metaspace()
    ids = [tokenizer.convert_tokens_to_ids(piece) for piece in ("▁a", "▁", "▁b", "return", "<0xC3>", "<0xA9>")]
    assert token_texts(tokenizer, ids) == ["a", " ", " b", "return", b"\xc3", b"\xa9"]


def test_an_id_without_a_token_has_a_placeholder():
    assert token_texts(byte_level(), [5000]) == ["<id 5000>"]

"""The recipe of phi-mini: its tokenizer's scheme, its batches of repeats, its baselines, its measurements, its card."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoTokenizer, PhiConfig, PhiForCausalLM

from training.phi_mini import evaluate
from training.phi_mini.baselines import Bigram, Unigram
from training.phi_mini.card import render_card, tokens_seen
from training.phi_mini.corpus import read_corpus
from training.phi_mini.tokenizer import END_OF_TEXT, save_tokenizer, train_tokenizer
from training.phi_mini.train import Recipe, make_batch, repeated_rows

BPE_SIZE = 300
SHIPPED = Path(__file__).parents[2] / "src/cutaway/data/phi-mini"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer([Path(evaluate.__file__).read_text()], BPE_SIZE)


def tiny_phi(layers: int, vocab: int, context: int) -> PhiForCausalLM:
    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=vocab,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=context,
        initializer_range=0.3,
        attn_implementation="eager",
    )
    return PhiForCausalLM(config).eval()


class TestTokenizer:
    def test_ids_are_in_codegens_order(self, tokenizer: Tokenizer):
        # CodeGen: <|endoftext|> 50256, n spaces 50288 - n, 9 tabs 50287 down to 2 tabs 50294
        shift = 50256 - BPE_SIZE
        assert tokenizer.token_to_id(END_OF_TEXT) == 50256 - shift
        for n in range(2, 32):
            assert tokenizer.encode(" " * n).ids == [50288 - n - shift]
        for n in range(2, 10):
            assert tokenizer.encode("\t" * n).ids == [50296 - n - shift]
        assert tokenizer.get_vocab_size() == 50295 - shift

    def test_the_word_after_a_run_has_no_leading_space(self, tokenizer: Tokenizer):
        assert tokenizer.encode("    return x").tokens == ["    ", *tokenizer.encode("return x").tokens]

    def test_a_longer_run_is_cut_into_runs(self, tokenizer: Tokenizer):
        assert tokenizer.encode(" " * 40).tokens == [" " * 31, " " * 9]

    @pytest.mark.parametrize(
        "text",
        [
            "def f(x):\n\treturn x\n",
            "    a  b   c\r\n\t\t\td \n\n\n",
            " " * 70 + "x" + "\t" * 12,
            "naïve λ → 日本 \U0001f600 \x00 . , ' \"",
            " leading and trailing  ",
        ],
    )
    def test_text_comes_back(self, tokenizer: Tokenizer, tmp_path: Path, text: str):
        save_tokenizer(tokenizer, tmp_path, context=64)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        ids = loaded(text)["input_ids"]
        assert ids == tokenizer.encode(text).ids  # neither end nor beginning is added
        assert loaded.decode(ids) == text
        assert loaded.eos_token_id == loaded.bos_token_id == BPE_SIZE


class TestBatches:
    def test_only_what_can_be_known_from_a_repeat_is_scored(self):
        ids, labels = repeated_rows(50, 64, 1000, torch.Generator().manual_seed(3))
        for row, wanted in zip(ids.tolist(), labels.tolist(), strict=True):
            period = next(p for p in range(1, 64) if row[p:] == row[:-p])
            assert 8 <= period <= 32
            assert wanted[: period + 1] == [-100] * (period + 1)
            assert wanted[period + 1 :] == row[period + 1 :] == row[1:-period]

    def test_text_rows_are_scored_whole_and_long_batches_have_half_the_rows(self):
        recipe, stream = Recipe(), torch.arange(5000)
        for step, shape in ((0, (32, 256)), (3, (16, 512))):
            ids, labels = make_batch(stream, recipe, step, torch.Generator().manual_seed(0))
            assert ids.shape == labels.shape == shape
            text = shape[0] // 2
            assert torch.equal(ids[:text], labels[:text])
            assert (ids[:text].diff() == 1).all()
            assert (labels[text:] == -100).any(dim=1).all()

    def test_tokens_seen_counts_the_batches(self):
        recipe, stream, generator = Recipe(steps=40), torch.arange(5000), torch.Generator().manual_seed(0)
        batches = [make_batch(stream, recipe, step, generator) for step in range(40)]
        repeats = sum(int((labels == -100).any(dim=1).sum()) * labels.shape[1] for _, labels in batches)
        assert tokens_seen(recipe, 40) == (40 * 32 * 256 - repeats, repeats)

    def test_the_split_is_by_file_and_the_same_each_time(self):
        first, second = read_corpus(), read_corpus()
        assert first == second
        assert not set(first.train) & set(first.held_out)
        assert 0.02 < len(first.held_out) / len(first.train) < 0.1


class TestBaselines:
    stream = torch.tensor([0, 1, 0, 1, 2])

    def test_unigram_adds_one(self):
        unigram = Unigram.fit(self.stream, 3)
        assert unigram.log_probs.exp().tolist() == pytest.approx([3 / 8, 3 / 8, 2 / 8])
        assert unigram.loss(self.stream) == pytest.approx(-(3 * math.log(3 / 8) + math.log(2 / 8)) / 4)

    def test_bigram_leans_on_the_unigram(self):
        bigram = Bigram.fit(self.stream, 3, weight=2)
        probs = bigram.log_probs.exp()
        assert probs[0].tolist() == pytest.approx([0.75 / 4, 2.75 / 4, 0.5 / 4])
        assert probs[1].tolist() == pytest.approx([1.75 / 4, 0.75 / 4, 1.5 / 4])
        assert probs[2].tolist() == pytest.approx([3 / 8, 3 / 8, 2 / 8])  # never seen as a context
        assert bigram.loss(self.stream) == pytest.approx(-math.log((2.75 / 4) ** 2 * 1.75 / 4 * 1.5 / 4) / 4)

    def test_the_weight_is_small_where_pairs_tell_and_large_where_they_do_not(self):
        cycle = torch.arange(7).repeat(200)
        noise = torch.randint(0, 50, (2000,), generator=torch.Generator().manual_seed(0))
        assert Bigram.choose(cycle, 50).weight == 1
        assert Bigram.choose(noise, 50).weight >= 256
        assert Bigram.choose(cycle, 7).loss(cycle) < 0.01
        assert Bigram.choose(noise, 50).loss(noise) == pytest.approx(math.log(50), abs=0.2)


class TestMeasurements:
    def test_every_token_after_the_first_is_scored_once(self):
        model = tiny_phi(layers=0, vocab=40, context=16)  # without layers a prediction depends on one token alone
        for length in (2, 15, 16, 17, 24, 100):
            stream = torch.randint(0, 40, (length,), generator=torch.Generator().manual_seed(length))
            with torch.no_grad():
                logits = model(stream[None, :-1]).logits[0]
            expected = torch.nn.functional.cross_entropy(logits, stream[1:]).item()
            assert evaluate.stream_loss(model, stream, context=16) == pytest.approx(expected, rel=1e-5)

    def test_later_windows_have_half_a_context_before_what_they_score(self):
        model = tiny_phi(layers=1, vocab=40, context=8)
        stream = torch.randint(0, 40, (11,), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            first, second = model(stream[None, :8]).logits[0], model(stream[None, 3:11]).logits[0]
        logits = torch.cat([first[:7], second[4:7]])  # positions 0-6, then 7-9 seen from position 3 on
        expected = torch.nn.functional.cross_entropy(logits, stream[1:]).item()
        assert evaluate.stream_loss(model, stream, context=8) == pytest.approx(expected, rel=1e-5)

    def test_repeats_are_of_distinct_tokens(self):
        ids = evaluate.repeated_twice(50, 60, torch.Generator().manual_seed(0))
        assert torch.equal(ids[:, :50], ids[:, 50:])
        assert all(len(set(row)) == 50 for row in ids.tolist())

    def test_head_scores_are_means_over_the_right_entries(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(evaluate, "PERIODS", (5,))
        monkeypatch.setattr(evaluate, "TEXT_WINDOWS", 1)
        model = tiny_phi(layers=2, vocab=40, context=16)
        scores, _ = evaluate.induction(model, 40)
        ids = evaluate.repeated_twice(5, 40, torch.Generator().manual_seed(evaluate.SEED))
        with torch.no_grad():
            patterns = model(ids, output_attentions=True).attentions
            text_patterns = model(ids[:1], output_attentions=True).attentions
        previous = evaluate.previous_token_scores(model, ids[0], context=10)
        for layer in range(2):
            for head in range(2):
                after = [patterns[layer][:, head, 5 + j, j + 1].mean().item() for j in range(5)]
                assert scores[5][layer, head].item() == pytest.approx(sum(after) / 5, rel=1e-5)
                before = [text_patterns[layer][0, head, i, i - 1].item() for i in range(1, 10)]
                assert previous[layer, head].item() == pytest.approx(sum(before) / 9, rel=1e-5)

    def test_heads_over_the_bar_come_best_first(self):
        heads = evaluate.heads_over_bar(torch.tensor([[0.1, 0.85], [0.9, 0.79]]))
        assert [(head["layer"], head["head"]) for head in heads] == [(1, 0), (0, 1)]


@pytest.mark.skipif(not (SHIPPED / "evaluation.json").exists(), reason="phi-mini is not in the package yet")
def test_the_shipped_card_says_what_was_measured():
    figures, training, config = (
        json.loads((SHIPPED / name).read_text()) for name in ("evaluation.json", "training.json", "config.json")
    )
    assert (SHIPPED / "README.md").read_text() == render_card(figures, training, config)

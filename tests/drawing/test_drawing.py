"""From a model to pictures: which head is shown, what is read, and what a model without a rotary is told."""

from __future__ import annotations

import json
import re

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPTNeoXConfig, PhiForCausalLM, PreTrainedTokenizerFast

from cutaway import StandardizedTransformer, pictures
from cutaway.drawing import Head, attention_page, draw, telling_head
from cutaway.drawing.heads import chosen
from cutaway.drawing.rotary import key_before, query_before, rotary_of
from cutaway.errors import InputError, UnavailableValueError
from tests import tiny


@pytest.fixture(scope="module")
def text_model() -> StandardizedTransformer:
    """Three layers of four heads of eight dimensions, four of them turned, and a tokenizer of bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    hf = tiny.fresh(vocab_size=264)
    return StandardizedTransformer(hf, tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer), check=False)


def test_a_head_that_looks_at_one_other_token_tells_most() -> None:
    resting = torch.zeros(1, 2, 5, 5)
    resting[..., 0] = 1
    patterns = [resting.clone(), resting.clone(), resting.clone()]
    patterns[1][0, 1] = torch.eye(5)
    assert telling_head(patterns) == Head(0, 0)
    patterns[2][0, 1] = torch.diag(torch.ones(4), -1)
    assert telling_head(patterns) == Head(2, 1)


def test_what_is_asked_for_is_kept_and_the_rest_filled_in(text_model: StandardizedTransformer) -> None:
    everywhere = telling_head([*text_model.read("a b c d", "attention_probabilities").values()])
    assert chosen(text_model, "a b c d", None, None) == everywhere
    assert chosen(text_model, "a b c d", -1, 1) == Head(2, 1)
    assert chosen(text_model, "a b c d", 1, None).layer == 1
    assert chosen(text_model, "a b c d", None, 2).head == 2
    with pytest.raises(InputError, match="there is no layer 3: there are 3, from 0 to 2"):
        chosen(text_model, "a", 3, None)


@pytest.mark.parametrize("kind", ["P", "P-gqa", "P-qk-norm"])
def test_query_and_key_before_the_rotary_are_the_projections(kind: str) -> None:
    hf: PhiForCausalLM = tiny.plain(kind)
    model = tiny.shared(kind)
    attention = hf.model.layers[1].self_attn
    seen: dict[str, torch.Tensor] = {}
    hook = attention.register_forward_pre_hook(
        lambda _, args, kwargs: seen.update(x=kwargs["hidden_states"]), with_kwargs=True
    )
    try:
        tiny.logits_of(hf, tiny.IDS[:1])
    finally:
        hook.remove()
    with torch.no_grad():
        queries = attention.q_proj(seen["x"])[0, -1].view(-1, 8)
        keys = attention.k_proj(seen["x"])[0, -1].view(-1, 8)
        if kind == "P-qk-norm":
            queries, keys = attention.q_layernorm(queries), attention.k_layernorm(keys)
    prompt = tiny.IDS[0].tolist()
    group = 4 // len(keys)
    for head in range(4):
        assert torch.allclose(query_before(model, prompt, Head(1, head)), queries[head], atol=1e-6)
        assert torch.allclose(key_before(model, prompt, Head(1, head)), keys[head // group], atol=1e-6)


def test_a_model_without_a_rotary_or_with_one_projection_is_told(text_model: StandardizedTransformer) -> None:
    assert tuple(rotary_of(text_model)) == (4, 10000.0)
    sizes = {"vocab_size": 264}
    gpt2 = StandardizedTransformer(GPT2Config(**sizes, n_layer=2, n_head=2, n_embd=16), tokenizer=text_model.tokenizer)
    with pytest.raises(UnavailableValueError, match="has no rotary"):
        draw(gpt2, "rotary-heatmap")
    neox = StandardizedTransformer(
        GPTNeoXConfig(
            **sizes, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, rotary_pct=0.25
        ),
        tokenizer=text_model.tokenizer,
    )
    assert rotary_of(neox).dims == 4
    with pytest.raises(UnavailableValueError, match="queries, keys and values together"):
        draw(neox, "rotated-vector", "abc")
    assert draw(neox, "attention-grid", "abc").title.endswith("attention of every head")


def test_a_model_without_a_tokenizer_is_told() -> None:
    with pytest.raises(InputError):
        draw(tiny.shared(), "next-token", "abc")


def test_the_pages_tokens_are_the_prompt(text_model: StandardizedTransformer) -> None:
    prompt = "if a < b:\n    é"
    page = attention_page(text_model, prompt, layer=1, head=2)
    found = re.search(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page.html, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    assert len(data["labels"]) == len(prompt.encode())
    ids = text_model.tokenizer(prompt)["input_ids"]
    assert data["labels"] == pictures.token_labels(pictures.token_texts(text_model.tokenizer, ids))
    assert (data["layer"], data["head"]) == (1, 2)
    assert page.title == "Attention of PhiForCausalLM"

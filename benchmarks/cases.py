"""The models that are measured, each opened once by every library.

The libraries share one set of weights. nnsight and TransformerLens exchange parts of the model that they are given for
good, so each is given a copy of its modules; Cutaway changes nothing, and has the very model that the raw hooks run on.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PhiConfig, PhiForCausalLM

from benchmarks.overhead import wide_phi
from cutaway import StandardizedTransformer

RAW, CUTAWAY, NNSIGHT, LENS = "raw hooks", "Cutaway", "nnsight", "TransformerLens"


def installed() -> list[str]:
    """The libraries that can be measured here."""
    modules = {NNSIGHT: "nnsight", LENS: "transformer_lens"}
    return [RAW, CUTAWAY, *(name for name, module in modules.items() if importlib.util.find_spec(module))]


class Case:
    """A model and the tokens that it is run on.

    Attributes:
        hf: the transformers model, as raw hooks use it.
        inputs: `input_ids` and `attention_mask`, `[batch seq]`.
    """

    def __init__(self, name: str, hf: PhiForCausalLM, tokens: int, tokenizer: Any = None, batch: int = 1) -> None:
        self.name = name
        self.hf = hf
        self.tokenizer = tokenizer
        generator = torch.Generator().manual_seed(0)
        # The tokenizer's last rows are special tokens or none at all.
        ids = torch.randint(0, hf.config.vocab_size // 2, (batch, tokens), generator=generator)
        self.inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        hf.generation_config.eos_token_id = None  # every generation runs to the length asked for
        hf.generation_config.pad_token_id = 0

    @property
    def ids(self) -> Tensor:
        """The tokens, `[batch seq]`."""
        return self.inputs["input_ids"]

    @property
    def num_layers(self) -> int:
        """How many blocks the model has."""
        return self.hf.config.num_hidden_layers

    @cached_property
    def eager(self) -> Case:
        """The same weights and tokens under eager attention."""
        case = copy.copy(self)
        for opened in ("cutaway", "nnsight", "lens", "eager"):
            case.__dict__.pop(opened, None)
        case.hf = twin(self.hf)
        case.hf.config._attn_implementation_internal = "eager"
        return case

    def resized(self, tokens: int, batch: int) -> Case:
        """The same opened models on other tokens."""
        case = copy.copy(self)
        case.__dict__.pop("eager", None)
        other = Case(self.name, self.hf, tokens, batch=batch)
        case.inputs = other.inputs
        return case

    @cached_property
    def cutaway(self) -> StandardizedTransformer:
        """The model as Cutaway opens it."""
        return StandardizedTransformer(self.hf, tokenizer=self.tokenizer, check=False)

    @cached_property
    def nnsight(self) -> Any:
        """The model as nnsight opens it."""
        from nnsight import NNsight
        from nnsight.modeling.transformers import TransformersModel

        if self.tokenizer is None:
            return NNsight(twin(self.hf))
        return TransformersModel(twin(self.hf), task="text-generation", tokenizer=self.tokenizer)

    @cached_property
    def lens(self) -> Any:
        """The model as TransformerLens opens it: a bridge to the transformers model, its weights as they are."""
        from transformer_lens.model_bridge import TransformerBridge

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TransformerBridge.boot_transformers(
                self.name, hf_model=twin(self.hf), tokenizer=self.tokenizer, dtype=self.hf.dtype, device="cpu"
            )


def twin(hf: PhiForCausalLM) -> PhiForCausalLM:
    """A copy of the modules and the config with the same weights."""
    shared = {id(tensor): tensor for tensor in (*hf.parameters(), *hf.buffers())}
    return copy.deepcopy(hf, shared)


def mini_case(tokens: int = 64) -> Case:
    """The built-in checkpoint."""
    opened = StandardizedTransformer("phi-mini", check=False)
    return Case("phi-mini", opened.hf, tokens, opened.tokenizer)


def wide_case(tokens: int = 64) -> Case:
    """A Phi of 12 layers and width 768 with random weights."""
    tokenizer = StandardizedTransformer("phi-mini", check=False).tokenizer
    return Case("12 layers, 768 wide", wide_phi(), tokens, tokenizer)


def small_case(layers: int, width: int = 256, tokens: int = 64, seed: int = 0) -> Case:
    """A Phi of any depth with random weights, wide enough that they matter."""
    torch.manual_seed(seed)
    config = PhiConfig(
        vocab_size=2048,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=max(2, width // 64),
        initializer_range=0.05,
    )
    tokenizer = StandardizedTransformer("phi-mini", check=False).tokenizer
    return Case(f"{layers} layers, {width} wide", PhiForCausalLM(config).eval(), tokens, tokenizer)

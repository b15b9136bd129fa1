"""Phi, whole: embed, the blocks, the final norm, the head. `PhiForCausalLM` in transformers' `modeling_phi.py`.

Read this file first, then `block.py`, `attention.py` with `rotary.py`, and `mlp.py`; `parts.py` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from cutaway.errors import ShapeError
from cutaway.reference import checkpoint
from cutaway.reference.attention import PhiAttention
from cutaway.reference.block import PhiBlock
from cutaway.reference.cache import Cache
from cutaway.reference.config import PhiConfig
from cutaway.reference.generation import generate
from cutaway.reference.inputs import as_ids, as_mask, as_positions, blocked_pairs
from cutaway.reference.mlp import PhiMLP
from cutaway.reference.parts import Array, IntArray, Linear, float_dtype, softmax
from cutaway.reference.record import Recorder, Values
from cutaway.reference.rotary import Rotary, RotaryTables
from cutaway.reference.weights import RandomWeights, Weights, layer_norm, linear, under
from cutaway.vocabulary.paths import Selector


class Phi:
    """A Phi language model. Most are made by `Phi.from_pretrained` or `Phi.from_config`.

    Args:
        config: the sizes and choices.
        weights: where the weights come from.
        dtype: dtype of weights and arithmetic, float32 or float64.
        angle_dtype: precision of the rotary angles. float32 is what transformers uses in every dtype; float64 gives
            the formula's own angles.

    Attributes:
        embed_tokens: `[vocab_size hidden_size]`.
        layers: the blocks.
        norm: the final norm; Phi's own name for it is `final_layernorm`.
        lm_head: `[hidden_size]` to `[vocab_size]`, with a bias.

    Raises:
        InputError: a dtype that is neither float32 nor float64.
    """

    def __init__(
        self,
        config: PhiConfig,
        weights: Weights,
        *,
        dtype: DTypeLike = np.float32,
        angle_dtype: DTypeLike = np.float32,
    ) -> None:
        self.config = config
        self.dtype = float_dtype("dtype", dtype)
        float_dtype("angle_dtype", angle_dtype)
        self.rotary = Rotary(config.rotary_dim, config.rope_theta, angle_dtype=angle_dtype, dtype=self.dtype)
        self.embed_tokens = weights("embed_tokens.weight", (config.vocab_size, config.hidden_size))
        self.layers = [
            _block(config, under(weights, f"layers.{layer}"), self.dtype, angle_dtype)
            for layer in range(config.num_layers)
        ]
        self.norm = layer_norm(weights, "norm", config.hidden_size, config.layer_norm_eps)
        if config.tie_word_embeddings:
            self.lm_head = Linear(self.embed_tokens, weights("lm_head.bias", (config.vocab_size,)))
        else:
            self.lm_head = linear(weights, "lm_head", config.hidden_size, config.vocab_size)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, dtype: DTypeLike | None = None, angle_dtype: DTypeLike = np.float32
    ) -> Phi:
        """Load a checkpoint: a folder with `config.json` and safetensors, or the name of a built-in one.

        Args:
            name: the folder, or a built-in name such as `phi-mini`.
            dtype: dtype of weights and arithmetic. Left out, it is float64 where the file holds float64 and float32
                otherwise: float16 and bfloat16 are widened.
            angle_dtype: precision of the rotary angles, see `Phi`.

        Raises:
            LoadError: nothing there, a damaged file, a pickle, or tensors missing, left over or of another shape.
            NoWeightsError: a built-in config without weights.
            UnsupportedModelError: not a Phi, or a Phi with a setting that the reference does not know.
        """
        folder = checkpoint.find_folder(name)
        config = checkpoint.read_config(folder)
        with checkpoint.FolderTensors(folder) as tensors:
            chosen = tensors.natural_dtype if dtype is None else float_dtype("dtype", dtype)
            weights = checkpoint.weights_from(
                tensors, expected_shapes(config), tied=config.tie_word_embeddings, dtype=chosen
            )
            return cls(config, weights, dtype=chosen, angle_dtype=angle_dtype)

    @classmethod
    def from_tensors(
        cls,
        config: PhiConfig | Mapping[str, Any],
        tensors: Mapping[str, ArrayLike],
        *,
        dtype: DTypeLike = np.float32,
        angle_dtype: DTypeLike = np.float32,
    ) -> Phi:
        """A model around weights that are already in memory, such as a torch model's state.

        Args:
            config: a `PhiConfig`, or the mapping that a `config.json` holds.
            tensors: arrays by Phi's own names (`model.layers.0.self_attn.dense.weight`); anything that NumPy can read,
                which leaves out bfloat16. Those already of this dtype are shared, not copied.
            dtype: dtype of weights and arithmetic.
            angle_dtype: precision of the rotary angles, see `Phi`.

        Raises:
            LoadError: tensors missing, left over or of another shape.
            UnsupportedModelError: not a Phi, or a setting that the reference does not know.
        """
        known = config if isinstance(config, PhiConfig) else PhiConfig.from_dict(config)
        weights = checkpoint.weights_from(
            checkpoint.GivenTensors(tensors), expected_shapes(known), tied=known.tie_word_embeddings, dtype=dtype
        )
        return cls(known, weights, dtype=dtype, angle_dtype=angle_dtype)

    @classmethod
    def from_config(
        cls,
        config: PhiConfig | Mapping[str, Any] | str | Path,
        seed: int | None = None,
        *,
        dtype: DTypeLike = np.float32,
        angle_dtype: DTypeLike = np.float32,
    ) -> Phi:
        """A model with random weights, drawn as transformers draws them: normal, zero biases, plain norms.

        Args:
            config: a `PhiConfig`, the mapping that a `config.json` holds, a folder with one, or a built-in name.
            seed: the seed; None draws one.
            dtype: dtype of weights and arithmetic.
            angle_dtype: precision of the rotary angles, see `Phi`.

        Raises:
            UnsupportedModelError: not a Phi, or a setting that the reference does not know.
            LoadError: there is no such folder or name.
        """
        if isinstance(config, (str, Path)):
            config = checkpoint.read_config(checkpoint.find_folder(config))
        elif not isinstance(config, PhiConfig):
            config = PhiConfig.from_dict(config)
        weights = RandomWeights(seed, config.initializer_range, dtype=dtype)
        return cls(config, weights, dtype=dtype, angle_dtype=angle_dtype)

    def __call__(
        self,
        ids: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        values: Selector | Sequence[Selector] = (),
        positions: ArrayLike | None = None,
        cache: Cache | None = None,
        tables: RotaryTables | None = None,
    ) -> Values:
        """Run the model.

        Args:
            ids: `[batch seq]` token ids.
            mask: `[batch seq]`, 1 for tokens and 0 for padding on either side; with a cache `[batch past+seq]`, all
                positions so far. Everything is real when left out.
            values: which values to return besides the logits: paths (`layers.3.self_attn.attention_queries`), patterns
                (`layers.*.layer_output`), bare names (`mlp_output`) or functions of a path.
            positions: `[seq]` or `[batch seq]` rotary positions; they count on from the cache when left out.
            cache: earlier positions, to which these are added. It is filled when this call returns.
            tables: cosines and sines to use instead of the model's own, `[batch seq rotary_dim/2]` each with a batch of
                1 standing for all: for comparing with another implementation to more digits than its cosines have.

        Returns:
            A mapping from path to array, in the order of the pass, `logits` `[batch seq vocab_size]` always in it. Each
            array has the layout that `cutaway.vocabulary` gives the value, and is the caller's own.

        Raises:
            InputError: ids, mask or positions that cannot be run; the message names the row and the place.
            ShapeError: positions or tables of another shape.
            UnknownValueError: `values` picks nothing.
            UnavailableValueError: `values` names `layer_mid`, which a parallel block does not have.
        """
        recorder = Recorder(values, self.config.num_layers)
        tokens = as_ids(ids, self.config.vocab_size)
        batch, seq = tokens.shape
        real = as_mask(mask, batch, seq, cache)
        stream = self._stream(tokens, real, positions, cache, tables, recorder)
        logits = self.lm_head(stream)  # [batch seq hidden_size] -> [batch seq vocab_size]
        record = recorder.at(None)
        record("lm_head_output", logits)
        if any(path.name == "next_token_probs" for path in recorder.wanted):
            last = _last_real(real[:, -seq:])
            record("next_token_probs", softmax(logits[np.arange(batch), last]))  # [batch vocab_size]
        return recorder.values(logits)

    def next_token_logits(
        self,
        ids: ArrayLike,
        mask: ArrayLike | None = None,
        *,
        positions: ArrayLike | None = None,
        cache: Cache | None = None,
    ) -> Array:
        """The logits at the last position of every row, `[batch vocab_size]`; arguments and errors as in a call.

        The head, a fifth of a small model's work, is applied there alone.
        """
        tokens = as_ids(ids, self.config.vocab_size)
        real = as_mask(mask, tokens.shape[0], tokens.shape[1], cache)
        stream = self._stream(tokens, real, positions, cache, None, Recorder((), self.config.num_layers))
        return self.lm_head(stream[:, -1])  # [batch hidden_size] -> [batch vocab_size]

    def _stream(
        self,
        ids: IntArray,
        mask: IntArray,
        positions: ArrayLike | None,
        cache: Cache | None,
        tables: RotaryTables | None,
        recorder: Recorder,
    ) -> Array:
        """The stream after the final norm, `[batch seq hidden_size]`."""
        batch, seq = ids.shape
        past = len(cache) if cache is not None else 0
        where = as_positions(positions, batch, seq, past)
        tables = self.rotary(where) if tables is None else self._given(tables, batch, seq)
        blocked = blocked_pairs(seq, past, mask)

        record = recorder.at(None)
        record("input_ids", ids)
        record("attention_mask", mask)
        record("input_size", np.array([batch, seq]))
        x = self.embed_tokens[ids]  # [batch seq] -> [batch seq hidden_size]
        record("token_embeddings", x)
        for number, layer in enumerate(self.layers):
            x = layer(x, tables, blocked, cache=cache, layer=number, record=recorder.at(number))
        x = self.norm(x)
        record("final_norm_output", x)
        if cache is not None:
            cache.advance(mask)
        return x

    def project_on_vocab(self, stream: Array) -> Array:
        """Final norm and head of any stream, `[... hidden_size]` to `[... vocab_size]`: a lens on a block's output."""
        return self.lm_head(self.norm(np.asarray(stream, self.dtype)))

    def generate(
        self,
        ids: ArrayLike,
        max_new_tokens: int,
        *,
        mask: ArrayLike | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        pad_token_id: int | None = None,
        cache: Cache | None = None,
    ) -> IntArray:
        """Continue every row of `ids`; see `cutaway.reference.generate`."""
        return generate(
            self,
            ids,
            max_new_tokens,
            mask=mask,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            eos_token_id=eos_token_id,
            pad_token_id=pad_token_id,
            cache=cache,
        )

    def _given(self, tables: RotaryTables, batch: int, seq: int) -> RotaryTables:
        cos, sin = (np.asarray(table, self.dtype) for table in tables)
        pairs = self.config.rotary_dim // 2
        for table in (cos, sin):
            if table.shape not in ((1, seq, pairs), (batch, seq, pairs)):
                raise ShapeError(
                    f"a rotary table has shape {list(table.shape)}; it is to be [{batch} {seq} {pairs}], "
                    "one column a pair"
                )
        return RotaryTables(cos, sin)


def expected_shapes(config: PhiConfig) -> dict[str, tuple[int, ...]]:
    """Every weight of such a model, with its shape, in the order in which the model asks for them."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note(name: str, shape: tuple[int, ...]) -> Array:
        shapes[name] = shape
        return np.empty(0, np.float32)

    Phi(config, note)
    return shapes


def _block(config: PhiConfig, weights: Weights, dtype: np.dtype[Any], angle_dtype: DTypeLike) -> PhiBlock:
    attention = PhiAttention(
        config.hidden_size,
        config.num_heads,
        config.head_dim,
        num_kv_heads=config.num_kv_heads,
        rotary_dim=config.rotary_dim,
        rope_theta=config.rope_theta,
        qk_layernorm=config.qk_layernorm,
        layer_norm_eps=config.layer_norm_eps,
        weights=under(weights, "self_attn"),
        dtype=dtype,
        angle_dtype=angle_dtype,
    )
    return PhiBlock(
        layer_norm(weights, "input_layernorm", config.hidden_size, config.layer_norm_eps),
        attention,
        PhiMLP(config.hidden_size, config.intermediate_size, under(weights, "mlp")),
    )


def _last_real(mask: IntArray) -> IntArray:
    """Each row's last position whose mask is not zero, `[batch seq]` to `[batch]`; the last one where all are zero."""
    from_end = (mask[:, ::-1] != 0).argmax(axis=1)
    return mask.shape[1] - 1 - from_end

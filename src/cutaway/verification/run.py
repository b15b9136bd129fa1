"""Both passes together, a block at a time, so that no more than a block's values are in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from cutaway.model import StandardizedTransformer
from cutaway.reference import Phi, RotaryTables
from cutaway.reference.inputs import blocked_pairs
from cutaway.reference.parts import Array, BoolArray, IntArray
from cutaway.subject.inputs import Prompt
from cutaway.verification.causes import causes, overflow
from cutaway.verification.differences import Difference, difference
from cutaway.verification.findings import Compared, Verdict
from cutaway.verification.report import Verification
from cutaway.verification.steps import Setting, can_run, made
from cutaway.verification.tolerances import tolerance_for
from cutaway.verification.weights import array_of, differing_weights, reference_from, reference_of
from cutaway.vocabulary import VALUES, ValuePath

Progress = Callable[[int, int], None]
"""Told how many blocks are done, of how many."""

PROMPT = "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n"
"""What is run where no prompt is given, with a model that has a tokenizer."""

_TOKENS = 32
_PLAIN = ("attention_head_outputs", "logits")


def verify(
    model: StandardizedTransformer | PreTrainedModel | str | Path,
    prompt: Prompt | None = None,
    *,
    reference: Phi | str | Path | None = None,
    attention_mask: Tensor | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Runs a Phi and the NumPy reference on one prompt, and compares every value of every layer.

    By default the reference is given the weights that are *running*, the model's own state: that asks whether the
    model's code computes what Phi is. With `reference` it has those of a checkpoint's folder: that asks whether the
    model, converted or changed, still is what the folder holds.

    Values are read twice. First with scores and probabilities, for which every layer's eager attention runs beside its
    kernel (as `trace` does it); then as the model runs untouched, under its own attention kernel, for the head outputs
    and the logits, which the table lists under `plain`. A float64 model is compared with the cosines that transformers
    has, computed in float32, where the reference's own are within a float32 unit of them; and transformers takes the
    softmax of eager attention in float32 whatever the dtype, so that there probabilities are held to float32's
    tolerance, and the pass goes on with the same softmax in float64.

    Args:
        model: a model, a transformers model, or what `StandardizedTransformer` opens.
        prompt: as in `trace`; by default a few lines of Python, or without a tokenizer 32 random ids.
        reference: a folder, a built-in name, or a `Phi`.
        attention_mask: `[batch seq]`, zeros are padding, where nothing is compared.
        progress: told of each block.

    Raises:
        UnsupportedModelError: the model is not a Phi, or one with a setting that the reference does not follow.
        LoadError: model or reference cannot be loaded.
        InputError: the prompt cannot be run.
    """
    opened = model if isinstance(model, StandardizedTransformer) else StandardizedTransformer(model, check=False)
    opened._subject.bring_weights()
    wide = np.float64 if opened.dtype == torch.float64 else np.float32
    phi = reference_of(opened, wide) if reference is None else reference_from(reference, opened, wide)
    given = _prompt(opened) if prompt is None else prompt
    pair = _Pair(opened, phi, given_weights=reference is not None, progress=progress)
    compared = [*pair.compare(given, attention_mask), *pair.compare_plain(given, attention_mask)]
    return Verification(
        model=opened._subject.name,
        reference=_named(reference),
        dtype=pair.dtype,
        tokens=int(pair.real.sum()),
        tolerance=pair.tolerance,
        compared=compared,
        remarks=pair.remarks,
    )


def _prompt(model: StandardizedTransformer) -> Prompt:
    if model.tokenizer is not None:
        return PROMPT
    random = torch.Generator().manual_seed(0)
    return torch.randint(model.sizes["vocab_size"], (1, _TOKENS), generator=random)


def _unwatched(done: int, of: int) -> None:
    """The progress that nobody asked for."""


def _named(reference: Phi | str | Path | None) -> str:
    if reference is None:
        return "the model's own weights"
    return "the one given" if isinstance(reference, Phi) else f"the weights of {reference}"


class _Pair:
    """A model and the reference, and what is the same for every value of their passes."""

    real: BoolArray

    def __init__(
        self, model: StandardizedTransformer, phi: Phi, *, given_weights: bool, progress: Progress | None
    ) -> None:
        self.model = model
        self.phi = phi
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.tolerance = tolerance_for(self.dtype)
        self.remarks: list[str] = []
        self._given_weights = given_weights
        self._progress = progress or _unwatched
        # Nothing is lower than float32's lowest number: transformers takes the softmax in it, in a float64 model too.
        self._lowest = max(float(torch.finfo(dtype).min) for dtype in (model.dtype, torch.float32))
        self._own_reference: Phi | None = None
        self._plain: dict[str, Array] = {}
        self._apart = False

    def compare(self, prompt: Prompt, attention_mask: Tensor | None) -> Iterator[Compared]:
        """Every value of a pass in which all are read."""
        num_layers = self.phi.config.num_layers
        self._progress(0, num_layers)
        with self.model.trace(prompt, attention_mask=attention_mask):
            at = self._begin(self.model.input_ids, self.model.attention_mask)
            theirs = self._theirs(None, ("token_embeddings",))
            x = self.phi.embed_tokens[at.ids]
            yield from self._compared(at, theirs, {"token_embeddings": x})
            stream = theirs["token_embeddings"]
            for layer, block in enumerate(self.phi.layers):
                ours = _Recorded()
                x = block(x, at.tables, at.blocked, record=ours.record)
                theirs = {"stream": stream, **self._theirs(layer)}
                here = Setting(self.phi, layer, theirs, at.ids, at.positions, at.tables, at.blocked)
                yield from self._compared(here, theirs, ours)
                self._plain[f"layers.{layer}.self_attn.attention_head_outputs"] = ours["attention_head_outputs"]
                stream = theirs["layer_output"]
                self._progress(layer + 1, num_layers)
            normed = self.phi.norm(x)
            logits = self.phi.lm_head(normed)
            theirs = {"stream": stream, **self._theirs(None, ("final_norm_output", "lm_head_output", "logits"))}
            here = Setting(self.phi, None, theirs, at.ids, at.positions, at.tables, at.blocked)
            ours = {"final_norm_output": normed, "lm_head_output": logits, "logits": logits}
            yield from self._compared(here, theirs, ours)
            self._plain["logits"] = logits

    def compare_plain(self, prompt: Prompt, attention_mask: Tensor | None) -> Iterator[Compared]:
        """Head outputs and logits of a pass under the model's own attention kernel."""
        kernel = str(self.model.config._attn_implementation)
        found = self.model.read(prompt, _PLAIN, attention_mask=attention_mask)
        for path, tensor in found.items():
            place = next(one for one in self.model._subject.value_paths if str(one) == path)
            apart = difference(self._array(tensor), self._plain[path], place.value.layout, self._seen)
            blocks = self.phi.config.num_layers if place.layer is None else place.layer
            tolerance = self._whole_tolerance("plain" if kernel == "eager" else place.name, blocks)
            verdict: Verdict = "agrees"
            if not apart.within(tolerance):
                verdict = "follows" if self._apart else "drifts"
            name = f"{place.name}, plain {kernel}"
            yield Compared(f"{path} (plain)", name, place.layer, apart, None, tolerance, verdict)

    def _begin(self, ids: Tensor, mask: Tensor) -> Setting:
        """What a pass starts from."""
        numbers: IntArray = ids.cpu().numpy()
        self.real = mask.cpu().numpy() != 0
        # A query before which all is padding has nothing to look at, and kernels differ in what they give it.
        self._seen = self.real & (np.cumsum(self.real, axis=1) > 0)
        positions = np.arange(numbers.shape[1])[None]
        blocked = blocked_pairs(numbers.shape[1], 0, self.real.astype(np.int64))
        return Setting(self.phi, None, {}, numbers, positions, self._tables(positions), blocked)

    def _tables(self, positions: IntArray) -> RotaryTables:
        ours = self.phi.rotary(positions)
        rotary = getattr(getattr(self.model.hf, "model", None), "rotary_emb", None)
        if self.dtype != "float64" or rotary is None:
            return ours
        with torch.no_grad():
            where = torch.from_numpy(positions).to(self.model.device)
            found = rotary(torch.zeros(1, dtype=torch.float64, device=self.model.device), where)
        theirs = [table[..., : ours.cos.shape[-1]].cpu().numpy() for table in found]
        near = all(a.shape == b.shape and np.abs(a - b).max() < 2**-23 for a, b in zip(ours, theirs, strict=True))
        return RotaryTables(*theirs) if near else ours

    def _theirs(self, layer: int | None, names: tuple[str, ...] = ()) -> dict[str, Array]:
        """The model's values of a layer, or these of the model, by name."""
        found: dict[str, Array] = {}
        raw: dict[str, Tensor] = {}
        for path in self.model._subject.value_paths:
            if path.value.derived or path.layer != layer or (names and path.name not in names):
                continue
            host = self._host(path)
            value: Tensor = getattr(host, path.name)
            found[path.name] = self._array(value)
            if path.value.host == "layer" or path.name in ("attention_output", "mlp_output"):
                raw[path.name] = value.clone()
            if path.name == "attention_probabilities" and self.dtype == "float64" and "attention_scores" in found:
                self._go_on_in_float64(host, value, found)
        if layer is not None:
            self._remark_on_order(layer, raw)
        return found

    def _go_on_in_float64(self, attention: Any, probabilities: Tensor, found: dict[str, Array]) -> None:
        """Takes float32's rounding off a softmax that was right up to it; see `verify`."""
        scores = torch.from_numpy(found["attention_scores"]).to(probabilities.device)
        # What a kernel gives a query of padding alone is its own affair, and stays.
        seen = torch.from_numpy(self._seen[:, None, :, None]).to(probabilities.device)
        finer = torch.where(seen, scores.softmax(-1), probabilities)
        apart = torch.where(seen, (finer - probabilities).abs(), 0.0)
        if float(apart.max()) < tolerance_for("float32").step:
            attention.attention_probabilities[:] = finer
            found["rounded_probabilities"] = found["attention_probabilities"]
            found["attention_probabilities"] = finer.cpu().numpy()

    def _host(self, path: ValuePath) -> Any:
        if path.layer is None:
            return self.model
        layer = self.model.layers[path.layer]
        return {"layer": layer, "attention": layer.self_attn, "mlp": layer.mlp}[path.value.host]

    def _array(self, tensor: Tensor) -> Array:
        return np.array(array_of(tensor, self.phi.dtype))

    def _compared(self, at: Setting, theirs: dict[str, Array], ours: dict[str, Array]) -> Iterator[Compared]:
        at = Setting(at.phi, at.layer, theirs, at.ids, at.positions, at.tables, at.blocked)
        for name in (name for name in VALUES if name in theirs and name in ours):
            found = theirs.get("rounded_probabilities", theirs[name]) if "probabilities" in name else theirs[name]
            whole = self._difference(name, found, ours[name], at)
            step = self._difference(name, found, made(name, at), at) if can_run(name, at) else None
            tolerance = self._whole_tolerance(name, self._blocks_before(at.layer))
            verdict: Verdict = "agrees"
            reason = ""
            if step is not None and not step.within(self._step_tolerance(name)):
                verdict, reason = "parts", self._reason(name, at, found, step)
                self._apart = True
            elif not whole.within(tolerance):
                verdict = "follows" if self._apart else "drifts"
            path = ValuePath(name, at.layer)
            yield Compared(str(path), name, at.layer, whole, step, tolerance, verdict, reason)

    def _blocks_before(self, layer: int | None) -> int:
        return self.phi.config.num_layers if layer is None else layer + 1

    def _difference(self, name: str, found: Array, expected: Array, at: Setting) -> Difference:
        blocked = at.blocked if name == "attention_scores" else None
        return difference(found, expected, VALUES[name].layout, self._seen, blocked, self._lowest)

    def _step_tolerance(self, name: str, *, tried: bool = False) -> float:
        """Of a step, or of one that is `tried` for a reason; then cosines may have float32's precision."""
        rounded = ("attention_probabilities", *(("attention_queries", "attention_keys") if tried else ()))
        float32 = self.dtype == "float64" and name in rounded
        return tolerance_for("float32").step if float32 else self.tolerance.step

    def _whole_tolerance(self, name: str, blocks: int) -> float:
        rounded = self.dtype == "float64" and name in ("attention_probabilities", "plain")
        return (tolerance_for("float32") if rounded else self.tolerance).whole(blocks)

    def _reason(self, name: str, at: Setting, found: Array, apart: Difference) -> str:
        """The likely reason, where one of those that are tried makes the step agree."""

        def explains(array: Array) -> bool:
            left = self._difference(name, found, array, at)
            return left.within(self._step_tolerance(name, tried=True)) and left.relative <= apart.relative / 2

        if self._given_weights:
            self._own_reference = self._own_reference or reference_of(self.model, self.phi.dtype)
            others = list(differing_weights(name, at.layer, self.phi, self._own_reference))
            own = Setting(self._own_reference, at.layer, at.own, at.ids, at.positions, at.tables, at.blocked)
            if others and explains(made(name, own)):
                return f"the weights are others: {'; '.join(others)}"
        if not (found < np.inf).all():
            return overflow(name, at, self.dtype, -self._lowest)
        return next((reason for reason, array in causes(name, at, found) if explains(array)), "")

    def _remark_on_order(self, layer: int, raw: dict[str, Tensor]) -> None:
        """Phi's order of summing gives the block's output bit for bit; another order rounds otherwise."""
        names = ("attention_output", "mlp_output", "layer_input", "layer_output")
        if any(name not in raw for name in names):
            return
        attention, mlp, stream, output = (raw[name] for name in names)
        if not torch.equal(attention + mlp + stream, output) and torch.equal(stream + attention + mlp, output):
            self.remarks.append(
                f"layers.{layer}.layer_output is stream + attention + MLP, in this order, and Phi adds the stream "
                "last; the two differ by rounding."
            )


class _Recorded(dict[str, Array]):
    """Copies of a block's values, as the reference computes them."""

    def record(self, name: str, array: Any) -> None:
        """Keeps a value."""
        self[name] = np.array(array)

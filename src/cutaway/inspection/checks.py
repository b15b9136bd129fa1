"""`check()`: does this model, under this load, keep what the vocabulary promises?

Four passes of a few tokens: one that reads every value, one that is traced and one that is plain, which must agree bit
for bit, and one in which each row of a batch has another value edited, so that one pass shows for all of them that an
edit reaches the logits. A model without weights has its shapes checked on the meta device.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import CheckError, NonFiniteWarning
from cutaway.passes.reading import read
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.subject.survey import BATCH, SEQ
from cutaway.tracing import ForwardPass
from cutaway.vocabulary import ValuePath

_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
"""How far two values that are computed in different ways may part, relative to the larger; by dtype."""


@dataclass(frozen=True)
class CheckResult:
    """One promise, in words, and how many times it was put to the test."""

    promise: str
    cases: int


@dataclass(frozen=True)
class CheckReport:
    """What was checked, all of which held."""

    model: str
    results: tuple[CheckResult, ...]

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.results)

    def __str__(self) -> str:
        lines = [f"{self.model} keeps the standard vocabulary:"]
        return "\n".join(lines + [f"  ✓ {result.promise} ({result.cases})" for result in self.results])


def check(subject: Subject) -> CheckReport:
    """Puts every promise to the test.

    Raises:
        CheckError: naming the value and what differed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NonFiniteWarning)
        results = list(_on_weights(subject) if subject.has_weights else _on_meta(subject))
    return CheckReport(subject.name, tuple(results))


def _on_meta(subject: Subject) -> Iterator[CheckResult]:
    survey = subject.survey
    values = {}
    for path in _direct(subject):
        address = subject.address(path)
        values[str(path)] = address.slot.read(survey.passing[address.module_path, address.moment], subject.sizes)
    values.pop("attention_mask", None)  # the surveyed call has a mask of four axes, see `meta_inputs`
    yield _shapes(subject, values, BATCH, SEQ)


def _on_weights(subject: Subject) -> Iterator[CheckResult]:
    inputs = _sample(subject, rows=3)
    values = read(subject, inputs, subject.value_paths)
    yield _shapes(subject, values, *inputs["input_ids"].shape)
    yield _identity(subject, values)
    if "layer_mid" in subject.family.values:
        yield _middle(subject, values)
    yield _softmax(subject, values)
    yield _heads_merged(subject, values)
    yield _projected(subject, values)
    logits = _same_as_plain(subject, inputs)
    yield CheckResult("logits of a traced pass are those of the plain model, bit for bit", 1)
    if not bool(logits.isfinite().all()):
        _tell_first_non_finite(subject, values)
        return
    yield _edits_reach_the_logits(subject)


def _direct(subject: Subject) -> list[ValuePath]:
    return [path for path in subject.value_paths if not path.value.derived]


def _sample(subject: Subject, rows: int) -> dict[str, Tensor]:
    """Random ids, the same at each call; where there are several rows, the first is padded on the left."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, subject.sizes["vocab_size"], (rows, 6), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, :2] = 0
    return {"input_ids": ids.to(subject.input_device), "attention_mask": mask.to(subject.input_device)}


def _shapes(subject: Subject, values: Mapping[str, Any], batch: int, seq: int) -> CheckResult:
    sizes = {**subject.sizes, "batch": batch, "seq": seq, "query": seq, "key": seq}
    checked = 0
    for path in subject.value_paths:
        found = values.get(str(path))
        if not isinstance(found, Tensor):
            continue
        expected = path.value.layout.shape(sizes)
        if tuple(found.shape) != expected:
            raise CheckError(
                f"`{path}` has shape {list(found.shape)}, and its layout {path.value.layout.name} {path.value.layout} "
                f"says {list(expected)}."
            )
        checked += 1
    return CheckResult("every value has the shape of its layout", checked)


def _layers(subject: Subject, values: Mapping[str, Any], *names: str) -> Iterator[tuple[ValuePath, list[Tensor]]]:
    """For each layer that has all of these values, the path of the first and the values."""
    for layer in range(subject.sizes["num_layers"]):
        paths = [ValuePath(name, layer) for name in names]
        if all(str(path) in values for path in paths):
            yield paths[0], [values[str(path)] for path in paths]


def _identity(subject: Subject, values: Mapping[str, Any]) -> CheckResult:
    cases = 0
    for path, (output, *terms) in _layers(subject, values, "layer_output", *subject.family.stream):
        total = terms[0].to(output.device)
        for term in terms[1:]:
            total = total + term.to(output.device)
        _must_be_equal(str(path), total, output, " + ".join(subject.family.stream))
        cases += 1
    return CheckResult(f"{' + '.join(subject.family.stream)} is layer_output, bit for bit", cases)


def _middle(subject: Subject, values: Mapping[str, Any]) -> CheckResult:
    """Where a stream passes between attention and MLP, it is what the block adds up before the MLP."""
    before = subject.family.stream[: subject.family.stream.index("mlp_output")]
    cases = 0
    for path, (middle, first, second) in _layers(subject, values, "layer_mid", *before):
        _must_be_equal(str(path), middle, first.to(middle.device) + second.to(middle.device), " + ".join(before))
        cases += 1
    return CheckResult(f"{' + '.join(before)} is layer_mid, bit for bit", cases)


def _softmax(subject: Subject, values: Mapping[str, Any]) -> CheckResult:
    cases = 0
    names = ("attention_probabilities", "attention_scores")
    for path, (probabilities, scores) in _layers(subject, values, *names):
        expected = scores.float().softmax(dim=-1)
        _must_be_close(str(path), probabilities, expected, "softmax(attention_scores)")
        cases += 1
    return CheckResult("softmax(attention_scores) is attention_probabilities", cases)


def _heads_merged(subject: Subject, values: Mapping[str, Any]) -> CheckResult:
    cases = 0
    for path, (premix, heads) in _layers(subject, values, "attention_premix", "attention_head_outputs"):
        _must_be_equal(str(path), premix, heads, "the head outputs side by side")
        cases += 1
    return CheckResult("attention_premix is the head outputs side by side", cases)


def _projected(subject: Subject, values: Mapping[str, Any]) -> CheckResult:
    cases = 0
    for path, (output, premix) in _layers(subject, values, "attention_output", "attention_premix"):
        project = subject.modules[subject.module_path("attention", path.layer, "o_proj")]
        with torch.no_grad():
            expected = project(premix.flatten(-2))
        _must_be_close(str(path), output, expected, "o_proj(attention_premix)")
        cases += 1
    return CheckResult("o_proj(attention_premix) is attention_output", cases)


def _same_as_plain(subject: Subject, inputs: Mapping[str, Tensor]) -> Tensor:
    names = ("layer_output", "logits")
    traced = read(subject, inputs, [path for path in subject.value_paths if path.name in names])["logits"]
    with torch.no_grad():
        plain = subject.hf(**inputs).logits
    _must_be_equal("logits", traced, plain, "the plain model's logits")
    return plain


def _edits_reach_the_logits(subject: Subject) -> CheckResult:
    middle = subject.sizes["num_layers"] // 2
    edited = [p for p in _direct(subject) if not p.value.read_only and p.layer in (None, middle)]
    inputs = _sample(subject, rows=1)
    rows = {name: tensor.repeat(len(edited) + 1, 1) for name, tensor in inputs.items()}
    running = ForwardPass(partial(subject.hf, **rows), grad=False)
    try:
        for row, path in enumerate(edited):
            address = subject.address(path)
            running.attach(address.module, address.moment, _edit_row(subject, address, row))
        logits: Tensor = running.run_to_end().logits
    finally:
        running.close()
    untouched = logits[-1]
    least = 1e-3 * untouched.float().std().item()
    for row, path in enumerate(edited):
        change = (logits[row] - untouched).float().abs().max().item()
        if change < least:
            raise CheckError(f"an edit of `{path}` does not reach the logits: they change by {change:.1e} at most.")
    return CheckResult("an edit of each writable value changes the logits", len(edited))


def _edit_row(subject: Subject, address: Address, row: int) -> Callable[[Any], Any]:
    def edit(passing: Any) -> Any:
        value = address.slot.read(passing, subject.sizes).clone()
        if address.path == "input_ids":
            value[row] = (value[row] + 1) % subject.sizes["vocab_size"]
        elif address.path == "attention_mask":
            value[row, 2:-1] = 0
        else:
            noise = torch.empty(value[row].shape, device="cpu").normal_(generator=torch.Generator().manual_seed(row))
            value[row] += noise.to(value.device, value.dtype)
        return address.slot.write(passing, value)

    return edit


def _tell_first_non_finite(subject: Subject, values: Mapping[str, Any]) -> None:
    for path in subject.value_paths:
        found = values.get(str(path))
        if isinstance(found, Tensor) and path.name != "attention_scores" and not bool(found.isfinite().all()):
            dtype = str(subject.hf.dtype).removeprefix("torch.")
            message = (
                f"the logits of {subject.name} are not finite in {dtype} under "
                f"{subject.hf.config._attn_implementation} attention; the first value that is not is `{path}`. "
                "Load it with attn_implementation='sdpa' or dtype=torch.bfloat16."
            )
            with warnings.catch_warnings():
                warnings.simplefilter("default", NonFiniteWarning)
                warnings.warn(message, NonFiniteWarning, stacklevel=5)
            return


def _must_be_equal(name: str, found: Tensor, expected: Tensor, what: str) -> None:
    same = torch.equal(found, expected) or bool(((found == expected) | (found.isnan() & expected.isnan())).all())
    if not same:
        _differs(name, found, expected, what)


def _must_be_close(name: str, found: Tensor, expected: Tensor, what: str) -> None:
    tolerance = _TOLERANCE[found.dtype]
    expected = expected.to(found.device, found.dtype)
    scale = expected.abs().nan_to_num(0, 0, 0).max().item()
    if not torch.allclose(found, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        _differs(name, found, expected, what)


def _differs(name: str, found: Tensor, expected: Tensor, what: str) -> None:
    difference = (found.double() - expected.double()).abs().nan_to_num(float("inf")).max().item()
    raise CheckError(f"`{name}` is not {what}: they differ by {difference:.2e} at most.")

"""What holds between the values of one pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from cutaway.errors import CheckError
from cutaway.families.stream import Term, add_up, names_in, told, up_to
from cutaway.inspection.check.compare import close, differs, must_be_close, must_be_same
from cutaway.inspection.check.report import CheckResult
from cutaway.passes.derived import head_contributions
from cutaway.sites import output_of
from cutaway.subject.lens import project_on_vocab
from cutaway.subject.subject import Subject
from cutaway.vocabulary import WEIGHTS, ValuePath

Values = Mapping[str, Any]


def relations(subject: Subject, values: Values) -> Iterator[CheckResult]:
    """Puts to the test what the vocabulary says of values and of each to others.

    Raises:
        CheckError: naming the value and what differed.
    """
    yield shapes(subject, values, *values["input_ids"].shape)
    yield _identity(subject, values)
    if any("layer_mid" in subject.family_at(layer).values for layer in range(subject.sizes["num_layers"])):
        yield _middle(subject, values)
    yield _softmax(subject, values)
    yield _heads_merged(subject, values)
    if subject.has_site("attention_gate"):
        yield _gated(subject, values)
    yield _projected(subject, values)
    yield _contributed(subject, values)
    if subject.has_site("logits"):
        yield _lens(subject, values)


def shapes(subject: Subject, values: Values, batch: int, seq: int) -> CheckResult:
    """Every value has the shape of its layout, and one axis one length on all values of a layer."""
    call = {"batch": batch, "seq": seq, "query": seq, "key": seq}
    keys = next((value for path, value in values.items() if path.endswith(".attention_keys")), None)
    turned = {"qk_head_dim": keys.shape[-1]} if keys is not None and _turns_one(subject) else {}
    checked = 0
    for path in subject.value_paths:
        found = values.get(str(path))
        if not isinstance(found, Tensor):
            continue
        widths = {} if path.name in _BEFORE_ROTARY else turned
        expected = path.value.layout.shape({**subject.sizes_at(path.layer), **call, **widths})
        if tuple(found.shape) != expected:
            raise CheckError(
                f"`{path}` has shape {list(found.shape)}, and its layout {path.value.layout.name} {path.value.layout} "
                f"says {list(expected)}.",
                value=str(path),
            )
        checked += 1
    return CheckResult("every value has the shape of its layout", checked)


_BEFORE_ROTARY = ("queries_before_rotary", "keys_before_rotary")


def _turns_one(subject: Subject) -> bool:
    """Whether a rotary turns a single dimension of a head.

    Cosines come in pairs, so torch broadcasts the one dimension to two where transformers' `apply_rotary_pos_emb` does
    not cut it to their width, and queries and keys are wider than any config says.
    """
    rope = getattr(subject.hf.config, "rope_parameters", None)
    share = rope.get("partial_rotary_factor", 1.0) if isinstance(rope, Mapping) else 0.0
    return isinstance(share, (int, float)) and int(subject.sizes.get("head_dim", 0) * share) == 1


def _layers(subject: Subject, values: Values, *names: str) -> Iterator[tuple[ValuePath, list[Tensor]]]:
    """For each layer that has all of these values, the path of the first and the values."""
    for layer in range(subject.sizes["num_layers"]):
        paths = [ValuePath(name, layer) for name in names]
        if all(str(path) in values for path in paths):
            yield paths[0], [values[str(path)] for path in paths]


def _identity(subject: Subject, values: Values) -> CheckResult:
    cases, said = 0, dict[str, None]()
    for layer in range(subject.sizes["num_layers"]):
        total, path = subject.family_at(layer).stream, ValuePath("layer_output", layer)
        if total and _are_there(values, layer, total):
            must_be_same(str(path), _sum(subject, values, layer, total, path), values[str(path)], told(total), "sum")
            said[told(total)] = None
            cases += 1
    return CheckResult(f"{' or '.join(said) or 'the sum'} is layer_output, bit for bit", cases)


def _middle(subject: Subject, values: Values) -> CheckResult:
    """Where a stream passes between attention and MLP, it is what the block adds up before the MLP."""
    cases, said = 0, dict[str, None]()
    for layer in range(subject.sizes["num_layers"]):
        before, path = up_to("mlp_output", subject.family_at(layer).stream), ValuePath("layer_mid", layer)
        if before is not None and _are_there(values, layer, before) and str(path) in values:
            must_be_same(str(path), values[str(path)], _sum(subject, values, layer, before, path), told(before))
            said[told(before)] = None
            cases += 1
    return CheckResult(f"{' or '.join(said) or 'the sum'} is layer_mid, bit for bit", cases)


def _are_there(values: Values, layer: int, term: Term) -> bool:
    return all(str(ValuePath(name, layer)) in values for name in ("layer_output", *names_in(term)))


def _sum(subject: Subject, values: Values, layer: int, term: Term, of: ValuePath) -> Tensor:
    """What an expression comes to, where a model over several devices has it, and as wide: a stream may be in float32
    over weights that are not."""
    total = values[str(of)]
    block = subject.modules[subject.host_path("layer", layer)]

    def value(name: str) -> Tensor:
        term = values[str(ValuePath(name, layer))]
        return term.to(total.device, torch.promote_types(term.dtype, total.dtype))

    with torch.no_grad():
        return add_up(term, value, lambda path: attrgetter(path)(block))


def _softmax(subject: Subject, values: Values) -> CheckResult:
    """Some families take the softmax in the scores' own dtype, others in float32, whatever the model's is."""
    cases = 0
    for path, (pattern, scores) in _layers(subject, values, "attention_probabilities", "attention_scores"):
        own, single = scores.softmax(dim=-1), scores.softmax(dim=-1, dtype=torch.float32)
        sinks = values.get(str(ValuePath("attention_sinks", path.layer)))
        if sinks is not None:
            own, single = (part * (1 - sinks[..., None]) for part in (own, single))
        if not close(pattern, own) and not close(pattern, single):
            differs(str(path), pattern, own, "softmax(attention_scores)", "pattern")
        cases += 1
    return CheckResult("softmax(attention_scores) is attention_probabilities", cases)


def _heads_merged(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    for path, (premix, heads) in _layers(subject, values, "attention_premix", "attention_head_outputs"):
        if subject.family_at(path.layer).premix_differs:
            continue
        must_be_same(str(path), premix, heads, "the head outputs side by side", "heads merged")
        cases += 1
    return CheckResult("attention_premix is the head outputs side by side, bit for bit", cases)


def _gated(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    names = ("attention_gate", "attention_premix", "attention_head_outputs")
    for path, (gate, premix, heads) in _layers(subject, values, *names):
        must_be_close(str(path), premix, heads * gate.sigmoid(), "attention_head_outputs times its sigmoid")
        cases += 1
    return CheckResult("attention_premix is the head outputs times the sigmoid of attention_gate", cases)


def _projected(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    for path, (output, premix) in _layers(subject, values, "attention_output", "attention_premix"):
        if subject.family_at(path.layer).values["attention_output"] != output_of():
            continue  # what is added to the stream is more than what the projection returns
        project = subject.modules[subject.module_path("attention", path.layer, "o_proj")]
        with torch.no_grad():
            expected = project(premix.flatten(-2))
        must_be_close(str(path), output, expected, "o_proj(attention_premix)", "projected")
        cases += 1
    return CheckResult("o_proj(attention_premix) is attention_output", cases)


def _contributed(subject: Subject, values: Values) -> CheckResult:
    """A layer at a time, since heads are many. What a hook of the user's adds to the projection is no head's."""
    cases = 0
    for path, (output, premix) in _layers(subject, values, "attention_output", "attention_premix"):
        own = ValuePath("head_contributions", path.layer)
        if not subject.is_available(own) or path.layer is None:
            continue
        project = subject.weights.module(WEIGHTS["W_O"], path.layer)
        if project._forward_hooks or project._forward_pre_hooks:
            continue
        with torch.no_grad():
            wide = torch.float32 if premix.device.type == "mps" else torch.float64
            parts = head_contributions(subject, path.layer, premix.to(wide))
            bias = subject.weight("b_O", path.layer)
            whole = parts.sum(dim=-2).to(output.device)
        expected = (*premix.shape[:-1], output.shape[-1])
        if parts.shape != expected:
            raise CheckError(f"`{own}` has shape {list(parts.shape)}, and its layout says {list(expected)}.")
        whole = whole if bias is None else whole + bias.to(output.device)
        whole = torch.where(output.isfinite(), whole, output)  # what overflows does so in the sum's own order
        must_be_close(str(path), output, whole, "the sum of head_contributions and the bias")
        cases += 1
    return CheckResult("the sum of head_contributions and the bias is attention_output", cases)


def _lens(subject: Subject, values: Values) -> CheckResult:
    promise = "project_on_vocab of the last layer_output is logits, bit for bit"
    last = values.get(str(ValuePath("layer_output", subject.sizes["num_layers"] - 1)))
    if last is None or subject.family.no_lens:
        return CheckResult(promise, 0)
    try:
        with torch.no_grad():
            lens = project_on_vocab(subject, last)
    except RuntimeError as error:  # of torch: something stands between the norm and the head
        text = f"the last layer_output cannot be projected: {str(error).strip().partition(chr(10))[0]}."
        raise CheckError(f"`logits` is not project_on_vocab of it: {text}", value="logits", claim="lens") from error
    must_be_same("logits", values["logits"], lens, "project_on_vocab(the last layer_output)", "lens")
    return CheckResult(promise, 1)

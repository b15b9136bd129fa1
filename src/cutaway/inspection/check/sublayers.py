"""What holds inside the sublayers of a layer: of norms and what they are given, of values and what they are mixed into,
of neurons and the projection behind them, of the choice of experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cutaway.errors import CheckError
from cutaway.families import BUILT_IN
from cutaway.inspection.check.compare import close, differs
from cutaway.inspection.check.report import CheckResult
from cutaway.sites import output_of
from cutaway.subject.subject import Subject
from cutaway.vocabulary import ValuePath

Values = Mapping[str, Any]

_ROUNDINGS = 64
"""By how many roundings of its dtype, or of float32 in which patterns are made, a mixture of values may be off,
relative to the largest of them: kernels add up in an order of their own."""


def sublayers(subject: Subject, values: Values) -> Iterator[CheckResult]:
    """Puts to the test what holds inside sublayers, of a family that is derived or comes from outside.

    The families of this package have it put to the test by its tests, and their models may have been changed by hand.

    Raises:
        CheckError: naming the value and what differed.
    """
    if not subject.family.derived and subject.family.name in BUILT_IN:
        return
    yield _normed(subject, values)
    yield _mixed(subject, values)
    yield _neurons_projected(subject, values)
    yield _experts_chosen(subject, values)


def _layers(subject: Subject, values: Values, *names: str) -> Iterator[tuple[int, list[Tensor]]]:
    """For each layer that has all of these values, its number and the values."""
    for layer in range(subject.sizes["num_layers"]):
        found = [values.get(str(ValuePath(name, layer))) for name in names]
        if all(isinstance(value, Tensor) for value in found):
            yield layer, [value for value in found if value is not None]


def _module(subject: Subject, layer: int, name: str) -> nn.Module:
    """The module at which a value has its site."""
    path = ValuePath(name, layer)
    site = subject.family_at(layer).values[name]
    return subject.modules[subject.places.of_site(path.value.host, layer, site)]


def _normed(subject: Subject, values: Values) -> CheckResult:
    """A norm of the stream that enters a sublayer. What a hook of the user's changes there is no fault of a family."""
    cases = 0
    for name in ("attention_norm_output", "mixer_norm_output", "mlp_norm_output"):
        for layer, (normed, start) in _layers(subject, values, name, "layer_input"):
            norm = _module(subject, layer, name)
            given = [stream for stream in _streams(values, layer, name, start) if stream.shape == normed.shape]
            if norm._forward_hooks or norm._forward_pre_hooks or not given:
                continue
            with torch.no_grad():
                expected = [norm(stream.to(normed.device)) for stream in given]
            if not any(close(normed, one) for one in expected):
                differs(str(ValuePath(name, layer)), normed, expected[0], "the norm of the stream there", "normed")
            cases += 1
    return CheckResult("each norm's output is the norm of the stream that enters its sublayer", cases)


def _streams(values: Values, layer: int, name: str, start: Tensor) -> list[Tensor]:
    """What a sublayer's norm may be given: the stream that enters the block, or of an MLP the one behind the attention
    where it is known; where it is not, and the block may be parallel, either."""
    if name != "mlp_norm_output":
        return [start]
    middle = values.get(str(ValuePath("layer_mid", layer)))
    if isinstance(middle, Tensor):
        return [middle]
    attended = values.get(str(ValuePath("attention_output", layer)))
    return [start, start + attended.to(start.device)] if isinstance(attended, Tensor) else [start]


def _mixed(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    names = ("attention_head_outputs", "attention_probabilities", "attention_values")
    for layer, (heads, pattern, mixed) in _layers(subject, values, *names):
        groups, rest = divmod(pattern.shape[1], mixed.shape[1])
        if rest or pattern.shape[-1] != mixed.shape[-2]:
            continue
        wide = torch.float32 if mixed.device.type == "mps" else torch.float64
        expected = (pattern.to(wide) @ mixed.to(wide).repeat_interleave(groups, dim=1)).transpose(1, 2)
        path = str(ValuePath(names[0], layer))
        if expected.shape != heads.shape:
            differs(path, heads, expected, "attention_probabilities times attention_values", "mixed")
        real = _real(values, heads)
        scale = mixed.abs().nan_to_num(0.0, 0.0, 0.0).max().item()
        bound = _ROUNDINGS * max(torch.finfo(mixed.dtype).eps, 2.0**-23) * max(scale, 1e-30)
        off = (heads.to(wide) - expected)[real].abs().nan_to_num(0.0).max().item()
        if off > bound:
            differs(path, heads, expected, "attention_probabilities times attention_values", "mixed")
        cases += 1
    return CheckResult("attention_probabilities times attention_values is attention_head_outputs", cases)


def _real(values: Values, like: Tensor) -> Tensor:
    """Which tokens are no padding, for which a kernel may mix nothing: `[batch seq]`."""
    mask = values.get("attention_mask")
    if isinstance(mask, Tensor) and mask.shape == like.shape[:2]:
        return mask.to(like.device) != 0
    return torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)


def _neurons_projected(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    for layer, (output, neurons) in _layers(subject, values, "mlp_output", "mlp_neurons"):
        family = subject.family_at(layer)
        if "down_proj" not in family.modules.get("mlp", {}) or family.values["mlp_output"] != output_of():
            continue
        project = subject.modules[subject.module_path("mlp", layer, "down_proj")]
        if project._forward_hooks or project._forward_pre_hooks:
            continue
        with torch.no_grad():
            expected = project(neurons)
        path = str(ValuePath("mlp_output", layer))
        if not close(output, expected):
            differs(path, output, expected, "down_proj(mlp_neurons)", "neurons projected")
        cases += 1
    return CheckResult("down_proj(mlp_neurons) is mlp_output", cases)


def _experts_chosen(subject: Subject, values: Values) -> CheckResult:
    cases = 0
    for layer, (indices, logits) in _layers(subject, values, "expert_indices", "router_logits"):
        path = str(ValuePath("expert_indices", layer))
        if indices.is_floating_point():
            raise CheckError(f"`{path}` is {indices.dtype}, and the numbers of experts are whole.", value=path)
        count = logits.shape[-1]
        if int(indices.max()) >= count or int(indices.min()) < 0:
            raise CheckError(f"`{path}` has {int(indices.max())}, and there are {count} experts.", value=path)
        weights = values.get(str(ValuePath("expert_weights", layer)))
        if isinstance(weights, Tensor) and not weights.is_floating_point():
            own = str(ValuePath("expert_weights", layer))
            raise CheckError(f"`{own}` is {weights.dtype}, and weights are no whole numbers.", value=own)
        cases += 1
    return CheckResult("expert_indices are numbers of experts, as many as have router_logits", cases)

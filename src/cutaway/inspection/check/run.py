"""The passes of a check, and what is asked of each.

1. The plain model.
2. One in which every value is looked at that the load's own attention can show: its logits are the plain ones, bit for
   bit. Then one in which each of these is edited, see `mend`.
3. Under another attention than eager, two more that ask for scores and pattern too, by which every layer is run by
   eager attention; each block is given the stream that it had in pass 2.
4. One with a row for each value, see `reach`.

How long they take does not depend on the number of values, and grows with the number of layers as a pass does. The
last has some twenty-five rows of three tokens, the others three of six. A model without weights has its shapes checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cutaway.errors import CheckError, NonFiniteWarning, UntestedWarning
from cutaway.inspection.check.compare import must_be_same, same
from cutaway.inspection.check.dropout import without_dropout
from cutaway.inspection.check.finite import tell_not_finite
from cutaway.inspection.check.mend import edits_take_place
from cutaway.inspection.check.mixing import pattern_is_the_kernels
from cutaway.inspection.check.places import Place, Seen, look, places, run_plain
from cutaway.inspection.check.reach import Reach
from cutaway.inspection.check.relations import relations, shapes
from cutaway.inspection.check.report import CheckReport, CheckResult, Untested
from cutaway.passes.derived import derive
from cutaway.subject.subject import Subject
from cutaway.subject.survey import BATCH, SEQ

Finding = CheckResult | Untested

_PLAIN = "logits of a pass in which every value is looked at are those of the plain model, bit for bit"
_PLACE = "an edit of each writable value takes its place wholly, in every layer, bit for bit"
_REACH = "an edit of each writable value reaches the next block or the logits, in every layer"
_ALL = "everything but shapes"


def check(subject: Subject) -> CheckReport:
    """Puts every promise to the test.

    What cannot be put to the test on these weights, or under this load, is in the report and warned about.

    Raises:
        CheckError: naming the value and what differed.
    """
    if not subject.has_weights:
        return CheckReport(subject.name, (_on_meta(subject),), (Untested(_ALL, "no weights are loaded"),))
    subject.make_survey()
    with warnings.catch_warnings(), without_dropout(subject.hf):
        warnings.simplefilter("ignore", NonFiniteWarning)
        findings, not_finite = _Check(subject).run()
    untested = tuple(finding for finding in findings if isinstance(finding, Untested))
    if not_finite:
        warnings.warn(not_finite, NonFiniteWarning, stacklevel=3)
    elif untested:
        told = "; ".join(f"{skipped.promise} ({skipped.why})" for skipped in untested)
        warnings.warn(f"{subject.name}: not put to the test: {told}.", UntestedWarning, stacklevel=3)
    return CheckReport(subject.name, tuple(f for f in findings if isinstance(f, CheckResult)), untested)


def _on_meta(subject: Subject) -> CheckResult:
    values = {}
    for place in places(subject):
        address = place.address
        passing = subject.survey.passing[address.module_path, address.moment]
        values.update({str(path): address.slot.read(passing, subject.sizes) for path in place.paths})
    values.pop("attention_mask", None)  # the surveyed call has a mask of four axes, see `meta_inputs`
    return shapes(subject, values, BATCH, SEQ)


class _Check:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._inputs = sample(subject, rows=3, seq=6)
        self._all = places(subject)
        self._eager = subject.hf.config._attn_implementation == "eager"

    def run(self) -> tuple[list[Finding], str]:
        """What was found, and what is to be said of logits that are not finite."""
        subject = self._subject
        try:
            plain = run_plain(subject, self._inputs)
            if bool(plain.isnan().any()):
                # Some models have NaN for a query that may attend to nothing, as padding on the left may not.
                self._inputs = sample(subject, rows=3, seq=6, hidden_from=1)
                plain = run_plain(subject, self._inputs)
        except Exception as error:  # whatever the model raises by itself, for its own reasons
            first = (str(error).strip() or type(error).__name__).split("\n")[0]
            why = f"the plain model fails on three rows of ids: {type(error).__name__}: {first}"
            return [Untested("every promise", why)], ""
        at = [place for place in self._all if self._eager or not place.switches]
        kernel = look(subject, self._inputs, at)
        same_as_plain = self._same_as_plain(kernel, plain, at)
        streams = {} if self._eager else self._streams(kernel)
        eager = kernel if self._eager else look(subject, self._inputs, self._all, streams)
        findings: list[Finding] = list(relations(subject, self._with_derived(eager)))
        if not self._eager:
            findings.append(pattern_is_the_kernels(subject, kernel, eager))
        findings.append(same_as_plain)
        not_finite = "" if bool(plain.isfinite().all()) else tell_not_finite(subject, kernel.values)
        if bool(plain.isnan().any()):
            why = "the logits are NaN as they are"
            return [*findings, Untested(_PLACE, why), Untested(_REACH, why)], not_finite
        if isinstance(same_as_plain, Untested):
            findings.append(Untested(_PLACE, same_as_plain.why))
        else:
            findings.append(self._take_place(at, kernel, eager, streams))
        findings.append(self._reach())
        return findings, not_finite

    def _streams(self, kernel: Seen) -> dict[str, Tensor]:
        return {name: value for name, value in kernel.values.items() if name.endswith(".layer_input")}

    def _with_derived(self, seen: Seen) -> dict[str, object]:
        derived = [path for path in self._subject.value_paths if path.value.derived]
        ask = seen.values.__getitem__
        return {**seen.values, **{str(path): derive(path.name, self._inputs, ask) for path in derived}}

    def _same_as_plain(self, seen: Seen, plain: Tensor, at: Sequence[Place]) -> Finding:
        must_be_same("logits", seen.values["logits"], seen.logits, "what the model returns")
        if same(seen.logits, plain):
            return CheckResult(_PLAIN, len(at))
        if not same(run_plain(self._subject, self._inputs), plain):
            return Untested(_PLAIN, "two passes of the plain model differ from each other")
        raise CheckError(_what_changes_the_logits(self._subject, self._inputs, plain, at))

    def _take_place(self, at: Sequence[Place], kernel: Seen, eager: Seen, streams: Mapping[str, Tensor]) -> Finding:
        cases = edits_take_place(self._subject, self._inputs, at, kernel, {})
        if not self._eager:
            cases += edits_take_place(self._subject, self._inputs, self._all, eager, streams)
        return CheckResult(_PLACE, cases)

    def _reach(self) -> Finding:
        reach = Reach(self._subject, self._all)
        reach.run(sample(self._subject, rows=1, seq=3))
        if not reach.independent:
            return Untested(_REACH, "a row of a batch depends on the others here")
        return CheckResult(_REACH, reach.cases)


def sample(subject: Subject, rows: int, seq: int, hidden_from: int = 0) -> dict[str, Tensor]:
    """Random ids, the same at each call, as many as the context holds; in the first of several rows the mask hides a
    third, from the left or from a later position on."""
    context = subject.limits.context
    seq = min(seq, context) if context else seq
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, subject.sizes["vocab_size"], (rows, seq), generator=generator)
    mask = torch.ones_like(ids)
    if rows > 1:
        mask[0, hidden_from : hidden_from + seq // 3] = 0
    return {"input_ids": ids.to(subject.input_device), "attention_mask": mask.to(subject.input_device)}


def _what_changes_the_logits(subject: Subject, inputs: Mapping[str, Tensor], plain: Tensor, at: Sequence[Place]) -> str:
    """Looks at each layer by itself, then at each value of the first that changes the logits."""
    layers = dict.fromkeys(place.layer for place in at)
    for layer in layers:
        there = [place for place in at if place.layer == layer]
        if not same(look(subject, inputs, there).logits, plain):
            for place in there:
                found = look(subject, inputs, [place]).logits
                if not same(found, plain):
                    change = (found.double() - plain.double()).abs().nan_to_num(float("inf")).max().item()
                    return (
                        f"looking at `{place.name}`, {place.address.describe()}, changes the logits of the plain "
                        f"model: by {change:.2e} at most."
                    )
            return f"looking at the values of layer {layer} changes the logits of the plain model."
    return "looking at values changes the logits of the plain model."

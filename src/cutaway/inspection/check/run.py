"""The passes of a check, and what is asked of each.

1. The plain model.
2. One in which every value is looked at: its logits, or what else it returns, are the plain ones, bit for bit, also
   under a kernel that has no softmax to look at. What the vocabulary says of values is asked of these, see `relations`.
3. One in which every value is edited, and comes to what it was, see `mend`.
4. One with a row for each value, see `reach`.
5. Under another attention than eager, one in which every layer's scores are edited by a rounding, see `mixing`.

How long they take does not depend on the number of values, and grows with the layers as a pass does. The fourth has
some twenty-five rows of three tokens, the others three of six. A model without weights has its shapes checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cutaway.edits.rows import ModelCall
from cutaway.errors import CheckError, NonFiniteWarning, UntestedWarning
from cutaway.inspection.check.compare import must_be_same, same
from cutaway.inspection.check.dropout import is_training, without_dropout
from cutaway.inspection.check.finite import tell_not_finite
from cutaway.inspection.check.mend import edits_take_place
from cutaway.inspection.check.mixing import pattern_is_the_kernels
from cutaway.inspection.check.places import Place, Seen, look, places, result_word, run_plain
from cutaway.inspection.check.reach import Reach
from cutaway.inspection.check.records import records_agree
from cutaway.inspection.check.relations import relations, shapes
from cutaway.inspection.check.report import CheckReport, CheckResult, Untested
from cutaway.inspection.check.sublayers import sublayers
from cutaway.passes.derived import derive
from cutaway.sites.slots import Call
from cutaway.subject.arguments import takes
from cutaway.subject.subject import Subject
from cutaway.tracing.packed import left_unpacked
from cutaway.tracing.trial import BATCH, SEQ

Finding = CheckResult | Untested

_PLAIN = "{} of a pass in which every value is looked at are those of the plain model, bit for bit"
_PLACE = "an edit of each writable value takes its place wholly, in every layer, bit for bit"
_REACH = "an edit of each writable value reaches the next block or the {}, in every layer"
_ALL = "everything but shapes"
EVERY = "every promise"
"""What is untested of a model that fails by itself."""


def check(subject: Subject) -> CheckReport:
    """Puts every promise to the test.

    What cannot be put to the test on these weights, or under this load, is in the report and warned about.

    Raises:
        CheckError: naming the value and what differed.
    """
    if not subject.has_weights:
        return CheckReport(subject.name, (_on_meta(subject),), (Untested(_ALL, "no weights are loaded"),))
    subject.make_survey()
    graded = torch.is_grad_enabled()
    try:
        return _checked(subject)
    except BaseException:
        torch.set_grad_enabled(graded)  # where an interrupt came as torch was about to
        raise


def _checked(subject: Subject) -> CheckReport:
    with warnings.catch_warnings(), without_dropout(subject.hf), left_unpacked(subject.hf):
        warnings.simplefilter("ignore", NonFiniteWarning)
        findings, not_finite = _Check(subject).run()
    untested = tuple(finding for finding in findings if isinstance(finding, Untested))
    if not_finite:
        warnings.warn(not_finite, NonFiniteWarning, stacklevel=3)
    elif untested:
        told = "; ".join(f"{skipped.promise} ({skipped.why})" for skipped in untested)
        warnings.warn(f"{subject.name}: not put to the test: {told}.", UntestedWarning, stacklevel=3)
    held = tuple(finding for finding in findings if isinstance(finding, CheckResult) and finding.cases)
    family = subject.family
    return CheckReport(subject.name, held, untested, family.taken_off, family.derived)


def _on_meta(subject: Subject) -> CheckResult:
    values = {}
    for place in places(subject):
        address = place.address
        passing = subject.survey.passing[address.module_path, address.moment]
        values.update({str(path): address.read(passing) for path in place.paths})
    values.pop("attention_mask", None)  # the surveyed call has a mask of four axes, see `Trial`
    return shapes(subject, values, BATCH, SEQ)


class _Check:
    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._rows = 3
        self._inputs = sample(subject, self._rows, seq=6)
        self._places = places(subject)
        self._kernel = subject.hf.config._attn_implementation != "eager"
        self._word = result_word(subject)
        self._plain, self._reaching = _PLAIN.format(self._word), _REACH.format(self._word)

    def run(self) -> tuple[list[Finding], str]:
        """What was found, and what is to be said of logits that are not finite."""
        try:
            plain = self._run_plain()
        except Exception as error:  # whatever the model raises by itself, for its own reasons
            first = (str(error).strip() or type(error).__name__).split("\n")[0]
            why = f"the plain model fails on three rows of ids: {type(error).__name__}: {first}"
            return [Untested(EVERY, why)], ""
        seen = look(self._subject, self._inputs, self._places)
        kernel = self._without_patterns(seen)
        same_as_plain = self._same_as_plain(kernel, plain)
        known = self._with_derived(seen)
        findings: list[Finding] = [*relations(self._subject, known), *sublayers(self._subject, known), same_as_plain]
        if isinstance(same_as_plain, CheckResult):
            findings += records_agree(self._subject, self._inputs, kernel.values)
        not_finite = "" if bool(plain.isfinite().all()) else tell_not_finite(self._subject, seen.values)
        if self._kernel:
            findings.append(pattern_is_the_kernels(self._subject, self._inputs, self._places, kernel))
        if bool(plain.isnan().any()):
            why = f"the {self._word} are NaN as they are"
            return [*findings, Untested(_PLACE, why), Untested(self._reaching, why)], not_finite
        findings.append(self._take_place(seen, same_as_plain))
        findings.append(self._reach())
        return findings, not_finite

    def _without_patterns(self, seen: Seen) -> Seen:
        """The same values as the load's own kernel has them.

        In training, a layer whose pattern is asked for goes on with that, since dropout is to be drawn once; see
        `tracing.beside_kernel`.
        """
        if not self._kernel or not is_training(self._subject.hf):
            return seen
        by_kernel = look(self._subject, self._inputs, [place for place in self._places if not place.is_pattern])
        return Seen({**seen.values, **by_kernel.values}, by_kernel.result)

    def _run_plain(self) -> Tensor:
        try:
            plain = run_plain(self._subject, self._inputs)
        except Exception as error:  # some heads take one row at a time
            self._rows, self._inputs = 1, sample(self._subject, rows=1, seq=6)
            try:
                plain = run_plain(self._subject, self._inputs)
            except Exception:
                raise error from None
        if bool(plain.isnan().any()):
            # Some models have NaN for a query that may attend to nothing, as padding on the left may not.
            self._inputs = sample(self._subject, self._rows, seq=6, hidden_from=1)
            plain = run_plain(self._subject, self._inputs)
        return plain

    def _with_derived(self, seen: Seen) -> dict[str, object]:
        paths = self._subject.value_paths
        derived = [path for path in paths if path.value.derived and not path.value.only_named]
        call = ModelCall.of(Call((), dict(self._inputs)))
        found = {
            str(path): derive(self._subject, path, lambda: call, lambda source: seen.values[str(source)])
            for path in derived
        }
        return {**seen.values, **found}

    def _same_as_plain(self, seen: Seen, plain: Tensor) -> Finding:
        if "logits" in seen.values:
            must_be_same("logits", seen.values["logits"], seen.result, "what the model returns")
        if same(seen.result, plain):
            return CheckResult(self._plain, len(self._places))
        if not same(run_plain(self._subject, self._inputs), plain):
            return Untested(self._plain, "two passes of the plain model differ from each other")
        raise _what_changes_the_logits(self._subject, self._inputs, plain, self._places)

    def _take_place(self, seen: Seen, same_as_plain: Finding) -> Finding:
        if isinstance(same_as_plain, Untested):
            return Untested(_PLACE, same_as_plain.why)
        return CheckResult(_PLACE, edits_take_place(self._subject, self._inputs, self._places, seen))

    def _reach(self) -> Finding:
        if self._rows == 1:
            return Untested(self._reaching, "the model takes one row at a time")
        reach = Reach(self._subject, self._places)
        reach.run(sample(self._subject, rows=1, seq=3))
        if not reach.independent:
            return Untested(self._reaching, "a row of a batch depends on the others here")
        return CheckResult(self._reaching, reach.cases)


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
    inputs = {"input_ids": ids.to(subject.input_device), "attention_mask": mask.to(subject.input_device)}
    if not takes(subject.hf, "attention_mask"):
        del inputs["attention_mask"]
    return inputs


def _what_changes_the_logits(
    subject: Subject, inputs: Mapping[str, Tensor], plain: Tensor, at: Sequence[Place]
) -> CheckError:
    """Looks at each layer by itself, then at each value of the first that changes the result."""
    layers, word = dict.fromkeys(place.layer for place in at), result_word(subject)
    for layer in layers:
        there = [place for place in at if place.layer == layer]
        if not same(look(subject, inputs, there).result, plain):
            for place in there:
                found = look(subject, inputs, [place]).result
                if not same(found, plain):
                    change = (found.double() - plain.double()).abs().nan_to_num(float("inf")).max().item()
                    text = (
                        f"looking at `{place.name}`, {place.address.describe()}, changes the {word} of the plain "
                        f"model: by {change:.2e} at most."
                    )
                    return CheckError(text, value=place.name)
            return CheckError(f"looking at the values of layer {layer} changes the {word} of the plain model.")
    return CheckError(f"looking at values changes the {word} of the plain model.")

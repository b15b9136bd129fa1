"""Generation: a trace over the passes that `generate` makes, one step after the other.

Values asked for before the first step belong to the first pass, which runs the prompt. `for step in run:` goes from
pass to pass. `generate` is transformers' own, with everything that it takes, and runs to its end when the block is
left, since its text is the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from cutaway.edits.function_edit import FunctionEdit
from cutaway.edits.rows import ModelCall, counted, prompt_mask, real_so_far
from cutaway.errors import NoTraceError, OrderError
from cutaway.passes import told as words
from cutaway.passes.asked import Asked
from cutaway.passes.trace import Trace
from cutaway.sites.slots import Call
from cutaway.subject.address import Address
from cutaway.subject.subject import Subject
from cutaway.tracing import Attachment, Event, ForwardPass
from cutaway.vocabulary import ValuePath


@dataclass(frozen=True, repr=False)
class Step:
    """One pass of a generation.

    Attributes:
        index: 0 is the pass that runs the prompt.
        input_ids: `[batch seq]`, the tokens that the pass runs; None in one that runs embeddings, as the first does of
            a prompt that is given as `inputs_embeds`.
    """

    index: int
    input_ids: Tensor | None
    _real: Tensor
    _seq: int

    @cached_property
    def positions(self) -> Tensor:
        """`[batch seq]`, the place of each of the pass's tokens in its row's whole sequence; padding is -1."""
        return counted(self._real)[:, -self._seq :]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise words.unknown("a step", name, ("index", "input_ids", "positions"))

    def __repr__(self) -> str:
        runs = words.counted(self._seq, "token")
        return words.told(f"step {self.index}", f"runs {runs} in each of {words.counted(len(self._real), 'row')}")


class Generation(Trace):
    """Use it by `with model.generate(prompt, max_new_tokens=…) as run:`.

    Without a block, with nothing to be asked or edited on the way, it is run when its `output` or `text` is asked for.

    Attributes:
        output: after the block, the ids `[batch prompt+new]`, or what transformers' `generate` returned where
            `return_dict_in_generate` was asked for.
    """

    def __init__(
        self,
        subject: Subject,
        inputs: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        one_text: bool,
        edits: Sequence[FunctionEdit] = (),
        grad: bool = False,
    ) -> None:
        super().__init__(subject, inputs, edits=edits, grad=grad)
        self._prompt = self._inputs
        self._prompt_mask: Tensor | None = inputs.get("attention_mask")
        self._noting: Attachment | None = None
        self._arguments = arguments
        self._one_text = one_text
        self._step: Step | None = None
        self._output: Any = None
        self._done = False

    def _open_pass(self) -> ForwardPass:
        generate: Any = self._subject.hf.generate
        return ForwardPass(partial(generate, **self._prompt, **self._arguments), grad=self._grad)

    def _set_up(self, running: ForwardPass) -> None:
        super()._set_up(running)
        if self._prompt_mask is None:
            self._noting = running.attach(self._subject.hf, "enter", self._note_mask, first=True)
        else:
            running.context.run(prompt_mask.set, self._prompt_mask)

    @property
    def _tokens(self) -> Tensor:
        """The prompt: ids `[batch seq]`, or embeddings."""
        ids = self._prompt.get("input_ids")
        return self._prompt["inputs_embeds"] if ids is None else ids

    def _note_mask(self, call: Call) -> None:
        """Notes the mask that transformers makes of a prompt that comes without one, from the first pass's call."""
        self._prompt_mask = _whole_mask(call.kwargs.get("attention_mask"), self._tokens)
        prompt_mask.set(self._prompt_mask)
        if self._noting is not None:
            self._noting.remove()
            self._noting = None

    def _let_finish(self) -> None:
        """Runs `generate` to its end: its text is the result."""
        self._leave_step()
        self._output = self._running().run_to_end()
        self._done = True

    def __repr__(self) -> str:
        prompt = ", ".join(filter(None, (words.prompt_told(self._prompt), words.arguments_told(self._arguments))))
        return words.told(self._what(), prompt, *self._told())

    def _told(self) -> list[str]:
        """How far it is."""
        if self._done:
            new = self.sequences.shape[1] - self._prompt["input_ids"].shape[1]
            return [f"done: {words.counted(new, 'new token')} a row, in `output`, `text` and `new_text`"]
        if not self.is_open:
            failed = "left by an error before its end"
            return [failed if self._begun else "not run yet: `with … as run:` opens it, `text` or `output` runs it"]
        standing = words.standing_told(self._pass, self._here, begun=True)
        if self._step is None:
            return [standing]
        so_far = words.counted(self._step._real.shape[1], "token")
        at = f"at step {self._step.index}, {so_far} so far in a row"
        return [at, standing, words.asked_told(self._asked, " in this step")]

    def __iter__(self) -> Iterator[Step]:
        """Goes from pass to pass; the first is that of the prompt, or the one where the run stands."""
        more = self._next_pass() if self._step is None else not self._running().finished
        while more:
            yield self.step
            more = self._next_pass()

    @Asked
    def step(self) -> Step:
        """The pass in which the run stands."""
        self._begin()
        assert self._step is not None
        return self._step

    @Asked
    def output(self) -> Any:
        """The ids of prompt and new tokens, `[batch seq]`, once the block is left; without one, it is run now.

        Raises:
            NoTraceError: inside the block, or after one that was left by an error.
        """
        if self._done:
            return self._output
        if self.is_open:
            raise NoTraceError("the output is there once the with-block is left: `generate` runs to its end then.")
        if self._begun:
            raise NoTraceError("there is no output: the with-block was left by an error before `generate` had ended.")
        with self:
            pass
        return self._output

    @Asked
    def sequences(self) -> Tensor:
        """The ids `[batch seq]`, whatever form `output` has."""
        output = self.output
        return output if isinstance(output, Tensor) else output.sequences

    @Asked
    def text(self) -> str | list[str]:
        """Prompt and new tokens as text: one string for one prompt, a list for a batch; special tokens are left out.

        Of a prompt that is given as `inputs_embeds` there are the new tokens alone.
        """
        return self._decode(self.sequences)

    @Asked
    def new_text(self) -> str | list[str]:
        """The new tokens as text."""
        ids = self._prompt.get("input_ids")  # of embeddings, `generate` returns the new tokens alone
        return self._decode(self.sequences[:, 0 if ids is None else ids.shape[1] :])

    def _decode(self, ids: Tensor) -> str | list[str]:
        tokenizer = self._subject.tokenizer
        if tokenizer is None:
            raise NoTraceError("this model has no tokenizer, so there is no text; the ids are in `output`.")
        texts = tokenizer.batch_decode(ids, skip_special_tokens=True)
        return texts[0] if self._one_text and len(texts) == 1 else texts

    def ask(self, address: Address) -> Any:
        """The value at an address, in the pass where the run stands."""
        self._begin()
        return super().ask(address)

    def edit(self, address: Address, new: Any) -> None:
        """Puts `new` in the place of a value, in the pass where the run stands."""
        self._begin()
        super().edit(address, new)

    def skip(self, entrance: Address, leave: Address, output: Any) -> None:
        """Passes over a module, in the pass where the run stands."""
        self._begin()
        super().skip(entrance, leave, output)

    def _given(self) -> Mapping[str, Any]:
        return {**self._prompt, **self._arguments}

    def _limit(self) -> Event:
        return (self._subject.hf, "exit")

    def _begin(self) -> None:
        if self._step is None and not self._next_pass():
            raise OrderError("the generation ended before its first pass.")

    def _next_pass(self) -> bool:
        """Runs on to the start of the next pass; False if there is none."""
        self._refuse_late_edits_in_place()
        self._leave_step()
        root = self._subject.address(ValuePath("input_ids", None))
        stop = self._running().run_to(root.module, "enter")
        if stop is None:
            return False
        call: Call = stop.passing
        self._under_way.call = ModelCall.of(call)
        # Guidance, for one, gives the ids by place and the rest by name.
        self._inputs = {"input_ids": call.args[0], **call.kwargs} if call.args else call.kwargs
        begun = self._under_way.call
        real = real_so_far(call, self._prompt_mask)
        self._step = Step(0 if self._step is None else self._step.index + 1, begun.ids, real, begun.tokens.shape[1])
        self._here = root
        return True

    def _leave_step(self) -> None:
        self._read.clear()
        self._asked.clear()
        self._handed_out.clear()
        self._behind.clear()
        self._sourced.clear()
        self._here = None


def _whole_mask(given: Any, tokens: Tensor) -> Tensor:
    """The mask of a whole prompt, `[batch seq]`, where its first pass may run a chunk of it, and several samples of
    it."""
    mask = tokens.new_ones(tokens.shape[:2], dtype=torch.long)
    if isinstance(given, Tensor) and given.ndim == 2:
        known = min(given.shape[1], tokens.shape[1])
        mask[:, :known] = given[:: len(given) // len(tokens), :known]
    return mask

"""`StandardizedTransformer`: an unmodified Hugging Face model, its insides under standard names."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from cutaway.edits.positions import Positions, as_choice
from cutaway.edits.rows import ModelCall
from cutaway.errors import UnavailableValueError, UnknownValueError
from cutaway.families import Family
from cutaway.inspection.check import CheckReport, check
from cutaway.inspection.measure import measured
from cutaway.inspection.support import Support, SupportRow, WeightRow, support
from cutaway.model.editing import EditableModel
from cutaway.model.inputs import also_a_name, forward_inputs, generate_inputs, with_known_arguments
from cutaway.passes.embedded import without_those_of_ids
from cutaway.passes.generation import Generation
from cutaway.passes.reading import read
from cutaway.passes.scan import Scan
from cutaway.passes.trace import Trace
from cutaway.passes.values import Values, apart
from cutaway.sites.slots import Call
from cutaway.subject.arguments import (
    holds_prompt,
    refuse_as_call,
)
from cutaway.subject.inputs import Prompt
from cutaway.subject.names import pick
from cutaway.subject.opening import Source, open_model
from cutaway.subject.options import Options, refuse_unless_yes_or_no
from cutaway.subject.spans import spans
from cutaway.subject.subject import Subject
from cutaway.vocabulary import WEIGHTS
from cutaway.vocabulary.elsewhere import near
from cutaway.vocabulary.paths import Selector


class _Front(type):
    """The class of the front door, where by habit a model is opened by a method of it, and values are asked of it."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownValueError(
            f"`{cls.__name__}` has nothing called `{name}`.{near(name, dir(cls))} A model is opened by "
            f"`model = {cls.__name__}(name_or_folder_or_model)`, and what is in it is asked of that."
        )


class StandardizedTransformer(EditableModel, metaclass=_Front):
    """A Hugging Face model whose insides can be read and edited under the standard vocabulary.

    >>> model = StandardizedTransformer("phi-mini")
    >>> with model.trace("def add(a, b):"):
    ...     stream = model.layers[2].layer_output  # [batch seq hidden_size]
    ...     model.layers[3].mlp.mlp_output[:] = 0
    ...     probs = model.next_token_probs  # [batch vocab_size]

    The transformers model itself is `model.hf`; it is not changed, and nothing stays attached to it.

    Args:
        source: a hub id, a local folder, the built-in `"phi-mini"`, a loaded `PreTrainedModel`, also with adapters,
            compiled, or changed by hand, or a config (its weights are then random).
        tokenizer: a transformers tokenizer; by default the checkpoint's own, and none for a loaded model or a config.
        dtype: as in transformers; without it a checkpoint keeps its own.
        device: where to put the model.
        attn_implementation: as in transformers: "sdpa", "eager", "flex_attention", …
        dispatch: False opens the model on the meta device: it prints, tells its support and checks its shapes with no
            weights in memory; they come at the first trace.
        check: whether to validate the model once it is loaded; see `check()`.
        family: a family of this model alone; or "derived", to have it found in a pass of the model although a family
            file covers it. By default the file that covers the class, and what is derived where none does.
        allow_pickle: whether a checkpoint in pickle format may be loaded; it can run code that it carries.
        trust_remote_code: whether a checkpoint's own code may be run.
        **extra: of a checkpoint, what `from_pretrained` takes (`device_map`, `revision`, `gguf_file`, …), or settings
            of its config.

    Raises:
        LoadError: the checkpoint cannot be found or read, or is in a form that is refused.
        UnsupportedModelError: a family file does not hold under a setting, or no family can be derived.
        CheckError: the model does not keep what the vocabulary promises.
    """

    def __init__(
        self,
        source: Source | Path,
        *,
        tokenizer: Any = None,
        dtype: torch.dtype | str | None = None,
        device: torch.device | str | None = None,
        attn_implementation: str | None = None,
        dispatch: bool = True,
        check: bool = True,
        family: Family | Literal["derived"] | None = None,
        allow_pickle: bool = False,
        trust_remote_code: bool = False,
        **extra: Any,
    ) -> None:
        refuse_unless_yes_or_no(dispatch=dispatch, check=check)
        options = Options(dtype, attn_implementation, device, allow_pickle, trust_remote_code, extra)
        opened = open_model(source, tokenizer, dispatch, options)
        subject = Subject(opened.hf, opened.tokenizer, opened.name, opened.load_weights, opened.wrappers, family)
        super().__init__(subject)
        if opened.hf.training:
            warnings.warn(
                f"{opened.name} is in training mode, so dropout may make two passes differ. Call its eval() first.",
                stacklevel=2,
            )
        if subject.family.derived and subject.has_weights:
            object.__setattr__(self, "_subject", measured(subject)[0])
        elif check and subject.has_weights:
            self.check()

    # Running it.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the transformers model, outside any trace, with what it takes: ids as a tensor, `model(**tokens)`.

        Raises:
            InputError: it was given a text, or something else that transformers does not take.
        """
        refuse_as_call(args)
        return self.hf(*args, **kwargs)

    def _attribute(self, name: str) -> Any:
        return self.__call__ if name == "forward" else super()._attribute(name)

    def trace(
        self,
        prompt: Prompt | None = None,
        *,
        attention_mask: Tensor | Sequence[Any] | None = None,
        grad: bool = False,
        **forward: Any,
    ) -> Trace:
        """A with-block in which the model's values can be asked for and edited, in the order of the forward pass.

        Asking for a value runs the pass up to it; what nothing asks for after the block is not run. A pass that is
        given a cache (`cache=…`, `past_key_values=…`) runs to its end all the same, so that the cache is advanced as by
        a plain call of the model; where an exception leaves the block, the cache is put back as it was. An edit of
        `attention_keys` or `attention_values` acts in this pass, and is not written into the cache.

        With `grad=True` a value's gradient is that of its own place, whatever else is read or edited: what comes back
        through all that reads it there. `mlp_input` has the MLP's path alone, `layer_input` all of the block's. In
        such a trace transformers' gradient checkpointing is passed over: gradients, and memory, are those of the model
        without it.

        Args:
            prompt: a string, strings, ids, rows of ids, a tensor `[seq]` or `[batch seq]`, or a tokenizer's output,
                also spread: `model.trace(**tokens)`. Rows of different lengths are padded on the left; a tokenizer's
                output keeps its own side, so that `[:, -1]` may be padding. `run.at(-1)` indexes each row's last real
                token on either. As in transformers, `inputs_embeds=`, `[batch seq hidden_size]`, may take its place;
                such a pass has no `input_ids` and no `token_embeddings`.
            attention_mask: `[batch seq]`, zeros are padding; by default that of the padding.
            grad: whether autograd records the pass: `loss.backward()` and `torch.autograd.grad` work in the block, and
                every value read keeps its `.grad`, also where all parameters are frozen.
            **forward: given to the model's `forward`: `position_ids`, `cache`, `logits_to_keep`, … A rotary turns
                queries and keys by their place in the padded row, unless `position_ids` say otherwise; the pattern is
                the same.

        Raises:
            InputError: the prompt is empty, mixes kinds, or its ids do not fit the model; or an argument, or a key of a
                mapping, is one that the model does not use.
            GradientError: `grad=True` under `torch.no_grad()`, or a gradient asked of a trace without it.
        """
        inputs = forward_inputs(self._subject, self.trace, prompt, attention_mask, forward)
        return Trace(self._subject, inputs, edits=self._edits, grad=grad)

    def generate(
        self,
        prompt: Prompt | None = None,
        *,
        attention_mask: Tensor | Sequence[Any] | None = None,
        **arguments: Any,
    ) -> Generation:
        """A with-block over the passes of transformers' `generate`, which runs to its end when the block is left.

        >>> with model.generate("def add(a, b):", max_new_tokens=8) as run:
        ...     prompt_stream = model.layers[2].layer_output  # of the first pass, which runs the prompt
        ...     for step in run:  # from pass to pass, the first included
        ...         stream = model.layers[3].layer_output
        >>> run.text

        With nothing to ask on the way, `model.generate(…).text` does without a block.

        Args:
            prompt: as in `trace`.
            attention_mask: `[batch seq]`, zeros are padding. By default that of the padding of strings, or of rows of
                different lengths; for ids that come without a mask transformers makes one, as in its own `generate`.
            **arguments: given to `generate` as they are: `max_new_tokens`, `do_sample`, `num_beams`,
                `stopping_criteria`, `logits_processor`, `streamer`, …

        Raises:
            InputError: as in `trace`, also for an argument that `generate` does not know, and for more new tokens
                than a table of positions has rows for.
            UnavailableValueError: the model has no language-model head, so transformers cannot generate with it.
        """
        if not hasattr(self._subject.hf, "generate"):
            kind = f"This is a {type(self._subject.hf).__name__}."
            why = kind if self._subject.has_site("logits") else self._subject.why_unavailable("logits")
            raise UnavailableValueError(f"transformers cannot generate with this model. {why}")
        inputs, arguments = generate_inputs(self._subject, self.generate, prompt, attention_mask, arguments)
        one_text = isinstance(prompt, str)
        return Generation(self._subject, inputs, arguments, edits=self._edits, one_text=one_text)

    def scan(
        self,
        prompt: Prompt | None = None,
        *,
        attention_mask: Tensor | Sequence[Any] | None = None,
        **forward: Any,
    ) -> Trace:
        """A trace on the meta device: shapes and dtypes of every value and of what the body computes with them.

        Nothing is computed and no weights are needed. What would fail for its shape fails at the body's own line. It
        is the model's twin that runs, so hooks on the model are not applied; the edits of an edited model are.
        Arguments are those of `trace`.
        """
        inputs = forward_inputs(self._subject, self.scan, prompt, attention_mask, forward)
        return Scan(self._subject, inputs, edits=self._edits)

    def read(
        self,
        prompt: Prompt | None = None,
        *names: Selector | Sequence[Selector],
        positions: Positions = None,
        attention_mask: Tensor | Sequence[Any] | None = None,
        **forward: Any,
    ) -> Values:
        """Many values of one pass, by path, in the order of the pass.

        >>> model.read("def add(a, b):", "layers.*.layer_output", "layers.-1.mlp.fc1.output", "logits")
        >>> model.read(["a short prompt", "a longer one"], "layers.*.layer_output", positions=-1)  # [batch hidden_size]

        Where `input_ids` is given by name, `model.read("logits", **tokens)`, all before it are names.

        Args:
            prompt: as in `trace`.
            *names: in any order, or in lists; without any, every value that `*` picks. A name is a value's bare name,
                its path, or a pattern with `*`; the `input`, `inputs` or `output` of any module,
                `layers.0.mlp.fc1.output`, or of a call in its forward,
                `layers.1.self_attn.source.self_q_proj_0.output`; or a function of a value's path. Modules answer to
                standard and to the family's own names; layers may be counted from the end and come in slices,
                `layers.-1`, `layers.1:3`, also written as `layers[-1]`.
            positions: the tokens whose part of each value is given: real tokens of each row, padding not counted on
                either side, -1 the last. A number takes the axis of tokens away (`[batch hidden_size]`), as an index
                does; several, a slice, `"prompt"` or what `positions()` gives leave it (`[batch count hidden_size]`),
                in the order given. A pattern's axis is that of its queries; a value without tokens is as it is.
            attention_mask: as in `trace`.
            **forward: given to the model's `forward`: `position_ids`, `cache`, `logits_to_keep`, …

        Returns:
            A mapping from path to value that answers to the names asked for too, and that
            `safetensors.torch.save_file` takes; `.tensors()` gives what is no tensor, as `input_size` and a module's
            tuple, as tensors.

        Raises:
            InputError: as in `trace`.
            UnknownValueError: a name picks nothing; near names are listed.
            UnavailableValueError: this model does not have the value; the message says why.
            InputError: a row has no such position, or the rows have different numbers of tokens at them.
        """
        if (isinstance(prompt, str) or callable(prompt)) and holds_prompt(forward):  # all before it are names
            prompt, names = None, also_a_name(self._subject, prompt, names)
        selectors = [one for name in names for one in ([name] if isinstance(name, str) or callable(name) else name)]
        picked = pick(self._subject, selectors if names else ["*"])
        inputs = forward_inputs(self._subject, self.read, prompt, attention_mask, forward)
        choice = as_choice(positions)
        self._subject.bring_weights()
        picked = without_those_of_ids(self._subject, picked, ModelCall.of(Call((), inputs)))
        found = read(self._subject, inputs, picked.names, self._edits, choice)
        return Values(apart(found), picked.asked, self.sizes["num_layers"])

    @with_known_arguments
    def positions(
        self, prompt: Prompt, text: str | Sequence[str], *, occurrence: int | None = None
    ) -> range | list[range]:
        """The positions of the tokens that hold a text in a prompt, as `read`, `hooks` and `steer` take them.

        >>> subject = model.positions("The Space Needle is in", "Space Needle")
        >>> model.read("The Space Needle is in", "layers.*.layer_output", positions=subject)

        Args:
            prompt: as in `trace`; of ids the text is found where the tokenizer gives the same ids for it.
            text: what is looked for: one for all rows, or one a row. A token counts if any of its characters do.
            occurrence: which one, where it occurs several times: 0 is the first, -1 the last.

        Returns:
            a range; of several prompts, one for each.

        Raises:
            InputError: it does not occur, or several times and `occurrence` does not say which; the model has no
                tokenizer, or one that does not tell characters.
        """
        return spans(prompt, text, self.tokenizer, occurrence)

    def project_on_vocab(self, stream: Tensor) -> Tensor:
        """What the head makes of a residual stream: final norm, then `lm_head`, biases included, then what the config
        has the model make of that, as a soft cap.

        On the last block's `layer_output` this is `logits`, bit for bit.

        Args:
            stream: `[… hidden_size]`.

        Returns:
            `[… vocab_size]`.

        Raises:
            UnavailableValueError: the model has no language-model head, or reads its last stream otherwise.
            ShapeError: the last axis is not the stream's.
        """
        from cutaway.subject.lens import project_on_vocab

        return project_on_vocab(self._subject, stream)

    # Looking at it.

    def support(self) -> Support:
        """Which values exist for this checkpoint under this load, where each is read, and why one is missing."""
        return support(self._subject)

    def check(self) -> CheckReport:
        """Validates that this model keeps what the vocabulary promises.

        Raises:
            CheckError: naming the value and what differed.
        """
        return check(self._subject)

    def explain(self, name: str) -> SupportRow | WeightRow:
        """What a value or a weight is: its layout, its meaning, and where it is read in this model. Prints as text.

        >>> model.explain("attention_scores")

        Raises:
            UnknownValueError: no value is called so.
        """
        last = name.rpartition(".")[2]
        return self.support().weight(last) if last in WEIGHTS else self.support()[last]

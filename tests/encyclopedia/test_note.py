"""What a note is: its source, its claim with figures filled in, and how it fails."""

from __future__ import annotations

import inspect

import pytest

from cutaway.encyclopedia import DoesNotApply, NoteError, NoteNotRunError, note, run_note
from cutaway.encyclopedia.figures import shown
from cutaway.errors import CutawayError
from tests.tiny import shared


@note("Layers", figures={"layers": "how many"})
def counts_layers(model):
    """{model} has {layers} layers,
    no more."""
    layers = len(model.layers)
    assert layers > 0
    return {"layers": layers}


@note("Wrong", figures={})
def is_wrong(model):
    """Never true."""
    assert len(model.layers) == 99, "there should be 99"
    return {}


@note("Crashes", figures={})
def crashes(model):
    """Never runs."""
    return model.no_such_value


@note("Forgets", figures={"a": "first", "b": "second"})
def forgets(model):
    """{a} and {b}."""
    return {"a": 1}


@note("Elsewhere", figures={"a": "first"})
def elsewhere(model):
    """{a}."""
    raise DoesNotApply("this model has no such part.")


def test_a_note_gives_its_claim_with_figures() -> None:
    result = run_note(counts_layers, shared(), "tiny")
    assert result.claim == "tiny has 3 layers, no more."
    assert result.figures == {"layers": "3"}


def test_the_source_is_the_function_that_runs() -> None:
    whole = inspect.getsource(counts_layers.check)
    head, _, body = counts_layers.source.partition("\n")
    assert head == "def counts_layers(model):"
    assert body.startswith("    layers = len(model.layers)\n")
    assert body in whole
    assert "@note" not in counts_layers.source
    assert '"""' not in counts_layers.source


def test_a_failing_note_names_itself_its_model_and_the_line() -> None:
    with pytest.raises(NoteError) as caught:
        run_note(is_wrong, shared(), "tiny")
    message = str(caught.value)
    assert "'Wrong' (is_wrong) does not hold on tiny" in message
    assert "assert len(model.layers) == 99" in message
    assert "there should be 99" in message
    assert isinstance(caught.value, CutawayError)
    assert isinstance(caught.value.__cause__, AssertionError)


@pytest.mark.parametrize(("bad", "said"), [(crashes, "no_such_value"), (forgets, "it promises the figures")])
def test_a_note_that_cannot_be_run_is_not_said_to_fail(bad, said) -> None:
    with pytest.raises(NoteNotRunError, match=said) as caught:
        run_note(bad, shared(), "tiny")
    assert "could not be run on tiny" in str(caught.value)
    assert "does not hold" not in str(caught.value)
    assert said in caught.value.why
    assert "\n" not in caught.value.why


def test_a_note_may_not_apply() -> None:
    result = run_note(elsewhere, shared(), "tiny")
    assert result.claim == "this model has no such part."
    assert result.figures == {}


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (True, "yes"),
        (1024, "1,024"),
        (0.0, "0"),
        (0.937, "0.937"),
        (2.0, "2"),
        (64.61, "64.6"),
        (98256.0, "98,256"),
        (-23.66, "−23.7"),
        (7.14e-9, "7.1×10⁻⁹"),
        (1.1e6, "1.1×10⁶"),
        (float("nan"), "nan"),
        (float("-inf"), "−inf"),
        (["a", 2], "a, 2"),
    ],
)
def test_how_a_figure_is_written(figure, text) -> None:
    assert shown(figure) == text

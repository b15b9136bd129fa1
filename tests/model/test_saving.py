"""Values are ordinary tensors after the pass: saved, copied, pickled, unpacked, however the script is run."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from cutaway import StandardizedTransformer, save
from cutaway.errors import CutawayError
from tests import raw, tiny

SCRIPT = """
import torch
from cutaway import StandardizedTransformer
from tests import tiny
hf = tiny.plain()
model = StandardizedTransformer(hf)
factor = 3

def run(prompt):
    def scaled(value):
        return value * factor
    found = []
    with model.trace(prompt):
        model.layers[0].mlp.mlp_output = scaled(model.layers[0].mlp.mlp_output)
        streams = [layer.layer_output for layer in model.layers[:2]]
        a, b = model.layers[2].layer_input, model.layers[2].mlp.mlp_output.save()
        found.append(model.logits)
    return streams, (a, b), found[0]

streams, (a, b), logits = run(tiny.IDS)
handle = hf.model.layers[0].mlp.register_forward_hook(lambda _m, _a, out: out * 3)
assert torch.equal(logits, tiny.logits_of(hf))
handle.remove()
assert torch.equal(streams[1], a)
print("ran to its end")
"""
ROOT = Path(__file__).parents[2]


def in_a_process(arguments: list[str], tmp_path: Path, text: str | None = None) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    environment = {
        "PYTHONPATH": f"{ROOT}:{':'.join(filter(None, sys.path))}",
        "PATH": "/usr/bin:/bin",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_script_runs_from_a_file_and_under_pdb(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    out = in_a_process(["-m", "pdb", "-c", "continue", "script.py"], tmp_path, "quit\n")
    assert "ran to its end" in out
    assert "Uncaught" not in out


def test_a_script_runs_from_stdin(tmp_path: Path) -> None:
    assert "ran to its end" in in_a_process(["-"], tmp_path, SCRIPT)


def test_a_script_runs_under_coverage_which_sees_every_line(tmp_path: Path) -> None:
    pytest.importorskip("coverage")
    (tmp_path / "script.py").write_text(SCRIPT)
    in_a_process(["-m", "coverage", "run", "--include=script.py", "script.py"], tmp_path)
    assert "100%" in in_a_process(["-m", "coverage", "report"], tmp_path)


def test_a_script_runs_through_exec(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(SCRIPT, "<nowhere>", "exec"), {"__name__": "elsewhere"})
    assert "ran to its end" in capsys.readouterr().out


def test_a_debugger_can_step_through_the_body() -> None:
    """A trace function, as debuggers set it, sees the body's lines and no others change places."""
    model, lines = tiny.shared(), []

    def watch(frame, event, _argument):
        if frame.f_code is body.__code__ and event == "line":
            lines.append(frame.f_lineno - body.__code__.co_firstlineno)
        return watch

    def body() -> torch.Tensor:
        with model.trace(tiny.IDS):
            stream = model.layers[0].layer_output
            model.layers[1].layer_output += 1
            logits = model.logits
        return logits + stream.sum() * 0

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        body()
    finally:
        sys.settrace(before)
    assert [line for i, line in enumerate(lines) if not i or line != lines[i - 1]] == [1, 2, 3, 4, 1, 5]


@pytest.fixture
def value() -> torch.Tensor:
    return tiny.shared().read(tiny.IDS, "layers.1.layer_output")["layers.1.layer_output"]


def test_a_value_is_a_plain_tensor_that_carries_save(value: torch.Tensor) -> None:
    assert type(value) is torch.Tensor
    assert not hasattr(torch.Tensor, "save")
    assert not hasattr(value + 1, "save")
    kept = value.save()
    value += 1
    assert torch.equal(kept + 1, value)
    assert torch.equal(kept.save(), kept)
    assert torch.equal(save(value), value)


def test_values_go_through_torch_save_and_a_load_of_weights_only(value: torch.Tensor) -> None:
    file = io.BytesIO()
    torch.save({"one": value, "saved": value.save(), "parameter": torch.nn.Parameter(value)}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert all(torch.equal(tensor, value) for tensor in loaded.values())


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_values_are_copied_and_pickled(value: torch.Tensor, again) -> None:
    other = again(value)
    assert torch.equal(other, value)
    assert torch.equal(again({"a": [value]})["a"][0], value)
    kept = save(other)
    assert torch.equal(kept, value)


def test_bfloat16_values_convert_as_tensors_do() -> None:
    model = tiny.shared("P", "sdpa", torch.bfloat16)
    value = model.read(tiny.IDS, "logits")["logits"]
    assert value.float().numpy().shape == (3, 6, tiny.VOCAB)


def test_saving_a_models_output_keeps_its_type() -> None:
    model = tiny.shared()
    with model.trace(tiny.IDS):
        kept = save(model.output)
        model.logits[:] = 0
    assert type(kept).__name__ == "CausalLMOutputWithPast"
    assert torch.equal(kept.logits, tiny.logits_of(tiny.plain()))


def test_a_helper_and_a_comprehension_inside_a_trace() -> None:
    model = tiny.shared()

    def norms(layers) -> dict[int, float]:
        return {i: layer.layer_output.norm().item() for i, layer in enumerate(layers)}

    with model.trace(tiny.IDS):
        found = norms(model.layers)
    for i in range(tiny.LAYERS):
        assert found[i] == raw.value(tiny.plain(), tiny.as_inputs(tiny.IDS), "layer_output", i).norm().item()


def test_a_model_is_not_pickled_inside_a_block_and_says_so() -> None:
    hf = tiny.fresh()
    model = StandardizedTransformer(hf, check=False)
    blocks = (
        lambda: model.trace(tiny.IDS),
        lambda: model.generate(tiny.IDS, max_new_tokens=2),
        lambda: model.hooks({"layers.1.layer_output": lambda value: value}),
    )
    for block in blocks:
        with block() as run:
            if hasattr(run, "at"):
                model.layers[1].layer_output
            for save in (pickle.dumps, lambda thing: torch.save(thing, io.BytesIO())):
                with pytest.raises(CutawayError, match="cannot be pickled while a trace"):
                    save(hf)
            torch.save(hf.state_dict(), io.BytesIO())
            assert torch.equal(copy.deepcopy(hf)(tiny.IDS).logits, tiny.logits_of(hf))
    assert torch.equal(pickle.loads(pickle.dumps(hf))(tiny.IDS).logits, tiny.logits_of(hf))

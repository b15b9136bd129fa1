"""`cutaway encyclopedia` and `cutaway notes`."""

from __future__ import annotations

import json
import socket

from transformers import LlamaConfig, LlamaForCausalLM
from typer.testing import CliRunner

from cutaway.cli import app
from tests.tiny import fresh

runner = CliRunner()


def run(*words: str, status: int = 0) -> tuple[str, str]:
    result = runner.invoke(app, list(words), env={"COLUMNS": "100"})
    assert result.exit_code == status, result.output
    return result.stdout, result.stderr


def test_build(tmp_path) -> None:
    out, _ = run("encyclopedia", "build", "-o", str(tmp_path), "--family", "gpt2")
    assert "index.html" in out
    assert (tmp_path / "gpt2.html").is_file()


def test_build_refuses_other_files_and_unknown_families(tmp_path) -> None:
    (tmp_path / "mine").write_text("")
    _, err = run("encyclopedia", "build", "-o", str(tmp_path), "--family", "gpt2", status=2)
    assert "error: " in err
    assert "--force" in err
    _, err = run("encyclopedia", "build", "-o", str(tmp_path), "--family", "bert", status=2)
    assert "no family is called 'bert'; there are phi" in err


def test_serve_refuses_a_busy_port(tmp_path) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = str(busy.getsockname()[1])
        _, err = run("encyclopedia", "serve", "-o", str(tmp_path), "--port", port, status=1)
    assert f"port {port} is in use" in err
    assert list(tmp_path.iterdir()) == []


def test_notes_of_the_built_in_checkpoint() -> None:
    out, _ = run("notes", "phi-mini", "--dtype", "float32")
    assert out.count("✓") == 16
    assert "One norm, and both sublayers read it" in out
    assert "2,779,683,840" in out


def test_notes_of_another_family_are_refused() -> None:
    _, err = run("notes", "phi-mini", "--family", "llama", status=2)
    assert "is of the family 'phi'" in err
    _, err = run("notes", "phi-mini", "--family", "fi", status=2)
    assert "no family is called 'fi'" in err


def test_a_note_that_cannot_be_run_is_left_out_and_the_others_are_told(tmp_path) -> None:
    """On a Llama of one block without a tokenizer all hold; of a Phi's notes those stay that need neither."""
    small = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    LlamaForCausalLM(LlamaConfig(**small, initializer_range=0.3)).save_pretrained(tmp_path / "llama")
    out, _ = run("notes", str(tmp_path / "llama"))
    assert out.count("✓") == 5
    fresh(num_hidden_layers=1).save_pretrained(tmp_path / "phi")
    out, _ = run("notes", str(tmp_path / "phi"))
    assert "left out: it compares two blocks, and this model has one." in out
    assert "left out: the prompt is 80 tokens long, and the model's context is 48." in out
    assert "without a tokenizer" in out
    assert "✓ Three checkpoints, two shapes" in out


def test_a_note_that_fails_ends_the_command_with_status_1(phi_without_biases) -> None:
    out, err = run("notes", phi_without_biases, status=1)
    assert "✗ Biases everywhere" in out
    assert "Three checkpoints, two shapes" in out
    assert "  does not hold: assert largest > 0 fails: largest is 0." in out
    assert "Each of the 27 linear layers" not in out  # its number was not measured yet
    last = err.split("\n")[-2]
    assert last.startswith("error: 1 of 16 notes does not hold on ")
    assert last.endswith("'Biases everywhere': `assert largest > 0` fails: largest is 0.")
    assert "Traceback" not in err
    out, _ = run("notes", phi_without_biases, "--json", status=1)
    notes = {note["name"]: note for note in json.loads(out)["notes"]}
    assert notes["biases_everywhere"]["verdict"] == "fails"
    assert notes["biases_everywhere"]["why"] == "`assert largest > 0` fails: largest is 0."
    assert sum(note["verdict"] == "holds" for note in notes.values()) == 15

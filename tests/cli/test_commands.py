"""The commands, run in this process."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from cutaway import StandardizedTransformer, __version__
from cutaway.cli.read_table import ReadTable, rows_of
from cutaway.errors import CheckError
from cutaway.vocabulary import VALUES
from tests.cli.running import run, wrong


def test_version() -> None:
    assert run("--version") == (f"cutaway {__version__}\n", "")


def test_help_names_every_command() -> None:
    out, _ = run("--help")
    for command in ("demo", "show", "support", "check", "read"):
        assert f"  {command} " in out


@pytest.mark.parametrize("name", ["microsoft/phi-1", "microsoft/phi-1_5", "microsoft/phi-2"])
def test_show_needs_no_weights(name: str) -> None:
    out, _ = run("show", name)
    assert out.startswith(name)
    assert "x PhiDecoderLayer" in out
    assert "no weights loaded" in out


def test_show_takes_dtype_and_attention() -> None:
    out, _ = run("show", "microsoft/phi-2", "--dtype", "bfloat16", "--attn", "eager")
    assert "bfloat16, eager attention" in out


def test_support_as_a_table_and_as_data(tiny_folder: str) -> None:
    out, _ = run("support", tiny_folder)
    header, *lines = [line.split("\t") for line in out.split("\n\n")[0].split("\n")]
    assert [line[0] for line in lines] == list(VALUES)
    assert {len(line) for line in lines} == {len(header)}
    row = dict(zip(header, next(line for line in lines if line[0] == "layer_mid"), strict=True))
    assert row["here"] == "no"
    assert row["note"].startswith("Phi's block is parallel")
    out, _ = run("support", tiny_folder, "--json")
    rows = {row["value"]: row for row in json.loads(out)["values"]}
    assert list(rows) == list(VALUES)
    assert rows["layer_output"]["layers"] == [0, 1, 2]
    assert not rows["layer_mid"]["available"]


def test_check_says_what_was_checked(tiny_folder: str) -> None:
    out, _ = run("check", tiny_folder)
    assert "keeps the standard vocabulary" in out
    out, _ = run("check", "microsoft/phi-2", "--shapes-only")
    assert "every value has the shape of its layout" in out


def test_a_check_that_fails_ends_with_status_1(tiny_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(subject: object) -> None:
        raise CheckError("`layers.1.mlp.mlp_output` differs by 0.5.")

    monkeypatch.setattr("cutaway.model.standardized.check", fail)
    _, err = run("check", tiny_folder, status=1)
    assert err.endswith("error: `layers.1.mlp.mlp_output` differs by 0.5.\n")


def test_read_prints_figures_of_what_the_model_computes(tiny_folder: str) -> None:
    out, _ = run("read", tiny_folder, "def f():", "logits", "input_size", "layers.1.self_attn.attention_scores")
    hf = AutoModelForCausalLM.from_pretrained(tiny_folder)
    ids = AutoTokenizer.from_pretrained(tiny_folder)("def f():", return_tensors="pt")["input_ids"]
    logits = hf(ids).logits.detach().double()
    (row,) = [line.split() for line in out.split("\n") if line.startswith("logits")]
    assert row[:4] == ["logits", "Logits", "1×8×264", "float32"]
    expected = (logits.mean(), logits.std(correction=0), logits.min(), logits.max())
    assert row[4:] == [f"{float(figure):.4g}" for figure in expected]
    assert "[1, 8]" in out
    assert "The figures leave out 84 masked entries." in out  # 3 heads, 8 * 7 / 2 pairs that look ahead


def test_read_keeps_paths_whole_in_a_narrow_terminal(tiny_folder: str) -> None:
    page = io.StringIO()
    values = StandardizedTransformer(tiny_folder).read("x = x +", "layers.0.*")
    Console(file=page, width=80).print(ReadTable(rows_of(values)))
    lines = page.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in page.getvalue()
    narrow = io.StringIO()
    Console(file=narrow, width=30).print(ReadTable(rows_of(values)))
    assert "…" not in narrow.getvalue()
    for name in ("self_attn.attention_probabilities", "mlp.mlp_output", "layer_output"):
        assert "float32" in lines[lines.index(f"layers.0.{name}") + 1]


def test_read_takes_a_prompt_from_standard_input(tiny_folder: str) -> None:
    told, _ = run("read", tiny_folder, "x = 1", "logits")
    piped, _ = run("read", tiny_folder, "-", "logits", stdin="x = 1")
    assert piped == told


def test_read_writes_tensors_of_their_own(tiny_folder: str, tmp_path: Path) -> None:
    file = tmp_path / "values.safetensors"
    run("read", tiny_folder, "abc", "mlp_norm_output", "attention_premix", "input_size", "-o", str(file))
    with safe_open(file, "pt") as stored:
        assert stored.metadata() == {"model": tiny_folder, "prompt": "abc"}
        premix = stored.get_tensor("layers.2.self_attn.attention_premix")
        assert premix.shape == (1, 3, 3, 8)
        assert premix.dtype == torch.float32
        assert stored.get_tensor("input_size").tolist() == [1, 3]
        assert len(list(stored.keys())) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["values.safetensors"]


def test_read_leaves_nothing_of_a_file_that_it_could_not_write(tiny_folder: str, tmp_path: Path) -> None:
    (tmp_path / "taken.safetensors").mkdir()
    assert "is a folder" in wrong("read", tiny_folder, "abc", "logits", "-o", str(tmp_path / "taken.safetensors"))
    assert [path.name for path in tmp_path.iterdir()] == ["taken.safetensors"]


def test_a_model_without_a_tokenizer_takes_anothers(tiny_folder: str, tmp_path: Path) -> None:
    bare = str(tmp_path / "bare")
    AutoModelForCausalLM.from_pretrained(tiny_folder).save_pretrained(bare)
    page, still = str(tmp_path / "page.html"), str(tmp_path / "still.png")
    for words in (
        ("read", bare, "x = x", "logits"),
        ("view", bare, "x = x", "-o", page),
        ("picture", "lens", bare, "x = x", "-o", still),
    ):
        assert "bare has no tokenizer, so a text cannot be run. Say whose to use: --tokenizer NAME." in wrong(*words)
        run(*words, "--tokenizer", tiny_folder)
    assert Path(page).is_file()
    assert Path(still).is_file()
    theirs, _ = run("read", bare, "x = x", "logits", "--tokenizer", tiny_folder)
    assert theirs == run("read", tiny_folder, "x = x", "logits")[0]
    _, err = run("read", bare, "x", "logits", "--tokenizer", bare, status=1)
    assert "has no tokenizer either" in err


def test_debug_shows_the_traceback() -> None:
    _, err = run("show", "phi-2", "--debug", status=2)
    assert err.startswith("Traceback")
    assert "UnknownModelError" in err


def test_interrupting_ends_with_status_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("cutaway.cli.opening.open_model", interrupt)
    assert wrong("show", "microsoft/phi-2", status=130) == "interrupted."

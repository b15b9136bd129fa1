"""The demo, on a tiny random model: it runs, the code it shows is the code it runs, and its figures are right."""

from __future__ import annotations

import inspect
import io
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from cutaway import StandardizedTransformer
from cutaway.demo import run, steps
from cutaway.demo.bars import bar
from cutaway.demo.early import count_modules
from cutaway.demo.heatmap import heatmap
from cutaway.demo.run import cutaway_here
from cutaway.demo.stage import source
from tests.cli.running import run as run_command
from tests.cli.running import wrong


@pytest.fixture(scope="module")
def model(tiny_folder: str) -> StandardizedTransformer:
    return steps.open_the_model(tiny_folder)


def test_it_runs_within_80_columns_and_draws_itself(tiny_folder: str, tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    page = tmp_path / "page.html"
    shown = io.StringIO()
    run(
        steps.open_the_model(tiny_folder),
        tiny_folder,
        Console(file=shown, width=80, force_terminal=True, color_system=None),
        picture,
        page,
    )
    lines = shown.getvalue().split("\n")
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in shown.getvalue()
    assert "page.html" in "".join(shown.getvalue().split())
    assert "<script" in page.read_text()
    for step in (steps.edit, steps.add_up, steps.find_induction_head, steps.stop_early):
        for line in source(step).split("\n"):
            assert line.strip() in shown.getvalue()
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert picture.stat().st_size < 300_000
    assert "@font-face" not in picture.read_text()


def test_it_writes_its_own_page_anew_and_leaves_others_alone(tiny_folder: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["cutaway.demo.run"], "_SHOWN", ())
    page = tmp_path / "phi-mini-attention.html"
    demo = ("demo", "--model", tiny_folder)
    run_command(*demo)
    before = page.read_bytes()
    page.write_bytes(b"an earlier one, " + before)
    out, _ = run_command(*demo)
    assert page.read_bytes() == before
    assert all(line == line.rstrip() for line in out.split("\n"))
    page.write_bytes(before + b"and more")
    out, _ = run_command(*demo)
    assert "is there already, and the demo did not write it" in " ".join(out.split())
    assert page.read_bytes() == before + b"and more"
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    assert "is there already" in wrong(*demo, "--page", str(mine))
    run_command(*demo, "--page", str(mine), "--force")
    assert mine.read_bytes() == before


def test_it_ends_with_commands_that_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / ".venv/bin/cutaway"
    script.parent.mkdir(parents=True)
    script.touch(0o755)
    monkeypatch.setattr("sys.executable", str(script.with_name("python")))
    monkeypatch.setenv("PATH", str(script.parent))
    assert cutaway_here() == "cutaway"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cutaway_here() == str(script)
    monkeypatch.chdir(tmp_path)
    assert cutaway_here() == ".venv/bin/cutaway"
    script.unlink()
    assert cutaway_here() == "cutaway"


def test_the_code_shown_is_the_source_without_its_docstring() -> None:
    shown = source(steps.edit)
    assert shown.startswith("def edit(")
    assert '"""' not in shown
    assert shown.replace("\n", "") in inspect.getsource(steps.edit).replace(
        f'    """{inspect.getdoc(steps.edit)}"""', ""
    ).replace("\n", "")


def test_the_edit_is_what_a_plain_hook_does(model: StandardizedTransformer, tiny_folder: str) -> None:
    hf = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    ids = torch.tensor([model.tokenizer("x = x +")["input_ids"]])
    before, after = steps.edit(model, "x = x +")
    plain = hf(ids).logits[0, -1].softmax(-1)
    hf.model.layers[1].self_attn.register_forward_hook(lambda m, args, out: (out[0] * 0, *out[1:]))
    edited = hf(ids).logits[0, -1].softmax(-1)
    assert torch.equal(before, plain)
    assert torch.equal(after, edited)
    assert not torch.allclose(before, after)


def test_the_identity_holds_and_the_other_order_rounds(model: StandardizedTransformer) -> None:
    results = steps.add_up(model, "def f(x): return x")
    assert [exact for exact, _ in results] == [True] * 3
    assert 0 < max(error for _, error in results) < 1e-4


def test_the_head_found_is_the_one_with_the_most_attention_one_ahead(model: StandardizedTransformer) -> None:
    layer, head, score = steps.find_induction_head(model)
    once = torch.randint(len(model.tokenizer), (8, 50), generator=torch.Generator().manual_seed(0))
    hf = model.hf
    hf.set_attn_implementation("eager")
    try:
        patterns = hf(torch.cat([once, once], dim=1), output_attentions=True).attentions
    finally:
        hf.set_attn_implementation("sdpa")
    expected = torch.zeros(3, 3)
    for i, pattern in enumerate(patterns):
        for query in range(50, 100):
            expected[i] += pattern[:, :, query, query - 49].mean(dim=0).detach() / 50
    assert (layer, head) == divmod(int(expected.argmax()), 3)
    assert score == pytest.approx(float(expected.max()), abs=1e-5)


def test_stopping_early_runs_one_block(model: StandardizedTransformer) -> None:
    ran, of = count_modules(model.hf, lambda: steps.stop_early(model, "abc"))
    blocks = list(model.hf.model.layers)
    assert of == len(list(model.hf.modules())) - 1
    inside_later_blocks = sum(len(list(block.modules())) for block in blocks[1:])
    assert ran == of - inside_later_blocks - 2  # nor the final norm and the head
    assert not any(module._forward_pre_hooks for module in model.hf.modules())


def test_bars() -> None:
    assert bar(0, 4) == "    "
    assert bar(1, 4) == "████"
    assert bar(0.5, 4) == "██  "
    assert bar(1 / 32, 4) == "▏   "
    assert len(bar(2, 4)) == 4


def test_the_heatmap_is_a_triangle_that_names_what_is_looked_at() -> None:
    text = heatmap([[1.0, 0, 0], [0.3, 0.7, 0], [0.01, 0.09, 0.9]], ["a", "bc", "d"], named_from=2).plain
    assert text.split("\n") == ["      b", "    a c d", " a ██", "bc ▒▒▓▓", " d  .░░██  → d 0.90"]


def test_the_model_is_loaded_as_the_options_say(tiny_folder: str) -> None:
    demo = ("demo", "--model", tiny_folder, "--step", "3")
    double, _ = run_command(*demo, "--dtype", "float64", "--attn", "eager")
    plain, _ = run_command(*demo)
    assert "e-16" in double or "e-15" in double
    assert "e-16" not in plain
    assert "e-15" not in plain

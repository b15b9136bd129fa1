"""The run over all classes: a worker that ends is a row, what was found is kept, and few may be asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catalogue import __main__ as command
from catalogue import workers
from catalogue.tiny import Case, case


@pytest.mark.processes
def test_a_class_that_takes_its_process_down_is_a_row_and_the_next_has_a_new_one() -> None:
    rows: list[workers.Row] = []
    nobody = Case("nobody", "NobodyForCausalLM")
    workers.examine_all([nobody, case("gpt2")], 1, rows.append)
    broken, found = rows
    assert (broken["class"], broken["state"]) == ("NobodyForCausalLM", "broken off")
    assert "its process ended with 1" in broken["reason"]
    assert (found["class"], found["state"]) == ("GPT2LMHeadModel", "opened")


@pytest.mark.processes
def test_a_class_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.01)
    rows: list[workers.Row] = []
    workers.examine_all([case("gpt2")], 1, rows.append)
    assert rows[0]["reason"] == "it did not end in 0.01 seconds"


def test_what_was_found_by_the_same_sources_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "KEPT", tmp_path / "build" / "families.jsonl")
    assert workers.kept("now") == {}
    workers.keep({"name": "a", "state": "opened"}, "now")
    workers.keep({"name": "b", "state": "opened"}, "before")
    with workers.KEPT.open("a") as file:
        file.write('{"name": "c", "sta')  # where the run was broken off
    assert set(workers.kept("now")) == {"a"}
    workers.keep({"name": "d", "state": "opened"}, "now")
    assert set(workers.kept("now")) == {"a", "d"}
    assert all(json.loads(line)["mark"] == "now" for line in workers.KEPT.read_text().splitlines())


def test_a_change_of_the_sources_is_another_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "ROOT", tmp_path)
    (tmp_path / "catalogue").mkdir()
    (tmp_path / "catalogue" / "raw.py").write_text("1")
    first = workers.mark()
    (tmp_path / "catalogue" / "page.py").write_text("how it is written")
    assert workers.mark() == first
    (tmp_path / "catalogue" / "raw.py").write_text("2")
    assert workers.mark() != first


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(SystemExit, match="no such class to text: nobody"):
        command.main(["--only", "nobody", "llama"])


def test_few_are_told_in_lines_or_as_data(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"name": "llama", "class": "LlamaForCausalLM", "images": False, "state": "refused", "reason": "a test"}
    monkeypatch.setattr(command, "examine_all", lambda _cases, _processes, tell: tell(row))
    assert command.main(["--only", "LlamaForCausalLM"]) == 0
    assert capsys.readouterr().out == "LlamaForCausalLM: refused: a test\n"
    assert command.main(["--only", "llama", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == row

"""Whatever is wrong with a command line is said in one line, in one style, with one status, before any work."""

from __future__ import annotations

import inspect
import os
from dataclasses import fields
from pathlib import Path

import pytest
from typer.main import get_command

from cutaway.cli import app
from cutaway.cli.options import Loading, Model, flags, opens_a_model
from cutaway.subject.options import TABLE
from tests.cli.running import run, wrong

OPENING = ("show", "support", "check", "verify", "read", "picture", "view", "notes", "families")
LOADING = {
    "--dtype", "--attn", "--device", "--device-map", "--revision", "--gguf-file", "--tokenizer",
    "--trust-remote-code", "--allow-pickle", "--debug",
}  # fmt: skip
JSON = {"show", "support", "check", "verify", "read", "notes", "families"}


def options_of(command: str) -> set[str]:
    found = get_command(app).commands[command]  # type: ignore[attr-defined]
    return {name for parameter in found.params for name in parameter.opts}


def words(command: str, model: str) -> list[str]:
    more = {"read": ["x", "logits"], "picture": ["x"], "view": ["x"]}
    return [command, *(["lens"] if command == "picture" else []), model, *more.get(command, [])]


def test_every_command_that_opens_a_model_takes_every_option_of_loading() -> None:
    for command in OPENING:
        assert options_of(command) >= LOADING
        assert ("--json" in options_of(command)) == (command in JSON)


def test_the_options_are_the_librarys_own() -> None:
    """Those of the one table of options, by its names, so that what it refuses and says holds for both."""
    assert {field.name for field in fields(Loading)} - {"debug"} <= {*TABLE}
    assert {*flags().values()} == LOADING


def test_the_options_are_stated_once() -> None:
    @opens_a_model
    def command(model: Model, loading: Loading, more: bool = False) -> None:
        assert loading == Loading(dtype="float32", revision="x")
        assert (model, more) == ("m", True)

    given = {name: one.default for name, one in inspect.signature(command).parameters.items()}
    assert list(given)[:3] == ["model", "more", "dtype"]
    command(**{**given, "model": "m", "more": True, "dtype": "float32", "revision": "x"})


REFUSED = {
    ("--attn", "egaer"): "no attention implementation is called 'egaer'. Did you mean 'eager'?",
    ("--device", "cuba"): "no device is called 'cuba'. Did you mean 'cuda'",
    ("--device-map", "uato"): "no device map is called 'uato'. Did you mean 'auto'?",
    ("--device", "cpu", "--device-map", "cpu"): "Give one of them.",
    ("--dtype", "float12"): "'float12' is not one of 'float64', 'float32',",
    ("--dtpe", "float32"): "no such option: --dtpe. Did you mean --",
    ("--revision", "main"): "--revision has no effect on a folder: it is of the hub's versions. Leave it out.",
    ("--gguf-file", "x.gguf"): "holds no x.gguf",
    ("--tokenizer", "./nowhere"): "there is no folder ./nowhere",
}
NO_MODEL = {
    "phi-2": "Did you mean 'microsoft/phi-2'?",
    "./nowhere": "there is no folder ./nowhere",
    "": "a model's name is empty",
    "n" * 5000: "5000 characters",
    __file__: "is a file",
}


@pytest.mark.parametrize("command", OPENING)
def test_what_cannot_be_opened(command: str, tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    thorough = command in ("show", "read")  # the options come from one place
    for option, told in REFUSED.items() if thorough else [*REFUSED.items()][:1]:
        assert told in wrong(*words(command, tiny_folder), *option)
    for model, told in NO_MODEL.items() if thorough else [*NO_MODEL.items()][:1]:
        assert told in wrong(*words(command, model))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("raed", "no such command 'raed'. Did you mean 'read'? See `cutaway --help`."),
        ("--versoin", "no such option: --versoin. Did you mean --version?"),
        ("read", "missing argument 'MODEL'. See `cutaway read --help`."),
        ("read phi-mini", "missing argument 'PROMPT'"),
        ("read phi-mini x", "missing argument 'NAME...'"),
        ("picture", "missing argument 'KIND'"),
        ("show phi-mini more", "(more)"),
        ("read phi-mini x logits -o", "-o"),
        ("picture len phi-mini x", "Did you mean 'lens'"),
        ("picture lens phi-mini x -o lens.pdf", "name the file lens.png, not lens.pdf"),
        ("picture lens phi-mini x -o none/lens.png", "there is no folder none"),
        ("picture attention-head phi-mini x --layer many", "'--layer'"),
        ("view phi-mini x -o page.png", "name the file page.html, not page.png"),
        ("view phi-mini x -o .", "name the file"),
        ("read phi-mini x logits -o values.pt", "name the file values.safetensors, not values.pt"),
        ("read phi-mini x logits -o none/x.safetensors", "there is no folder none"),
        ("read phi-mini x logits -o x.safetensors --json", "Give one of them."),
        ("demo --page page.txt", "name the file page.html"),
        ("demo --svg drawn.png", "name the file drawn.svg"),
        ("demo --step 9", "'--step'"),
        ("encyclopedia biuld", "Did you mean 'build'"),
        ("encyclopedia serve --port 99999", "'--port'"),
        ("encyclopedia build --family bert", "no family is called 'bert'"),
        ("encyclopedia build --dtype float32", "says how MODEL is loaded, and none was given"),
        ("encyclopedia build --family llama --on phi-mini", "phi-mini is of the family 'phi'"),
        ("encyclopedia build --on phi-mini --revison x", "--revision"),
        ("demo --dtype float3", "--dtype"),
        ("demo --step 1 --gguf-file x.gguf", "gguf"),
        ("notes phi-mini --family fi", "no family is called 'fi'"),
        ("verify phi-mini --reference ./nowhere", "is neither a folder nor a built-in name"),
        ("verify phi-mini --random --device-map auto", "--device-map has no effect on a config, which has no files."),
        ("verify phi-mini --random --allow-pickle", "--allow-pickle has no effect on a config, which has no files."),
        ("families --dtype float32 --attn eager", "--dtype and --attn say how MODEL is loaded, and none was given."),
        ("families --file", "--file prints the family of a MODEL, and none was given."),
        ("families phi-mini --file --json", "Give one of them."),
    ],
)
def test_wrong_words(line: str, told: str) -> None:
    assert told in wrong(*line.split(" "))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mlp_ouput", "Did you mean 'mlp_output'"),
        ("layers.9.layer_output", "layers.9"),
        ("layer_mid", "Phi's block is parallel"),
    ],
)
def test_a_value_that_is_not_there(name: str, told: str, tiny_folder: str) -> None:
    assert told in wrong("read", tiny_folder, "x", name)


@pytest.mark.parametrize(
    ("stdin", "told"),
    [(b"a\xffb", "byte 1 is 0xff, which is not UTF-8"), (b"", "the prompt is empty")],
)
def test_standard_input_that_is_no_prompt(stdin: bytes, told: str, tmp_path: Path) -> None:
    page = str(tmp_path / "x.html")
    for line in (["read", "phi-mini", "-", "logits"], ["view", "phi-mini", "-", "-o", page]):
        assert told in wrong(*line, stdin=stdin)


def test_a_prompt_that_is_no_text() -> None:
    assert "not UTF-8" in wrong("read", "phi-mini", os.fsdecode(b"a\xff"), "logits")


def test_an_error_that_nobody_foresaw_is_a_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise KeyError("inner\nouter")

    monkeypatch.setattr("cutaway.cli.opening.open_model", break_down)
    told = wrong("show", "phi-mini", status=1)
    assert told == r"KeyError: 'inner\nouter' (--debug shows where it came from)"
    assert "break_down" in run("show", "phi-mini", "--debug", status=1)[1]


def test_help_tells_the_statuses_and_no_words_at_all_are_help() -> None:
    out, err = run("--help")
    assert (out, err) == run()
    assert "status 0 where all went well, 1 where" in " ".join(out.split())
    for command in OPENING:
        assert "--trust-remote-code" in run(command, "--help")[0]


def test_offline_it_is_said_at_once_what_to_do() -> None:
    told = wrong("verify", "microsoft/phi-2", status=1)
    assert told.startswith("microsoft/phi-2 is not on this machine in full, and HF_HUB_OFFLINE is set")
    assert "`cutaway show`" in told


def test_a_hub_that_does_not_answer_is_asked_once() -> None:
    """Nobody listens on port 9 of this machine; huggingface_hub by itself would try for a minute."""
    env = {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    out, err = run("verify", "microsoft/phi-2", status=1, **env)
    assert out == ""
    assert err.startswith(
        "error: microsoft/phi-2 is not on this machine in full, and the hub cannot be reached (127.0.0.1: "
    )
    assert err.count("\n") == 1

"""A file is written whole or not at all, and another one is replaced only when that is asked for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from cutaway import pictures
from cutaway.errors import AlreadyThereError, OutputError
from cutaway.files import write_file
from tests.cli.running import run, wrong

WRITERS = {
    "values.safetensors": ("read", "{model}", "a b", "logits", "-o"),
    "page.html": ("view", "{model}", "a b", "-o"),
    "drawn.svg": ("picture", "lens", "{model}", "a b", "-o"),
    "drawn.png": ("picture", "rotary-heatmap", "{model}", "-o"),
}


@pytest.fixture(params=WRITERS)
def writer(request, tiny_folder: str, tmp_path: Path) -> tuple[list[str], Path]:
    """A command line that lacks the name of its file, and a file of a fitting name, not there yet."""
    return [word.format(model=tiny_folder) for word in WRITERS[request.param]], tmp_path / request.param


def test_a_file_is_replaced_only_by_force(writer) -> None:
    line, file = writer
    run(*line, str(file))
    whole = file.read_bytes()
    file.write_bytes(b"mine")
    assert f"{file} is there already" in wrong(*line, str(file))
    assert file.read_bytes() == b"mine"
    run(*line, str(file), "--force")
    assert in_order(file.read_bytes()) == in_order(whole)
    assert list(file.parent.iterdir()) == [file]
    if file.suffix != ".svg":  # standard output gets a PNG
        assert in_order(run_bytes(*line, "-")) == in_order(whole)


def in_order(content: bytes) -> list[int]:
    """safetensors writes its metadata in any order."""
    return sorted(content)


def run_bytes(*words: str) -> bytes:
    from typer.testing import CliRunner

    from cutaway.cli import app

    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result.stdout_bytes


def test_a_file_that_appears_meanwhile_is_left(writer, monkeypatch: pytest.MonkeyPatch) -> None:
    line, file = writer
    link = Path.hardlink_to

    def late(self: Path, target: Path) -> None:
        self.write_bytes(b"mine")
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", late)
    assert "is there already" in wrong(*line, str(file))
    assert file.read_bytes() == b"mine"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_and_an_interrupt_leave_what_was_there(writer, error, force, monkeypatch) -> None:
    line, file = writer
    if force:
        file.write_bytes(b"mine")

    def stop(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", stop)
    if isinstance(error, OSError):
        told = wrong(*line, str(file), *force, status=1)
        assert told == f"{file} cannot be written: No space left on device."
    else:
        assert wrong(*line, str(file), *force, status=130) == "interrupted."
    assert [path.read_bytes() for path in file.parent.iterdir()] == ([b"mine"] if force else [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_device_is_written_to_as_it_is(writer) -> None:
    line, file = writer
    file.symlink_to("/dev/full")
    assert "No space left on device" in wrong(*line, str(file), status=1)
    assert file.is_symlink()


def test_a_link_stays_and_permissions_are_kept(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "file").write_bytes(b"old")
    (folder / "file").chmod(0o640)
    (tmp_path / "link").symlink_to(folder / "file")
    with pytest.raises(AlreadyThereError):
        write_file(tmp_path / "link", b"new", replace=False)
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (folder / "file").read_bytes() == b"new"
    assert (folder / "file").stat().st_mode & 0o777 == 0o640
    assert [path.name for path in folder.iterdir()] == ["file"]
    (tmp_path / "plain").touch()
    write_file(tmp_path / "fresh", b"")
    assert (tmp_path / "fresh").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("name", ["folder", "nowhere/file", "loop"])
def test_what_cannot_be_written_is_an_error_of_ours(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OutputError, match=name):
        write_file(tmp_path / name, b"x")


def test_pictures_save_the_same_way(tmp_path: Path) -> None:
    pattern = [[[1.0, 0.0], [0.5, 0.5]]]
    for made, file in (
        (pictures.attention_layer(pattern, ["a", "b"]), tmp_path / "x.svg"),
        (pictures.attention_viewer([pattern], ["a", "b"]), tmp_path / "x.html"),
    ):
        made.save(file)
        whole = file.read_bytes()
        with pytest.raises(AlreadyThereError):
            made.save(file, replace=False)
        made.save(file)
        assert file.read_bytes() == whole

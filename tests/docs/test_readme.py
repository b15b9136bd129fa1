"""The README's Python runs, from its first block to its last, in one session."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_the_readmes_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(BLOCKS) >= 4
    session: dict[str, object] = {"__name__": "readme"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"README.md, block {number}", "exec"), session)
    printed = capsys.readouterr().out
    assert "parallel" in printed
    assert "32 2560 80" in printed


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\]\(([^)#:]+)\)|src=\"([^\"]+)\"", README.read_text()))))
def test_the_readmes_links_lead_somewhere(path: tuple[str, str]) -> None:
    assert (README.parent / "".join(path)).exists()

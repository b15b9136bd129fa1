"""Builds every lesson: `python -m lessons.build` writes the pages into docs/."""

from __future__ import annotations

from pathlib import Path

from lessons.page import Page, build

SOURCES = Path(__file__).parent
DOCS = SOURCES.parent / "docs"
LESSONS = ("phi-from-scratch",)


def built(name: str) -> Page:
    """A lesson's page, built now."""
    source = SOURCES / f"{name}.md"
    return build(source.read_text(encoding="utf-8"), source.name)


def main() -> None:
    """Builds them and says what was written."""
    for name in LESSONS:
        page = built(name)
        path = DOCS / f"{name}.md"
        page.write(path)
        print(f"wrote {path.relative_to(DOCS.parent)} and {len(page.figures)} figures")


if __name__ == "__main__":
    main()

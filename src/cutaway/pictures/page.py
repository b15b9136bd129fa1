"""An interactive picture: one HTML file that holds all it needs.

It loads nothing: scripts and styles are in it, and its content security policy names them by their hashes and forbids
everything else, so that it works from disk, offline, and cannot send anything anywhere.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from pathlib import Path
from typing import Any

from cutaway.errors import InputError
from cutaway.files import write_file
from cutaway.pictures.still import wrong_suffix
from cutaway.pictures.theme import THEMES, Theme

_TEMPLATES = Path(__file__).parent / "templates"
_NOTEBOOK_HEIGHT = 720


class Page:
    """What every function of an interactive picture returns.

    Attributes:
        html: the whole page.
        title: what it shows, in a line.
        notice: what had to be left out to keep the page small; empty where nothing was.
    """

    def __init__(self, html: str, *, title: str, notice: str = "") -> None:
        self.html = html
        self.title = title
        self.notice = notice

    def __repr__(self) -> str:
        return f"<Page: {self.title}, {len(self.html.encode()) / 1e6:.1f} MB>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts" loading="lazy" '
            f'style="width:100%;height:{_NOTEBOOK_HEIGHT}px;border:0" srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def save(self, path: str | Path, *, replace: bool = True) -> Path:
        """Write the page to `path`, which ends in `.html`, and return the path.

        The file is written whole or not at all.

        Raises:
            InputError: the suffix is another.
            OutputError: the file cannot be written, or is there already where `replace` is false.
        """
        path = Path(path)
        if path.suffix.lower() not in (".html", ".htm"):
            raise InputError(wrong_suffix(path, path.suffix, "an interactive picture", (".html",)))
        return write_file(path, self.html.encode(), replace=replace)


def rendered(name: str, data: dict[str, Any], **words: Any) -> str:
    """The page of the template `NAME.html.j2`, with `NAME.css`, `NAME.js` and `data` in it.

    The template is filled under autoescape; the script reads `data` from a JSON block in which nothing can end it.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # A template that is missing, or a word that it lacks, is a mistake of ours: it shall not pass in silence.
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = _variables() + _read(f"{name}.css"), _read(f"{name}.js")
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return environment.get_template(f"{name}.html.j2").render(
        style=style, script=script, policy=policy, data=_json(data), **words
    )


def _read(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _variables() -> str:
    """The themes as CSS: the reader's system chooses, unless the page's root names one."""
    light, dark = (_declarations(THEMES[name]) for name in ("light", "dark"))
    return (
        f":root {{ color-scheme: light; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root[data-theme=auto] {{ color-scheme: dark; {dark} }} }}\n"
        f":root[data-theme=dark] {{ color-scheme: dark; {dark} }}\n"
    )


def _declarations(theme: Theme) -> str:
    names = ("paper", "ink", "muted", "hairline", "beyond", "accent", "contrast")
    return " ".join(f"--{name}: {getattr(theme, name)};" for name in names)


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}"


def _json(data: dict[str, Any]) -> str:
    """JSON that may stand in a `<script>`: no `<`, so that no token can close it or open a comment."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

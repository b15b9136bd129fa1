"""The style of printouts in a notebook.

It takes its text and background from the page, so that it fits whatever the notebook's theme is, and only its accents
differ between light and dark: by the reader's setting, and where JupyterLab, VS Code or Colab tell their theme, by
that. Everything stays readable where a notebook strips styles.
"""

from __future__ import annotations

from html import escape

_LIGHT = "--name: #9b2393; --faint: #5f6672; --rule: #d5d9e0;"
_DARK = "--name: #e58fdc; --faint: #a1a8b5; --rule: #40454f;"

STYLE = f"""
.cutaway {{ {_LIGHT} font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  overflow-x: auto; padding-bottom: 0.8em; }}
@media (prefers-color-scheme: dark) {{ .cutaway {{ {_DARK} }} }}
[data-jp-theme-light="true"] .cutaway, .vscode-light .cutaway, html[theme="light"] .cutaway {{ {_LIGHT} }}
[data-jp-theme-light="false"] .cutaway, .vscode-dark .cutaway, html[theme="dark"] .cutaway {{ {_DARK} }}
.cutaway code {{ font: inherit; background: none; border: 0; padding: 0; color: inherit; }}
.cutaway p {{ margin: 0 0 0.6em; }}
.cutaway ul {{ list-style: none; margin: 0; padding: 0 0 0 0.9em; border-left: 1px solid var(--rule); }}
.cutaway li {{ margin: 0; white-space: nowrap; }}
.cutaway summary {{ cursor: pointer; }}
.cutaway .leaf, .cutaway .value {{ padding-left: 1em; }}
.cutaway .size {{ white-space: nowrap; margin-right: 1em; }}
.cutaway .value code {{ color: var(--name); display: inline-block; min-width: 25ch; }}
.cutaway .missing code, .cutaway .missing td {{ color: var(--faint); }}
.cutaway .faint, .cutaway .aside {{ color: var(--faint); }}
.cutaway .aside {{ font-style: italic; }}
.cutaway table {{ border-collapse: collapse; margin: 0 0 0.6em; font: inherit; }}
.cutaway table th, .cutaway table td {{ text-align: left; vertical-align: top; padding: 0.1em 1.5em 0.1em 0; border: 0;
  background: none; font-size: inherit; }}
.cutaway table td:nth-child(2) {{ white-space: nowrap; }}
.cutaway table thead th {{ color: var(--faint); font-weight: normal; }}
.cutaway table tbody th {{ font-weight: bold; }}
.cutaway table tbody th, .cutaway table tbody th + td {{ padding-top: 0.6em; border-top: 1px solid var(--rule); }}
.cutaway table tbody tr {{ background: none; }}
.cutaway td code.name {{ color: var(--name); }}
.cutaway ol {{ margin: 0; padding-left: 2em; max-width: 90ch; list-style: decimal; }}
.cutaway ol li {{ white-space: normal; }}
""".strip()


def page(body: str) -> str:
    """A fragment of HTML that carries its own style."""
    return f'<div class="cutaway"><style>{STYLE}</style>\n{body}\n</div>'


def prose(text: str) -> str:
    """A sentence, escaped, in which names in backticks are code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if i % 2 and i < len(parts) - 1 else part for i, part in enumerate(parts))

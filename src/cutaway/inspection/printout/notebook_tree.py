"""A printout in a notebook: modules are `<details>` that open and close, and a list without any style."""

from __future__ import annotations

from html import escape

from cutaway.inspection.printout.notebook_style import page, prose
from cutaway.inspection.printout.tree import ModuleNode, Tree, ValueLine


def tree_html(tree: Tree, *, header: bool = True) -> str:
    """A fragment of HTML with its own style, everything escaped."""
    if not header:
        return page(_node(tree.root))
    sizes = " ".join(
        f'<span class="size"><span class="faint">{escape(name)}</span> {size}</span>'
        for name, size in tree.sizes.items()
    )
    head = f"<p><strong>{escape(tree.name)}</strong><br>{escape(tree.load)}</p>\n<p>{sizes}</p>"
    return page(f"{head}\n{_node(tree.root)}")


def _node(node: ModuleNode) -> str:
    title = _title(node)
    if not node.values and not node.children:
        return f'<div class="leaf">{title}</div>'
    rows = [_value(value) for value in node.values]
    if node.weights:
        rows.append(f'<li class="value"><span class="aside">weights:</span> {" ".join(node.weights)}</li>')
    rows += [f"<li>{_node(child)}</li>" for child in node.children]
    body = "\n".join(rows)
    return f"<details open><summary>{title}</summary>\n<ul>\n{body}\n</ul></details>"


def _title(node: ModuleNode) -> str:
    what = f'<span class="faint">{escape(node.what)}</span>' if node.key else f"<strong>{escape(node.what)}</strong>"
    if node.differs:
        what += f' <span class="aside">differs: {escape(node.differs)}</span>'
    if node.standard:
        return f"(<strong>{escape(node.standard)}</strong>/{escape(node.key)}): {what}"
    return f"({escape(node.key)}): {what}" if node.key else what


def _value(value: ValueLine) -> str:
    meaning = escape(value.meaning.replace("`", ""), quote=True)
    name = f'<code title="{meaning}">{escape(value.name)}</code>'
    if value.missing:
        return f'<li class="missing value">{name} <span class="aside">not here: {prose(value.missing)}</span></li>'
    aside = ' <span class="aside">read-only</span>' if value.read_only else ""
    return f'<li class="value">{name} {escape(value.layout)}{aside}</li>'

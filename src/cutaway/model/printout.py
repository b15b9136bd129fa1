"""How a model and its support look in a terminal, as plain text, and in a notebook."""

from __future__ import annotations

from typing import Any

from cutaway.model.subject import Subject


def text(subject: Subject) -> str:
    return subject.name


def rich_text(subject: Subject) -> Any:
    return text(subject)


def html(subject: Subject) -> str:
    return text(subject)


def support_text(support: Any) -> str:
    return support.model


def support_rich(support: Any) -> Any:
    return support_text(support)


def support_html(support: Any) -> str:
    return support_text(support)

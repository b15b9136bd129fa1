"""The hub, which may be out of reach: said at once, and not after a minute of attempts."""

from __future__ import annotations

import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cutaway.cli.terminal import waiting
from cutaway.errors import LoadError, OptionError

_PATIENCE = 5.0
"""Seconds in which the hub has to answer."""


def is_hub_id(name: str) -> bool:
    """Whether a name is that of a model on the hub, and of no folder here."""
    return name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()


class Hub:
    """The hub as one command meets it."""

    def __init__(self) -> None:
        self.endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        self._why_not = ""

    @property
    def options(self) -> dict[str, Any]:
        """What `from_pretrained` is told: where the hub does not answer, to look in the cache alone."""
        return {"local_files_only": True} if self._why_not else {}

    def ask_for(self, name: str) -> None:
        """Asks once whether the hub answers, and no more once it did not."""
        host = urlsplit(self.endpoint).hostname or self.endpoint
        setting = next((name for name in _OFFLINE if _is_true(os.environ.get(name, ""))), "")
        if setting:
            self._why_not = f"and {setting} is set, so that the hub is not asked"
        if self._why_not:
            return
        with waiting(f"asking {host} for {name}"):
            why = _why_unreachable(self.endpoint)
        if why:
            self._why_not = f"and the hub cannot be reached ({host}: {why})"

    @contextmanager
    def explained(self, name: str) -> Generator[None]:
        """Says of a model that cannot be had from the hub why that is so.

        Raises:
            LoadError: as the block did, with what to do.
        """
        try:
            yield
        except OptionError:
            raise
        except LoadError as error:
            if not self._why_not or not is_hub_id(name):
                raise
            raise LoadError(
                f"{name} is not on this machine in full, {self._why_not}. Give a local folder, or try again with a "
                "connection; `cutaway show`, `support` and `check --shapes-only` need no weights where the config is "
                "here, as those of microsoft/phi-1, phi-1_5 and phi-2 are."
            ) from error


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def _is_true(setting: str) -> bool:
    return setting.upper() in ("1", "ON", "YES", "TRUE")


def _why_unreachable(endpoint: str) -> str:
    """Why nobody answers at an address; empty where somebody does, whatever the answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=_PATIENCE):
            return ""
    except urllib.error.HTTPError:
        return ""
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLError):  # it answers; whether it is trusted is for huggingface_hub to say
            return ""
        return str(getattr(reason, "strerror", None) or reason)

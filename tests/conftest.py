"""What all tests share: no network, and browser tests only where there is a browser."""

from __future__ import annotations

import os
import shutil

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the models are tiny, and workers share the cores

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        skip = pytest.mark.skip(reason="no Chromium on this machine: apt-get install chromium")
        for item in items:
            if item.get_closest_marker("browser"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium, for Playwright's `executable_path`; tests that use it are marked `browser`."""
    assert CHROMIUM is not None, "mark tests that use this fixture with @pytest.mark.browser"
    return CHROMIUM


@pytest.fixture(scope="session")
def browser(chromium):
    """Chromium, running. One for all folders of tests: a process can have only one `sync_playwright()` at a time."""
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium, args=CHROMIUM_ARGS)
        yield running
        running.close()

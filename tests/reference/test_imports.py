"""The reference stands on NumPy alone."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import cutaway.reference as reference

FOLDER = Path(reference.__file__).parent


def test_importing_and_running_it_imports_no_torch():
    code = """
import sys
from cutaway.reference import Phi, PhiAttention, PhiConfig
PhiAttention(8, 2, 4, seed=0).forward([[[0.0] * 8] * 3])
Phi.from_config(PhiConfig(1, 8, 2, 2, 4, 10, 16, 2), seed=0).generate([[1, 2]], 2)
print(sorted({"torch", "transformers", "safetensors", "greenlet", "tokenizers"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_its_files_import_numpy_the_standard_library_and_cutaways_own_words():
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                allowed = top in sys.stdlib_module_names or top == "numpy"
                ours = name.startswith(("cutaway.reference", "cutaway.vocabulary", "cutaway.errors"))
                assert allowed or ours, f"{path.name} imports {name}"


def test_exported_names_exist():
    for name in reference.__all__:
        assert hasattr(reference, name), name

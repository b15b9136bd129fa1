"""transformers' tensor parallelism, two gloo processes on this machine: whole values agree, spread ones say why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import tiny
from tests.families import models

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed package")
@pytest.mark.processes
def test_models_spread_over_two_processes_have_the_same_values(tmp_path: Path) -> None:
    tiny.plain().save_pretrained(tmp_path / "phi")
    models.plain("llama").save_pretrained(tmp_path / "llama")
    arguments = ["--nproc_per_node", "2", "--master_port", str(29500 + os.getpid() % 1000)]
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}", "OMP_NUM_THREADS": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *arguments,
            "tests/larger/sharded.py",
            *map(str, tmp_path.iterdir()),
        ],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("all values agree") == 2

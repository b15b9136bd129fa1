"""The NumPy reference beside transformers' eager Phi: `python -m benchmarks.reference_speed`.

Seconds and memory of a forward pass, and seconds of one token with a cache, on the same threads in float32. The two
take turns. Thread counts are read by the libraries when they load, so that the work is done in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
TOKENS = 256
PAST = (64, 512, 1024)


def wide_phi(folder: Path) -> None:
    """Write a Phi of 12 layers and width 768 with random weights."""
    import torch
    from transformers import PhiConfig, PhiForCausalLM

    torch.manual_seed(0)
    config = PhiConfig(
        vocab_size=8192, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12
    )
    PhiForCausalLM(config).save_pretrained(folder)


def numpy_pass(folder: Path) -> Callable[[], object]:
    """A forward pass of the reference."""
    import numpy as np

    from cutaway.reference import Phi

    model = Phi.from_pretrained(folder)
    ids = np.arange(TOKENS)[None] % model.config.vocab_size
    return lambda: model(ids)


def torch_pass(folder: Path) -> Callable[[], object]:
    """A forward pass of transformers."""
    import torch
    from transformers import PhiForCausalLM

    model = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.arange(TOKENS)[None] % model.config.vocab_size

    def run() -> object:
        with torch.no_grad():
            return model(ids, use_cache=False)

    return run


def forward(name: str, folder: Path, rounds: int) -> None:
    from benchmarks.timing import interleave, ratio

    seconds = interleave({"NumPy": numpy_pass(folder), "eager": torch_pass(folder)}, rounds)
    own, other = (1e3 * statistics.median(seconds[way]) for way in ("NumPy", "eager"))
    print(
        f"{name}, {TOKENS} tokens: NumPy {own:.1f} ms, transformers eager {other:.1f} ms, "
        f"ratio {ratio(seconds, 'NumPy', 'eager'):.2f}",
        flush=True,
    )


def one_token(name: str, folder: Path, rounds: int) -> None:
    import numpy as np
    import torch
    from transformers import DynamicCache, PhiForCausalLM

    from benchmarks.timing import interleave, ratio
    from cutaway.reference import Cache, Phi

    reference = Phi.from_pretrained(folder)
    model = PhiForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    for past in PAST:
        ids = np.arange(past)[None]
        cache, theirs = Cache(past + 3 * rounds), DynamicCache(config=model.config)
        reference.next_token_logits(ids, cache=cache)
        with torch.no_grad():
            model(torch.as_tensor(ids), cache=theirs, logits_to_keep=1)

            def step(theirs: DynamicCache = theirs) -> object:
                return model(torch.tensor([[7]]), cache=theirs)

            def own_step(cache: Cache = cache) -> object:
                return reference.next_token_logits([[7]], cache=cache)

            seconds = interleave({"NumPy": own_step, "eager": step}, rounds)
        own, other = (1e3 * statistics.median(seconds[way]) for way in ("NumPy", "eager"))
        print(
            f"{name}, one token after {past}: NumPy {own:.1f} ms, transformers eager {other:.1f} ms, "
            f"ratio {ratio(seconds, 'NumPy', 'eager'):.2f}",
            flush=True,
        )


def peak(way: str, folder: Path) -> None:
    """Print how far loading and three passes raise this process's memory above what its imports take, in MiB."""
    import numpy as np

    if way == "eager":
        import torch
        from transformers import PhiForCausalLM

        assert PhiForCausalLM
        torch.ones(64, 64) @ torch.ones(64, 64)
    np.ones((64, 64)) @ np.ones((64, 64))
    before = _memory("VmRSS")
    run = (numpy_pass if way == "NumPy" else torch_pass)(folder)
    loaded = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(3):
        run()
    print(f"{(loaded - before) / 1024:.1f} {(_memory('VmHWM') - before) / 1024:.1f}")


def _memory(field: str) -> int:
    """A field of this process's status, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def memory(name: str, folder: Path) -> None:
    found = {}
    for way in ("NumPy", "eager"):
        command = [sys.executable, "-m", "benchmarks.reference_speed", "--peak", way, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found[way] = [float(word) for word in done.stdout.split()]
    (own_loaded, own), (other_loaded, other) = found["NumPy"], found["eager"]
    print(
        f"{name}, memory beyond the imports: NumPy {own:.0f} MiB at its peak ({own_loaded:.0f} loaded), "
        f"transformers eager {other:.0f} MiB ({other_loaded:.0f} loaded), ratio {own / other:.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--phi-mini", type=Path, help="the folder of phi-mini; the built-in one when left out")
    parser.add_argument("--peak", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        return peak(arguments.peak[0], Path(arguments.peak[1]))
    count = str(arguments.threads)
    if any(os.environ.get(name) != count for name in THREADS):
        environment = {**os.environ, **dict.fromkeys(THREADS, count)}
        command = [sys.executable, "-m", "benchmarks.reference_speed", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment, check=False).returncode)

    from cutaway.reference.checkpoint import find_folder

    phi_mini = arguments.phi_mini or find_folder("phi-mini")
    print(f"float32, {count} thread{'s' if arguments.threads > 1 else ''}, medians of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as wide:
        wide_phi(Path(wide))
        for name, folder in (("phi-mini", phi_mini), ("12 × 768", Path(wide))):
            forward(name, folder, arguments.rounds)
            memory(name, folder)
        one_token("12 × 768", Path(wide), arguments.rounds)
    return None


if __name__ == "__main__":
    main()

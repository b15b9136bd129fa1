"""`python -m benchmarks`: measure, and write the results, the page and its figures."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: list[str] | None = None) -> None:
    """Measures as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it works")
    parser.add_argument("--large", action="store_true", help="also a Phi of phi-2's size, in bfloat16 (6 GB, a minute)")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads (1)")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="where performance.md and figures/ are")
    parser.add_argument(
        "--page-only", action="store_true", help="write the page anew from the results; measure nothing"
    )
    chosen = parser.parse_args(arguments)
    if not chosen.page_only:
        _with_threads(chosen.threads)
        _measure(chosen)
    _write_page(chosen.results, chosen.docs)


def _with_threads(threads: int) -> None:
    """Starts anew under so many threads: libraries read their number when they are loaded."""
    wanted = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1"}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]])


def _measure(chosen: argparse.Namespace) -> None:
    from benchmarks.run import run
    from benchmarks.settings import FULL, QUICK

    with tempfile.TemporaryDirectory() as programs:
        results = run(QUICK if chosen.quick else FULL, Path(programs), threads=chosen.threads, large=chosen.large)
    if not chosen.large and chosen.results.exists():
        results["large"] = json.loads(chosen.results.read_text()).get("large")
    chosen.results.parent.mkdir(parents=True, exist_ok=True)
    chosen.results.write_text(json.dumps(results, indent=1) + "\n")


def _write_page(results: Path, docs: Path) -> None:
    from benchmarks.figures import draw
    from benchmarks.page import page

    found = json.loads(results.read_text())
    draw(found["growth"], docs / "figures")
    (docs / "performance.md").write_text(page(found))


if __name__ == "__main__":
    main()

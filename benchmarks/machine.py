"""What the measurements ran on."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("cutaway", "nnsight", "transformer-lens", "transformers", "torch", "greenlet", "numpy")


def machine() -> dict[str, object]:
    """The machine, the versions and the day."""
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_total() / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": {name: found for name in PACKAGES if (found := _version(name))},
        "load_before": round(os.getloadavg()[0], 2),
    }


def memory_total() -> int:
    """The machine's memory, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_available() -> int:
    """What could be used now without swapping, in bytes."""
    return 1024 * _field(Path("/proc/meminfo"), "MemAvailable")


def process_memory(field: str) -> int:
    """A field of this process's status, in bytes: `VmRSS` is what it has now, `VmHWM` the most that it had."""
    return 1024 * _field(Path("/proc/self/status"), field)


def forget_peak() -> None:
    """Sets the most that this process had to what it has now."""
    Path("/proc/self/clear_refs").write_text("5")


def _field(file: Path, name: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(name))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None

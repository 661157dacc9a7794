"""What all benchmarks share: the machine they ran on, taking turns, headlines, and the file they write.

The file holds `machine`, `command`, `rows` (one per system and setting) and `headline` (name -> value, goal, met, unit, note).
"""

import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import psutil

T = TypeVar("T")

TOLD_FLAGS = ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "avx512_vnni", "amx_bf16", "amx_int8", "asimd", "bf16", "sve")
"""Instructions that decide how fast a processor multiplies."""


@dataclass(frozen=True, slots=True)
class Timing:
    """`cpu_s` is the time that all threads of the system together were on a processor."""

    wall_s: float
    cpu_s: float


def timed(work: Callable[[], object]) -> Timing:
    """Of this process."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    work()
    return Timing(time.perf_counter() - start_s, time.process_time() - start_cpu_s)


def interleave(systems: Mapping[str, Callable[[], T]], num_rounds: int) -> dict[str, list[T]]:
    """Run the systems in turn, round after round, so that a busy spell of the machine meets all of them."""
    results: dict[str, list[T]] = {name: [] for name in systems}
    for _ in range(num_rounds):
        for name, run in systems.items():
            results[name].append(run())
    return results


def headline(value: float | None, goal: float, unit: str, note: str = "") -> dict[str, Any]:
    """A claim and whether it is met. `value` None: it could not be measured, and `note` says why."""
    if value is None and not note:
        raise ValueError("note is empty: say why there is no value")
    return {"value": value, "goal": goal, "met": value is not None and value >= goal, "unit": unit, "note": note}


def machine() -> dict[str, Any]:
    """Processor, memory, versions, and how busy it was."""
    info = _proc_cpuinfo()
    flags = set(info.get("flags", info.get("Features", "")).split())
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "flags": [flag for flag in TOLD_FLAGS if flag in flags],
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": [round(load, 2) for load in psutil.getloadavg()],
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "plait": version_of("plait"),
    }


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _proc_cpuinfo() -> dict[str, str]:
    """The first processor's entries; empty where the system has no such file."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first, _, _ = path.read_text(encoding="utf-8").partition("\n\n")
    return {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in first.splitlines())}


def command() -> str:
    """How this benchmark was called."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    program = f"-m {spec.name.removesuffix('.__main__')}" if spec else shlex.quote(sys.argv[0])
    return " ".join(["python", program, *map(shlex.quote, sys.argv[1:])])


def write_json(path: Path, rows: Sequence[Mapping[str, Any]], headlines: Mapping[str, Mapping[str, Any]]) -> None:
    """The result file, a line for each row; its folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"machine": machine(), "command": command(), "headline": dict(headlines)}, indent=2)
    lines = ",\n    ".join(json.dumps(row) for row in rows)
    path.write_text(f'{about[:-2]},\n  "rows": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")

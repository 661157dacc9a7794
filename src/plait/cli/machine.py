"""What a machine has and what it lacks for Plait, one finding at a time. Torch is imported only by the probes that need it."""

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal

import psutil

from plait.cli.extras import EXTRAS, find_extra, is_there
from plait.cli.finding import Finding
from plait.cli.output import human_bytes
from plait.cli.settings_needs import Needs, find_interpreter
from plait.types.errors import PlaitError

MIN_PYTHON = (3, 11)
MIN_MEMORY_BYTES = 4e9
"""The demo's need, roughly."""
MIN_DISK_BYTES = 2e9
BUSY_SHARE = 0.25
"""Share of the cores that other programs may take before contending threads are worth a warning."""
BUSY_PROBE_S = 0.3
DEMO_MODEL = "smollm2-135m-instruct"


def examine_machine(needs: Needs = Needs()) -> Iterator[Finding]:
    """All findings, the slow ones last. `needs`: what a settings file asks for."""
    probes: list[Callable[[], Finding]] = [find_python, find_system, find_cores, find_memory, find_disk, find_load, find_cpu_flags]
    for probe in probes:
        yield probe()
    yield from (find_extra(extra, extra in needs.extras) for extra in EXTRAS)
    yield from (find_interpreter(path) for path in needs.interpreters)
    if is_there("torch"):
        yield find_torch()
        yield find_accelerator()
    yield find_model()
    if is_there("torch"):
        yield from (find_invariance(dtype) for dtype in ("bfloat16", "float32"))


def find_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    text = ".".join(map(str, version))
    if version < MIN_PYTHON:
        return Finding("python", "missing", text, "Install Python 3.11 or newer and make the environment with it.")
    return Finding("python", "ok", text)


def find_system() -> Finding:
    detail = f"{platform.system()} {platform.machine()}"
    if platform.system() == "Windows":
        return Finding("system", "missing", detail, "Run Plait inside WSL.")
    return Finding("system", "ok", detail)


def find_cores() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < 2:
        return Finding("cores", "warning", f"{count}", 'Set workers.layout = "shared": one process does rollout and training.')
    return Finding("cores", "ok", f"{count}")


def find_memory() -> Finding:
    memory = psutil.virtual_memory()
    detail = f"{human_bytes(memory.available)} free of {human_bytes(memory.total)}"
    if memory.available < MIN_MEMORY_BYTES:
        return Finding("memory", "warning", detail, "`plait run --dry-run FILE` says what a run needs; free some memory.")
    return Finding("memory", "ok", detail)


def find_disk(folder: Path | None = None) -> Finding:
    free = shutil.disk_usage(folder or Path.cwd()).free
    if free < MIN_DISK_BYTES:
        return Finding("disk", "warning", f"{human_bytes(free)} free here", "Make room, or put runs elsewhere with --runs.")
    return Finding("disk", "ok", f"{human_bytes(free)} free here")


def find_load() -> Finding:
    """Two OpenMP threads of one process run many times slower when another program takes one of their cores."""
    busy = psutil.cpu_percent(BUSY_PROBE_S) / 100
    detail = f"other programs use {busy:.0%} of the cores"
    if busy > BUSY_SHARE:
        remedy = (
            "End them, or keep workers.rollout_threads and workers.train_threads at 1: contending threads are many times slower."
        )
        return Finding("load", "warning", detail, remedy)
    return Finding("load", "ok", detail)


def find_cpu_flags(flags: frozenset[str] | None = None) -> Finding:
    found = read_cpu_flags() if flags is None else flags
    fast = [flag for flag in ("avx512_bf16", "amx_bf16", "bf16") if flag in found]
    if fast:
        return Finding("bfloat16 on CPU", "ok", ", ".join(fast))
    remedy = 'Set model.dtype = "float32": bfloat16 is emulated here.'
    return Finding("bfloat16 on CPU", "warning", "no avx512_bf16, amx_bf16 or bf16", remedy)


def read_cpu_flags(path: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """The processor's flags (x86) or features (Arm); empty where the system does not tell."""
    if not path.exists():
        return frozenset()
    lines = [line.partition(":") for line in path.read_text().splitlines()]
    return frozenset(flag for key, _, value in lines if key.strip() in ("flags", "Features") for flag in value.split())


def find_torch() -> Finding:
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    return Finding("torch", "ok", f"{metadata.version('torch')} ({build}), {torch.backends.cpu.get_cpu_capability()} kernels")


def find_accelerator() -> Finding:
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
        return Finding("CUDA", "ok", names)
    if torch.version.cuda is None and shutil.which("nvidia-smi"):
        return Finding(
            "CUDA",
            "warning",
            "there is a GPU, and torch is a CPU build",
            "Install a CUDA build of torch: `make TORCH_INDEX=URL setup`.",
        )
    return Finding("CUDA", "ok", "no GPU: Plait runs on the CPU")


def find_model() -> Finding:
    from plait.models.catalogue import find

    try:
        return Finding("demo model", "ok", str(find(DEMO_MODEL)))
    except PlaitError as error:
        return Finding("demo model", "missing", error.message, error.remedy)


def find_invariance(dtype: Literal["bfloat16", "float32"]) -> Finding:
    """Whether a policy's tokens may be promised to be the same bits in any batch."""
    import torch

    from plait.models.invariance import machine_self_test

    report = machine_self_test(getattr(torch, dtype))
    name = f"batch-invariant {dtype}"
    if report.granted:
        return Finding(name, "ok", report.detail)
    return Finding(name, "warning", report.detail, "Runs work; resuming and co-tenancy are not bit for bit in this dtype.")

"""How fast a group moves between tiers, against plain copies of the same bytes in files of the same sizes, synced as often.

What is plain: a copy is `torch.clone` of each buffer, and what was offloaded is freed; the disk is one file per content, written,
then all synced, then the folder; read into new buffers. New memory is new to the process, in both: else it would depend on what
was freed before. Reads from the disk find nothing of it in the system's cache, in both. Systems take turns; the fastest round of
each counts, since what else runs on the machine can only add to it.
"""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import Timing, headline, interleave, timed
from plait.residency.manager import StateManager
from plait.residency.tier import TIERS, Tier

GOAL = 0.8
GROUP = "model"
_M_MMAP_THRESHOLD, _THRESHOLD_BYTES = -3, 1 << 16
"""Of glibc: larger buffers are taken from the system one by one, and given back."""
ROUTES = ("offload to host", "load from host", "offload to disk", "load from disk")


def use_new_memory() -> None:
    """From now on buffers are not made from memory that was freed, where the C library can be told so."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _THRESHOLD_BYTES)


@contextmanager
def manager_in(folder: Path, budgets: Mapping[Tier, int | None] | None = None) -> Iterator[StateManager]:
    """Its host tier is in memory where the system has such a folder, its disk tier in `folder`."""
    memory = Path("/dev/shm")
    host = Path(tempfile.mkdtemp(prefix="plait-bench-", dir=memory if memory.is_dir() else folder))
    manager = StateManager(budgets or dict.fromkeys(TIERS), "cpu", host, folder / "disk")
    try:
        yield manager
    finally:
        manager.close()
        shutil.rmtree(host)
        shutil.rmtree(folder / "disk")


def clear_cache(files: Sequence[Path]) -> None:
    """Make the system forget what it holds of synced files; where it cannot, reads of both systems are from its cache."""
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# ---- the state manager


def managed_times(weights: Mapping[str, Tensor], folder: Path) -> dict[str, Timing]:
    """By route. The group was written to before each offload, so that it is copied, and its digests are taken."""
    with manager_in(folder) as manager:
        manager.register(GROUP, {name: tensor.clone() for name, tensor in weights.items()})
        times = {}
        for tier, down, up in ((Tier.HOST, *ROUTES[:2]), (Tier.DISK, *ROUTES[2:])):
            manager.acquire(GROUP, writable=True)
            manager.release(GROUP)
            times[down] = timed(partial(_offload, manager, tier))
            manager.flush()
            clear_cache(list((folder / "disk" / "contents").iterdir()))
            times[up] = timed(lambda: manager.acquire(GROUP))
            manager.release(GROUP)
        return times


def _offload(manager: StateManager, tier: Tier) -> None:
    manager.offload(GROUP, tier)
    manager.flush()


def content_sizes(weights: Mapping[str, Tensor], folder: Path) -> list[int]:
    """Bytes of the files that hold the group."""
    with manager_in(folder) as manager:
        manager.register(GROUP, {name: tensor.clone() for name, tensor in weights.items()})
        return list(manager.group(GROUP).contents.values())


# ---- plain


def plain_times(sizes: Sequence[int], folder: Path) -> dict[str, Timing]:
    """By route."""
    kept: list[list[Tensor]] = [[torch.ones(size, dtype=torch.uint8) for size in sizes]]
    times = {}
    times[ROUTES[0]] = timed(lambda: kept.__setitem__(0, [buffer.clone() for buffer in kept[0]]))
    times[ROUTES[1]] = timed(lambda: kept.append([buffer.clone() for buffer in kept[0]]))
    del kept[0]
    files = [folder / f"plain-{number}" for number in range(len(sizes))]
    times[ROUTES[2]] = timed(lambda: write_all(files, kept[0], folder))
    clear_cache(files)
    times[ROUTES[3]] = timed(lambda: kept.append([read_file(path, size) for path, size in zip(files, sizes, strict=True)]))
    for path in files:
        path.unlink()
    return times


def write_all(files: Sequence[Path], buffers: Sequence[Tensor], folder: Path) -> None:
    for path, buffer in zip(files, buffers, strict=True):
        array: Any = buffer.numpy()
        path.write_bytes(memoryview(array))
    for path in (*files, folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def read_file(path: Path, size: int) -> Tensor:
    buffer = torch.empty(size, dtype=torch.uint8)
    array: Any = buffer.numpy()
    with open(path, "rb", buffering=0) as file:
        left = memoryview(array)
        while left:
            left = left[file.readinto(left) :]
    return buffer


# ---- both


def moves(weights: Mapping[str, Tensor], folder: Path, num_rounds: int) -> list[dict[str, Any]]:
    """A row per route."""
    use_new_memory()
    sizes = content_sizes(weights, folder)
    systems = {"plait": lambda: managed_times(weights, folder), "plain": lambda: plain_times(sizes, folder)}
    times = interleave(systems, num_rounds)
    return [
        _row(route, sizes, {name: [by_route[route] for by_route in rounds] for name, rounds in times.items()}) for route in ROUTES
    ]


def _row(route: str, sizes: Sequence[int], timings: Mapping[str, Sequence[Timing]]) -> dict[str, Any]:
    total_bytes = sum(sizes)
    plait_s, plain_s = (min(timing.wall_s for timing in timings[name]) for name in ("plait", "plain"))
    plait_cpu_s, plain_cpu_s = (min(timing.cpu_s for timing in timings[name]) for name in ("plait", "plain"))
    return {
        "part": "moves",
        "route": route,
        "bytes": total_bytes,
        "files": len(sizes),
        "plait_gb_per_s": total_bytes / plait_s / 1e9,
        "plain_gb_per_s": total_bytes / plain_s / 1e9,
        "ratio": plain_s / plait_s,
        "cpu_ratio": plain_cpu_s / plait_cpu_s,
        "all_plait_s": [timing.wall_s for timing in timings["plait"]],
        "all_plain_s": [timing.wall_s for timing in timings["plain"]],
    }


def move_headlines(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {}
    for row in rows:
        against = "a plain copy" if "host" in row["route"] else "the disk itself"
        speeds = f"{row['plait_gb_per_s']:.2f} GB/s against {row['plain_gb_per_s']:.2f} of {against}"
        note = f"{speeds}; by processor time {row['cpu_ratio']:.2f}x"
        found[row["route"].replace(" ", "_")] = headline(row["ratio"], GOAL, "x", note)
    return found

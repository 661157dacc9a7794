"""How long it takes until another model is on a device that holds one.

Warm: it comes from the host's memory; cold: from the disk, of which the system's cache holds nothing. Frozen: weights only read,
whose copy below is still good when they leave; trained: written to since they came, so that they are copied when they leave.

What is plain: moves of the same bytes in the same files, in turn with ours. Into new memory (`torch.clone`), and what was there is
freed; into the same files of the disk each time, truncated and written anew, then synced.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.common import Timing, headline, interleave, timed
from benchmarks.state_model import num_bytes, other_model
from benchmarks.state_moves import clear_cache, content_sizes, manager_in, read_file, write_all
from plait.residency.manager import StateManager
from plait.residency.tier import Tier

GOAL = 0.8
NAMES = ("one", "other")


def switches(weights: Mapping[str, Tensor], folder: Path, num_rounds: int) -> list[dict[str, Any]]:
    """A row for each kind of switch; the fastest round counts."""
    sizes = content_sizes(weights, folder)
    rows = []
    for source in (Tier.HOST, Tier.DISK):
        for is_trained in (False, True):
            times = _times(weights, sizes, source, is_trained, folder, 2 * num_rounds)
            row = {"part": "switch", "from": source.value, "weights": "trained" if is_trained else "frozen", "bytes": sum(sizes)}
            rows.append(row | _figures(times))
    return rows


def _times(
    weights: Mapping[str, Tensor], sizes: Sequence[int], source: Tier, is_trained: bool, folder: Path, num_rounds: int
) -> dict[str, list[Timing]]:
    """In turn; the first of each system do not count."""
    total_bytes = num_bytes([dict(weights)])
    budget = int(total_bytes * 1.1)
    # Without room in the host's memory everything that leaves goes to the disk.
    budgets = {Tier.DEVICE: budget, Tier.HOST: 2 * budget if source is Tier.HOST else 0, Tier.DISK: None}
    plain = PlainSwitches(sizes, folder, source)
    with manager_in(folder, budgets) as manager:
        manager.register(NAMES[0], {name: tensor.clone() for name, tensor in weights.items()})
        manager.register(NAMES[1], other_model(dict(weights)))
        turns = iter(range(num_rounds + 2))
        systems: dict[str, Callable[[], Timing]] = {
            "plait": lambda: _switch(manager, NAMES[next(turns) % 2], is_trained, folder),
            "plain": partial(plain.switch, is_trained),
        }
        times = interleave(systems, num_rounds + 2)
    plain.close()
    return {name: all_times[2:] for name, all_times in times.items()}


def _switch(manager: StateManager, name: str, is_trained: bool, folder: Path) -> Timing:
    clear_cache(list((folder / "disk" / "contents").iterdir()))
    timing = timed(lambda: manager.acquire(name))
    if is_trained:
        for tensor in manager.acquire(name, writable=True).values():
            tensor.view(-1)[:1].neg_()  # No content is what it was.
        manager.release(name)
    manager.release(name)
    return timing


class PlainSwitches:
    """Two models of flat buffers of equal bytes: one on the device, the other below."""

    def __init__(self, sizes: Sequence[int], folder: Path, source: Tier) -> None:
        self._sizes, self._folder, self._source = sizes, folder, source
        self._here, self._below = ([torch.ones(size, dtype=torch.uint8) for size in sizes] for _ in range(2))
        self._outdated: list[Tensor] = []
        """Copy of what is here and was written to since; ours is given up when it is written to."""
        self._files = [[folder / f"plain-{model}-{number}" for number in range(len(sizes))] for model in range(2)]
        """Of the one that is here, and of the other."""
        if source is Tier.DISK:
            for files in self._files:
                write_all(files, self._here, folder)

    def switch(self, is_trained: bool) -> Timing:
        clear_cache([path for files in self._files if self._source is Tier.DISK for path in files])
        self._outdated.clear()
        timing = timed(partial(self._switch_on_disk if self._source is Tier.DISK else self._switch_in_memory, is_trained))
        self._files.reverse()
        return timing

    def _switch_in_memory(self, is_trained: bool) -> None:
        leaves = [buffer.clone() for buffer in self._here] if is_trained else self._below
        self._here.clear()
        self._here = [buffer.clone() for buffer in self._below]
        self._outdated, self._below = (self._below, leaves) if is_trained else ([], leaves)

    def _switch_on_disk(self, is_trained: bool) -> None:
        if is_trained:
            write_all(self._files[0], self._here, self._folder)
        self._here = []
        self._here = [read_file(path, size) for path, size in zip(self._files[1], self._sizes, strict=True)]

    def close(self) -> None:
        for path in (path for files in self._files for path in files):
            path.unlink(missing_ok=True)


def _figures(times: Mapping[str, Sequence[Timing]]) -> dict[str, Any]:
    walls = {name: [timing.wall_s for timing in found] for name, found in times.items()}
    cpus = {name: min(timing.cpu_s for timing in found) for name, found in times.items()}
    return {
        "switch_s": min(walls["plait"]),
        "plain_s": min(walls["plain"]),
        "cpu_ratio": cpus["plain"] / cpus["plait"],
        "all_switch_s": walls["plait"],
        "all_plain_s": walls["plain"],
    }


def switch_headlines(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Against plain moves: in, and for trained weights out before."""
    found = {}
    for row in rows:
        temperature = "warm" if row["from"] == Tier.HOST else "cold"
        told = f"{row['switch_s']:.3f} s for {row['bytes'] / 1e6:.0f} MB; plain moves take {row['plain_s']:.3f} s"
        note = f"{told}; by processor time {row['cpu_ratio']:.2f}x"
        found[f"switch_{temperature}_{row['weights']}"] = headline(row["plain_s"] / row["switch_s"], GOAL, "x", note)
    return found

"""What was given up and is kept to be written over: files of contents that nobody uses any more, and buffers of the device.

What takes turns comes and leaves in the same sizes again and again. To write over memory, or over a file, takes no new memory and
no new blocks of a disk, and gives none back, which is much of what a move costs. Threads may call.
"""

import mmap
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from plait.residency import content_file

Item = TypeVar("Item")


class Spares(Generic[Item]):
    """By size in bytes, which is at least one. `remove` is told what is not kept any more."""

    def __init__(self, remove: Callable[[Item], object] = lambda item: None) -> None:
        self._lock, self._remove = threading.Lock(), remove
        self._by_size: dict[int, list[Item]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def items(self) -> list[Item]:
        with self._lock:
            return [item for items in self._by_size.values() for item in items]

    def give(self, num_bytes: int, item: Item) -> None:
        with self._lock:
            self._by_size.setdefault(num_bytes, []).append(item)
            self._num_bytes += num_bytes

    def take(self, num_bytes: int) -> Item | None:
        """One of this size, which is the caller's from then on."""
        with self._lock:
            items = self._by_size.get(num_bytes)
            if not items:
                return None
            self._num_bytes -= num_bytes
            return items.pop()

    def keep(self, sizes: Iterable[int], other_bytes: int) -> None:
        """Remove all but those that are about to be taken, one for each of `sizes`, and so many bytes of others."""
        if self._num_bytes <= other_bytes:
            return
        wanted, removed = Counter(sizes), list[Item]()
        with self._lock:
            for num_bytes, items in self._by_size.items():
                num_kept = min(len(items), wanted[num_bytes] + max(0, other_bytes) // num_bytes)
                other_bytes -= max(0, num_kept - wanted[num_bytes]) * num_bytes
                self._num_bytes -= (len(items) - num_kept) * num_bytes
                removed += items[num_kept:]
                del items[num_kept:]
        for item in removed:
            self._remove(item)

    def clear(self) -> bool:
        """Whether there were any."""
        had_any = self._num_bytes > 0
        self.keep((), 0)
        return had_any


@dataclass(frozen=True, slots=True)
class SpareFile:
    """`memory`: the file, mapped; None where files are written by calls."""

    path: Path
    memory: mmap.mmap | None = None


class SpareFiles(Spares[SpareFile]):
    def __init__(self) -> None:
        super().__init__(lambda spare: content_file.remove(spare.path))

    def take(self, num_bytes: int) -> SpareFile | None:
        """What somebody else has removed or cut is passed over."""
        while (spare := super().take(num_bytes)) is not None:
            if content_file.has_size(spare.path, num_bytes):
                return spare
            content_file.remove(spare.path)
        return None

"""Files of contents that nobody uses any more, kept to be written over.

What takes turns on the device comes down in files of the same sizes again and again. To write over one takes neither new memory nor
new blocks of a disk, and gives none back, which is most of what a new file costs. Threads may call.
"""

import mmap
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from plait.residency import content_file


@dataclass(frozen=True, slots=True)
class Spare:
    """`memory`: the file, mapped; None where files are written by calls."""

    path: Path
    num_bytes: int
    memory: mmap.mmap | None = None


class Spares:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_size: dict[int, list[Spare]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def names(self) -> frozenset[str]:
        """Of the files."""
        with self._lock:
            return frozenset(spare.path.name for spares in self._by_size.values() for spare in spares)

    def give(self, spare: Spare) -> None:
        with self._lock:
            self._by_size.setdefault(spare.num_bytes, []).append(spare)
            self._num_bytes += spare.num_bytes

    def take(self, num_bytes: int) -> Spare | None:
        """One of this size, which is the caller's from then on. What somebody else has removed or cut is passed over."""
        while (spare := self._pop(num_bytes)) is not None:
            if content_file.has_size(spare.path, num_bytes):
                return spare
            content_file.remove(spare.path)
        return None

    def _pop(self, num_bytes: int) -> Spare | None:
        with self._lock:
            spares = self._by_size.get(num_bytes)
            if not spares:
                return None
            self._num_bytes -= num_bytes
            return spares.pop()

    def keep(self, sizes: Iterable[int], other_bytes: int) -> None:
        """Remove all but those that are about to be taken, one for each of `sizes`, and so many bytes of others."""
        if self._num_bytes <= other_bytes:
            return
        wanted, removed = Counter(sizes), list[Spare]()
        with self._lock:
            for num_bytes, spares in self._by_size.items():
                num_free = max(0, other_bytes) // num_bytes
                num_kept = min(len(spares), wanted[num_bytes] + num_free)
                other_bytes -= max(0, num_kept - wanted[num_bytes]) * num_bytes
                removed += spares[num_kept:]
                del spares[num_kept:]
            self._num_bytes -= sum(spare.num_bytes for spare in removed)
        for spare in removed:
            content_file.remove(spare.path)

    def clear(self) -> bool:
        """Whether there were any."""
        had_any = self._num_bytes > 0
        self.keep((), 0)
        return had_any

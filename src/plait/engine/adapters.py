"""Which adapter versions are in memory.

- A version is immutable; registered (somebody can read its file) and resident are different states, and what is resident never
  changes what a request gets.
- A miss loads it; nothing is ever "not found" because it was evicted.
- A version with references is never evicted; the last `window` versions without any are kept.
- Rows hold the adapter object itself, so no table of slots can point a row at somebody else's weights.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from plait.lora.mix import FusedAdapter
from plait.types.errors import AdapterError
from plait.types.policy import AdapterRef, PolicyVersion

Loader = Callable[[AdapterRef], FusedAdapter]
Name = tuple[PolicyVersion, str]
"""Version and digest: the same version with other weights (a task deleted and made anew) is another adapter."""


@dataclass(slots=True)
class _Resident:
    adapter: FusedAdapter
    references: int = 0


class AdapterStore:
    """`load` reads a version's file; it may raise PlaitError, OSError or ValueError."""

    def __init__(self, load: Loader, window: int) -> None:
        self._load, self.window = load, window
        self._resident: OrderedDict[Name, _Resident] = OrderedDict()
        self.num_loads = 0

    def acquire(self, ref: AdapterRef) -> FusedAdapter:
        """The adapter, loaded if need be, with one more reference. Raises PlaitError if its file does not serve."""
        name = (ref.policy, ref.digest)
        entry = self._resident.get(name)
        if entry is None:
            entry = self._resident[name] = _Resident(self._read(ref))
        entry.references += 1
        self._resident.move_to_end(name)
        return entry.adapter

    def _read(self, ref: AdapterRef) -> FusedAdapter:
        self.num_loads += 1
        try:
            return self._load(ref)
        except (OSError, ValueError) as error:
            raise AdapterError(f"adapter {ref.policy} at {ref.path!r} cannot be read: {error}.", "Publish it again.") from error

    def release(self, ref: AdapterRef) -> None:
        self._resident[ref.policy, ref.digest].references -= 1
        self._evict()

    def _evict(self) -> None:
        idle = [name for name, entry in self._resident.items() if not entry.references]
        for name in idle[: max(0, len(idle) - self.window)]:
            del self._resident[name]

    def drop_idle(self) -> None:
        """Give up all that nobody uses."""
        self._resident = OrderedDict((name, entry) for name, entry in self._resident.items() if entry.references)

    @property
    def num_bytes(self) -> int:
        return sum(entry.adapter.num_bytes for entry in self._resident.values())

    @property
    def num_references(self) -> int:
        return sum(entry.references for entry in self._resident.values())

    @property
    def resident(self) -> tuple[PolicyVersion, ...]:
        return tuple(policy for policy, _ in self._resident)

"""Which adapter versions are in memory.

- A version is immutable and named by its policy; registered (somebody can read its file) and resident are different states.
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


@dataclass(slots=True)
class _Resident:
    adapter: FusedAdapter
    digest: str
    references: int = 0


class AdapterStore:
    def __init__(self, load: Loader, window: int) -> None:
        self._load, self.window = load, window
        self._resident: OrderedDict[PolicyVersion, _Resident] = OrderedDict()
        self.num_loads = 0

    def acquire(self, ref: AdapterRef) -> FusedAdapter:
        """The adapter, loaded if need be, with one more reference."""
        entry = self._resident.get(ref.policy)
        if entry is not None and entry.digest != ref.digest:
            raise AdapterError(
                f"adapter {ref.policy} is announced with digest {ref.digest!r} but is in memory with {entry.digest!r}.",
                "Versions are immutable: publish changed weights under a new version.",
            )
        if entry is None:
            self.num_loads += 1
            entry = self._resident[ref.policy] = _Resident(self._load(ref), ref.digest)
        entry.references += 1
        self._resident.move_to_end(ref.policy)
        return entry.adapter

    def release(self, policy: PolicyVersion) -> None:
        self._resident[policy].references -= 1
        self._evict()

    def _evict(self) -> None:
        idle = [policy for policy, entry in self._resident.items() if not entry.references]
        for policy in idle[: max(0, len(idle) - self.window)]:
            del self._resident[policy]

    @property
    def num_references(self) -> int:
        return sum(entry.references for entry in self._resident.values())

    @property
    def resident(self) -> tuple[PolicyVersion, ...]:
        return tuple(self._resident)

"""Which training call runs its next slice: first come first served, but a short call may go between a long one's slices.

- Calls complete in order of arrival, except that one with at most `SHORT_SLICES` left goes before a longer one.
- A long call is never passed by more than one short call between two of its own slices, so it cannot starve.
"""

from collections import OrderedDict

SHORT_SLICES = 1
"""Calls with at most so many slices left count as short."""


class SliceQueue:
    """Decides by name; the calls themselves are the caller's."""

    def __init__(self) -> None:
        self._left: OrderedDict[str, int] = OrderedDict()
        self._passed: str | None = None

    def add(self, name: str, num_slices: int) -> None:
        self._left[name] = num_slices

    def remove(self, name: str) -> None:
        self._left.pop(name, None)

    def __len__(self) -> int:
        return len(self._left)

    def next(self) -> str:
        """The call whose slice runs now."""
        head = next(iter(self._left))
        if self._left[head] > SHORT_SLICES and self._passed != head:
            short = next((name for name, left in self._left.items() if left <= SHORT_SLICES), None)
            if short is not None:
                self._passed = head
                return short
        self._passed = None
        return head

    def ran(self, name: str) -> None:
        """One slice of the call is done."""
        self._left[name] = max(0, self._left[name] - 1)

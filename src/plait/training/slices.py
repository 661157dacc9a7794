"""Which training call runs its next slice: first come first served, but a short call goes in between a long one's slices. Pure.

- The call that came first gets at least every second slice, so none starves: once first, it takes at most twice its own time.
- In between goes the shortest other call that has at most 1/`PASSING_FACTOR` of the head's slices left. So it waits for about as
  many slices of others as it has itself, however long the others are.
- Calls that are about as long as the one at the head wait for it: taking turns would only make both late.
"""

PASSING_FACTOR = 2
"""A call passes one with this many times its slices: it then ends before it otherwise would, and the other hardly later."""


class SliceQueue:
    """Decides by name; the calls themselves are the caller's."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}
        self._passed: str | None = None
        """The call at the head that the latest slice went past."""

    def add(self, name: str, num_slices: int) -> None:
        if name in self._left:
            raise ValueError(f"a call of {name!r} is in the queue already")
        self._left[name] = num_slices

    def remove(self, name: str) -> None:
        """Take a call out, complete or not; an unknown name is fine."""
        self._left.pop(name, None)

    def __len__(self) -> int:
        return len(self._left)

    def next(self) -> str:
        """The call whose slice runs now. Raise LookupError if there is none."""
        if not self._left:
            raise LookupError("no training call waits")
        head = next(iter(self._left))
        passing = self._passing(head) if self._passed != head else None
        self._passed = head if passing is not None else None
        return head if passing is None else passing

    def _passing(self, head: str) -> str | None:
        """The shortest call, first come first, that may go before the head's next slice."""
        shortest = min(self._left, key=lambda name: self._left[name])
        return shortest if PASSING_FACTOR * self._left[shortest] <= self._left[head] and shortest != head else None

    def ran(self, name: str) -> None:
        """One slice of the call is done."""
        self._left[name] = max(0, self._left[name] - 1)

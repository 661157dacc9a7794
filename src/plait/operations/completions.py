"""What of a sampler's requests has ended, for a client that asks about all of them at once. Pure.

- Ends are numbered in order. A client says up to where it has read (`cursor`), and gets what came after.
- What a client has said to have read is forgotten; before that it may be read again, for an answer can be lost.
"""

from collections import deque


class CompletionFeed:
    def __init__(self, cursor: int) -> None:
        """Numbers start after `cursor`."""
        self.cursor = cursor
        """Number of the latest end."""
        self._ends: deque[tuple[int, str]] = deque()

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, request_id: str) -> None:
        """A request has ended."""
        self.cursor += 1
        self._ends.append((self.cursor, request_id))

    def after(self, cursor: int) -> list[str]:
        """The ends after `cursor`, in order; up to it they are forgotten."""
        while self._ends and self._ends[0][0] <= cursor:
            self._ends.popleft()
        return [request_id for _, request_id in self._ends]

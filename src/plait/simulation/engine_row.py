"""Rows of a simulated engine, and the order in which they end."""

import heapq
from dataclasses import dataclass

from plait.types.chunks import Chunk

GONE = -1


@dataclass(slots=True, eq=False)
class Row:
    """A chunk in the batch, or on its way into it."""

    chunk: Chunk
    left: int
    """Tokens that its generation still draws."""
    num_tokens: int
    """That its chunk draws."""
    context_tokens: int
    """When it came."""
    prompt_tokens: int = 0
    """Tokens to be computed before its first step."""
    drawn: int = 0
    """By the time it joins."""
    number: int = 0
    joined: int = 0
    """Steps of the engine when it joined, less what it had drawn."""
    end: int = 0
    """Step of the engine after which it ends; `GONE`: it has no end here any more."""

    def __lt__(self, other: "Row") -> bool:
        return self.number < other.number


class RowEnds:
    """Rows by `end`. An entry whose row has another end by now is void, so that changing one takes O(log n)."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Row]] = []

    def put(self, row: Row, end: int) -> None:
        if row.end != end:
            row.end = end
            heapq.heappush(self._entries, (end, row))

    def first(self) -> int:
        """The next end. IndexError if there is none."""
        while self._entries[0][1].end != self._entries[0][0]:
            heapq.heappop(self._entries)
        return self._entries[0][0]

    def pop_until(self, step: int) -> list[Row]:
        """The rows that end by that step, first come first."""
        ended = []
        while self._entries and self._entries[0][0] <= step:
            end, row = heapq.heappop(self._entries)
            if row.end == end:
                row.end = GONE
                ended.append(row)
        return ended


class LongestContext:
    """Of rows that all draw one token a step. An entry whose row has left, or joined anew since, is void."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Row]] = []

    def put(self, row: Row) -> None:
        heapq.heappush(self._entries, (row.joined - row.context_tokens, row))

    def tokens(self, step: int) -> int:
        """By the beginning of a step; 0 without rows."""
        while self._entries:
            lead, row = self._entries[0]
            if row.end != GONE and lead == row.joined - row.context_tokens:
                return step - lead
            heapq.heappop(self._entries)
        return 0

"""The tokens of one request as they come in pieces, from any sender, in any order, any number of times.

A generation is a pure function of its request, so pieces that overlap agree: the first to come is kept.
"""

from collections.abc import Sequence

MAX_WAITING_PIECES = 256
"""Pieces kept beyond a gap; more are dropped, and come again from whoever holds the whole sequence."""


class TokenLog:
    """`num_tokens` tokens from position 0 on are known without a gap; later pieces wait until the gap is closed."""

    __slots__ = ("_waiting", "num_tokens")

    def __init__(self) -> None:
        self.num_tokens = 0
        self._waiting: dict[int, tuple[int, ...]] = {}

    def add(self, start: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Take a piece that begins at position `start`; return the tokens that are now known without a gap and were not before."""
        if start > self.num_tokens:
            self._wait(start, tuple(tokens))
            return ()
        found = tuple(tokens[self.num_tokens - start :])
        self.num_tokens += len(found)
        while self._waiting and (first := min(self._waiting)) <= self.num_tokens:
            more = self._waiting.pop(first)[self.num_tokens - first :]
            self.num_tokens += len(more)
            found += more
        return found

    def _wait(self, start: int, tokens: tuple[int, ...]) -> None:
        if len(tokens) > len(self._waiting.get(start, ())) and (start in self._waiting or len(self._waiting) < MAX_WAITING_PIECES):
            self._waiting[start] = tokens

"""Increments that wait to be sent, those of one request joined where they meet."""

from collections.abc import Sequence

from plait.drafting.draft import DraftIncrement


class Outbox:
    def __init__(self) -> None:
        self._pieces: list[tuple[str, str, int, list[int]]] = []
        self._last: dict[str, tuple[str, str, int, list[int]]] = {}

    def post(self, group: str, request: str, start: int, tokens: Sequence[int]) -> None:
        last = self._last.get(request)
        if last is not None and last[2] + len(last[3]) == start:
            last[3].extend(tokens)
        else:
            self._last[request] = piece = (group, request, start, list(tokens))
            self._pieces.append(piece)

    def drop(self, request: str) -> None:
        if self._last.pop(request, None) is not None:
            self._pieces = [piece for piece in self._pieces if piece[1] != request]

    def take(self) -> list[DraftIncrement]:
        """Return what was posted since the last call, in order."""
        taken = [DraftIncrement(group, request, start, tuple(tokens)) for group, request, start, tokens in self._pieces if tokens]
        self._pieces, self._last = [], {}
        return taken

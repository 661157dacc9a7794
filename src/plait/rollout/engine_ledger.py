"""What each engine has promised: rows, and tokens of its cache. Pure.

A chunk's tokens are reserved from the moment it is handed over until its result, its cancellation or the loss of its engine: so the
sum of what is reserved is the most that an engine can come to need. Nothing is reserved for a request between two chunks.
"""

from collections.abc import Callable
from dataclasses import dataclass

from plait.rollout.engine_state import EngineState


@dataclass(frozen=True, slots=True)
class Reservation:
    """One chunk's, at one engine."""

    engine: str
    request_id: str
    tokens: int


@dataclass(slots=True)
class _Account:
    cache_tokens: int
    is_here: bool = True
    reserved_tokens: int = 0
    num_rows: int = 0


class EngineLedger:
    """An engine that was lost stays known, and full, until one of its name comes again."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._reservations: dict[str, Reservation] = {}
        """By chunk id."""
        self._places: dict[str, int] = {}
        """Of engines, in the order in which they first came."""
        self._states: list[EngineState] = []
        """What schedulers were told, in that order,"""
        self._max_rows: list[int] = []
        """with so many rows at most."""
        self._changed: set[str] = set()
        """Engines that have changed since."""

    def add(self, engine: str, cache_tokens: int) -> None:
        """An engine comes, empty. Raises ValueError if one of that name is here."""
        if engine in self._accounts and self._accounts[engine].is_here:
            raise ValueError(f"engine {engine!r} is here already")
        self._accounts[engine] = _Account(cache_tokens)
        self._places.setdefault(engine, len(self._places))
        self._changed.add(engine)

    def lose(self, engine: str) -> None:
        """It is gone, with all that it had promised; fine if it is not here."""
        if engine in self._accounts:
            self._accounts[engine] = _Account(self._accounts[engine].cache_tokens, is_here=False)
            self._changed.add(engine)
        self._reservations = {chunk_id: held for chunk_id, held in self._reservations.items() if held.engine != engine}

    def reserve(self, chunk_id: str, engine: str, request_id: str, tokens: int) -> None:
        account = self._accounts[engine]
        if not account.is_here or chunk_id in self._reservations:
            raise ValueError(f"chunk {chunk_id!r} cannot be reserved at engine {engine!r}")
        self._reservations[chunk_id] = Reservation(engine, request_id, tokens)
        account.reserved_tokens += tokens
        account.num_rows += 1
        self._changed.add(engine)

    def free(self, chunk_id: str) -> Reservation | None:
        """What the chunk had; None if it has nothing (any more)."""
        held = self._reservations.pop(chunk_id, None)
        if held is not None:
            account = self._accounts[held.engine]
            account.reserved_tokens -= held.tokens
            account.num_rows -= 1
            self._changed.add(held.engine)
        return held

    def states(self, max_rows: Callable[[str], int]) -> list[EngineState]:
        """As a scheduler sees them, in the order in which they first came; `max_rows`: how many may run at one just now."""
        rows = list(map(max_rows, self._places))
        if rows == self._max_rows:
            found = self._states.copy()
            for name in self._changed:
                place = self._places[name]
                found[place] = self._state(name, rows[place])
        else:
            found = list(map(self._state, self._places, rows))
        self._states, self._max_rows, self._changed = found, rows, set()
        return found.copy()

    def _state(self, engine: str, max_rows: int) -> EngineState:
        account = self._accounts[engine]
        num_rows = account.num_rows if account.is_here else max_rows
        return EngineState(engine, account.cache_tokens, account.reserved_tokens, max_rows, num_rows)

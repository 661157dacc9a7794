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
        self._states: dict[str, EngineState] = {}
        """What schedulers were told, of engines where nothing has changed since."""

    def add(self, engine: str, cache_tokens: int) -> None:
        """An engine comes, empty. Raises ValueError if one of that name is here."""
        if engine in self._accounts and self._accounts[engine].is_here:
            raise ValueError(f"engine {engine!r} is here already")
        self._accounts[engine] = _Account(cache_tokens)
        self._states.pop(engine, None)

    def lose(self, engine: str) -> None:
        """It is gone, with all that it had promised; fine if it is not here."""
        if engine in self._accounts:
            self._accounts[engine] = _Account(self._accounts[engine].cache_tokens, is_here=False)
            self._states.pop(engine, None)
        self._reservations = {chunk_id: held for chunk_id, held in self._reservations.items() if held.engine != engine}

    def reserve(self, chunk_id: str, engine: str, request_id: str, tokens: int) -> None:
        account = self._accounts[engine]
        if not account.is_here or chunk_id in self._reservations:
            raise ValueError(f"chunk {chunk_id!r} cannot be reserved at engine {engine!r}")
        self._reservations[chunk_id] = Reservation(engine, request_id, tokens)
        account.reserved_tokens += tokens
        account.num_rows += 1
        self._states.pop(engine, None)

    def free(self, chunk_id: str) -> Reservation | None:
        """What the chunk had; None if it has nothing (any more)."""
        held = self._reservations.pop(chunk_id, None)
        if held is not None:
            account = self._accounts[held.engine]
            account.reserved_tokens -= held.tokens
            account.num_rows -= 1
            self._states.pop(held.engine, None)
        return held

    def states(self, max_rows: Callable[[str], int]) -> list[EngineState]:
        """As a scheduler sees them, in the order in which they first came; `max_rows`: how many may run at one just now."""
        return [self.state(name, max_rows(name)) for name in self._accounts]

    def state(self, engine: str, max_rows: int) -> EngineState:
        known = self._states.get(engine)
        if known is not None and known.max_rows == max_rows:
            return known
        account = self._accounts[engine]
        num_rows = account.num_rows if account.is_here else max_rows
        state = EngineState(engine, account.cache_tokens, account.reserved_tokens, max_rows, num_rows)
        self._states[engine] = state
        return state

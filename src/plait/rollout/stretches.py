"""Chunks that may go on past their budgets while nobody waits: a cut that serves nobody only costs. Pure.

- A stretch is granted when nothing waits and memory is ample: the engine's rows, all as long as its longest, fit its cache.
- It is taken back as soon as somebody waits: then chunks past their budgets end at the next token, the others at their budgets.
  So whoever comes waits for one decode step more than it would without, and nothing beyond budgets is ever reserved. An engine
  that finds no slot for a chunk takes its stretches back itself.
- Where an engine has nothing to do, another does not stretch more than one chunk: the rest may move over at their budgets.
"""

from collections.abc import Sequence

from plait.rollout.engine_state import EngineState
from plait.rollout.scheduler import Placement

MAX_CHUNKS = 16
"""A stretched chunk has at most so many budgets; what it draws is lost if its engine is."""


class Stretches:
    def __init__(self) -> None:
        self._chunks: dict[str, set[str]] = {}
        """Those that may stretch, by engine."""

    def grant(self, chunk_id: str, placement: Placement, engines: Sequence[EngineState]) -> int:
        """New tokens that the chunk may draw past its budget; the chunk is reserved already, and nothing waits."""
        engine = next(state for state in engines if state.name == placement.engine)
        if placement.request.max_chunk_tokens is not None or not self._may_stretch(engine, engines):
            return 0
        left = placement.request.remaining_tokens - placement.budget_tokens
        room = engine.cache_tokens // engine.num_rows - placement.footprint_tokens
        tokens = max(0, min(left, (MAX_CHUNKS - 1) * placement.budget_tokens, room))
        if tokens:
            self._chunks.setdefault(engine.name, set()).add(chunk_id)
        return tokens

    def _may_stretch(self, engine: EngineState, engines: Sequence[EngineState]) -> bool:
        return not self._chunks.get(engine.name) or not self._has_idle(engines)

    def _has_idle(self, engines: Sequence[EngineState]) -> bool:
        return any(engine.max_rows and not engine.num_rows for engine in engines)

    def ended(self, chunk_id: str, engine: str) -> None:
        self._chunks.get(engine, set()).discard(chunk_id)

    def lose(self, engine: str) -> None:
        self._chunks.pop(engine, None)

    def take_back(self, engines: Sequence[EngineState], num_waiting: int) -> list[str]:
        """Engines that are to end their stretches now; they have none from then on."""
        least = 1 if num_waiting else 2
        found = [name for name, chunks in self._chunks.items() if len(chunks) >= least]
        if found and not num_waiting and not self._has_idle(engines):
            return []
        for name in found:
            del self._chunks[name]
        return found

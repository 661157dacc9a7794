"""Requests in, chunks for engines out: scheduler, ledger and stretches together. Pure; the service and the simulator act for it.

- Every chunk has an id of its own; what it holds is free again with `ended`, with the removal of its request, or with its engine.
- `place` is to be called whenever something may have room: after requests came or went, chunks ended, engines came or were lost.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from plait.rollout.engine_ledger import EngineLedger, Reservation
from plait.rollout.engine_state import EngineState
from plait.rollout.request import GenerationRequest
from plait.rollout.scheduler import Placement, Scheduler
from plait.rollout.stretches import Stretches
from plait.types.chunks import Chunk


@dataclass(slots=True)
class Handed:
    """What to do now."""

    chunks: dict[str, list[Chunk]] = field(default_factory=dict)
    """By engine, to be submitted."""
    problems: list[Placement] = field(default_factory=list)
    """Requests that fit no engine; they have left the scheduler."""
    end_stretches: list[str] = field(default_factory=list)
    """Engines that are to be told so, after the chunks."""


class Dispatcher:
    """`max_rows`: how many chunks an engine may have just now."""

    def __init__(self, scheduler: Scheduler, max_rows: Callable[[str], int]) -> None:
        self.scheduler, self._max_rows = scheduler, max_rows
        self.num_moves: Counter[str] = Counter()
        """Chunks that went on at an engine after another had the one before, by the new engine's name."""
        self._ledger, self._stretches = EngineLedger(), Stretches()
        self.num_chunks = 0
        """Handed out, ever."""

    @property
    def engines(self) -> list[EngineState]:
        """What each has reserved; one that was lost and is not back is full."""
        return self._ledger.states(self._max_rows)

    def attach(self, engine: str, cache_tokens: int) -> None:
        """A fresh engine comes. ValueError if one of that name is here."""
        self._ledger.add(engine, cache_tokens)

    def detach(self, engine: str) -> None:
        """It is lost with its chunks and caches; they wait for room at the others, or for the next of its name."""
        self._ledger.lose(engine)
        self._stretches.lose(engine)
        for request in self.scheduler:
            if request.engine == engine:
                request.engine = ""
        self.scheduler.requeue_running(engine)

    def remove(self, request: GenerationRequest) -> bool:
        """Forget a request, if it is here; whether a chunk of it runs, which is to be cancelled."""
        was_running = self.scheduler.remove(request.request_id)
        if was_running:
            self._free(request.chunk_id)
        return was_running

    def ended(self, chunk_id: str) -> GenerationRequest | None:
        """The chunk's result is here: whose it is; None if nobody waits for it any more. Then `requeue` or `finish` it."""
        held = self._free(chunk_id)
        return None if held is None else self.scheduler.running(held.request_id)

    def _free(self, chunk_id: str) -> Reservation | None:
        held = self._ledger.free(chunk_id)
        if held is not None:
            self._stretches.ended(chunk_id, held.engine)
        return held

    def place(self) -> Handed:
        """All chunks that may start now."""
        handed, placed, engines = Handed(), list[Placement](), self.engines
        while (placement := self.scheduler.place(engines)) is not None:
            if placement.problem:
                self.scheduler.finish(placement.request.request_id)
                handed.problems.append(placement)
            else:
                self._reserve(placement)
                placed.append(placement)
                engines = self.engines
        is_ample = not self.scheduler.num_waiting
        for placement in placed:
            stretch = self._stretches.grant(placement.request.chunk_id, placement, engines) if is_ample else 0
            chunk = placement.request.next_chunk(placement.budget_tokens, stretch, placement.pull)
            handed.chunks.setdefault(placement.engine, []).append(chunk)
        handed.end_stretches = self._stretches.take_back(engines, self.scheduler.num_waiting)
        return handed

    def _reserve(self, placement: Placement) -> None:
        request, engine = placement.request, placement.engine
        self.num_chunks += 1
        if request.engine not in ("", engine):
            self.num_moves[engine] += 1
        request.engine, request.chunk_id = engine, f"{request.request_id}#{self.num_chunks}"
        self._ledger.reserve(request.chunk_id, engine, request.request_id, placement.footprint_tokens)

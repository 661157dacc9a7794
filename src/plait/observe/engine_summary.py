"""What one rollout engine has done so far, folded from its events. No clock inside; bounded memory."""

from plait.observe.engine_counters import HIT_TOKENS, acceptance, draft_length, grown, hit_share
from plait.observe.events import EngineSample
from plait.observe.snapshot import EngineSnapshot, WorkerSnapshot

MOVES = "moves"
"""Counted like a counter of the engine, though the controller counts it: it begins anew when the run is resumed."""


class EngineSummary:
    """Totals go on where the process, or the run, was started again."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self._latest: EngineSample | None = None
        self._counts: dict[str, float] = {}
        self._totals: dict[str, float] = {}
        self._num_working = 0
        """Samples while it had chunks."""
        self._reserved_shares = 0.0
        """Sum over these."""

    def add(self, event: EngineSample) -> None:
        counts = {**event.counters, MOVES: float(event.num_moves)}
        self._totals = grown(self._counts, counts, self._totals)
        self._counts, self._latest = counts, event
        if event.num_rows or event.num_waiting:
            self._num_working += 1
            self._reserved_shares += _reserved_share(event)

    def snapshot(self, worker: WorkerSnapshot | None) -> EngineSnapshot:
        """`worker` is the engine's process."""
        latest, totals = self._latest, dict(self._totals)
        num_moves = int(totals.pop(MOVES, 0.0))
        shares = {tier: hit_share(totals, [tier]) for tier in HIT_TOKENS}
        return EngineSnapshot(
            engine=self.engine,
            idle_share=_idle(worker.utilisation if worker else None),
            idle_share_recent=_idle(worker.utilisation_recent if worker else None),
            num_rows=latest.num_rows if latest else 0,
            num_queued=latest.num_queued if latest else 0,
            reserved_share=_reserved_share(latest) if latest else None,
            reserved_share_mean=self._reserved_shares / self._num_working if self._num_working else None,
            num_moves=num_moves,
            hit_share=hit_share(totals),
            hit_shares={tier: share for tier, share in shares.items() if share},
            acceptance=acceptance(totals),
            draft_length=draft_length(totals),
            counters=totals,
        )


def _reserved_share(event: EngineSample) -> float:
    return event.reserved_tokens / event.cache_tokens if event.cache_tokens else 0.0


def _idle(utilisation: float | None) -> float | None:
    return None if utilisation is None else max(0.0, 1.0 - utilisation)

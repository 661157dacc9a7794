"""What one worker has done so far, folded from its events. No clock inside; bounded memory."""

from plait.observe.events import WorkerSpan
from plait.observe.meters import MERGE_GAP_S, UTILISATION_WINDOW_S, BusyMeter
from plait.observe.snapshot import WorkerSnapshot


class WorkerSummary:
    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.is_lost = False
        self.task = ""
        self.meter = BusyMeter()
        self._active_before_s = 0.0
        self._started_s: float | None = None

    def start(self, now_s: float, earlier_end_s: float | None) -> None:
        """The run comes up; an earlier stretch, if any, ended at `earlier_end_s`."""
        self._active_before_s = self.active_s(earlier_end_s) if earlier_end_s is not None else 0.0
        self._started_s = now_s
        self.is_lost = False
        self.meter.start(now_s)

    def add_span(self, event: WorkerSpan) -> None:
        if self._started_s is None:
            self._started_s = event.start_s
        self.is_lost = False
        self.task = event.task
        self.meter.add(event.start_s, event.time_s, event.num_tokens)

    def active_s(self, now_s: float) -> float:
        """How long this worker could have worked."""
        return self._active_before_s + (max(0.0, now_s - self._started_s) if self._started_s is not None else 0.0)

    def snapshot(self, now_s: float) -> WorkerSnapshot:
        active_s = self.active_s(now_s)
        window_s = min(UTILISATION_WINDOW_S, now_s - self._started_s) if self._started_s is not None else 0.0
        recent_busy_s, recent_tokens = self.meter.recent(now_s, window_s)
        free_since_s = self.meter.free_since_s
        idle_s = 0.0 if free_since_s is None else max(0.0, now_s - free_since_s)
        return WorkerSnapshot(
            worker=self.worker,
            is_lost=self.is_lost,
            task=self.task,
            utilisation=min(1.0, self.meter.busy_s / active_s) if active_s > 0 else None,
            utilisation_recent=min(1.0, recent_busy_s / window_s) if window_s > 0 else None,
            tokens_per_s=recent_tokens / window_s if window_s > 0 and recent_tokens > 0 else None,
            busy_s=self.meter.busy_s,
            idle_s=idle_s if idle_s >= MERGE_GAP_S else 0.0,
            num_idle_spans=self.meter.num_idle_spans,
            longest_idle_s=self.meter.longest_idle_s,
            idle_spans=tuple(self.meter.idle_spans),
        )

"""TensorBoard and W&B as followers of the event log, which stays the truth.

- A follower works in a thread of its own: neither a slow nor a hanging tracker holds the run up.
- Its first failure turns it off, and one warning says so; the run does not notice otherwise.
- It is given the events of the log so far as `history`, so that a resumed run shows one curve without holes.
- Each point goes out once: a step or evaluation that was written before is skipped.
- What was not measured is not sent, not even as zero.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from plait.config.run import TrackingSettings
from plait.observe.events import AnyEvent, EvaluationDone, Event, Note, RunStarted, StepCommitted

MAX_QUEUED_EVENTS = 10_000
"""A tracker that is so far behind is turned off."""

CLOSE_TIMEOUT_S = 30.0
"""How long the end of a run waits for a tracker. On a busy machine W&B needs more than ten seconds only to start."""

STEP_VALUES = (
    "reward_mean", "reward_std", "loss", "grad_norm", "learning_rate", "num_sequences", "num_trained_tokens",
    "num_sampled_tokens", "num_groups_without_gradient", "num_dropped_groups", "kl_to_base", "ratio_mean", "logprob_gap_max",
    "staleness_mean", "rollout_s", "environment_s", "queued_s", "training_s",
)  # fmt: skip


class Tracker(Protocol):
    """Where points go. May raise anything; is used by one thread."""

    def record(self, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TrackerFollower:
    """Feeds one tracker. `make_tracker` is called in the follower's thread with the first start of the run.

    `on_note` is called in the thread that calls `on_event` or `close`, at the next such call after the failure.
    """

    def __init__(
        self,
        name: str,
        make_tracker: Callable[[RunStarted], Tracker],
        on_note: Callable[[Note], None],
        history: Iterable[Event] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._name, self._make_tracker, self._on_note, self._history, self._clock = name, make_tracker, on_note, history, clock
        self._queue: queue.Queue[Event | None] = queue.Queue(MAX_QUEUED_EVENTS)
        self._failures: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._tracker: Tracker | None = None
        self._is_off, self._failing = False, threading.Lock()
        self._latest: dict[tuple[str, str], int] = {}
        self._thread = threading.Thread(target=self._run, name=f"tracker-{name}", daemon=True)
        self._thread.start()

    def on_event(self, event: Event) -> None:
        """Returns at once."""
        self._tell_failures()
        if isinstance(event, RunStarted | StepCommitted | EvaluationDone) and not self._is_off:
            try:
                self._queue.put_nowait(event)
            except queue.Full:
                self._fail(f"it is {MAX_QUEUED_EVENTS} events behind")

    def close(self) -> None:
        """Flush, within `CLOSE_TIMEOUT_S`."""
        if not self._is_off:
            try:
                self._queue.put(None, timeout=CLOSE_TIMEOUT_S)
            except queue.Full:
                self._fail("it did not take the last events in time")
        self._thread.join(CLOSE_TIMEOUT_S)
        if self._thread.is_alive():
            self._fail(f"it did not finish within {CLOSE_TIMEOUT_S:.0f} s")
        self._tell_failures()

    def _run(self) -> None:
        try:
            for event in self._history:
                self._take(event)
            self._history = ()
            for event in iter(self._queue.get, None):
                if self._is_off:
                    return
                self._take(event)
            if self._tracker is not None:
                self._tracker.close()
        except Exception as error:  # A tracker's failure, of whatever kind, must not become the run's.
            self._fail(_describe(error))

    def _take(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._tracker = self._tracker or self._make_tracker(event)
        if self._tracker is None:
            return
        if isinstance(event, StepCommitted):
            self._record("step", event.task, event.step, event.time_s, step_values(event))
        elif isinstance(event, EvaluationDone):
            self._record("evaluation", event.task, event.version, event.time_s, {"accuracy": event.accuracy})

    def _record(self, kind: str, task: str, step: int, time_s: float, values: Mapping[str, float]) -> None:
        if step > self._latest.get((kind, task), -1) and self._tracker is not None:
            self._latest[kind, task] = step
            self._tracker.record(task, step, time_s, values)

    def _fail(self, why: str) -> None:
        with self._failing:
            was_off, self._is_off = self._is_off, True
        if not was_off:
            self._failures.put(f"{self._name} is off for the rest of the run: {why}. The event log has everything.")

    def _tell_failures(self) -> None:
        while not self._failures.empty():
            self._on_note(Note(time_s=self._clock(), level="warning", message=self._failures.get()))


def step_values(event: StepCommitted) -> dict[str, float]:
    """What was measured in a step, by name."""
    values = {name: float(value) for name in STEP_VALUES if (value := getattr(event, name)) is not None}
    values |= {f"environment/{name}": value for name, value in event.environment_metrics.items()}
    return values | {f"stop/{name}": float(count) for name, count in event.stop_counts.items()}


def make_followers(
    settings: TrackingSettings,
    folder: Path,
    on_note: Callable[[Note], None],
    read_history: Callable[[], Iterable[AnyEvent]] = tuple,
) -> list[TrackerFollower]:
    """One follower for each tracker that is turned on; `read_history` gives the log's events and is called for each."""
    followers = []
    if settings.tensorboard:
        followers.append(TrackerFollower("TensorBoard", lambda start: _make_tensorboard(folder), on_note, read_history()))
    if settings.wandb:
        followers.append(TrackerFollower("Weights & Biases", lambda start: _make_wandb(folder, start), on_note, read_history()))
    return followers


def _make_tensorboard(folder: Path) -> Tracker:
    from plait.observe.tensorboard_tracker import TensorBoardTracker

    return TensorBoardTracker(folder / "tensorboard")


def _make_wandb(folder: Path, start: RunStarted) -> Tracker:
    from plait.observe.wandb_tracker import WandbTracker

    return WandbTracker(folder, start)


def _describe(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"the package {error.name.split('.')[0]!r} is not installed (pip install 'plait[trackers]')"
    return f"{type(error).__name__}: {error}".rstrip(". ")

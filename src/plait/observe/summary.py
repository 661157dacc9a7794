"""What a run has done so far: a fold over its events, for the live table, status, the report and the simulator.

- `apply` depends on the event alone and `snapshot` on the events and the time passed in: no clock, no files.
- A fact that was written twice (a step, an evaluation) counts once, with the numbers of the last event.
- A resumed run is one run: gaps between an interruption and the resume count as neither busy nor idle.
- Memory does not grow with the number of events.
"""

from collections.abc import Iterable

import msgspec

from plait.observe import events as e
from plait.observe.engine_summary import EngineSummary
from plait.observe.group_summary import GroupSummary
from plait.observe.snapshot import NoteCount, RunSnapshot
from plait.observe.task_summary import TaskSummary
from plait.observe.worker_summary import WorkerSummary

MAX_NOTES = 50
"""How many different notes are kept; of one message only the count grows."""


class RunSummary:
    def __init__(self, events: Iterable[e.Event] = ()) -> None:
        self.status = "pending"
        self.tasks: dict[str, TaskSummary] = {}
        self.workers: dict[str, WorkerSummary] = {}
        self.engines: dict[str, EngineSummary] = {}
        self.groups: dict[str, GroupSummary] = {}
        self.latest_s: float | None = None
        """Time of the latest event."""
        self._start: e.RunStarted | None = None
        self._first_start_s: float | None = None
        self._num_starts = 0
        self._active_before_s = 0.0
        self._num_steps = 0
        self._first_step_s: float | None = None
        self._notes: dict[tuple[str, str, str], int] = {}
        for event in events:
            self.apply(event)

    def apply(self, event: e.Event) -> None:
        """Take one event in. Kinds it has no use for change nothing but `latest_s`."""
        match event:
            case e.RunStarted():
                self._start_run(event)
            case e.RunEnded():
                self.status = event.status
            case e.TaskStateChanged():
                self._task(event.task).change_state(event)
            case e.PhaseSpan():
                self._task(event.task).add_phase(event)
            case e.StepCommitted():
                self._add_step(event)
            case e.EvaluationDone():
                self._task(event.task).add_evaluation(event)
            case e.RewardError():
                self._task(event.task).add_error(event)
            case e.WorkerSpan():
                self._worker(event.worker).add_span(event)
            case e.EngineSample():
                self.engines.setdefault(event.engine, EngineSummary(event.engine)).add(event)
            case e.GroupSample():
                self.groups.setdefault(event.group, GroupSummary(event.group)).add(event)
            case e.WorkerLost():
                self._lose_worker(event)
            case e.Note():
                self._note(event.level, event.message, event.task)
        self.latest_s = event.time_s if self.latest_s is None else max(self.latest_s, event.time_s)

    def _start_run(self, event: e.RunStarted) -> None:
        self._active_before_s = self.active_s(self.latest_s) if self.latest_s is not None else 0.0
        self._first_start_s = event.time_s if self._first_start_s is None else self._first_start_s
        self._start, self.status = event, "running"
        self._num_starts += 1
        for name in event.tasks:
            task = self._task(name)
            task.total_steps = event.total_steps.get(name)
            task.start(event.time_s)
        for name in {**dict.fromkeys(event.workers), **self.workers}:
            self._worker(name).start(event.time_s, self.latest_s)

    def _add_step(self, event: e.StepCommitted) -> None:
        if self._task(event.task).add_step(event):
            self._num_steps += 1
            self._first_step_s = event.time_s if self._first_step_s is None else self._first_step_s

    def _lose_worker(self, event: e.WorkerLost) -> None:
        self._worker(event.worker).is_lost = True
        self._note("warning", f"worker {event.worker} was lost: {event.cause}", "")

    def _note(self, level: str, message: str, task: str) -> None:
        key = (level, message, task)
        if key in self._notes or len(self._notes) < MAX_NOTES:
            self._notes[key] = self._notes.get(key, 0) + 1

    def _task(self, name: str) -> TaskSummary:
        return self.tasks.setdefault(name, TaskSummary(name))

    def _worker(self, name: str) -> WorkerSummary:
        return self.workers.setdefault(name, WorkerSummary(name))

    @property
    def has_ended(self) -> bool:
        return self.status not in ("pending", "running")

    @property
    def process_id(self) -> int:
        return self._start.process_id if self._start else 0

    @property
    def process_started_s(self) -> float | None:
        """When the process that runs it, or ran it last, wrote its first event."""
        return self._start.time_s if self._start else None

    def active_s(self, now_s: float) -> float:
        """How long the run was up until `now_s`, or until its last event if it has ended."""
        if self._start is None:
            return 0.0
        end_s = self.latest_s if self.has_ended and self.latest_s is not None else now_s
        return self._active_before_s + max(0.0, end_s - self._start.time_s)

    def remaining_s(self, now_s: float) -> float | None:
        """The longest estimate of any task; None while one cannot be told."""
        estimates = [task.remaining_s(now_s) for task in self.tasks.values()]
        known = [estimate for estimate in estimates if estimate is not None]
        return max(known) if known and len(known) == len(estimates) else None

    def snapshot(self, now_s: float) -> RunSnapshot:
        """The state at `now_s`; after the end, at the end."""
        at_s = self.latest_s if self.has_ended and self.latest_s is not None else now_s
        active_s, first_s, start = self.active_s(at_s), self._first_start_s, self._start
        workers = {name: worker.snapshot(at_s) for name, worker in self.workers.items()}
        models = start.task_models if start else {}
        return RunSnapshot(
            run=start.run if start else "",
            model=start.model if start else "",
            device=start.device if start else "",
            dtype=start.dtype if start else "",
            status=self.status,
            process_id=self.process_id,
            num_starts=self._num_starts,
            started_s=first_s,
            active_s=active_s,
            steps=self._num_steps,
            steps_per_hour=self._num_steps / active_s * 3600 if active_s > 0 and self._num_steps else None,
            time_to_first_step_s=None if self._first_step_s is None or first_s is None else self._first_step_s - first_s,
            remaining_s=self.remaining_s(at_s),
            tasks=tuple(
                msgspec.structs.replace(task.snapshot(at_s, first_s), model=models.get(name, ""))
                for name, task in self.tasks.items()
            ),
            workers=tuple(workers.values()),
            engines=tuple(engine.snapshot(workers.get(name)) for name, engine in self.engines.items()),
            groups=tuple(group.snapshot() for group in self.groups.values()),
            notes=tuple(NoteCount(level, message, task, count) for (level, message, task), count in self._notes.items()),
        )

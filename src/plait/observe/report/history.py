"""Everything the report needs to know of a run, collected from its events."""

from collections.abc import Iterable
from typing import NamedTuple

from plait.observe import events as e
from plait.observe.summary import RunSummary


class Session(NamedTuple):
    """A stretch during which the run was up."""

    start_s: float
    end_s: float


class TaskHistory:
    def __init__(self) -> None:
        self.steps: dict[tuple[str, int], e.StepCommitted] = {}
        self.evaluations: dict[tuple[int, str], e.EvaluationDone] = {}
        self.phases: list[e.PhaseSpan] = []
        self.errors: list[e.RewardError] = []

    @property
    def ordered_steps(self) -> list[e.StepCommitted]:
        return sorted(self.steps.values(), key=lambda step: step.step)

    @property
    def ordered_evaluations(self) -> list[e.EvaluationDone]:
        return sorted(self.evaluations.values(), key=lambda evaluation: (evaluation.version, evaluation.when != "before"))


class RunHistory:
    """Of events with one key the last one counts. Tasks and workers are in the order in which they were first named.

    A log may lack its beginning, or be put together of several: whatever an event names is there.
    """

    def __init__(self, events: Iterable[e.AnyEvent]) -> None:
        self.summary = RunSummary()
        self.start: e.RunStarted | None = None
        self.sessions: list[Session] = []
        self.tasks: dict[str, TaskHistory] = {}
        self.workers: dict[str, list[e.WorkerSpan]] = {}
        self.announced: set[str] = set()
        """Tasks that a start of the run named."""
        for event in events:
            self._take(event)
            self.summary.apply(event)

    def _take(self, event: e.AnyEvent) -> None:
        self._extend_session(event)
        match event:
            case e.RunStarted():
                self.start = self.start or event
                self.announced.update(event.tasks)
                for task in event.tasks:
                    self._task(task)
                for worker in event.workers:
                    self.workers.setdefault(worker, [])
            case e.TaskStateChanged():
                self._task(event.task)
            case e.StepCommitted():
                self._task(event.task).steps[event.phase, event.step] = event
            case e.EvaluationDone():
                self._task(event.task).evaluations[event.version, event.when] = event
            case e.PhaseSpan():
                self._task(event.task).phases.append(event)
            case e.RewardError():
                self._task(event.task).errors.append(event)
            case e.WorkerSpan():
                self.workers.setdefault(event.worker, []).append(event)

    def _extend_session(self, event: e.AnyEvent) -> None:
        if isinstance(event, e.RunStarted) or not self.sessions:
            self.sessions.append(Session(event.time_s, event.time_s))
        else:
            start_s, end_s = self.sessions[-1]
            self.sessions[-1] = Session(start_s, max(end_s, event.time_s))

    def _task(self, name: str) -> TaskHistory:
        return self.tasks.setdefault(name, TaskHistory())

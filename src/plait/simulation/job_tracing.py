"""When a job's trace is recorded and told to the placer: soon after its start, so that it can share, and then now and again."""

from plait.placement.demand_trace import DemandTrace
from plait.placement.extraction import MIN_PERIODS
from plait.simulation.jobs import SimulatedJob

FIRST_STEPS = MIN_PERIODS + 3
EVERY_STEPS = 64
RECORDED_STEPS = 12
"""The trace has the latest steps before it is told."""


class JobTracing:
    def __init__(self, job: SimulatedJob, every_steps: int = EVERY_STEPS) -> None:
        self._job, self._every_steps = job, every_steps
        self._next = job.steps_done + FIRST_STEPS
        self._begin()

    def _begin(self) -> None:
        self._trace = DemandTrace()
        self._job.record = self._trace.record

    def step_ended(self) -> DemandTrace | None:
        """The trace, if it is to be told now."""
        done = self._job.steps_done
        if done == self._next:
            trace = self._trace
            self._next = done + self._every_steps
            self._job.record = None
            if self._every_steps <= RECORDED_STEPS:
                self._begin()
            return trace
        if done == self._next - RECORDED_STEPS:
            self._begin()
        return None

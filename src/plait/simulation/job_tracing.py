"""When a job's trace is recorded and told to the placer: soon after its start, so that it can share, and then now and again."""

from functools import partial

import msgspec

from plait.placement.demand_trace import DemandTrace
from plait.placement.drift import Look
from plait.placement.extraction import MIN_PERIODS, Extraction, extract
from plait.simulation.ended_calls import EndedCalls
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
        self._calls: list[EndedCalls] = []
        self._job.record = self._calls.append

    def step_ended(self, now_s: float) -> Look | None:
        """The trace, if it is to be told now."""
        done = self._job.steps_done
        if done == self._next:
            look = partial(_look, self._calls, now_s - self._job.own_s)
            self._next = done + self._every_steps
            self._job.record = None
            if self._every_steps <= RECORDED_STEPS:
                self._begin()
            return look
        if done == self._next - RECORDED_STEPS:
            self._begin()
        return None


def _look(calls: list[EndedCalls], own_clock_s: float) -> Extraction:
    """Its anchor is of the clock; `own_clock_s`: how far the job's own is behind."""
    trace = DemandTrace()
    for several in calls:
        several.tell(trace.record)
    found = extract(trace)
    return msgspec.structs.replace(found, anchor_s=own_clock_s + found.anchor_s)

"""Drives one group's queue through a load, on a clock of its own: the objects are those of a server."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.hrrs_loads import Ask, Batch, Job, Load
from benchmarks.hrrs_overtaking import WatchedHrrs
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.group_totals import GroupTotals
from plait.scheduling.orders import Order
from plait.scheduling.resident_slots import ResidentSlots
from plait.scheduling.service_times import ServiceTimes
from plait.scheduling.setup_times import SetupTimes

OFFLOAD_SHARE = 0.4
"""Of a setup."""


@dataclass
class Outcome:
    totals: GroupTotals
    end_s: float = 0.0
    slowdowns: list[float] = field(default_factory=list)
    """Of each call: from its arrival to its end, over its service."""
    job_slowdowns: list[float] = field(default_factory=list)
    """Of each job: the time in which any of its calls was unanswered, over what the calls take alone."""


class Run:
    def __init__(self, load: Load, jobs: Sequence[Job], order: Order) -> None:
        self._load = load
        self._services = ServiceTimes()
        times = SetupTimes()
        for number, job in enumerate(jobs):
            times.observe_offload(job.deployment, OFFLOAD_SHARE * load.setup_s(number))
            times.observe_load(job.deployment, "host", (1 - OFFLOAD_SHARE) * load.setup_s(number))
        self._slots = ResidentSlots(times)
        self._queue = GroupQueue(order, self._services, self._slots)
        self._watched = order if isinstance(order, WatchedHrrs) else None
        self._jobs = [_JobState(job) for job in jobs]
        self._events: list[tuple[float, int]] = []
        """When the next batch of which job arrives."""
        self._asks: dict[str, tuple[int, Ask]] = {}
        """Of the calls that wait: whose, and what."""
        self._num_calls = 0
        self._outcome = Outcome(self._queue.totals)

    def run(self) -> Outcome:
        now_s = 0.0
        for number in range(len(self._jobs)):
            self._plan(number, 0.0)
        while self._events or self._asks:
            if not self._asks:
                now_s = max(now_s, self._events[0][0])
            while self._events and self._events[0][0] <= now_s:
                self._arrive(*heapq.heappop(self._events))
            now_s = self._serve(now_s)
        self._outcome.end_s = now_s
        self._outcome.job_slowdowns = [state.busy_s / state.job.service_s for state in self._jobs]
        return self._outcome

    def _plan(self, number: int, now_s: float) -> None:
        state = self._jobs[number]
        if state.next_batch < len(state.job.batches):
            heapq.heappush(self._events, (now_s + state.job.batches[state.next_batch].after_s, number))

    def _arrive(self, arrival_s: float, number: int) -> None:
        state = self._jobs[number]
        for ask in state.arrive(arrival_s).asks:
            self._num_calls += 1
            call = FunctionCall(
                str(self._num_calls), state.job.deployment, ask.function, state.job.name, ask.size_tokens, arrival_s
            )
            self._asks[call.call_id] = number, ask
            self._queue.add(call)
            if self._watched:
                self._watched.added(call)
        if not self._load.is_closed:
            self._plan(number, arrival_s)

    def _serve(self, now_s: float) -> float:
        call = self._queue.next(now_s)
        assert call
        number, ask = self._asks.pop(call.call_id)
        end_s = now_s + self._slots.setup_s(call.deployment) + ask.service_s
        self._slots.enter(call.deployment)
        self._queue.done(call.call_id, ask.service_s, end_s)
        self._outcome.slowdowns.append((end_s - call.arrival_s) / ask.service_s)
        if self._jobs[number].answer(end_s) and self._load.is_closed:
            self._plan(number, end_s)
        return end_s


@dataclass
class _JobState:
    job: Job
    next_batch: int = 0
    num_open: int = 0
    since_s: float = 0.0
    """When the first of the open calls arrived."""
    busy_s: float = 0.0

    def arrive(self, arrival_s: float) -> Batch:
        batch = self.job.batches[self.next_batch]
        if not self.num_open:
            self.since_s = arrival_s
        self.next_batch += 1
        self.num_open += len(batch.asks)
        return batch

    def answer(self, end_s: float) -> bool:
        """Whether it was the last open one."""
        self.num_open -= 1
        if not self.num_open:
            self.busy_s += end_s - self.since_s
        return not self.num_open

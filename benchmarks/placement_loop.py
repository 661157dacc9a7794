"""A coarse event loop over a placer: jobs arrive, run at 1 / slowdown of their own speed as the placer expects it, and end.

A job placed without a profile has one after PERIODS_TO_PROFILE of its periods.
"""

import heapq
import time
from collections.abc import Sequence

import msgspec

from benchmarks.placement_jobs import Arrival
from plait.placement.decision import Action, Decision
from plait.placement.placer import Placer

PERIODS_TO_PROFILE = 6


class Outcome(msgspec.Struct, frozen=True):
    """`device_hours`: of the groups that existed, in use or not; `slowdowns`: time placed over time alone, by job."""

    makespan_s: float
    device_hours: float
    slowdowns: dict[str, float]
    waits_s: list[float]
    decisions_s: list[float]


class _Running(msgspec.Struct):
    started_s: float
    left_s: float
    as_of_s: float
    slowdown: float
    version: int = 0


class Loop:
    def __init__(self, placer: Placer, stream: Sequence[Arrival]) -> None:
        self._placer = placer
        self._by_id = {arrival.job.job_id: arrival for arrival in stream}
        self._running: dict[str, _Running] = {}
        self._events: list[tuple[float, int, str, str, int]] = []
        self._count = 0
        self._now_s = self._device_s = 0.0
        self._slowdowns: dict[str, float] = {}
        self._waits_s: list[float] = []
        self._decisions_s: list[float] = []
        for arrival in stream:
            self._push(arrival.at_s, "arrive", arrival.job.job_id)

    def run(self, max_decisions: int | None = None) -> Outcome:
        """To the end, or until so many decisions have been timed."""
        while self._events and (max_decisions is None or len(self._decisions_s) < max_decisions):
            at_s, _, kind, job_id, version = heapq.heappop(self._events)
            if kind == "end" and (job_id not in self._running or self._running[job_id].version != version):
                continue
            self._device_s += (at_s - self._now_s) * sum(group.num_devices for group in self._placer.groups.groups.values())
            self._now_s = at_s
            self._apply(self._decide(kind, job_id))
        if self._placer.queue and max_decisions is None:
            raise RuntimeError(f"{len(self._placer.queue)} jobs still wait with nothing running")
        return Outcome(self._now_s, self._device_s / 3600, self._slowdowns, self._waits_s, self._decisions_s)

    def _decide(self, kind: str, job_id: str) -> list[Decision]:
        start_s = time.process_time()
        if kind == "arrive":
            decisions = [self._placer.submit(self._by_id[job_id].job, self._now_s)]
        elif kind == "end":
            self._ended(job_id)
            decisions = self._placer.job_ended(job_id, self._now_s)
        elif job_id in self._running:
            decisions = self._placer.profile_updated(
                job_id, self._by_id[job_id].profile, self._now_s, self._running[job_id].started_s
            )
        else:
            return []
        self._decisions_s.append(time.process_time() - start_s)
        return decisions

    def _ended(self, job_id: str) -> None:
        alone_s = self._by_id[job_id].job.expected_s
        self._slowdowns[job_id] = (self._now_s - self._running.pop(job_id).started_s) / alone_s

    def _apply(self, decisions: Sequence[Decision]) -> None:
        for decision in decisions:
            if decision.action == Action.REJECTED:
                raise RuntimeError(decision.reason)
            if decision.action == Action.PLACED:
                self._start(decision)
        for job_id, running in self._running.items():
            slowdown = self._placer.slowdown(job_id)
            if slowdown != running.slowdown:
                running.left_s -= (self._now_s - running.as_of_s) / running.slowdown
                running.as_of_s, running.slowdown, running.version = self._now_s, slowdown, running.version + 1
                self._push(self._now_s + running.left_s * slowdown, "end", job_id, running.version)

    def _start(self, decision: Decision) -> None:
        arrival = self._by_id[decision.job_id]
        start_s = self._now_s + decision.shift_s
        self._waits_s.append(self._now_s - arrival.at_s)
        self._running[decision.job_id] = _Running(start_s, arrival.job.expected_s, start_s, 1.0)
        self._push(start_s + arrival.job.expected_s, "end", decision.job_id)
        if self._placer.groups.jobs[decision.job_id].profile is None:
            self._push(start_s + PERIODS_TO_PROFILE * arrival.profile.period_s, "profile", decision.job_id)

    def _push(self, at_s: float, kind: str, job_id: str, version: int = 0) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_s, self._count, kind, job_id, version))

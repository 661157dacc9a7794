"""A worker group in simulated time: the service's own queue and ledger decide what runs and what moves.

- One call at a time, setup before it, never interrupted but by `withdraw`: its job moved, or its devices are lost.
- Beside a call comes who is next, as the service's own lookahead has it: only what is left of that is setup.
- Jobs submit *stretches*: calls one after another, with delays between. While nobody else has a call here all of them are one
  event, since nobody could get in between. As soon as another call comes, the stretch ends with the call that runs; in a delay, at
  once. So what runs when is as if each call were submitted by itself.
"""

from collections.abc import Callable

import simpy

from plait.cluster.groups.lookahead import Lookahead
from plait.placement.job import Role
from plait.residency.tier import Tier
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes
from plait.simulation.call_stretch import CallStretch
from plait.simulation.group_meter import GroupMeter
from plait.simulation.group_residency import GroupResidency

TRAIN = Role.TRAIN
"""Members of an enumeration are looked up slowly, and this one with every call."""
OnBusy = Callable[[str, float, float, str, str], None]
"""(group, start, end, deployment, "setup" or the function)"""


class SimulatedGroup:
    """`on_busy` is told of all that its devices do, as it ends."""

    def __init__(
        self, env: simpy.Environment, name: str, residency: GroupResidency, order: Order, meter: GroupMeter,
        on_busy: OnBusy | None = None,
    ) -> None:  # fmt: skip
        self.env, self.name, self.residency, self.meter, self._on_busy = env, name, residency, meter, on_busy
        self.services = ServiceTimes()
        self.queue = GroupQueue(order, self.services, residency)
        self._lookahead = Lookahead(self.queue, residency)
        self._works: dict[str, CallStretch] = {}
        """All that wait or run, by call_id."""
        self._running: CallStretch | None = None
        self._start_s = 0.0
        """Of what runs, without its setup."""
        self._setup_s = 0.0
        self._end: simpy.Event | None = None
        """Of what runs; that of a withdrawn call comes all the same."""

    def join(self, deployment: str, num_bytes: int, tier: Tier) -> None:
        """Calls of a deployment may come; its state lies in `tier`."""
        self.residency.join(deployment, num_bytes, tier)

    def leave(self, deployment: str) -> None:
        """None of its calls waits or runs."""
        self.residency.leave(deployment)

    def submit(self, work: CallStretch) -> None:
        """What it will take, nobody is told before it ends."""
        call, now_s = work.call, self.env.now
        self._works[call.call_id] = work
        if self._running is not None and self._running.num_calls > 1:
            self._give_way(self._running, now_s)
        if self._running is None and not len(self.queue):
            self.queue.start(call, now_s)
            self._run(work, now_s)
            return
        self.queue.add(call)
        if self._running is None:
            self._start(now_s)
        elif self.residency.may_stage:
            self._look_ahead(now_s)

    def withdraw(self, call_id: str, is_kept: bool = False) -> tuple[int, float]:
        """It neither waits nor runs any more. How many of its calls have ended, and seconds that the next one ran, lost or kept."""
        work, now_s = self._works.pop(call_id), self.env.now
        if work is not self._running:
            self.queue.remove(call_id)
            return 0, 0.0
        num_ended, ran_s, work.ended_s = work.progress(self._start_s, now_s)
        self._free(work, num_ended, now_s)
        self.meter.uncount(work.num_calls - num_ended - (work.ended_s is None))
        setup_s = self._setup_s + min(0.0, now_s - self._start_s)
        self.meter.ran(work, num_ended, setup_s, now_s, ran_s, is_kept)
        self._tell(work, num_ended, setup_s, ran_s)
        self._start(now_s)
        return num_ended, ran_s

    def num_ended(self, call_id: str) -> int:
        """Calls of a stretch that have ended by now."""
        work = self._works[call_id]
        return work.progress(self._start_s, self.env.now).num_ended if work is self._running else 0

    def close(self) -> None:
        """It is no more; nothing waits or runs."""
        self.meter.close(self.env.now)

    def _start(self, now_s: float) -> None:
        call = self.queue.next(now_s)
        if call is None:
            return
        work, others_wait = self._works[call.call_id], len(self.queue) > 0
        if others_wait:
            work.num_calls = 1
        self._run(work, now_s)
        if others_wait and self.residency.may_stage:
            self._look_ahead(now_s)

    def _run(self, work: CallStretch, now_s: float) -> None:
        call = work.call
        self.meter.started(call, work.num_calls, now_s - call.arrival_s)
        self._setup_s = self.residency.enter(call.deployment, now_s)
        self._running, self._start_s = work, now_s + self._setup_s
        self._end_at(work.end_s(self._start_s), now_s)

    def _look_ahead(self, now_s: float) -> None:
        """Who is next comes beside what runs, if there is room: not before that call's own setup."""
        for prefetch in self._lookahead.frames(now_s):
            if prefetch.leaving is not None:
                self.residency.begin(prefetch.deployment, max(now_s, self._start_s))

    def _end_at(self, time_s: float, now_s: float) -> None:
        left_s = time_s - now_s
        self._end = simpy.Timeout(self.env, left_s if left_s > 0.0 else 0.0)
        self._end.callbacks.append(self._ended)

    def _give_way(self, work: CallStretch, now_s: float) -> None:
        """Another call comes: what runs ends with the call that runs, or is over if none does."""
        num_ended, _, idle_since_s = work.progress(self._start_s, now_s)
        num_calls = num_ended + (idle_since_s is None)
        if num_calls >= work.num_calls:
            return
        self.meter.uncount(work.num_calls - num_calls)
        work.num_calls, work.ended_s = num_calls, idle_since_s
        if idle_since_s is None:
            self._end_at(work.end_s(self._start_s), now_s)
        else:
            self._finish(work, now_s)

    def _ended(self, end: simpy.Event) -> None:
        work = self._running
        if end is self._end and work is not None:
            now_s = self.env.now
            self._finish(work, now_s)
            if self._running is None:
                self._start(now_s)

    def _finish(self, work: CallStretch, now_s: float) -> None:
        del self._works[work.call.call_id]
        self._free(work, work.num_calls, now_s)
        if work.role is TRAIN:
            self.residency.changed(work.call.deployment)
        self.meter.ran(work, work.num_calls, self._setup_s, now_s)
        if self._on_busy is not None:
            self._tell(work, work.num_calls, self._setup_s, 0.0)
        work.on_ended(work.num_calls)

    def _free(self, work: CallStretch, num_ended: int, now_s: float) -> None:
        """Nothing runs any more; calls that have ended are measured as if they had come one by one."""
        self._running, self._end = None, None
        self.queue.done(work.call.call_id, None, now_s)
        last_call = work.last_call if num_ended == work.planned_calls else None
        num_like_first = num_ended - (last_call is not None)
        if num_like_first:
            self.services.observe(work.call, work.call_s, num_like_first)
        if last_call is not None:
            self.services.observe(last_call, work.call_s)

    def _tell(self, work: CallStretch, num_ended: int, setup_s: float, ran_s: float) -> None:
        if self._on_busy is None:
            return
        deployment = work.call.deployment
        if setup_s:
            start_s = self._start_s - self._setup_s
            self._on_busy(self.name, start_s, start_s + setup_s, deployment, "setup")
        start_s = self._start_s
        for index in range(num_ended + (ran_s > 0)):
            end_s = start_s + (work.call_s if index < num_ended else ran_s)
            self._on_busy(self.name, start_s, end_s, deployment, work.calls_like(index).function)
            start_s = end_s + work.delay_s

"""A worker group in simulated time: the service's own queue and ledger decide what runs and what moves.

- One call at a time, setup before it, never interrupted but by `withdraw`: its job moved, or its devices are lost.
- A job that has the group alone may submit a *stretch*: calls one after another, with delays between, as one event, since nobody
  else could get in between. As soon as another job joins, the stretch ends with the call that runs, or comes next.
"""

from collections import Counter
from collections.abc import Callable

import simpy

from plait.placement.job import Role
from plait.residency.tier import Tier
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes
from plait.simulation.call_stretch import CallStretch
from plait.simulation.group_meter import GroupMeter
from plait.simulation.group_residency import GroupResidency

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
        self._owners: Counter[str] = Counter()
        """With how many deployments each has here."""
        self._works: dict[str, CallStretch] = {}
        """All that wait or run, by call_id."""
        self._running: CallStretch | None = None
        self._start_s = 0.0
        """Of what runs, without its setup."""
        self._setup_s = 0.0
        self._end: simpy.Event | None = None
        """Of what runs; that of a withdrawn call comes all the same."""

    @property
    def is_exclusive(self) -> bool:
        """Whether one owner has it alone."""
        return len(self._owners) == 1

    def join(self, owner: str, deployment: str, num_bytes: int, tier: Tier) -> None:
        """Calls of a deployment may come; its state lies in `tier`. Those of one owner never wait for each other."""
        self._owners[owner] += 1
        self.residency.join(deployment, num_bytes, tier)
        if not self.is_exclusive:
            self._cut()

    def leave(self, owner: str, deployment: str) -> None:
        """None of its calls waits or runs."""
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
        self.residency.leave(deployment)

    def submit(self, work: CallStretch) -> None:
        """What it will take, nobody is told before it ends."""
        self._works[work.call.call_id] = work
        self.queue.add(work.call)
        if self._running is None:
            self._start()

    def withdraw(self, call_id: str, is_kept: bool = False) -> tuple[int, float]:
        """It neither waits nor runs any more. How many of its calls have ended, and seconds that the next one ran, lost or kept."""
        work = self._works.pop(call_id)
        if work is not self._running:
            self.queue.remove(call_id)
            return 0, 0.0
        elapsed_s = self.env.now - self._start_s
        num_ended, ran_s = work.done_after(elapsed_s)
        self._running, self._end = None, None
        self.queue.done(call_id, None, self.env.now)
        self._observe(work, num_ended)
        is_between = num_ended > 0 and not ran_s
        self.meter.uncount(work.num_calls - num_ended - (not is_between))
        setup_s = self._setup_s + min(0.0, elapsed_s)
        self.meter.ran(work, num_ended, setup_s, self.env.now, ran_s, is_kept)
        self._tell(work, num_ended, setup_s, ran_s)
        self._start()
        return num_ended, ran_s

    def close(self) -> None:
        """It is no more; nothing waits or runs."""
        self.meter.close(self.env.now)

    def _start(self) -> None:
        now_s = self.env.now
        call = self.queue.next(now_s)
        if call is None:
            return
        work = self._works[call.call_id]
        self.meter.started(call, work.num_calls, now_s - call.arrival_s)
        self._setup_s = self.residency.enter(call.deployment, now_s)
        self._running, self._start_s = work, now_s + self._setup_s
        self._end_at(self._start_s + work.span_s)

    def _end_at(self, time_s: float) -> None:
        self._end = self.env.timeout(max(0.0, time_s - self.env.now))
        self._end.callbacks.append(self._ended)

    def _cut(self) -> None:
        """What runs ends with the call that runs or comes next."""
        work = self._running
        if work is None or work.num_calls == 1:
            return
        num_ended, _ = work.done_after(self.env.now - self._start_s)
        if num_ended + 1 < work.num_calls:
            self.meter.uncount(work.num_calls - num_ended - 1)
            work.num_calls = num_ended + 1
            self._end_at(self._start_s + work.span_s)

    def _ended(self, end: simpy.Event) -> None:
        work = self._running
        if end is not self._end or work is None:
            return
        self._running, self._end = None, None
        del self._works[work.call.call_id]
        is_one = work.num_calls == 1
        self.queue.done(work.call.call_id, work.call_s if is_one else None, self.env.now)
        if not is_one:
            self._observe(work, work.num_calls)
        if work.role is Role.TRAIN:
            self.residency.changed(work.call.deployment)
        self.meter.ran(work, work.num_calls, self._setup_s, self.env.now)
        if self._on_busy is not None:
            self._tell(work, work.num_calls, self._setup_s, 0.0)
        work.on_ended(work.num_calls)
        if self._running is None:
            self._start()

    def _observe(self, work: CallStretch, num_ended: int) -> None:
        """As the queue would have, had they come one by one."""
        for index in range(num_ended):
            self.services.observe(work.calls_like(index), work.call_s)

    def _tell(self, work: CallStretch, num_ended: int, setup_s: float, ran_s: float) -> None:
        if self._on_busy is None:
            return
        deployment = work.call.deployment
        if setup_s:
            start_s = self._start_s - self._setup_s
            self._on_busy(self.name, start_s, start_s + setup_s, deployment, "setup")
        for index in range(num_ended + (ran_s > 0)):
            start_s = self._start_s + index * (work.call_s + work.delay_s)
            end_s = start_s + (work.call_s if index < num_ended else ran_s)
            self._on_busy(self.name, start_s, end_s, deployment, work.calls_like(index).function)

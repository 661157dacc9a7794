"""A worker group in simulated time: the service's own queue and ledger decide what runs and what moves.

One call at a time, setup before it, never interrupted but by `withdraw`: its job moved, or its devices are lost.
"""

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from plait.placement.job import Role
from plait.residency.tier import Tier
from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes
from plait.simulation.group_meter import GroupMeter
from plait.simulation.group_residency import GroupResidency

OnEnded = Callable[[], None]
OnBusy = Callable[[str, float, float, str, str], None]
"""(group, start, end, deployment, "setup" or the function)"""


@dataclass(slots=True)
class _Work:
    call: FunctionCall
    service_s: float
    role: Role
    on_ended: OnEnded
    fill: float
    setup_s: float = 0.0


class SimulatedGroup:
    """`on_busy` is told of all that its devices do, as it ends."""

    def __init__(
        self, env: simpy.Environment, name: str, residency: GroupResidency, order: Order, meter: GroupMeter,
        on_busy: OnBusy | None = None,
    ) -> None:  # fmt: skip
        self.env, self.name, self.residency, self.meter, self._on_busy = env, name, residency, meter, on_busy
        self.queue = GroupQueue(order, ServiceTimes(), residency)
        self._works: dict[str, _Work] = {}
        """All that wait or run, by call_id."""
        self._running: _Work | None = None
        self._start_s = 0.0
        self._end: simpy.Event | None = None
        """Of what runs; that of a withdrawn call comes all the same."""

    def join(self, deployment: str, num_bytes: int, tier: Tier) -> None:
        """Calls of it may come; its state lies in `tier`."""
        self.residency.join(deployment, num_bytes, tier)

    def leave(self, deployment: str) -> None:
        """None of its calls waits or runs."""
        self.residency.leave(deployment)

    def submit(self, call: FunctionCall, service_s: float, role: Role, on_ended: OnEnded, fill: float = 1.0) -> None:
        """`service_s`: what it will take, which nobody is told before; `fill`: how full the batches are."""
        self._works[call.call_id] = _Work(call, service_s, role, on_ended, fill)
        self.queue.add(call)
        if self._running is None:
            self._start()

    def withdraw(self, call_id: str) -> float:
        """The call neither waits nor runs any more. Seconds of it that ran."""
        work = self._works.pop(call_id)
        if work is not self._running:
            self.queue.remove(call_id)
            return 0.0
        now_s = self.env.now
        ran_s = max(0.0, now_s - self._start_s - work.setup_s)
        self._running, self._end = None, None
        self.queue.done(call_id, None, now_s)
        self._count(work, min(work.setup_s, now_s - self._start_s), ran_s, False)
        self._start()
        return ran_s

    def close(self) -> None:
        """It is no more; nothing waits or runs."""
        self.meter.close(self.env.now)

    def _start(self) -> None:
        now_s = self.env.now
        call = self.queue.next(now_s)
        if call is None:
            return
        work = self._works[call.call_id]
        self.meter.started(call, now_s - call.arrival_s)
        work.setup_s = self.residency.enter(call.deployment, now_s)
        self._running, self._start_s = work, now_s
        self._end = self.env.timeout(work.setup_s + work.service_s)
        self._end.callbacks.append(self._ended)

    def _ended(self, end: simpy.Event) -> None:
        if end is not self._end:
            return
        work = self._running
        assert work is not None
        self._running, self._end = None, None
        del self._works[work.call.call_id]
        self.queue.done(work.call.call_id, work.service_s, self.env.now)
        if work.role is Role.TRAIN:
            self.residency.changed(work.call.deployment)
        self._count(work, work.setup_s, work.service_s, True)
        work.on_ended()
        if self._running is None:
            self._start()

    def _count(self, work: _Work, setup_s: float, service_s: float, is_whole: bool) -> None:
        self.meter.ran(work.role, setup_s, service_s, self.env.now, is_whole, work.fill)
        if self._on_busy is not None:
            deployment, middle_s = work.call.deployment, self._start_s + setup_s
            if setup_s:
                self._on_busy(self.name, self._start_s, middle_s, deployment, "setup")
            self._on_busy(self.name, middle_s, middle_s + service_s, deployment, work.call.function)

"""One group of devices in a co-run: a worker group's own queue, which knows from the profiles what each phase takes.

Whoever was served last is resident; it, and the first of all, need no setup.
"""

from collections.abc import Callable
from typing import NamedTuple

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_queue import GroupQueue
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes

Orders = Callable[[], Order]
"""Makes the order of one group."""
Phase = tuple[int, int]
"""Member, and which of its steps."""


class LastServed:
    """The `SetupEstimates` of a group: setup is due if another member was served last."""

    def __init__(self) -> None:
        self.resident: int | None = None
        self._switches: dict[str, tuple[int, float]] = {}

    def add(self, deployment: str, member: int, switch_s: float) -> None:
        self._switches[deployment] = member, switch_s

    def setup_s(self, deployment: str) -> float:
        member, switch_s = self._switches[deployment]
        return 0.0 if self.resident is None or self.resident == member else switch_s


class _Known(NamedTuple):
    """What is known of a phase. `call`: stands for its kind."""

    phase: Phase
    duration_s: float
    call: FunctionCall


class CoRunGroup:
    """Each phase is told once with `add`, before any is released; it is released again only after it has ended."""

    def __init__(self, order: Orders) -> None:
        self._services, self._setups, self._order = ServiceTimes(), LastServed(), order()
        self.queue = GroupQueue(self._order, self._services, self._setups)
        """Of those that had to be picked from. Who waits alone never enters it."""
        self._known: dict[Phase, _Known] = {}
        self._by_id: dict[str, _Known] = {}
        """The same, by call_id."""
        self._released: list[tuple[_Known, float]] = []
        """Since the last time that the queue was asked, and when."""
        self._picked = ""
        """What runs, if the queue was asked."""
        self.num_waiting = 0
        self.is_busy = False
        self.is_contended = False
        """Whether a phase could ever find another one here."""

    def add(self, phase: Phase, duration_s: float, switch_s: float) -> None:
        """Of a stream of its own: what it has to wait for, the co-run knows."""
        member, step = phase
        call = FunctionCall(f"{member}/{step}", f"{member}/{switch_s}", str(step), str(step), 0, 0.0)
        self._known[phase] = self._by_id[call.call_id] = _Known(phase, duration_s, call)
        self.is_contended = len(self._known) > 1
        self._setups.add(call.deployment, member, switch_s)
        self._services.observe(call, duration_s)

    def release(self, phase: Phase, now_s: float) -> None:
        """It waits from now on; `serve` follows, once all that are released now are."""
        self._released.append((self._known[phase], now_s))
        self.num_waiting += 1

    def serve(self, now_s: float) -> tuple[Phase, float] | None:
        """The phase that starts now, and when it ends; None if one runs, or none waits."""
        if self.is_busy or not self.num_waiting:
            return None
        phase, duration_s, call = self._alone() if self.num_waiting == len(self._released) == 1 else self._of_many(now_s)
        self.num_waiting -= 1
        self.is_busy = True
        end_s = now_s + duration_s + self._setups.setup_s(call.deployment)
        self._setups.resident = phase[0]
        return phase, end_s

    def _alone(self) -> _Known:
        known, _ = self._released.pop()
        self._order.served(known.call)
        return known

    def _of_many(self, now_s: float) -> _Known:
        for known, at_s in self._released:
            call = known.call
            self.queue.add(FunctionCall(call.call_id, call.deployment, call.function, call.stream, 0, at_s))
        self._released.clear()
        picked = self.queue.next(now_s)
        assert picked is not None, "some wait, and none runs"
        self._picked = picked.call_id
        return self._by_id[picked.call_id]

    def ended(self, now_s: float) -> None:
        """What runs. That it took what is known tells the queue nothing."""
        self.is_busy = False
        if self._picked:
            self.queue.done(self._picked, None, now_s)
            self._picked = ""

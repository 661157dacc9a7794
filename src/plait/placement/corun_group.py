"""One group of devices in a co-run: a worker group's own queue, which knows from the profiles what each phase takes.

Whoever was served last is resident; it, and the first of all, need no setup.
"""

from collections.abc import Callable

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


class CoRunGroup:
    """Each phase is told once with `add`, before any is released; it is released again only after it has ended."""

    def __init__(self, order: Orders) -> None:
        self._services, self._setups = ServiceTimes(), LastServed()
        self.queue = GroupQueue(order(), self._services, self._setups)
        self._calls: dict[Phase, tuple[str, str, str]] = {}
        """call_id, deployment, function."""
        self._phases: dict[str, tuple[Phase, float]] = {}
        """By call_id; with what it takes."""
        self._running = ""
        self._released: list[FunctionCall] = []
        """Since the last time that it served."""
        self.is_contended = False
        """Whether a phase could ever find another one here."""

    def add(self, phase: Phase, duration_s: float, switch_s: float) -> None:
        member, step = phase
        names = f"{member}/{step}", f"{member}/{switch_s}", str(step)
        self._calls[phase], self._phases[names[0]] = names, (phase, duration_s)
        self.is_contended = len(self._phases) > 1
        self._setups.add(names[1], member, switch_s)
        self._services.observe(self._call(phase, 0.0), duration_s)

    def release(self, phase: Phase, now_s: float) -> None:
        """It waits from now on; `serve` follows, once all that are released now are."""
        self._released.append(self._call(phase, now_s))

    def serve(self, now_s: float) -> tuple[Phase, float] | None:
        """The phase that starts now, and when it ends; None if one runs, or none waits."""
        call = self._next(now_s)
        if call is None:
            return None
        phase, duration_s = self._phases[call.call_id]
        end_s = now_s + duration_s + self._setups.setup_s(call.deployment)
        self._setups.resident, self._running = phase[0], call.call_id
        return phase, end_s

    def _next(self, now_s: float) -> FunctionCall | None:
        """Who comes alone, and finds nobody, need not wait to be picked."""
        released, self._released = self._released, []
        if len(released) == 1 and self.queue.running is None and not len(self.queue):
            self.queue.start(released[0], now_s)
            return released[0]
        for call in released:
            self.queue.add(call)
        return self.queue.next(now_s)

    def ended(self, now_s: float) -> None:
        """What runs. That it took what is known tells the queue nothing."""
        self.queue.done(self._running, None, now_s)

    def _call(self, phase: Phase, now_s: float) -> FunctionCall:
        """Of a stream of its own: what it has to wait for, the co-run knows."""
        call_id, deployment, function = self._calls[phase]
        return FunctionCall(call_id, deployment, function, function, 0, now_s)

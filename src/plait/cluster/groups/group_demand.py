"""What a worker group's calls demand of it, and how long its jobs wait for each other. Pure: told by the dispatcher.

- A job is kept waiting while calls of its own wait and another job's call, or a switch, has the device.
- A call that has ended is told as a `FunctionRecord` in its job's own time (`own_times`).
"""

from collections import Counter
from collections.abc import Callable

from plait.cluster.groups.function_calls import HOST, SAMPLE
from plait.cluster.groups.own_times import OwnTimes, job_of
from plait.placement.demand_trace import FunctionRecord
from plait.placement.job import Role
from plait.scheduling.function_call import FunctionCall

OnRecord = Callable[[str, FunctionRecord], None]
"""Job, and what it demanded."""


class GroupDemand:
    def __init__(self, times: OwnTimes | None = None, on_record: OnRecord = lambda job, record: None) -> None:
        self.times, self._on_record = times or OwnTimes(), on_record
        self.busy_s = 0.0
        """While a call ran or its deployment was brought, of those that have ended."""
        self._num_waiting: Counter[str] = Counter()
        self._waits_since_s: dict[str, float] = {}
        """Jobs that others keep waiting."""
        self._running: FunctionCall | None = None
        self._started_s = 0.0
        self._started_own_s = 0.0

    def arrived(self, call: FunctionCall) -> None:
        """`account` follows, as it does for `withdrawn`."""
        self._num_waiting[job_of(call.deployment)] += 1

    def withdrawn(self, call: FunctionCall) -> None:
        """It waits no more, and does not run."""
        self._num_waiting[job_of(call.deployment)] -= 1

    def started(self, call: FunctionCall, now_s: float) -> None:
        job = job_of(call.deployment)
        self._num_waiting[job] -= 1
        self._running, self._started_s = call, now_s
        self.account(now_s)
        self._started_own_s = self.times.own_s(job, now_s)

    def set_up(self, seconds: float) -> None:
        """So long did it take until the call that runs could begin."""
        if self._running is not None:
            self.times.delay(job_of(self._running.deployment), seconds)

    def ended(self, num_bytes: int, now_s: float) -> None:
        """The call that ran; its deployment takes so many bytes of the device."""
        call, self._running = self._running, None
        self.account(now_s)
        if call is None:
            return
        self.busy_s += now_s - self._started_s
        job = job_of(call.deployment)
        own_s = self.times.own_s(job, now_s)
        if call.function != HOST and own_s > self._started_own_s:
            role = Role.ROLLOUT if call.function == SAMPLE else Role.TRAIN
            self._on_record(job, FunctionRecord(self._started_own_s, own_s, call.function, role, num_bytes=num_bytes))

    def lost(self) -> None:
        """The process is gone, and all calls with it."""
        self._num_waiting.clear()
        self._waits_since_s.clear()
        self._running = None

    def busy_until_s(self, now_s: float) -> float:
        """`busy_s`, with the call that runs."""
        return self.busy_s + (now_s - self._started_s if self._running is not None else 0.0)

    def account(self, now_s: float) -> None:
        """Who is kept waiting by others from now on, and who is no more."""
        running = job_of(self._running.deployment) if self._running is not None else None
        for job, number in self._num_waiting.items():
            if number and running not in (None, job):
                self._waits_since_s.setdefault(job, now_s)
            elif (since_s := self._waits_since_s.pop(job, None)) is not None:
                self.times.delay(job, now_s - since_s)

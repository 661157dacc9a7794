"""The function calls that wait at one worker group, and the one that runs. Pure.

- One call at a time, never interrupted. Which one is next, its order decides (`orders.py`).
- Calls of one stream of a deployment run in the order in which they were added: only the first of each stream may be picked, and
  none while one of its stream runs.
- The order sees the oldest such call of each kind (deployment, function, class of size). Calls of a kind have equal expectations,
  so no order here prefers a younger one: what it picks, it would pick among all.
- Every call takes O(log n) with n calls waiting, and O(k) with k kinds; k is about deployments times functions.
"""

import math
from collections import OrderedDict
from typing import NamedTuple

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.group_totals import GroupTotals
from plait.scheduling.kind_fronts import Entry, KindFronts
from plait.scheduling.orders import Order
from plait.scheduling.service_times import ServiceTimes, kind_of
from plait.scheduling.setup_estimates import SetupEstimates
from plait.types.errors import PlaitError


class Waiting(NamedTuple):
    """What waits of a deployment, without what runs."""

    num_calls: int
    oldest_arrival_s: float | None
    """Of the first call of any of its streams; None if nothing waits."""


class GroupQueue:
    """`services` learns from `done`; `setups` is only asked."""

    def __init__(self, order: Order, services: ServiceTimes, setups: SetupEstimates) -> None:
        self._order = order
        self._services = services
        self._setups = setups
        self._streams: dict[tuple[str, str], OrderedDict[str, Entry]] = {}
        """What waits of each stream, in order."""
        self._entries: dict[str, Entry] = {}
        """All that wait, by call_id."""
        self._fronts = KindFronts()
        self._num_waiting: dict[str, int] = {}
        self._num_added = 0
        self._running: Entry | None = None
        self._started_s = 0.0
        self.totals = GroupTotals()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._entries)

    @property
    def running(self) -> FunctionCall | None:
        return self._running.call if self._running else None

    def add(self, call: FunctionCall) -> None:
        """It waits from now on. PlaitError if its call_id waits or runs already, or a number makes no sense."""
        self._check_new(call)
        self._num_added += 1
        entry = Entry(call.arrival_s, self._num_added, call, kind_of(call), (call.deployment, call.stream))
        running = self._running
        if self._put(entry) == 1 and (running is None or running.stream_key != entry.stream_key):
            self._fronts.add(entry)

    def start(self, call: FunctionCall, now_s: float) -> None:
        """`add` and `next` in one, of a call that comes while nothing waits or runs. PlaitError if something does."""
        if self._running or self._entries:
            raise PlaitError(f"call {call.call_id!r} cannot start: others wait or run.", "Add it, and ask for the next.")
        self._check_new(call)
        self._num_added += 1
        entry = Entry(call.arrival_s, self._num_added, call, kind_of(call), (call.deployment, call.stream))
        self._running, self._started_s = entry, now_s
        self._order.served(call)
        self.totals.start(call, now_s)

    def next(self, now_s: float) -> FunctionCall | None:
        """The call that starts now; None while one runs, or if none waits."""
        call = None if self._running else self.peek(now_s)
        if call is not None:
            self._running, self._started_s = self._entries[call.call_id], now_s
            self._take(self._running)
            self._order.served(call)
            self.totals.start(call, now_s)
        return call

    def peek(self, now_s: float) -> FunctionCall | None:
        """What would start if the group were free now, such as for a prefetch; None if nothing could."""
        heads = self._fronts.calls
        return self._order.pick(heads, now_s, self._services.estimate_s, self._setups.setup_s) if heads else None

    def done(self, call_id: str, service_s: float | None, now_s: float) -> None:
        """The running call has ended. `service_s`: measured, without setup; None: it failed or was cancelled, and tells nothing
        about its kind. PlaitError if it does not run."""
        entry = self._running_entry(call_id)
        if service_s is not None:
            self._services.observe(entry.call, service_s)
        self._running = None
        self.totals.end(now_s - self._started_s, service_s)
        if entry.stream_key in self._streams:
            self._lead(entry.stream_key)

    def put_back(self, call_id: str) -> None:
        """The running call is to run again, as if it had not started: its worker was lost. PlaitError if it does not run."""
        entry = self._running_entry(call_id)
        self._running = None
        self._put(entry)
        self._streams[entry.stream_key].move_to_end(call_id, last=False)
        self._lead(entry.stream_key)

    def remove(self, call_id: str) -> bool:
        """It need not run any more. False if it does not wait: it runs, has ended, or is unknown."""
        entry = self._entries.get(call_id)
        if entry is not None:
            self._take(entry)
        return entry is not None

    def waiting(self, deployment: str) -> Waiting:
        count = self._num_waiting.get(deployment, 0)
        return Waiting(count, self._oldest_arrival_s(deployment) if count else None)

    def another_waits(self, deployment: str) -> bool:
        """Whether any other deployment has something waiting: a turn of sampling is to end."""
        return len(self._entries) > self._num_waiting.get(deployment, 0)

    def _check_new(self, call: FunctionCall) -> None:
        if call.call_id in self._entries or (self._running and self._running.call.call_id == call.call_id):
            raise PlaitError(f"call_id {call.call_id!r} waits or runs already.", "Give each call an id of its own.")
        if call.size_tokens < 0 or not math.isfinite(call.arrival_s):
            raise PlaitError(
                f"call {call.call_id!r} has size_tokens {call.size_tokens} and arrival_s {call.arrival_s}.",
                "Give a size of 0 or more and a finite time.",
            )

    def _put(self, entry: Entry) -> int:
        """At the end of its stream; how many wait there now."""
        call = entry.call
        stream = self._streams.get(entry.stream_key)
        if stream is None:
            stream = self._streams[entry.stream_key] = OrderedDict()
        stream[call.call_id] = entry
        self._entries[call.call_id] = entry
        self._num_waiting[call.deployment] = self._num_waiting.get(call.deployment, 0) + 1
        return len(stream)

    def _take(self, entry: Entry) -> None:
        """Out of those that wait."""
        key, call = entry.stream_key, entry.call
        stream = self._streams[key]
        del self._entries[call.call_id], stream[call.call_id]
        self._num_waiting[call.deployment] -= 1
        if not stream:
            del self._streams[key]
        if not self._num_waiting[call.deployment]:
            del self._num_waiting[call.deployment]
        if self._fronts.discard(entry) and stream:
            self._lead(key)

    def _lead(self, stream_key: tuple[str, str]) -> None:
        """The first of the stream may be picked, unless one of the stream runs."""
        stream = self._streams.get(stream_key)
        if stream and not (self._running and self._running.stream_key == stream_key):
            self._fronts.add(next(iter(stream.values())))

    def _running_entry(self, call_id: str) -> Entry:
        entry = self._running
        if entry is None or entry.call.call_id != call_id:
            raise PlaitError(f"call {call_id!r} does not run.", "Only the call that `next` gave last can end, once.")
        return entry

    def _oldest_arrival_s(self, deployment: str) -> float:
        """Only heads are looked at, and what comes after the running call."""
        arrivals = [call.arrival_s for call in self._fronts.calls if call.deployment == deployment]
        if self._running and self._running.call.deployment == deployment:
            following = self._streams.get(self._running.stream_key)
            arrivals += [next(iter(following.values())).arrival_s] if following else []
        return min(arrivals)

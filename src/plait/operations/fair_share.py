"""The request buffer of a service: tenants share the engine by weight. Pure.

- Between tenants: start-time fair queueing (Goyal, Vin, Cheng, "Start-time Fair Queueing", SIGCOMM 1996). Of any two tenants that
  both wait all the while, each gets its share by weight up to one turn of each; an idle tenant saves up nothing.
- Within a tenant everything is as in `RequestBuffer`; with one tenant there is no difference at all.
- A tenant keeps its turn as long as its queue does: at most `turn_chunks`. What it was given is charged before it is asked again.
- Each call takes O(log n) of what waits, averaged over calls; `requeue_running` excepted.
"""

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

from plait.operations.tenant_lane import TenantLane
from plait.rollout.buffer import RequestBuffer
from plait.rollout.request import GenerationRequest
from plait.types.errors import PlaitError


class WeightError(PlaitError):
    """A tenant's weight cannot be one."""


def one_chunk(request: GenerationRequest) -> float:
    """Every chunk costs the same."""
    return 1.0


@dataclass(slots=True)
class _Tenant:
    lane: TenantLane
    weight: float = 1.0
    start: float = 0.0
    """Virtual time at which its present or latest turn begins."""
    finish: float = 0.0
    """Virtual time up to which it has been served."""
    is_lined_up: bool = False
    """It has a place among the tenants that wait, or the turn."""


class FairShareBuffer(RequestBuffer):
    """In place of a RequestBuffer. `cost_of` a chunk about to run is positive, in any unit."""

    def __init__(
        self, turn_chunks: int = 1, cost_of: Callable[[GenerationRequest], float] = one_chunk, chunk_tokens: int = 1
    ) -> None:
        super().__init__(turn_chunks, chunk_tokens)
        self._cost_of = cost_of
        self._tenants: dict[str, _Tenant] = {}
        self._line: list[tuple[float, int, str]] = []
        """(start, number of lining up, tenant): a heap. A tenant whose requests were all removed may still be in it."""
        self._num_lined_up = 0
        self._virtual_time = 0.0
        """The start of the latest turn."""
        self._served: str | None = None
        """The tenant that has the turn."""
        self._num_served = 0

    def set_weight(self, tenant: str, weight: float) -> None:
        """Of what is taken from now on; 1 for a tenant that none was set for. WeightError unless finite and above 0."""
        if not (math.isfinite(weight) and weight > 0):
            raise WeightError(f"weight of tenant {tenant!r} is {weight}.", "Give a finite number above 0.")
        self._tenant(tenant).weight = weight

    def _tenant(self, name: str) -> _Tenant:
        if name not in self._tenants:
            self._tenants[name] = _Tenant(TenantLane(self.turn_chunks))
        return self._tenants[name]

    def _wait(self, request: GenerationRequest) -> None:
        name = request.policy.tenant
        tenant = self._tenant(name)
        tenant.lane.push(request.queue, self._places[request.request_id])
        if not tenant.is_lined_up:
            self._line_up(name)

    def _line_up(self, name: str) -> None:
        tenant = self._tenants[name]
        tenant.start = tenant.finish = max(self._virtual_time, tenant.finish)
        tenant.is_lined_up = True
        heapq.heappush(self._line, (tenant.start, self._num_lined_up, name))
        self._num_lined_up += 1

    def peek(self) -> GenerationRequest | None:
        """As in RequestBuffer: what `take` would give."""
        name = self._next_tenant()
        return None if name is None else self._requests[self._tenants[name].lane.peek()[1]]

    def take(self) -> GenerationRequest | None:
        """As in RequestBuffer: the next request to run a chunk of, or None."""
        name = self._next_tenant()
        if name is None:
            return None
        tenant = self._tenants[name]
        request = self._requests[tenant.lane.pop()[1]]
        tenant.finish += self._cost_of(request) / tenant.weight
        self._num_served += 1
        if not tenant.lane.turn_is_open or self._num_served == self.turn_chunks:
            self._end_tenant_turn(name)
        self._running[request.request_id] = ""
        return request

    def _next_tenant(self) -> str | None:
        """Who has the turn, or else gets it."""
        if self._served is not None:
            if self._tenants[self._served].lane:
                return self._served
            self._end_tenant_turn(self._served)
        while self._line:
            start, _, name = heapq.heappop(self._line)
            if self._tenants[name].lane:
                self._virtual_time = start
                self._served, self._num_served = name, 0
                return name
            self._tenants[name].is_lined_up = False
        return None

    def _end_tenant_turn(self, name: str) -> None:
        self._served = None
        self._tenants[name].is_lined_up = False
        if self._tenants[name].lane:
            self._line_up(name)

    def remove(self, request_id: str) -> bool:
        """As in RequestBuffer: forget a request, if it is here; whether it was running."""
        request = self._requests.get(request_id)
        if request is None:
            return False
        was_running = self._running.pop(request_id, None) is not None
        if not was_running:
            self._tenants[request.policy.tenant].lane.discard(request.queue, self._places[request_id])
        self._forget(request_id)
        return was_running

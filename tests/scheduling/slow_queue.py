"""The obvious queue: a list in order of addition, and scores of everything that may run, one by one."""

import math
from collections.abc import Callable

from plait.scheduling.function_call import FunctionCall
from plait.scheduling.service_times import Kind, kind_of

Service = Callable[[FunctionCall], float]
Setup = Callable[[str], float]
SlowOrder = Callable[["SlowQueue", list[FunctionCall], float, Service, Setup], FunctionCall]


class SlowQueue:
    def __init__(self, order: SlowOrder) -> None:
        self.order = order
        self.calls: list[FunctionCall] = []
        self.running: FunctionCall | None = None
        self.served: list[FunctionCall] = []

    def heads(self) -> list[FunctionCall]:
        """First by arrival, then by addition."""
        busy = {(self.running.deployment, self.running.stream)} if self.running else set()
        found = []
        for call in self.calls:
            if (call.deployment, call.stream) not in busy:
                busy.add((call.deployment, call.stream))
                found.append(call)
        return sorted(found, key=lambda call: (call.arrival_s, int(call.call_id)))

    def peek(self, now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall | None:
        heads = self.heads()
        return self.order(self, heads, now_s, service_s, setup_s) if heads else None

    def start(self, call: FunctionCall) -> None:
        self.calls.remove(call)
        self.running = call
        self.served.append(call)

    def put_back(self) -> None:
        assert self.running
        self.calls.insert(0, self.running)
        self.running = None


def hrrs(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    def score(call: FunctionCall) -> float:
        wait_s, cost_s = now_s - call.arrival_s, service_s(call) + setup_s(call.deployment)
        return 1 + (wait_s / cost_s if cost_s else math.inf * wait_s if wait_s else 0)

    return max(heads, key=score)


def looking_ahead(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    """By one call of the mean length, which is that of the first of each kind."""
    kinds: dict[Kind, float] = {}
    for call in heads:
        kinds.setdefault(kind_of(call), service_s(call) + setup_s(call.deployment))
    return hrrs(queue, heads, now_s + sum(kinds.values()) / len(kinds), service_s, setup_s)


def fifo(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    return heads[0]


def shortest(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    return min(heads, key=lambda call: service_s(call) + setup_s(call.deployment))


def least_recent(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    def latest(call: FunctionCall) -> int:
        return max((at for at, served in enumerate(queue.served) if served.deployment == call.deployment), default=-1)

    return min(heads, key=latest)


def round_robin(queue: SlowQueue, heads: list[FunctionCall], now_s: float, service_s: Service, setup_s: Setup) -> FunctionCall:
    """Walk round the ring of all that were ever served, from the last one on, the new ones after its end."""
    ring = list(dict.fromkeys(call.deployment for call in queue.served))
    start = ring.index(queue.served[-1].deployment) + 1 if queue.served else 0
    new = [call.deployment for call in heads if call.deployment not in ring]
    for name in [*ring[start:], *new, *ring[:start]]:
        for call in heads:
            if call.deployment == name:
                return call
    raise AssertionError


SLOW_ORDERS: dict[str, SlowOrder] = {
    "hrrs": hrrs,
    "looking-ahead": looking_ahead,
    "fifo": fifo,
    "round-robin": round_robin,
    "least-recently-served": least_recent,
    "shortest-first": shortest,
}

"""The futures of all tenants: what a request came to, until its owner has it. Pure; who waits for one is not known here.

- A future ends once: what comes after its end is refused. One still pending after `pending_s` fails.
- A result that was retrieved goes `grace_s` after the last time; one that never was, after `retention_s`. It is Expired then.
- A tenant's results take at most `max_bytes` (or are one): retrieved ones go first, then the oldest. No tenant's cost another his.
- An expired future is remembered for `retention_s`, and may be added again.
- A request that is remembered under another payload is refused.
- Another tenant's future is unknown, like one that never was.
"""

from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from plait.operations.call_order import PayloadConflict
from plait.operations.future_state import Expired, Failed, FailureCategory, Finished, FutureState, Pending, held_bytes
from plait.types.errors import PlaitError


class UnknownFuture(PlaitError):
    """No future of this tenant has the id."""


class FutureLimits(msgspec.Struct, frozen=True):
    pending_s: float = 86_400.0
    grace_s: float = 300.0
    """The SDK asks again for minutes when an answer was lost on the way."""
    retention_s: float = 3_600.0
    max_bytes: int = 1 << 30
    """Of each tenant."""


class FutureCounts(msgspec.Struct, frozen=True):
    """Of one tenant. Held futures have a result or an error."""

    num_pending: int = 0
    num_held: int = 0
    held_bytes: int = 0


class _Phase(IntEnum):
    PENDING = 0
    UNREAD = 1
    READ = 2
    EXPIRED = 3


class _Shelf:
    """request_id -> since when, by phase, each in order of time."""

    def __init__(self) -> None:
        self.phases: tuple[OrderedDict[str, float], ...] = tuple(OrderedDict() for _ in _Phase)
        self.held_bytes = 0

    def first_held(self) -> str:
        return next(iter(self.phases[_Phase.READ] or self.phases[_Phase.UNREAD]))

    def counts(self) -> FutureCounts:
        pending, unread, read, _ = map(len, self.phases)
        return FutureCounts(pending, unread + read, self.held_bytes)


@dataclass(slots=True)
class _Future:
    tenant_id: str
    state: FutureState
    phase: _Phase
    payload_digest: str


class FutureTable:
    def __init__(self, limits: FutureLimits | None = None) -> None:
        self.limits = limits or FutureLimits()
        self._futures: dict[str, _Future] = {}
        self._all = _Shelf()
        self._tenants: dict[str, _Shelf] = {}

    def __len__(self) -> int:
        return len(self._futures)

    @property
    def total_counts(self) -> FutureCounts:
        """Of all tenants."""
        return self._all.counts()

    def counts(self, tenant_id: str) -> FutureCounts:
        shelf = self._tenants.get(tenant_id)
        return FutureCounts() if shelf is None else shelf.counts()

    def check_payload(self, request_id: str, tenant_id: str, payload_digest: str) -> None:
        """Raise PayloadConflict if the request is remembered with another payload. UnknownFuture: the id is another tenant's."""
        if request_id in self._futures and self._owned(request_id, tenant_id).payload_digest != payload_digest:
            raise PayloadConflict(
                f"request {request_id!r} has arrived before with another payload.",
                "A request that is sent again must be the same; give a new one the next seq_id.",
            )

    def add(self, request_id: str, tenant_id: str, now: float, payload_digest: str = "") -> bool:
        """A request has been accepted; False if it was before and its future stands. Raises as `check_payload` does."""
        self.check_payload(request_id, tenant_id, payload_digest)
        if request_id in self._futures:
            known = self._owned(request_id, tenant_id)
            if known.phase != _Phase.EXPIRED:
                return False
            self._forget(request_id)
        self._futures[request_id] = _Future(tenant_id, Pending(), _Phase.PENDING, payload_digest)
        for shelf in (self._all, self._tenants.setdefault(tenant_id, _Shelf())):
            shelf.phases[_Phase.PENDING][request_id] = now
        return True

    def finish(self, request_id: str, payload: bytes, content_type: str, now: float) -> bool:
        """The work has ended well; False if nobody waits for it any more."""
        return self._end(request_id, Finished(payload, content_type), _Phase.UNREAD, now)

    def fail(self, request_id: str, error: str, category: FailureCategory, now: float) -> bool:
        """The work has failed or was cancelled; False if nobody waits for it any more."""
        return self._end(request_id, Failed(error, category), _Phase.UNREAD, now)

    def expire(self, request_id: str, reason: str, now: float) -> bool:
        """The work was lost and must be asked for again; False if nobody waits for it any more."""
        return self._end(request_id, Expired(reason), _Phase.EXPIRED, now)

    def _end(self, request_id: str, state: FutureState, phase: _Phase, now: float) -> bool:
        future = self._futures.get(request_id)
        if future is None or future.phase != _Phase.PENDING:
            return False
        self._move(request_id, state, phase, now)
        self._bound_bytes(future.tenant_id, now)
        return True

    def state(self, request_id: str, tenant_id: str) -> FutureState:
        """Look without taking. UnknownFuture if the tenant has none of this id."""
        return self._owned(request_id, tenant_id).state

    def ended(self, tenant_id: str) -> list[str]:
        """The tenant's futures that are not pending any more."""
        shelf = self._tenants.get(tenant_id)
        return [] if shelf is None else [name for phase in _Phase if phase != _Phase.PENDING for name in shelf.phases[phase]]

    def retrieve(self, request_id: str, tenant_id: str, now: float) -> FutureState:
        """Like `state`, for handing over: from the last time on a result is kept for `grace_s`."""
        future = self._owned(request_id, tenant_id)
        if future.phase in (_Phase.UNREAD, _Phase.READ):
            self._move(request_id, future.state, _Phase.READ, now)
        return future.state

    def sweep(self, now: float) -> list[str]:
        """Let go of what is over its time. Gives the futures that failed because they were pending too long: cancel their work."""
        for request_id in self._due(_Phase.EXPIRED, self.limits.retention_s, now):
            self._forget(request_id)
        for request_id in self._due(_Phase.READ, self.limits.grace_s, now):
            self._move(request_id, Expired("the result was retrieved before"), _Phase.EXPIRED, now)
        for request_id in self._due(_Phase.UNREAD, self.limits.retention_s, now):
            reason = f"the result was not retrieved within {self.limits.retention_s:g} s"
            self._move(request_id, Expired(reason), _Phase.EXPIRED, now)
        late = self._due(_Phase.PENDING, self.limits.pending_s, now)
        for request_id in late:
            self.fail(request_id, f"no result within {self.limits.pending_s:g} s: send it again", FailureCategory.SERVER, now)
        return late

    def _due(self, phase: _Phase, limit_s: float, now: float) -> list[str]:
        due: list[str] = []
        for request_id, since_s in self._all.phases[phase].items():
            if since_s + limit_s > now:
                break
            due.append(request_id)
        return due

    def _bound_bytes(self, tenant_id: str, now: float) -> None:
        shelf = self._tenants[tenant_id]
        while shelf.held_bytes > self.limits.max_bytes and shelf.counts().num_held > 1:
            reason = f"the results held for this tenant took more than {self.limits.max_bytes} bytes"
            self._move(shelf.first_held(), Expired(reason), _Phase.EXPIRED, now)

    def _owned(self, request_id: str, tenant_id: str) -> _Future:
        future = self._futures.get(request_id)
        if future is None or future.tenant_id != tenant_id:
            raise UnknownFuture(f"there is no request {request_id!r}.", "Send the request again.")
        return future

    def _move(self, request_id: str, state: FutureState, phase: _Phase, now: float) -> None:
        future = self._futures[request_id]
        for shelf in (self._all, self._tenants[future.tenant_id]):
            del shelf.phases[future.phase][request_id]
            shelf.phases[phase][request_id] = now
            shelf.held_bytes += held_bytes(state) - held_bytes(future.state)
        future.state, future.phase = state, phase

    def _forget(self, request_id: str) -> None:
        future = self._futures.pop(request_id)
        shelf = self._tenants[future.tenant_id]
        for each in (self._all, shelf):
            del each.phases[future.phase][request_id]
        if not any(shelf.phases):
            del self._tenants[future.tenant_id]

"""Promised results, and who waits for them: `operations.futures` with asyncio around it."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Callable

from plait.operations.future_state import FailureCategory, FutureState, Pending
from plait.operations.futures import FutureLimits, FutureTable


class Futures:
    def __init__(self, limits: FutureLimits) -> None:
        self.table = FutureTable(limits)
        self.on_end: Callable[[str], None] = lambda request_id: None
        """Hears of each future that ended."""
        self._waiters: defaultdict[str, list[asyncio.Future[None]]] = defaultdict(list)

    def check_payload(self, request_id: str, tenant_id: str, payload_digest: str) -> None:
        """Raises PayloadConflict if the request is known with another payload."""
        self.table.check_payload(request_id, tenant_id, payload_digest)

    def add(self, request_id: str, tenant_id: str, payload_digest: str = "") -> bool:
        """False: the request is known, and its future stands. Raises PayloadConflict."""
        return self.table.add(request_id, tenant_id, time.monotonic(), payload_digest)

    def finish(self, request_id: str, payload: bytes, content_type: str) -> None:
        self.table.finish(request_id, payload, content_type, time.monotonic())
        self._wake(request_id)

    def fail(self, request_id: str, error: str, category: FailureCategory) -> None:
        self.table.fail(request_id, error, category, time.monotonic())
        self._wake(request_id)

    def expire(self, request_id: str, reason: str) -> None:
        self.table.expire(request_id, reason, time.monotonic())
        self._wake(request_id)

    def _wake(self, request_id: str) -> None:
        self.on_end(request_id)
        for waiter in self._waiters.pop(request_id, ()):
            if not waiter.done():
                waiter.set_result(None)

    async def retrieve(self, request_id: str, tenant_id: str, timeout_s: float) -> FutureState:
        """What the request came to; Pending if that takes longer than `timeout_s`. UnknownFuture if the tenant has none such."""
        state = self.table.retrieve(request_id, tenant_id, time.monotonic())
        if isinstance(state, Pending) and timeout_s > 0:
            await self._wait(request_id, timeout_s)
            state = self.table.retrieve(request_id, tenant_id, time.monotonic())
        return state

    async def _wait(self, request_id: str, timeout_s: float) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[request_id].append(waiter)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(waiter, timeout_s)
        if (waiters := self._waiters.get(request_id)) is not None:
            with contextlib.suppress(ValueError):
                waiters.remove(waiter)
            if not waiters:
                del self._waiters[request_id]

    def release(self) -> None:
        """Whoever waits is told how things stand now."""
        for waiter in [waiter for waiters in self._waiters.values() for waiter in waiters]:
            if not waiter.done():
                waiter.set_result(None)

    def sweep(self) -> list[str]:
        """Let go of what is over its time; the requests whose work is to be cancelled."""
        late = self.table.sweep(time.monotonic())
        for request_id in late:
            self._wake(request_id)
        return late

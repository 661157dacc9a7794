"""All samples of a client awaited with one request, in place of one for each.

- A request's end is told once its future has it; what it came to is fetched with retrieve_future as ever.
- A cursor tells since when this server runs. After a restart an old one is refused (410): samples that were in flight are lost,
  and a client would wait for them for ever.
- A client's first request is answered at once, so that it holds a cursor before it waits.
"""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from plait.operations.completions import CompletionFeed
from plait.operations.future_state import Finished, Pending
from plait.operations.futures import UnknownFuture
from plait.server.errors import Gone
from plait.server.futures import Futures
from plait.server.names import parse_sample_request_id
from plait.server.wire.models.futures import FutureFailed, FutureFinished, RetrieveFuturesResponse

CLIENT_SPAN = 1_000_000_000
"""The clients of a sampler number their requests in blocks of so many."""
CURSOR_SPAN = 1_000_000_000
"""Ends of one client between two starts of the server."""
MAX_CLIENTS = 10_000
IDLE_S = 600.0
"""A client that has not asked for so long is forgotten; if it comes again, it is told anew."""

Client = tuple[str, int]
"""sampler_id, number of the client."""


@dataclass(slots=True)
class _Waiting:
    feed: CompletionFeed
    asked_s: float
    woken: asyncio.Event = field(default_factory=asyncio.Event)


class BulkFutures:
    def __init__(self, futures: Futures, started_s: float) -> None:
        self._futures, self._first_cursor = futures, int(started_s) * CURSOR_SPAN
        self._clients: OrderedDict[Client, _Waiting] = OrderedDict()

    def ended(self, request_id: str) -> None:
        """A future has come to its end."""
        client = client_of(request_id)
        if client is None or (waiting := self._clients.get(client)) is None:
            return
        if time.monotonic() - waiting.asked_s > IDLE_S:
            del self._clients[client]
            return
        waiting.feed.add(request_id)
        waiting.woken.set()

    async def poll(self, client: Client, tenant_id: str, cursor: int, timeout_s: float) -> RetrieveFuturesResponse:
        """What has ended after `cursor`, as soon as anything has. Raises Gone."""
        if cursor and cursor // CURSOR_SPAN != self._first_cursor // CURSOR_SPAN:
            raise Gone("the server was started again: samples in flight are lost.", "Make a new sampling client.")
        waiting = self._clients.get(client)
        if waiting is None:
            waiting = self._open(client, tenant_id, cursor)
            timeout_s = 0.0
        waiting.asked_s = time.monotonic()
        self._clients.move_to_end(client)
        if not waiting.feed.after(cursor) and timeout_s > 0:
            await _wait(waiting.woken, timeout_s)
            waiting.asked_s = time.monotonic()
        return self._answer(waiting.feed, tenant_id, cursor)

    def _open(self, client: Client, tenant_id: str, cursor: int) -> _Waiting:
        waiting = self._clients[client] = _Waiting(CompletionFeed(max(cursor, self._first_cursor)), time.monotonic())
        for request_id in self._futures.table.ended(tenant_id):
            if client_of(request_id) == client:
                waiting.feed.add(request_id)
        if len(self._clients) > MAX_CLIENTS:
            self._clients.popitem(last=False)
        return waiting

    def _answer(self, feed: CompletionFeed, tenant_id: str, cursor: int) -> RetrieveFuturesResponse:
        told = [self._completion(request_id, tenant_id) for request_id in feed.after(cursor)]
        return RetrieveFuturesResponse(completions=[end for end in told if end is not None], cursor=feed.cursor)

    def _completion(self, request_id: str, tenant_id: str) -> FutureFinished | FutureFailed | None:
        """None: it was sent again meanwhile, and will end again."""
        try:
            state = self._futures.table.state(request_id, tenant_id)
        except UnknownFuture:
            return FutureFailed(request_id=request_id)
        match state:
            case Finished(payload=payload):
                return FutureFinished(request_id=request_id, response_payload_uncompressed_size=len(payload))
            case Pending():
                return None
        return FutureFailed(request_id=request_id)


def client_of(request_id: str) -> Client | None:
    """None: it is no request to sample."""
    sampler_id = parse_sample_request_id(request_id)
    return (sampler_id, int(request_id.rpartition(":")[2]) // CLIENT_SPAN) if sampler_id else None


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    event.clear()
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return
